"""Functions of networks with arrays of mixed dtypes: each array of each call in turn, changed to another dtype.

The functions, their calls, and the places of their arrays come from `recorded_calls`. A result must agree with the same call in
float64 on NumPy, and its dtype with that of the same call on NumPy. A mistake must be a TypeError or ValueError of ours, of the
same class on every backend.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from helpers import make, to_numpy
from recorded_calls import FUNCTIONS, Call, filled, places, recorded

import trellis as tl
from trellis.core import tree

MODULES = ("activations", "attention", "convolution", "images", "losses", "normalization", "pooling", "recurrent")
NAMES = [name for name, function in FUNCTIONS.items() if function.__module__.rpartition(".")[2] in MODULES]
DTYPES = ("float64", "float16", "int32", "bool", "uint8")
_TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2}
WRAPPERS: dict[str, Callable[[Any], Any]] = {"array": lambda x: x, "native": tl.to_native}


def argument(call: Call, place: int | str) -> Any:
    return call.args[place] if isinstance(place, int) else call.kwargs[place]


def moved(call: Call, backend: str) -> Call:
    """The call with its arrays on another framework, with the values and dtypes that they have."""
    args = tuple(tl.Array(make(backend, tl.to_numpy(x))) if isinstance(x, tl.Array) else x for x in call.args)
    return Call(
        args, {k: tl.Array(make(backend, tl.to_numpy(x))) if isinstance(x, tl.Array) else x for k, x in call.kwargs.items()}
    )


@functools.cache
def cases(name: str) -> list[tuple[Call, list[int | str], int | str]]:
    """(call on NumPy, its places with arrays, one of them): each parameter once."""
    function, found, seen = FUNCTIONS[name], [], set()
    for call in recorded("numpy").get(id(function), []):
        filled_places = [(p, place) for p, place in places(function, call) if isinstance(argument(call, place), tl.Array)]
        for parameter, place in filled_places:
            if parameter not in seen:
                seen.add(parameter)
                found.append((call, [at for _, at in filled_places], place))
    return found


def outcome(name: str, call: Call, wrap: Callable[[Any], Any]) -> Any:
    """The arrays of the result, or the error."""
    args, kwargs = tuple(map(wrap, call.args)), {k: wrap(x) for k, x in call.kwargs.items()}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's, of logarithms of 0
            return tree.leaves(FUNCTIONS[name](*args, **kwargs))
    except (TypeError, ValueError) as error:
        return error


def reference(name: str, call: Call, at: list[int | str], original: Call) -> list[Any]:
    """The same values with every array in float64 whose place holds floats by default."""
    floats = [place for place in at if argument(original, place).dtype.kind == "f"]
    wide = {place: tl.astype(argument(call, place), tl.float64) for place in floats}
    whole = {p: tl.astype(argument(call, p), argument(original, p).dtype) for p in at if p not in floats}
    return outcome(name, filled(call, wide | whole), WRAPPERS["array"])


def changed(name: str) -> Iterator[tuple[str, Call, list[Any]]]:
    """(what is changed, the call on NumPy, its result in float64)."""
    for call, at, place in cases(name):
        for dtype in DTYPES:
            new = filled(call, {place: tl.astype(argument(call, place), dtype)})
            yield f"{name} with {dtype} at {place!r}", new, reference(name, new, at, call)


def check(found: Any, on_numpy: Any, expected: Any) -> None:
    if isinstance(on_numpy, Exception) or isinstance(found, Exception):
        assert type(found) is type(on_numpy), f"{found!r}; on NumPy {on_numpy!r}"
        assert re.match(r"[a-z_0-9]+: ", str(found)), f"not an error of ours: {found!r}"
        return
    for a, b, wide in zip(found, on_numpy, expected, strict=True):
        a, b, wide = to_numpy(a), to_numpy(b), to_numpy(wide)
        assert a.dtype == b.dtype, f"dtype {a.dtype}; on NumPy {b.dtype}"
        limit = _TOLERANCE.get(a.dtype.name, 0)
        np.testing.assert_allclose(a.astype(np.float64), wide.astype(np.float64), rtol=limit, atol=limit)


@pytest.mark.parametrize("name", NAMES)
def test_each_array_in_each_dtype(backend: str, name: str) -> None:
    for what, call, expected in changed(name):
        on_numpy = outcome(name, call, WRAPPERS["array"])
        here = moved(call, backend)
        for kind, wrap in WRAPPERS.items():
            try:
                check(outcome(name, here, wrap), on_numpy, expected)
            except BaseException as error:
                error.add_note(f"{what}, {kind}")
                raise


def test_every_function_is_called() -> None:
    assert [name for name in NAMES if not cases(name)] == ["causal_mask"] * ("causal_mask" in NAMES)
    assert len(NAMES) > 70


@pytest.mark.parametrize("dtype", DTYPES)
def test_layers_take_images_of_another_dtype(backend: str, dtype: str) -> None:
    with tl.using(backend):
        layer = tl.Conv2D(3, 4, 3, 1, "SAME")
        image = np.random.default_rng(0).random((2, 8, 8, 3)).astype(dtype)
        found, expected = layer(make(backend, image)), layer(make(backend, image.astype(np.float32)))
    assert to_numpy(found).dtype == ("float64" if dtype == "float64" else "float32")
    np.testing.assert_allclose(to_numpy(found), to_numpy(expected), rtol=1e-4, atol=1e-5)
