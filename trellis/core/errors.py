"""Errors that several backends raise: one function per mistake returns the exception, so that its text is the same on all.

A text names the op, the argument or array, its value, and the fix. A function returns its exception, and the caller raises it, so
that the caller can name a cause: `raise errors.not_numeric("matmul") from error`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from trellis.core.dtypes import DTYPES, KIND_ORDER, DType, common_dtype, int64, integer_range

_Shape = Sequence[int | None]


# ---- axes and shapes -----------------------------------------------------------------------------------------------------------
def axis_error(op: str, axis: int, ndim: int, name: str = "axis") -> np.exceptions.AxisError:
    allowed = f"an array of {ndim} dimensions takes {-ndim} to {ndim - 1}" if ndim else "a 0-d array has no axes"
    return np.exceptions.AxisError(f"{op}: {name}={axis} is out of range; {allowed}")


def axis_twice(op: str, axis: Any, name: str = "axis") -> ValueError:
    return ValueError(f"{op}: {name}={axis} names an axis twice")


def axis_needed(op: str, shape: _Shape) -> ValueError:
    return ValueError(f"{op}: axis must be given for an array of {len(shape)} dimensions, shape {tuple(shape)}")


def empty_axis(op: str, axis: Any, shape: _Shape) -> ValueError:
    return ValueError(f"{op}: axis {axis} of shape {tuple(shape)} is empty; the {op} of no elements does not exist")


def not_a_matrix(op: str, shape: _Shape) -> ValueError:
    return ValueError(f"{op}: expected a matrix or a batch of matrices, got shape {tuple(shape)}")


def not_square(op: str, shape: _Shape) -> ValueError:
    return ValueError(f"{op}: the last two axes must be equal, got shape {tuple(shape)}")


def not_vectors(op: str, shapes: Iterable[_Shape]) -> ValueError:
    return ValueError(f"{op}: expected 1-d arrays, got shapes {' and '.join(str(tuple(s)) for s in shapes)}")


def ranks_differ(op: str, shapes: Iterable[_Shape]) -> ValueError:
    text = ", ".join(str(tuple(s)) for s in shapes)
    return ValueError(f"{op}: the arrays have different numbers of dimensions: shapes {text}")


def not_of_size_one(op: str, axis: int, shape: _Shape) -> ValueError:
    return ValueError(f"{op}: axis {axis} has size {shape[axis]}, not 1; shape {tuple(shape)}")


def does_not_broadcast_to(op: str, shape: _Shape, wanted: _Shape) -> ValueError:
    return ValueError(f"{op}: an array of shape {tuple(shape)} does not broadcast to shape={tuple(wanted)}")


def value_does_not_broadcast(op: str, shape: _Shape, selected: _Shape) -> ValueError:
    return ValueError(f"{op}: a value of shape {tuple(shape)} does not broadcast to the selected shape {tuple(selected)}")


def not_one_element(shape: _Shape) -> ValueError:
    return ValueError(f"item: only an array of one element is a number, got shape {tuple(shape)}; use tl.to_numpy(x).tolist()")


def no_dimensions(op: str) -> ValueError:
    return ValueError(f"{op}: a 0-d array has no indices; make it 1-d with tl.reshape(x, (1,))")


# ---- indices and counts --------------------------------------------------------------------------------------------------------
def check_in_range(op: str, indices: Any, axis: int, size: int) -> None:
    """IndexError for the first of the NumPy `indices` that lies outside of an axis of `size`."""
    outside = (indices < -size) | (indices >= size)
    if np.any(outside):
        index = int(indices[outside].flat[0])
        raise IndexError(f"{op}: index {index} is out of range for axis {axis} with size {size}")


def index_dtype(op: str, dtype: Any) -> TypeError:
    return TypeError(f"{op}: an index array must have an integer dtype, got {dtype}; cast it with tl.astype")


def check_segments(op: str, dtype: DType, ids: _Shape, rows: DType, shape: _Shape) -> None:
    """TypeError or ValueError if segment ids of this dtype and shape do not give one id for each row, or rows have no order."""
    if op != "segment_sum" and rows.kind == "c":
        raise no_order(op, rows)
    if dtype.kind not in "iu":
        raise index_dtype(op, dtype)
    if len(ids) != 1 or not shape or (shape[0] != ids[0] and None not in (shape[0], ids[0])):
        text = f"segment_ids of shape {tuple(ids)} do not fit x of shape {tuple(shape)}; give one id for each row"
        raise ValueError(f"{op}: {text}")


def check_segment_ids(op: str, ids: Any, count: int) -> None:
    """IndexError if one of the NumPy `ids` is not a segment."""
    if ids.size and not 0 <= ids.min() <= ids.max() < count:
        text = f"segment_ids hold {ids.min()} to {ids.max()}; with num_segments={count} they must be 0 to {count - 1}"
        raise IndexError(f"{op}: {text}")


def top_k_range(k: int, axis: int, size: int) -> ValueError:
    return ValueError(f"top_k: k={k} must be between 0 and {size}, the size of axis {axis}")


def negative_elements(op: str, name: str) -> ValueError:
    return ValueError(f"{op}: {name} has a negative element; every element must be 0 or more")


def check_counted(dtype: DType, shape: _Shape, weights: _Shape | None) -> None:
    """TypeError or ValueError if `bincount` cannot count an array of this dtype and shape, or with weights of this shape."""
    if dtype.kind not in "iu":
        raise not_integer("bincount", dtype)
    if len(shape) != 1:
        raise not_vectors("bincount", [shape])
    if weights is not None and tuple(weights) != tuple(shape) and None not in (*weights, *shape):
        raise ValueError(f"bincount: weights have shape {tuple(weights)}, x has shape {tuple(shape)}; the shapes must be equal")


# ---- dtypes and values ---------------------------------------------------------------------------------------------------------
def missing_operand(op: str, name: str, kind: str = "Operand") -> TypeError:
    return TypeError(f"{op}: expected {'an array or a number' if 'Operand' in kind else 'an array'} for {name}, got None")


def unsupported_dtype(dtype: Any) -> TypeError:
    return TypeError(f"an array of dtype {dtype} is not supported; use one of {', '.join(DTYPES)}")


def not_numeric(op: str) -> TypeError:
    return TypeError(f"{op}: expected a numeric dtype, got bool; cast it with tl.astype")


def not_integer(op: str, dtype: Any) -> TypeError:
    return TypeError(f"{op}: expected an integer dtype, got {dtype}; cast it with tl.astype")


def not_real(op: str, dtype: Any) -> TypeError:
    return TypeError(f"{op}: expected a real dtype, got {dtype}; take tl.real(x) or tl.abs(x) first")


def no_order(op: str, dtype: Any) -> TypeError:
    return TypeError(f"{op}: expected a real dtype, got {dtype}; complex numbers have no order, so take tl.real or tl.abs first")


def imaginary_part_lost(op: str, dtype: Any, wanted: Any) -> TypeError:
    return TypeError(f"{op}: {dtype} to {wanted} would drop the imaginary part; take tl.real(x) or tl.abs(x) first")


def common_dtype_of(op: str, items: Sequence[Any], default_int: DType = int64) -> DType:
    """The common dtype of DTypes and Python numbers; the TypeError names the op."""
    try:
        return common_dtype(items, default_int)
    except TypeError as error:
        raise TypeError(f"{op}: {error}") from None


def check_fill(op: str, value: Any, dtype: DType) -> None:
    """TypeError or OverflowError if the Python number `value` cannot fill an array of `dtype`."""
    if value is None:
        raise missing_operand(op, "fill_value")
    if isinstance(value, complex) and dtype.kind not in "bc":
        raise imaginary_part_lost(op, f"fill_value={value}", dtype)
    if type(value) is int and dtype.kind in "iu":
        check_assignable(op, value, dtype)


def check_assignable(op: str, value: Any, dtype: DType) -> None:
    """TypeError or OverflowError if `value`, a DType or a Python number, does not go into an array of `dtype`."""
    if value is None:
        raise missing_operand(op, "the value")
    is_number = not isinstance(value, DType)
    given = common_dtype([value])
    if KIND_ORDER[given.kind] > KIND_ORDER[dtype.kind]:
        shown = f"Python {type(value).__name__}" if is_number else given
        raise TypeError(f"{op}: a {shown} value does not fit into an array of {dtype}; cast one of them with tl.astype")
    if is_number and dtype.kind in "iu":
        low, high = integer_range(dtype)
        if not low <= value <= high:
            raise OverflowError(f"{op}: the Python integer {value} does not fit in {dtype} ({low} to {high})")


# ---- copies and devices --------------------------------------------------------------------------------------------------------
def copy_needed(op: str, what: str) -> ValueError:
    return ValueError(f"{op}: copy=False, but {what} needs a copy; use copy=None")


def unknown_device(device: Any, backend: str, devices: Iterable[str]) -> ValueError:
    return ValueError(f"device={device!r} does not exist; {backend} has {', '.join(map(repr, devices))}")


def two_devices(op: str, devices: Iterable[str]) -> ValueError:
    names = " and ".join(sorted(devices))
    return ValueError(f"{op}: the arrays are on two devices, {names}; bring them to one with tl.to_device")


# ---- matrices ------------------------------------------------------------------------------------------------------------------
_FAILURES = {
    "inv": "a matrix is singular; tl.linalg.pinv(x) is the closest to an inverse",
    "solve": "a matrix is singular; tl.linalg.lstsq finds the solution with the smallest error",
    "solve_triangular": "a matrix is singular: its diagonal holds 0 (the upper triangle is read, or the lower with lower=True)",
    "cholesky": "a matrix is not positive definite",
}


def decomposition_failed(op: str) -> np.linalg.LinAlgError:
    text = _FAILURES.get(op, "the iteration did not converge; check the matrix for NaN and infinity")
    return np.linalg.LinAlgError(f"{op}: {text}")


# ---- transforms ----------------------------------------------------------------------------------------------------------------
def changed_in_place() -> TypeError:
    return TypeError(
        "an array that a gradient depends on was changed in place before the gradient was computed; change a copy of it, "
        "or write x = tl.at(x)[key].set(value), which makes a new array"
    )


def vmap_differs() -> ValueError:
    return ValueError("vmap: a result with out_axes None is not the same for each element; give it an axis")


def seed_needed(op: str, transform: str) -> RuntimeError:
    return RuntimeError(
        f"{op}: inside {transform} numbers drawn without seed= would be drawn once, when the function is traced, and repeat at "
        f"every call; make a tl.Key an argument of the function and pass seed=key"
    )
