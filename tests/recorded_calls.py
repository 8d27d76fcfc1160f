"""Calls of every public function of arrays, for tests that change their arrays: from the docstrings, and from the lines below.

The functions, and the places where they take arrays, are read from their signatures. MORE fills the places that the examples in
the docstrings leave out.
"""

from __future__ import annotations

import doctest
import functools
import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

import trellis as tl
from trellis import ops, random
from trellis.core.dispatch import interpreters
from trellis.core.lifting import takes_arrays

FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"{'linalg.' if module is tl.linalg else 'fft.' if module is tl.fft else ''}{name}": getattr(module, name)
    for module in (*ops.modules, *random.modules)
    for name in getattr(module, "__all__", ())
    if inspect.isfunction(getattr(module, name)) and takes_arrays(inspect.unwrap(getattr(module, name)))
}
X, IMAGE, SIGNAL = "tl.ones((2, 3))", "tl.ones((1, 4, 4, 2))", "tl.ones((1, 4, 2))"
VOLUME = "tl.ones((1, 4, 4, 4, 2))"
MORE = f"""
linear({X}, tl.ones((4, 3)), bias=tl.ones(4))
scaled_dot_product_attention({X}, {X}, {X}, mask=tl.ones((2, 2)), dropout_p=0.5, training=True, seed=3)
multi_head_attention({X}, key={X}, value={X}, num_heads=1, mask=tl.ones((2, 2)), key_padding_mask=tl.ones(2), dropout_p=0.5,
    in_proj_weights=tl.ones((9, 3)), out_proj_weights=tl.ones((4, 3)), in_proj_bias=tl.ones(9), out_proj_bias=tl.ones(4),
    training=True, return_attention_weights=True, seed=1)
multi_head_attention({X}, num_heads=1, q_proj_weights=tl.ones((4, 3)), k_proj_weights=tl.ones((4, 3)), v_proj_weights={X})
rotary_embedding(tl.ones((3, 4)), tl.arange(3))
segment_mask(tl.arange(3), tl.arange(4))
binary_cross_entropy({X} / 2, {X}, weight={X})
binary_cross_entropy_with_logits({X}, {X}, weight={X}, pos_weight=tl.ones(3))
cross_entropy({X}, tl.asarray([0, 2]), weight=tl.ones(3))
nll_loss({X}, tl.asarray([0, 2]), weight=tl.ones(3))
ctc_loss(tl.log(tl.full((4, 2, 3), 0.3)), tl.asarray([[1], [2]]), tl.asarray([4, 3]), tl.asarray([1, 1]))
prelu({X}, tl.asarray([0.5, 0.25, 2.0]))
layer_norm({X}, scale=tl.arange(3), offset=tl.arange(3))
group_norm({X}, 3, scale=tl.arange(3), offset=tl.arange(3))
instance_norm({SIGNAL}, scale=tl.arange(2), offset=tl.arange(2))
batch_norm({X}, tl.arange(3), tl.ones(3), scale=tl.arange(3), offset=tl.arange(3), training=True)
conv1d({SIGNAL}, tl.ones((2, 2, 3)), 1, "SAME", bias=tl.arange(3))
conv2d({IMAGE}, tl.ones((2, 2, 2, 3)), 1, "SAME", bias=tl.arange(3))
conv3d({VOLUME}, tl.ones((2, 2, 2, 2, 3)), 1, "SAME", bias=tl.arange(3))
conv_general_dilated({IMAGE}, tl.ones((2, 2, 2, 3)), 1, "SAME", bias=tl.arange(3))
conv1d_transpose({SIGNAL}, tl.ones((2, 2, 3)), 1, "SAME", bias=tl.arange(3))
conv2d_transpose({IMAGE}, tl.ones((2, 2, 2, 3)), 1, "SAME", bias=tl.arange(3))
conv3d_transpose({VOLUME}, tl.ones((2, 2, 2, 2, 3)), 1, "SAME", bias=tl.arange(3))
conv_general_transpose({IMAGE}, tl.ones((2, 2, 2, 3)), 1, "SAME", bias=tl.arange(3))
lstm_update({SIGNAL}, tl.ones((1, 3)), tl.ones((1, 3)), tl.ones((2, 12)), tl.ones((3, 12)), bias=tl.arange(12),
    recurrent_bias=tl.arange(12))
gru_update({SIGNAL}, tl.ones((1, 3)), tl.ones((2, 9)), tl.ones((3, 9)), bias=tl.arange(9), recurrent_bias=tl.arange(9))
rnn_update({SIGNAL}, tl.ones((1, 3)), tl.ones((2, 3)), tl.ones((3, 3)), bias=tl.arange(3), recurrent_bias=tl.arange(3))
clip({X}, tl.ones(3), tl.arange(3))
bincount(tl.asarray([0, 2, 1]), weights=tl.asarray([0.5, 1.0, 2.0]), length=4)
histogram({X}, tl.asarray([0.0, 1.0, 2.0]), weights={X})
searchsorted(tl.asarray([1, 3, 5]), tl.asarray([3, 4]), sorter=tl.asarray([0, 1, 2]))
diff({X}, prepend={X}, append={X})
cov({X}, weights=tl.asarray([1, 2, 1]))
repeat(tl.arange(2), tl.asarray([2, 1]))
stop_gradient({X})
pad({X}, 1, constant_values=7)
full((2, 3), 7.5)
full_like({X}, 7)
linspace(0, 1, 3)
linalg.pinv({X}, rtol=tl.asarray(0.5))
linalg.pinv({X}, rcond=tl.asarray(0.5))
linalg.matrix_rank({X}, rtol=tl.asarray(0.5))
can_cast(tl.ones(2), tl.float64)
result_type(tl.ones(2), tl.int8, tl.arange(2))
finfo(tl.ones(2))
iinfo(tl.arange(2))
fold_in(tl.Key(0), 3)
random_uniform(low=tl.arange(3), high=tl.asarray([5.0, 6.0, 7.0]), seed=0)
random_normal(mean=tl.arange(3), std=tl.ones(3), seed=0)
randint(tl.arange(3), tl.asarray([5, 6, 7]), seed=0)
bernoulli(tl.asarray([0.25, 0.5]), seed=0)
multinomial(3, 4, probs=tl.asarray([0.2, 0.5, 0.3]), seed=0)
choice(tl.asarray([1.0, 2.0, 3.0]), shape=4, probs=tl.asarray([0.2, 0.5, 0.3]), seed=0)
exponential(scale=tl.asarray([0.5, 2.0]), seed=0)
gamma(tl.asarray([0.5, 2.0]), tl.asarray([1.0, 2.0]), seed=0)
beta(tl.asarray([0.5, 2.0]), tl.asarray([1.0, 2.0]), seed=0)
truncated_normal(lower=tl.asarray([-1.0, 0.0]), upper=tl.asarray([1.0, 2.0]), mean=tl.arange(2), std=tl.ones(2), seed=0)
"""


