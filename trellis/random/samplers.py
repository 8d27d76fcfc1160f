"""Random numbers. With `seed=` they are the same on every backend and device; else the framework's own generator makes them.

`seed=` is an int or a `tl.Key`. Bounds and parameters may be arrays: they broadcast, and the result is on their backend and of
their kind. Without arrays, the result is a `tl.Array` on `backend=`, else on the framework of the key, else on the default one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from trellis import ops as tl
from trellis.core import dtypes, tree
from trellis.core.array import Array
from trellis.core.dtypes import DType, bfloat16, float16, float32, float64
from trellis.core.typing import AnyArray, DeviceLike, DTypeLike, Like, Nest, Operand, SeedLike, Shape
from trellis.ops.arguments import check_axis, integer, one_axis, shape as shape_argument
from trellis.random.keys import make_key
from trellis.random.sources import Draw, Size, below, between, computing, fine_unit, is_concrete, is_number, pair
from trellis.random.state import next_key

__all__ = ["bernoulli", "choice", "multinomial", "permutation", "randint", "random_normal", "random_uniform", "shuffle"]

_TOLERANCE = {float64: 1e-6, float32: 1e-4, float16: 1e-2, bfloat16: 5e-2}  # how far the sum of probabilities may be from 1


def random_uniform(
    *, low: Operand = 0.0, high: Operand = 1.0, shape: Shape | None = None, dtype: DTypeLike = None,
    device: DeviceLike = None, backend: str | None = None, like: Like = None, seed: SeedLike = None,
) -> AnyArray:  # fmt: skip
    """Uniform numbers in [low, high).

    >>> import trellis as tl
    >>> tl.random_uniform(shape=3, seed=0)
    Array([0.947667  , 0.9785799 , 0.33229148], dtype=float32, backend='numpy', device='cpu')
    """
    draw = Draw("random_uniform", {"low": low, "high": high}, shape=shape, device=device, backend=backend, like=like, seed=seed)
    wanted = draw.float_dtype(dtype)
    unit = draw.source.unit(draw.shape, wanted)
    if not draw.arrays and (low, high) == (0.0, 1.0):
        return draw.finish(unit)
    check_order(draw)
    first, last = draw.parameter("low", wanted), draw.parameter("high", wanted)
    if is_concrete(first, last) and first.size and last.size and tl.max(last - first).item() == math.inf:
        raise ValueError(f"random_uniform: high - low is not finite in {wanted}; bring the bounds closer, or use a wider dtype")
    return draw.finish(between(unit, first, last, wanted))


def check_order(draw: Draw, first: str = "low", last: str = "high", *, empty: bool = True) -> None:
    """low <= high; low < high if there must be something between them."""
    low, high = draw.values[first], draw.values[last]
    if is_number(low) and is_number(high):
        wrong, shown = low > high or (not empty and low == high), f"{first}={low!r}, {last}={high!r}"
    else:
        known = is_concrete(low, high)
        wrong, shown = known and bool(tl.any(low > high if empty else low >= high)), f"{first} and {last} are arrays"
    if wrong:
        raise ValueError(f"{draw.op}: {shown}; {first} must {'not be above' if empty else 'be below'} {last}")


def random_normal(
    *, mean: Operand = 0.0, std: Operand = 1.0, shape: Shape | None = None, dtype: DTypeLike = None,
    device: DeviceLike = None, backend: str | None = None, like: Like = None, seed: SeedLike = None,
) -> AnyArray:  # fmt: skip
    """Normal numbers, mean + std * z with a standard normal z; differentiable by `mean` and `std`.

    >>> import trellis as tl
    >>> tl.random_normal(shape=2, seed=0)
    Array([1.622642 , 2.0252657], dtype=float32, backend='numpy', device='cpu')
    """
    draw = Draw("random_normal", {"mean": mean, "std": std}, shape=shape, device=device, backend=backend, like=like, seed=seed)
    wanted = draw.float_dtype(dtype)
    draw.require("std", lambda value: value < 0, "a standard deviation must not be negative")
    if not draw.arrays and (mean, std) == (0.0, 1.0):
        return draw.finish(draw.source.normal(draw.shape, wanted))
    compute = computing(wanted)
    standard = draw.source.normal(draw.shape, compute)
    return draw.finish(draw.parameter("mean", compute) + draw.parameter("std", compute) * standard, wanted)


def randint(
    low: Operand, high: Operand, /, *, shape: Shape | None = None, dtype: DTypeLike = None,
    device: DeviceLike = None, backend: str | None = None, like: Like = None, seed: SeedLike = None,
) -> AnyArray:  # fmt: skip
    """Uniform integers in [low, high).

    >>> import trellis as tl
    >>> tl.randint(0, 10, shape=5, seed=0)
    Array([9, 9, 3, 4, 5], dtype=int64, backend='numpy', device='cpu')
    """
    draw = Draw("randint", {"low": low, "high": high}, shape=shape, device=device, backend=backend, like=like, seed=seed)
    for name, value in draw.values.items():
        if isinstance(value, Array) and value.dtype.kind not in "iu":
            raise TypeError(f"randint: {name} must be an integer, got an array of {value.dtype}")
        if is_number(value) and type(value) is not int:
            raise TypeError(f"randint: {name} must be an integer, got {value!r}")
    if dtype is None and draw.arrays:
        dtype = dtypes.common_dtype([x.dtype for x in draw.arrays])
    wanted = draw.integer_dtype(dtype)
    check_order(draw, empty=False)
    if draw.arrays:
        word = dtypes.uint64 if wanted.bits == 64 else dtypes.uint32
        first, last = (_as_words(draw.parameter(name, wanted), word) for name in ("low", "high"))
        return draw.finish(_signed(first + below(draw.source, draw.shape, last - first), wanted))
    smallest, largest = dtypes.integer_range(wanted)
    if low < smallest or high - 1 > largest:
        raise OverflowError(f"randint: low={low}, high={high} do not fit in {wanted} ({smallest} to {largest})")
    return draw.finish(_number_range(draw, int(low), int(high) - int(low), wanted))


def _as_words(x: Array, word: DType) -> Array:
    """Integers as unsigned words with the same bits."""
    return tl.astype(x if x.dtype.bits == word.bits else tl.astype(x, dtypes.int32, copy=False), word, copy=False)


def _signed(x: Array, dtype: DType) -> Array:
    """Words back to `dtype`, wrapping."""
    if dtype.kind == "i" and dtype.bits < 32:
        x = tl.astype(x, dtypes.int32)
    return tl.astype(x, dtype, copy=False)


def _number_range(draw: Draw, low: int, span: int, dtype: DType) -> Array:
    source, size = draw.source, draw.shape
    if span == 2**32:
        value = source.words(size)
    elif span == 2**64:
        value = pair(source.words(size), source.words(size, 1))
    else:
        value = below(source, size, draw.constant(span, dtypes.uint32 if span < 2**32 else dtypes.uint64))
    word = dtypes.uint64 if dtype.bits == 64 else dtypes.uint32
    return _signed(tl.astype(value, word, copy=False) + draw.constant(low % 2**word.bits, word), dtype)


def bernoulli(
    probs: Operand, /, *, shape: Shape | None = None, dtype: DTypeLike = None,
    device: DeviceLike = None, backend: str | None = None, like: Like = None, seed: SeedLike = None,
) -> AnyArray:  # fmt: skip
    """True with probability `probs`, else False; 1 and 0 in another dtype.

    >>> import trellis as tl
    >>> tl.bernoulli(0.5, shape=3, seed=0)
    Array([False, False,  True], dtype=bool, backend='numpy', device='cpu')
    """
    draw = Draw("bernoulli", {"probs": probs}, shape=shape, device=device, backend=backend, like=like, seed=seed)
    draw.require("probs", lambda p: p < 0, "a probability is between 0 and 1")
    draw.require("probs", lambda p: p > 1, "a probability is between 0 and 1", worst="max")
    compute = computing(draw.float_dtype(None))
    drawn = draw.source.unit(draw.shape, compute) < draw.parameter("probs", compute)
    return draw.finish(drawn, None if dtype is None else dtypes.as_dtype(dtype))


# ---- classes -------------------------------------------------------------------------------------------------------------------
def multinomial(
    population_size: int, num_samples: int, /, *, batch_size: int = 1, probs: AnyArray | None = None, replace: bool = True,
    dtype: DTypeLike = None, device: DeviceLike = None, backend: str | None = None, like: Like = None, seed: SeedLike = None,
) -> AnyArray:  # fmt: skip
    """Indices of classes: [batch_size, num_samples], or [..., num_samples] for `probs` [..., population_size].

    Without `probs` all classes are equally likely. With `replace=False` no row holds a class twice.

    >>> import trellis as tl
    >>> tl.multinomial(10, 4, seed=0)
    Array([[9, 9, 3, 4]], dtype=int64, backend='numpy', device='cpu')
    >>> tl.multinomial(2, 3, probs=[[0.0, 1.0], [1.0, 0.0]], seed=0)
    Array([[1, 1, 1],
           [0, 0, 0]], dtype=int64, backend='numpy', device='cpu')
    """
    integer("multinomial", "population_size", population_size, 1)
    integer("multinomial", "num_samples", num_samples, 0)
    integer("multinomial", "batch_size", batch_size, 0)
    if not replace and num_samples > population_size:
        raise ValueError(f"multinomial: num_samples={num_samples} is above population_size={population_size}; use replace=True")
    given = {} if probs is None else {"probs": probs}
    draw = Draw("multinomial", given, device=device, backend=backend, like=like, seed=seed, portable=True, event=1)
    rows: Size = (batch_size,) if probs is None else _rows(draw, population_size, batch_size)
    wanted = draw.integer_dtype(dtype)
    return draw.finish(_classes(draw, population_size, rows, num_samples, replace), wanted)


def _rows(draw: Draw, population_size: int, batch_size: int) -> Size:
    """The shape of the result without its last axis. `probs` must be probabilities of all classes."""
    given = draw.values["probs"].shape if not is_number(draw.values["probs"]) else ()
    if not given or given[-1] not in (population_size, None):
        raise ValueError(f"multinomial: probs has shape {given}; its last axis must have population_size={population_size}")
    _check_probs(draw)
    if batch_size == 1 or draw.shape[:1] == (batch_size,):
        return draw.shape
    if draw.shape:
        raise ValueError(f"multinomial: batch_size={batch_size}, but probs has shape {given}; leave batch_size out")
    return (batch_size,)


def _check_probs(draw: Draw) -> None:
    """Probabilities along the last axis: not negative, and with the sum 1. A traced array cannot be read."""
    draw.require("probs", lambda p: p < 0, "a probability must not be negative")
    probs = draw.values["probs"]
    if not is_concrete(probs) or not probs.size:
        return
    total = tl.sum(tl.astype(probs, draw.wide), axis=-1)
    furthest = max((tl.max(total).item(), tl.min(total).item()), key=lambda end: abs(end - 1.0) if end == end else math.inf)
    if not abs(furthest - 1.0) <= _TOLERANCE.get(probs.dtype, 1e-6):
        raise ValueError(f"{draw.op}: probs sums to {furthest:.6g} along its last axis, not to 1; divide by the sum")


def _classes(draw: Draw, population: int, rows: Size, count: int, replace: bool) -> Array:
    """Indices of shape (*rows, count) in any integer dtype."""
    probs = draw.values.get("probs")
    if replace:
        if probs is None:
            return below(draw.source, (*rows, count), draw.constant(population, dtypes.uint32))
        return _by_weight(draw, probs, population, rows, count)
    if probs is None:
        return tl.argsort(draw.source.words((*rows, population)), axis=-1)[..., :count]
    if is_concrete(probs) and probs.size:
        possible = tl.min(tl.count_nonzero(probs, axis=-1)).item()
        if possible < count:
            raise ValueError(f"{draw.op}: {count} samples without replacement, but only {possible} probabilities are not zero")
    # the classes whose exponential clocks, which run at the rates of the probabilities, ring first
    clock = -tl.log1p(-fine_unit(draw.source, (*rows, population), draw.wide, 0))
    rate = tl.astype(probs, draw.wide)
    return tl.top_k(tl.where(rate > 0.0, clock / tl.where(rate > 0.0, rate, 1.0), math.inf), count, largest=False).indices


def _by_weight(draw: Draw, probs: Array, population: int, rows: Size, count: int) -> Array:
    """The class in which a number below the sum of the weights lies. The weights are integers, so their sums are exact."""
    exact = draw.wide is float64
    scale, word, index = (2.0**52, dtypes.uint64, dtypes.int64) if exact else (2.0**30, dtypes.uint32, dtypes.int32)
    ends = tl.cumulative_sum(tl.astype(tl.floor(tl.astype(probs, draw.wide) * scale), index), axis=-1, dtype=index)
    drawn = tl.astype(below(draw.source, (*rows, count), tl.astype(ends[..., -1:], word)), index)
    if ends.ndim == 1:
        return tl.searchsorted(ends, drawn, side="right")
    # a binary search in each row: how many ends are not above the number
    passed = drawn * 0
    for step in (1 << k for k in reversed(range(population.bit_length()))):
        further = passed + step
        inside = further <= population
        place = tl.where(inside, further, 1) - 1
        passed = tl.where(inside & (tl.take_along_axis(ends, place, axis=-1) <= drawn), further, passed)
    return passed


# ---- order ---------------------------------------------------------------------------------------------------------------------
_ONE_ROUND = 1625  # the 32-bit sort keys of this many elements are all different, except in one draw of 3,000


def permuted(draw: Draw, size: Any) -> Array:
    """The numbers below `size`, sorted by random words; many are sorted twice, so that equal words do no harm."""
    order = tl.argsort(draw.source.words((size,)))
    if isinstance(size, int):
        return order if size <= _ONE_ROUND else tl.take(order, tl.argsort(draw.source.words((size,), 1)), axis=0)
    # the size is known when the function runs: sorting by equal words leaves the order
    again = tl.where(Array(size) <= _ONE_ROUND, 0, tl.astype(draw.source.words((size,), 1), dtypes.int64))
    return tl.take(order, tl.argsort(again), axis=0)


def shuffle(x: Nest, axis: int = 0, /, *, seed: SeedLike = None) -> Nest:
    """`x` with its slices along `axis` in random order. All arrays of a `tl.Container` or another nest get the same order.

    Without a seed the order comes from `tl.seed`; it is the same on every backend.

    >>> import trellis as tl
    >>> tl.shuffle(tl.asarray([[1, 1], [2, 2], [3, 3]]), seed=0)
    Array([[3, 3],
           [1, 1],
           [2, 2]], dtype=int64, backend='numpy', device='cpu')
    """
    if isinstance(x, (Mapping, list, tuple)):
        leaves, structure = tree.flatten(x)
        if seed is None and leaves:
            seed = make_key(next_key("shuffle", Draw("shuffle", {"x": leaves[0]}, seed=0, event=None).interpreter))
        return tree.unflatten(structure, [shuffle(leaf, axis, seed=seed) for leaf in leaves])
    draw = Draw("shuffle", {"x": x}, seed=seed, portable=True, event=None)
    value = draw.values["x"]
    if is_number(value):
        raise TypeError(f"shuffle: x must be an array, got {value!r}")
    axis = check_axis("shuffle", one_axis("shuffle", axis), value.ndim)
    size = value.shape[axis]
    if size is None:
        size = draw.interpreter.dynamic_shape(value._data, event=0)[axis]
    return draw.finish(tl.take(value, permuted(draw, size), axis=axis))


def permutation(
    x: int | Nest, /, *, axis: int = 0,
    device: DeviceLike = None, backend: str | None = None, like: Like = None, seed: SeedLike = None,
) -> Nest:  # fmt: skip
    """The numbers below an int `x` in random order; `tl.shuffle` of arrays.

    >>> import trellis as tl
    >>> tl.permutation(5, seed=0)
    Array([2, 3, 4, 0, 1], dtype=int64, backend='numpy', device='cpu')
    """
    if not isinstance(x, (int, np.integer)):
        return shuffle(x, axis, seed=seed)
    size = integer("permutation", "x", x, 0)
    draw = Draw("permutation", {}, device=device, backend=backend, like=like, seed=seed, portable=True)
    return draw.finish(permuted(draw, size))


def choice(
    x: int | AnyArray, /, *, shape: Shape = (), replace: bool = True, probs: AnyArray | None = None, axis: int = 0,
    device: DeviceLike = None, backend: str | None = None, like: Like = None, seed: SeedLike = None,
) -> AnyArray:  # fmt: skip
    """Elements of `x` along `axis`, or numbers below an int `x`, drawn with or without replacement.

    >>> import trellis as tl
    >>> tl.choice(tl.asarray([10, 20, 30]), shape=2, replace=False, seed=0)
    Array([30, 10], dtype=int64, backend='numpy', device='cpu')
    """
    given: dict[str, Any] = {} if isinstance(x, (int, np.integer)) else {"x": x}
    if probs is not None:
        given["probs"] = probs
    draw = Draw("choice", given, device=device, backend=backend, like=like, seed=seed, portable=True, event=None)
    wanted = shape_argument("choice", shape)
    value = draw.values.get("x")
    if value is None:
        size = integer("choice", "x", x)
    elif is_number(value):
        raise TypeError(f"choice: x must be an array or an integer, got {value!r}")
    else:
        axis = check_axis("choice", one_axis("choice", axis), value.ndim)
        size = value.shape[axis]
    _check_choice(draw, size, math.prod(wanted), replace)
    if probs is None and not replace:
        index = permuted(draw, size)[: math.prod(wanted)]
    else:
        index = _classes(draw, size, (), math.prod(wanted), replace)
    index = tl.astype(index, draw.interpreter.default_int(), copy=False)
    if value is None:
        return draw.finish(tl.reshape(index, wanted))
    return draw.finish(tl.reshape(tl.take(value, index, axis=axis), (*value.shape[:axis], *wanted, *value.shape[axis + 1 :])))


def _check_choice(draw: Draw, size: Any, count: int, replace: bool) -> None:
    if size is None:
        raise ValueError("choice: the size of x along axis must be known when the function is compiled")
    if size < 1 and count:
        raise ValueError(f"choice: x has {size} elements; there is nothing to choose from")
    if not replace and count > size:
        raise ValueError(f"choice: {count} of {size} elements is impossible with replace=False")
    probs = draw.values.get("probs")
    if probs is not None:
        if is_number(probs) or probs.shape != (size,):
            raise ValueError(f"choice: probs must have shape ({size},), one probability per element")
        _check_probs(draw)
