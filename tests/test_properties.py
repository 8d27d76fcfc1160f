"""Hypothesis makes the arrays: empty ones, zero-size axes, 0-d, NaN and infinities, negative axes; NumPy is the reference."""

from __future__ import annotations

import warnings
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from cases import _BINARY, _UNARY
from helpers import check, make
from hypothesis import given, settings, strategies as st

import trellis as tl

SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
FLOATS = st.floats(min_value=-50, max_value=50, allow_subnormal=False) | st.sampled_from(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0]
)
EXAMPLES = settings(max_examples=15)
MORE = settings(max_examples=40)


def reals(shape: Any = SHAPES) -> Any:
    return hnp.arrays(np.float64, shape, elements=FLOATS)


def integers(shape: Any = SHAPES) -> Any:
    return hnp.arrays(np.int64, shape, elements=st.integers(-20, 20))


def quiet(function: Any, *args: Any, **kwargs: Any) -> Any:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(function(*args, **kwargs))


REAL_UNARY = [n for n, (_, xs) in _UNARY.items() if any(x.dtype == np.float64 for x in xs)]
REAL_BINARY = [n for n, (_, pairs) in _BINARY.items() if any(x.dtype == y.dtype == np.float64 for x, y in pairs)]
INTEGER_BINARY = [n for n, (_, pairs) in _BINARY.items() if any(x.dtype == y.dtype == np.int64 for x, y in pairs)]
# At infinities the standard sets these apart from NumPy; tested by hand below.
_INFINITE_QUOTIENTS = {"floor_divide", "remainder"}


@pytest.mark.parametrize("op", REAL_UNARY)
def test_unary(backend: str, op: str) -> None:
    @EXAMPLES
    @given(reals())
    def run(x: Any) -> None:
        check(getattr(tl, op)(make(backend, x)), quiet(_UNARY[op][0], x), tolerance=1e-9)

    run()


@pytest.mark.parametrize("op", REAL_BINARY)
def test_binary(backend: str, op: str) -> None:
    @EXAMPLES
    @given(st.data())
    def run(data: st.DataObject) -> None:
        (first, second), _ = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, min_side=0, max_side=3))
        x, y = data.draw(reals(first)), data.draw(reals(second))
        if op in _INFINITE_QUOTIENTS:
            x, y = np.where(np.isfinite(x), x, 1.0), np.where(np.isfinite(y) & (y != 0), y, 2.0)
        check(getattr(tl, op)(make(backend, x), make(backend, y)), quiet(_BINARY[op][0], x, y), tolerance=1e-9)

    run()


@pytest.mark.parametrize("op", INTEGER_BINARY)
def test_integers(backend: str, op: str) -> None:
    @EXAMPLES
    @given(st.data())
    def run(data: st.DataObject) -> None:
        (first, second), _ = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, min_side=0, max_side=3))
        x, y = data.draw(integers(first)), data.draw(integers(second))
        if op in ("floor_divide", "remainder", "bitwise_left_shift", "bitwise_right_shift", "pow"):
            y = np.abs(y) % 7 + 1
        check(getattr(tl, op)(make(backend, x), make(backend, y)), quiet(_BINARY[op][0], x, y))

    run()


REDUCTIONS = {"sum": np.sum, "prod": np.prod, "mean": np.mean, "max": np.max, "min": np.min, "var": np.var, "std": np.std}
REDUCTIONS |= {"all": np.all, "any": np.any, "count_nonzero": np.count_nonzero}


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions(backend: str, op: str) -> None:
    @MORE
    @given(st.data())
    def run(data: st.DataObject) -> None:
        shape = data.draw(SHAPES)
        x = data.draw(
            reals(shape) if op not in ("prod", "var", "std") else hnp.arrays(np.float64, shape, elements=st.floats(-3, 3))
        )
        axis = data.draw(_axes(len(shape)))
        keepdims = data.draw(st.booleans())
        empty = op in ("max", "min") and any(shape[a] == 0 for a in _reduced(axis, len(shape)))
        if empty:
            with pytest.raises(ValueError):
                getattr(tl, op)(make(backend, x), axis=axis, keepdims=keepdims)
            return
        expected = quiet(REDUCTIONS[op], x, axis=axis, keepdims=keepdims)
        check(getattr(tl, op)(make(backend, x), axis=axis, keepdims=keepdims), expected, tolerance=1e-9)

    run()


def _axes(ndim: int) -> Any:
    if ndim == 0:
        return st.sampled_from([None, ()])
    one = st.integers(-ndim, ndim - 1)
    several = st.lists(st.integers(0, ndim - 1), unique=True, max_size=ndim).map(tuple)
    return st.none() | one | several


def _reduced(axis: Any, ndim: int) -> Any:
    return range(ndim) if axis is None else (axis,) if isinstance(axis, int) else axis