# ---- the calls -----------------------------------------------------------------------------------------------------------------
class Call(NamedTuple):
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def is_traced(x: Any) -> bool:
    """Whether a compiler or a gradient reads the array: it means nothing after that."""
    return interpreters[type(x)].level > 0 or interpreters[type(x)].is_traced(x)


class Recorder:
    """`tl`, which notes what its functions are called with."""

    def __init__(self, module: ModuleType, calls: dict[int, list[Call]]) -> None:
        self._module, self._calls = module, calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if isinstance(found, ModuleType) and found.__name__.startswith("trellis.ops"):
            return Recorder(found, self._calls)
        if not inspect.isfunction(found):
            return found

        def run(*args: Any, **kwargs: Any) -> Any:
            if not any(is_traced(x._data) for x in args if isinstance(x, tl.Array)):
                self._calls.setdefault(id(found), []).append(Call(args, kwargs))
            return found(*args, **kwargs)

        return run


@functools.cache
def recorded(backend: str) -> dict[int, list[Call]]:
    """Function (its id) -> calls, from the docstrings and from MORE, with arrays of `backend`."""
    calls: dict[int, list[Call]] = {}
    recorder = Recorder(tl, calls)
    with tl.using(backend):
        for function in FUNCTIONS.values():
            scope = {"tl": recorder, "np": np}
            for example in doctest.DocTestParser().get_examples(function.__doc__ or ""):
                if not example.source.startswith("import"):
                    exec(example.source, scope)
        for line in MORE.replace("\n    ", " ").strip().splitlines():
            eval(f"tl.{line}", {"tl": recorder})
    return calls


def is_array_parameter(parameter: inspect.Parameter) -> bool:
    return "AnyArray" in str(parameter.annotation) or "Operand" in str(parameter.annotation)


def places(function: Callable[..., Any], call: Call) -> Iterator[tuple[str, int | str]]:
    """(parameter, position or keyword) of each argument that is annotated as an array."""
    signature = inspect.signature(function)
    for name, parameter in signature.parameters.items():
        if not is_array_parameter(parameter):
            continue
        position = list(signature.parameters).index(name)
        if parameter.kind is parameter.VAR_POSITIONAL:
            yield from ((name, i) for i in range(position, len(call.args)))
        elif parameter.kind is not parameter.KEYWORD_ONLY and position < len(call.args):
            yield name, position
        elif call.kwargs.get(name) is not None:
            yield name, name


def filled(call: Call, values: dict[int | str, Any]) -> Call:
    args = tuple(values.get(i, x) for i, x in enumerate(call.args))
    return Call(args, {key: values.get(key, x) for key, x in call.kwargs.items()})
