"""Every public function of arrays takes Containers in every place of an array: compared with a loop over the leaves.

The functions, the places where they take arrays, and the calls are those of `recorded_calls`. A place that no call fills fails by
name.
"""

from __future__ import annotations

import copy
import doctest
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import compiled, make, to_numpy
from recorded_calls import FUNCTIONS, Call, filled, is_array_parameter, places, recorded

import trellis as tl
from trellis import ops
from trellis.core import tree
from trellis.core.lifting import lift

# ---- leaves --------------------------------------------------------------------------------------------------------------------
PATHS = ("a/b", "c/0")


def flipped(function: Callable[..., Any], call: Call, place: int | str, x: Any) -> Any:
    """Another array of the same shape and dtype, if the function takes it; else the same (edges, say, must rise)."""
    if not isinstance(x, tl.Array) or not x.ndim:
        return copy.copy(x)
    turned = filled(call, {place: tl.flip(x)})
    try:
        function(*turned.args, **turned.kwargs)
    except ValueError:
        return x
    return tl.flip(x)


def container(function: Callable[..., Any], call: Call, place: int | str) -> Any:
    """Two leaves for the argument at a place; a list of arrays becomes a list of Containers."""
    x = call.args[place] if isinstance(place, int) else call.kwargs[place]
    if isinstance(x, (list, tuple)) and any(isinstance(member, tl.Array) for member in x):
        return [tl.Container(a={"b": member}, c=[tl.flip(member)]) for member in x]
    x = tl.asarray(x) if isinstance(x, list) else x
    return tl.Container(a={"b": x}, c=[flipped(function, call, place, x)])


def leaf(x: Any, path: str) -> Any:
    """What a result, or an argument, has at a path."""
    if isinstance(x, tl.Container):
        return x[path]
    if isinstance(x, (list, tuple)):
        members = [leaf(member, path) for member in x]
        return type(x)(*members) if hasattr(x, "_fields") else type(x)(members)
    return x


def equal(found: Any, expected: Any) -> None:
    assert tree.structure(found) == tree.structure(expected)
    for a, b in zip(tree.leaves(found), tree.leaves(expected), strict=True):
        assert type(a) is type(b)
        if tl.is_array(a):
            np.testing.assert_array_equal(to_numpy(a), to_numpy(b))
            assert to_numpy(a).dtype == to_numpy(b).dtype
        else:
            assert a == b


RANDOM_RESULTS = ("empty_like",)  # its elements are not set: shapes are compared


def compare(name: str, call: Call, values: dict[int | str, Any]) -> None:
    function, given = FUNCTIONS[name], filled(call, values)
    result = function(*given.args, **given.kwargs)
    for i, path in enumerate(PATHS):
        one = filled(call, {place: leaf(value, path) for place, value in values.items()})
        if one.kwargs.get("seed") is not None:
            one.kwargs["seed"] = tl.fold_in(one.kwargs["seed"], i)
        expected = function(*one.args, **one.kwargs)
        if name in RANDOM_RESULTS:
            assert leaf(result, path).shape == expected.shape
        else:
            equal(leaf(result, path), expected)


def test_containers_in_every_place(backend: str) -> None:
    """Each place by itself, then all of them at once."""
    calls, missing = recorded(backend), []
    for name, function in FUNCTIONS.items():
        wanted = {p.name for p in inspect.signature(function).parameters.values() if is_array_parameter(p)}
        for call in calls.get(id(function), []):
            found = list(places(function, call))
            if wanted.isdisjoint(parameter for parameter, _ in found):
                continue  # other calls have filled these places
            wanted -= {parameter for parameter, _ in found}
            values = {place: container(function, call, place) for _, place in found}
            for group in (*([place] for place in values), values):
                try:
                    compare(name, call, {place: values[place] for place in group})
                except Exception as error:
                    error.add_note(f"{name}, with Containers at {list(group)} of {call}")
                    raise
        missing += [f"{name}({parameter}=)" for parameter in sorted(wanted)]
    assert missing == [], "no call has an array there"
    assert len(FUNCTIONS) > 200