@pytest.mark.parametrize(
    "op", ["sort", "argsort", "cumulative_sum", "cumulative_prod", "flip", "argmax", "argmin", "diff", "softmax", "logsumexp"]
)
def test_along_an_axis(backend: str, op: str) -> None:
    references = {
        "sort": lambda x, axis: np.sort(x, axis),
        "argsort": lambda x, axis: np.argsort(x, axis, stable=True),
        "cumulative_sum": lambda x, axis: np.cumsum(x, axis),
        "cumulative_prod": lambda x, axis: np.cumprod(x, axis),
        "flip": lambda x, axis: np.flip(x, axis),
        "argmax": lambda x, axis: np.argmax(x, axis),
        "argmin": lambda x, axis: np.argmin(x, axis),
        "diff": lambda x, axis: np.diff(x, axis=axis),
        "softmax": _softmax,
        "logsumexp": _logsumexp,
    }

    @MORE
    @given(st.data())
    def run(data: st.DataObject) -> None:
        shape = data.draw(
            hnp.array_shapes(min_dims=1, max_dims=3, min_side=0 if op not in ("argmax", "argmin") else 1, max_side=4)
        )
        elements = (
            FLOATS if op in ("sort", "flip", "argmax", "argmin") else st.floats(-3, 3, allow_subnormal=False)
        )  # XLA takes subnormals for 0
        x = data.draw(hnp.arrays(np.float64, shape, elements=elements))
        axis = data.draw(st.integers(-len(shape), len(shape) - 1))
        check(getattr(tl, op)(make(backend, x), axis=axis), quiet(references[op], x, axis), tolerance=1e-9)

    run()


def _softmax(x: Any, axis: int) -> Any:
    shifted = np.exp(x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)) if x.size else x
    return shifted / np.sum(shifted, axis=axis, keepdims=True) if x.size else x


def _logsumexp(x: Any, axis: int) -> Any:
    """From the largest element, so that one number alone comes back exactly."""
    if x.shape[axis] == 0:
        return np.full(np.delete(x.shape, axis), -np.inf)
    largest = x.max(axis=axis, keepdims=True)
    return np.squeeze(largest, axis) + np.log(np.exp(x - largest).sum(axis=axis))


KEYS = hnp.basic_indices((3, 4, 2), max_dims=5, allow_newaxis=True, allow_ellipsis=True)


def test_basic_indexing(backend: str) -> None:
    x = np.arange(24.0).reshape(3, 4, 2)

    @settings(max_examples=150)
    @given(KEYS)
    def run(key: Any) -> None:
        array = tl.asarray(make(backend, x))
        check(array[key], np.asarray(x[key]))
        changed = x.copy()
        changed[key] = -1.0
        array[key] = -1.0
        check(array, changed)
        check(tl.at(make(backend, x))[key].multiply(2.0), _times_two(x, key))

    run()


def _times_two(x: Any, key: Any) -> Any:
    out = x.copy()
    out[key] *= 2.0
    return out


@st.composite
def advanced_keys(draw: Any) -> Any:
    """Ints, slices, None, masks and integer arrays, mixed, for an array of shape (3, 4, 2)."""
    shape, key, axis = (3, 4, 2), [], 0
    common = draw(hnp.array_shapes(min_dims=0, max_dims=2, min_side=1, max_side=3))
    while axis < 3:
        kind = draw(st.sampled_from(["slice", "int", "array", "array", "mask", "truth", "none", "stop"]))
        if kind == "stop":
            break
        if kind in ("none", "truth"):
            key.append(None if kind == "none" else np.array(draw(st.booleans())))
            continue
        size = shape[axis]
        if kind == "slice":
            key.append(
                slice(
                    *draw(st.tuples(*[st.none() | st.integers(-size - 1, size + 1)] * 2, st.sampled_from([None, 1, 2, -1, -2])))
                )
            )
        elif kind == "int":
            key.append(draw(st.integers(-size, size - 1)))
        elif kind == "array":
            key.append(draw(hnp.arrays(np.int64, common, elements=st.integers(-size, size - 1))))
        elif not any(isinstance(k, np.ndarray) for k in key):
            key.append(draw(hnp.arrays(bool, (size,))))
            axis = 3 if draw(st.booleans()) else axis + 1
            continue
        axis += 1
    return tuple(key[:8])


def test_advanced_indexing(backend: str) -> None:
    x = np.arange(24.0).reshape(3, 4, 2)

    @settings(max_examples=200)
    @given(advanced_keys())
    def run(key: Any) -> None:
        try:
            expected = x[key]
        except IndexError:
            return  # index arrays that do not broadcast together
        native = tuple(make(backend, k) if isinstance(k, np.ndarray) else k for k in key)
        check(tl.asarray(make(backend, x))[native], np.asarray(expected))
        array, changed = tl.asarray(make(backend, x)), x.copy()
        changed[key] = 7.0
        array[native] = 7.0
        check(array, changed)
        added = x.copy()
        np.add.at(added, key, 1.5)
        check(tl.at(make(backend, x))[native].add(1.5), added)

    run()


@pytest.mark.parametrize("op", ["floor_divide", "remainder"])
def test_division_at_infinity(backend: str, op: str) -> None:
    """The standard's own table, worked out by hand."""
    x = np.array([np.inf, -np.inf, 1.0, -1.0, 1.0, -1.0, 0.0, 5.5, -5.5, np.nan])
    y = np.array([2.0, 2.0, np.inf, np.inf, -np.inf, -np.inf, np.inf, 2.0, 2.0, 1.0])
    expected = {
        "floor_divide": [np.inf, -np.inf, 0.0, -0.0, -0.0, 0.0, 0.0, 2.0, -3.0, np.nan],
        "remainder": [np.nan, np.nan, 1.0, np.inf, -np.inf, -1.0, 0.0, 1.5, 0.5, np.nan],
    }[op]
    check(getattr(tl, op)(make(backend, x), make(backend, y)), np.array(expected))
