"""Bring static arguments to one form, or say what is wrong with them. Backends use the checks of axes only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from trellis.core.dtypes import DType, as_dtype, integer_range
from trellis.core.errors import axis_error, axis_needed
from trellis.core.indexing import index_of


def optional_dtype(dtype: Any) -> DType | None:
    return None if dtype is None else as_dtype(dtype)


def integer(op: str, name: str, value: Any, least: int | None = None) -> int:
    """`value` as an int, not below `least`."""
    try:
        number = index_of(value)
    except TypeError:
        raise TypeError(f"{op}: {name} must be an integer, got {value!r}") from None
    if least is not None and number < least:
        raise ValueError(f"{op}: {name}={value} is too small; it must be {least} or more")
    return number


def one_axis(op: str, axis: Any, name: str = "axis") -> int:
    return axis if type(axis) is int else integer(op, name, axis)


def axes(op: str, axis: Any, name: str = "axis") -> int | tuple[int, ...] | None:
    """None, an int, or a tuple of ints. `diagnose` checks the range, when the framework refuses."""
    if axis is None or type(axis) is int:
        return axis
    if isinstance(axis, (tuple, list)):
        return tuple(integer(op, name, a) for a in axis)
    return integer(op, name, axis)


def axis_tuple(op: str, axis: Any, name: str = "axis") -> tuple[int, ...]:
    return (axis,) if type(axis) is int else tuple(integer(op, name, a) for a in (axis if hasattr(axis, "__iter__") else (axis,)))


def shape(op: str, value: Any, name: str = "shape") -> tuple[int, ...]:
    """A tuple of ints, none below zero."""
    sizes = value
    if type(value) is not tuple or set(map(type, value)) != {int}:
        sizes = tuple(integer(op, name, n) for n in (value if hasattr(value, "__iter__") else (value,)))
    if sizes and min(sizes) < 0:
        raise ValueError(f"{op}: {name}={value!r} has a negative size; every size must be 0 or more")
    if math.prod(sizes) >= 2**60:  # frameworks overflow there, and TensorFlow ends the process
        raise ValueError(f"{op}: {name}={value!r} has more elements than a computer can address")
    return sizes


def check_axis(op: str, axis: int, ndim: int, name: str = "axis") -> int:
    """`axis` counted from the front. AxisError (a ValueError and an IndexError) if it is outside."""
    if not -ndim <= axis < ndim:
        raise axis_error(op, axis, ndim, name)
    return axis + ndim if axis < 0 else axis


def axis_or_only(op: str, axis: int | None, shape: Sequence[Any]) -> int:
    """The axis counted from the front; an array of one dimension need not name it."""
    if axis is None and len(shape) != 1:
        raise axis_needed(op, shape)
    return check_axis(op, axis or 0, len(shape))


def check_rank(op: str, x: Any, axis: Any) -> None:
    """Frameworks give an array without dimensions an axis 0; the standard does not."""
    if not x.ndim and axis is not None and axis != ():
        raise axis_error(op, axis if isinstance(axis, int) else axis[0], 0)


def check_fits(op: str, dtype: DType, *numbers: int) -> None:
    """OverflowError if a number is outside the range of an integer dtype: frameworks wrap it."""
    low, high = integer_range(dtype)
    for number in numbers:
        if not low <= number <= high:
            raise OverflowError(f"{op}: {number} does not fit in {dtype} ({low} to {high}); give a wider dtype")


def choice(op: str, name: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    if value not in allowed:
        raise ValueError(f"{op}: {name}={value!r} is unknown; use one of {', '.join(map(repr, allowed))}")
    return value


def arrays(op: str, value: Any) -> tuple[Any, ...]:
    """The arrays of a list argument (concat, stack); at least one."""
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{op}: expected a list or tuple of arrays, got {type(value).__name__}")
    if not value:
        raise ValueError(f"{op}: the list of arrays is empty; at least one is needed")
    return tuple(value)