# ---- the wrapper ---------------------------------------------------------------------------------------------------------------
def test_lifted_functions_keep_their_names_and_signatures() -> None:
    lifted = {name: function for name, function in FUNCTIONS.items() if inspect.unwrap(function) is not function}
    assert {"linear", "dropout", "mse_loss", "conv2d", "random_uniform", "pad", "batch_norm"} <= set(lifted)
    assert set(lifted).isdisjoint(("add", "exp", "sum", "reshape", "matmul", "where", "relu", "astype"))  # a wrapper costs time
    for function in lifted.values():
        assert inspect.signature(function) == inspect.signature(inspect.unwrap(function))
        assert pickle.loads(pickle.dumps(function)) is function
        if function.__code__.co_name == "lifted":  # the others name the arguments of other libraries only
            assert lift(inspect.unwrap(function)) is function
    assert tl.resize is tl.interpolate
    found = doctest.DocTestFinder().find(ops.attention, "attention")
    assert {"attention.linear", "attention.dropout"} <= {test.name for test in found if test.examples}


def test_seeds_differ_from_leaf_to_leaf(backend: str) -> None:
    x = make(backend, np.zeros(8, np.float32))
    both = tl.Container(a=x, b=x)
    for draw in (
        lambda: tl.random_normal(mean=both, seed=5),
        lambda: tl.random_uniform(low=both, high=1.0, seed=5),
        lambda: tl.gumbel_softmax(both, seed=5),
        lambda: tl.dropout(both + 1, 0.5, seed=5),
        lambda: tl.multinomial(8, 8, probs=both + 0.125, seed=5),
    ):
        first, again = draw(), draw()
        assert first.all_equal(again)
        assert (to_numpy(first.a) != to_numpy(first.b)).any()
    unseeded = tl.random_uniform(low=both, high=1.0)
    assert (to_numpy(unseeded.a) != to_numpy(unseeded.b)).any()
    rows = make(backend, np.arange(8))
    shuffled = tl.shuffle(tl.Container(a=rows, b=rows), seed=5)  # a nest: its arrays stay together
    assert (to_numpy(shuffled.a) == to_numpy(shuffled.b)).all()


def test_errors_name_the_leaf_and_the_structure(backend: str) -> None:
    x = make(backend, np.ones((2, 3), np.float32))
    with pytest.raises(ValueError, match="linear: x of shape") as caught:
        tl.linear(tl.Container(a=x, b={"c": x}), tl.Container(a=x, b={"c": x[:, :2]}))
    assert caught.value.__notes__ == ["in leaf 'b/c'"]
    with pytest.raises(ValueError, match="random_normal"):
        tl.random_normal(mean=tl.Container(a=x), std=tl.Container(b=x))
    with pytest.raises(TypeError, match=r"mse_loss: the leaf at 'b' is not an array .* take it out with c.partition first"):
        tl.mse_loss(tl.Container(a=x, b="text"), 0.0)
    assert len(tl.linear(tl.Container(), x)) == 0


def test_subclasses_and_holes(backend: str) -> None:
    class Parameters(tl.Container):
        pass

    x = make(backend, np.ones((2, 3), np.float32))
    out = tl.layer_norm(Parameters(a=x, b=None))
    assert type(out) is Parameters
    assert out.b is None


def test_compiled(backend: str) -> None:
    """The frameworks' compilers read through the wrapper, with Containers and without."""
    x = make(backend, np.arange(48, dtype=np.float32).reshape(2, 4, 6) / 48)

    def run(c: tl.Container, x: Any) -> Any:
        attended = tl.scaled_dot_product_attention(c, c, x, dropout_p=0.5, training=True, seed=4)
        return tl.linear(c, x), tl.dropout(x, 0.5, seed=1), tl.random_normal(mean=c, seed=3), tl.mse_loss(attended, x)

    both = tl.Container(a=x, b=[x * 2])
    for found, expected in zip(compiled(backend, run)(both, x), run(both, x), strict=True):
        for a, b in zip(tree.leaves(found), tree.leaves(expected), strict=True):
            np.testing.assert_allclose(to_numpy(a), to_numpy(b), rtol=1e-5, atol=1e-6)
