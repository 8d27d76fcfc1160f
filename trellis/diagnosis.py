"""After an op has failed: find the mistake and say it in our words, the same for every framework.

Nothing here runs unless a framework has raised. Each check looks for one mistake in the operands and parameters; the first that
finds it raises, with the framework's own error as the cause. If none does, the framework's error goes on as it is.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from trellis import domains
from trellis.dispatch import SCALARS, UnknownOperand, interpreters
from trellis.dtypes import DType
from trellis.ops.arguments import axis_error
from trellis.ops.manipulation import broadcast_shapes

_Shapes = list[tuple[int, ...]]
_Params = dict[str, Any]


def explain(op: str, operands: tuple[Any, ...], params: _Params, error: Exception) -> None:
    """Raise a clearer error from `error`, or return."""
    arrays = [x for x in operands if _is_plain_array(x)]
    if not arrays or builtins.len(arrays) != sum(interpreters[type(x)] is not SCALARS for x in operands):
        return  # a Container among them: its leaves have been looked at one by one
    try:
        shapes = [interpreters[type(x)].shape_of(x) for x in arrays]
        if any(s is None or None in s for s in shapes):
            return
        _check_devices(op, arrays)
        _check_dtypes(op, operands)
        if op in _CHECKS:
            _CHECKS[op](op, shapes, params)
        if op in domains.DOMAIN or op in _BROADCASTING:
            _check_broadcast(op, shapes, params)
        _check_axes(op, shapes, params)
    except (ValueError, TypeError, IndexError, OverflowError) as found:
        if type(found) is type(error) and str(found) == str(error):
            return
        raise found from error


def _is_plain_array(x: Any) -> bool:
    try:
        interpreter = interpreters[type(x)]
    except UnknownOperand:
        return False
    return interpreter is not SCALARS and interpreter.level < 4


def _check_devices(op: str, arrays: list[Any]) -> None:
    devices = {interpreters[type(x)].device_of(x) for x in arrays}
    if len(devices) > 1:
        raise ValueError(
            f"{op}: the arrays are on two devices, {' and '.join(sorted(devices))}; bring them to one with tl.to_device"
        )


def _check_dtypes(op: str, operands: tuple[Any, ...]) -> None:
    if op not in domains.DOMAIN or op in ("where", "clip"):
        return
    items = [interpreters[type(x)].dtype_of(x) if _is_plain_array(x) else x for x in operands if x is not None]
    if all(isinstance(x, (DType, bool, int, float, complex)) for x in items):
        domains.compute_dtype(op, items)


def _check_broadcast(op: str, shapes: _Shapes, params: _Params) -> None:
    try:
        broadcast_shapes(*shapes)
    except ValueError:
        text = " and ".join(map(str, shapes))
        raise ValueError(f"{op}: shapes {text} do not broadcast; sizes must be equal or 1, counted from the last axis") from None


def _check_axes(op: str, shapes: _Shapes, params: _Params) -> None:
    """Every axis parameter against the first array; positions of new axes count in the result."""
    ndim = len(shapes[0]) + {"stack": 1}.get(op, 0)
    for name in ("axis", "axes"):
        value = params.get(name)
        given = (value,) if isinstance(value, int) else value
        if op in ("tensordot", "permute_dims") or not isinstance(given, tuple):
            continue
        if op == "expand_dims":
            ndim = len(shapes[0]) + len(given)
        for axis in given:
            if not -ndim <= axis < ndim:
                raise axis_error(op, axis, ndim, name)
        if len({axis % ndim for axis in given}) < len(given):
            raise ValueError(f"{op}: {name}={value} names an axis twice")


def _check_matmul(op: str, shapes: _Shapes, params: _Params) -> None:
    a, b = shapes
    if not a or not b:
        raise ValueError(f"{op}: shapes {a} and {b}: a 0-d array is not a matrix or vector; use tl.multiply")
    inner = a[-1], b[-2:][0]
    if inner[0] != inner[1]:
        raise ValueError(
            f"{op}: shapes {a} and {b} do not fit: the last axis of x1 has size {inner[0]}, "
            f"axis {-2 if len(b) > 1 else -1} of x2 has size {inner[1]}"
        )
    _check_broadcast(op, [a[:-2], b[:-2]], params)


def _check_reshape(op: str, shapes: _Shapes, params: _Params) -> None:
    size, shape = _count(shapes[0]), params["shape"]
    if sum(n == -1 for n in shape) > 1:
        raise ValueError(f"{op}: shape={shape} has more than one -1; only one size can be left open")
    if any(n < -1 for n in shape):
        raise ValueError(f"{op}: shape={shape} has a negative size; every size must be 0 or more, and one may be -1")
    known = _count(tuple(n for n in shape if n != -1))
    if known != size if -1 not in shape else known == 0 or size % known:
        raise ValueError(f"{op}: an array of shape {shapes[0]} with {size} elements does not fit into shape={shape}")


def _check_joined(op: str, shapes: _Shapes, params: _Params) -> None:
    axis, first = params["axis"], shapes[0]
    if axis is None:
        return
    if len({len(s) for s in shapes}) > 1:
        raise ValueError(f"{op}: the arrays have different numbers of dimensions: shapes {', '.join(map(str, shapes))}")
    if op == "concat" and not first:
        raise ValueError(f"{op}: 0-d arrays have no axis to join along; use tl.stack")
    _check_axes(op, shapes, params)
    for other in shapes[1:]:
        if any(a != b for i, (a, b) in enumerate(zip(first, other)) if op == "stack" or i != axis % len(first)):
            raise ValueError(f"{op}: shapes {first} and {other} differ beside axis {axis}; the other axes must be equal")


def _check_squeeze(op: str, shapes: _Shapes, params: _Params) -> None:
    _check_axes(op, shapes, params)
    for axis in params["axis"]:
        if shapes[0][axis] != 1:
            raise ValueError(f"{op}: axis {axis} has size {shapes[0][axis]}, not 1; shape {shapes[0]}")


def _check_broadcast_to(op: str, shapes: _Shapes, params: _Params) -> None:
    shape = params["shape"]
    if len(shapes[0]) > len(shape) or any(n not in (1, m) for n, m in zip(reversed(shapes[0]), reversed(shape))):
        raise ValueError(f"{op}: an array of shape {shapes[0]} does not broadcast to shape={shape}")


def _check_permutation(op: str, shapes: _Shapes, params: _Params) -> None:
    axes, ndim = params["axes"], len(shapes[0])
    if any(not -ndim <= a < ndim for a in axes) or sorted(a % max(ndim, 1) for a in axes) != list(range(ndim)):
        raise ValueError(f"{op}: axes={axes} is not a permutation of the {ndim} axes of shape {shapes[0]}")


def _check_moveaxis(op: str, shapes: _Shapes, params: _Params) -> None:
    ndim = len(shapes[0])
    for name in ("source", "destination"):
        for axis in params[name]:
            if not -ndim <= axis < ndim:
                raise axis_error(op, axis, ndim, name)
        if len({a % ndim for a in params[name]}) < len(params[name]):
            raise ValueError(f"{op}: {name}={params[name]} names an axis twice")


def _check_not_empty(op: str, shapes: _Shapes, params: _Params) -> None:
    _check_axes(op, shapes, params)
    axis, shape = params["axis"], shapes[0]
    reduced = range(len(shape)) if axis is None else (axis,) if isinstance(axis, int) else axis
    if any(shape[a] == 0 for a in reduced):
        raise ValueError(f"{op}: axis {axis} of shape {shape} is empty; the {op} of no elements does not exist")


def _check_square(op: str, shapes: _Shapes, params: _Params) -> None:
    shape = shapes[0]
    if len(shape) < 2:
        raise ValueError(f"{op}: expected a matrix or a batch of matrices, got shape {shape}")
    if shape[-1] != shape[-2]:
        raise ValueError(f"{op}: the last two axes must be equal, got shape {shape}")


def _check_matrix(op: str, shapes: _Shapes, params: _Params) -> None:
    if len(shapes[0]) < 2:
        raise ValueError(f"{op}: expected a matrix or a batch of matrices, got shape {shapes[0]}")


def _check_solve(op: str, shapes: _Shapes, params: _Params) -> None:
    _check_square(op, shapes[:1], params)
    a, b = shapes
    rows = b[-2] if len(b) > 1 else b[0] if b else None
    if rows != a[-1]:
        raise ValueError(f"{op}: shapes {a} and {b} do not fit: x1 has {a[-1]} columns, x2 has {rows} rows")


def _check_tensordot(op: str, shapes: _Shapes, params: _Params) -> None:
    (a, b), axes = shapes, params["axes"]
    if isinstance(axes, int):
        if axes > min(len(a), len(b)):
            raise ValueError(f"{op}: axes={axes} is more than the dimensions of shapes {a} and {b}")
        axes = tuple(range(len(a) - axes, len(a))), tuple(range(axes))
    for side, shape in zip(axes, shapes):
        for axis in side:
            if not -len(shape) <= axis < len(shape):
                raise axis_error(op, axis, len(shape), "axes")
    for i, j in zip(*axes):
        if a[i] != b[j]:
            raise ValueError(f"{op}: axis {i} of shape {a} and axis {j} of shape {b} have different sizes, {a[i]} and {b[j]}")


def _check_vecdot(op: str, shapes: _Shapes, params: _Params) -> None:
    axis = params["axis"]
    for shape in shapes:
        if not -len(shape) <= axis < len(shape):
            raise axis_error(op, axis, len(shape))
    sizes = [shape[axis] for shape in shapes]
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"{op}: shapes {shapes[0]} and {shapes[1]} have sizes {sizes[0]} and {sizes[1]} along axis {axis}; they must be equal"
        )
    if op == "cross" and sizes[0] != 3:
        raise ValueError(f"{op}: axis {axis} has size {sizes[0]}; a cross product needs 3")
    _check_broadcast(op, shapes, params)


def _check_vectors(op: str, shapes: _Shapes, params: _Params) -> None:
    for shape in shapes:
        if len(shape) != 1:
            raise ValueError(f"{op}: expected 1-d arrays, got shapes {' and '.join(map(str, shapes))}")


def _check_first_vector(op: str, shapes: _Shapes, params: _Params) -> None:
    _check_vectors(op, shapes[:1], params)


def _check_flat_or_axis(op: str, shapes: _Shapes, params: _Params) -> None:
    if params["axis"] is None and len(shapes[0]) != 1:
        raise ValueError(f"{op}: axis must be given for an array of {len(shapes[0])} dimensions, shape {shapes[0]}")
    _check_axes(op, shapes, params)


def _check_einsum(op: str, shapes: _Shapes, params: _Params) -> None:
    """Each letter has one size. Terms with "..." are left to the framework."""
    equation = params["equation"].replace(" ", "")
    terms = equation.split("->")[0].split(",")
    if len(terms) != len(shapes):
        raise ValueError(f"{op}: equation={params['equation']!r} has {len(terms)} terms for {len(shapes)} arrays")
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes):
        if "..." in term:
            continue
        if len(term) != len(shape):
            raise ValueError(f"{op}: the term {term!r} names {len(term)} axes, but the array has shape {shape}")
        for letter, size in zip(term, shape):
            if sizes.setdefault(letter, size) != size:
                raise ValueError(f"{op}: {letter!r} in {params['equation']!r} has sizes {sizes[letter]} and {size}")


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


_SQUARE = "det slogdet inv cholesky eigh eigvalsh eig eigvals matrix_power expm sqrtm logm"
_MATRIX = "qr svd svdvals pinv matrix_rank matrix_norm matrix_transpose tril triu diagonal trace"
_BROADCASTING = ("broadcast_arrays", "isclose", "where", "clip")
_CHECKS: dict[str, Callable[[str, _Shapes, _Params], None]] = {
    "matmul": _check_matmul,
    "einsum": _check_einsum,
    "reshape": _check_reshape,
    "concat": _check_joined,
    "stack": _check_joined,
    "squeeze": _check_squeeze,
    "broadcast_to": _check_broadcast_to,
    "permute_dims": _check_permutation,
    "moveaxis": _check_moveaxis,
    "tensordot": _check_tensordot,
    "vecdot": _check_vecdot,
    "cross": _check_vecdot,
    "outer": _check_vectors,
    "solve": _check_solve,
    "solve_triangular": _check_solve,
    "searchsorted": _check_first_vector,
    "bincount": _check_first_vector,
    **dict.fromkeys(("max", "min", "argmax", "argmin"), _check_not_empty),
    **dict.fromkeys(_SQUARE.split(), _check_square),
    **dict.fromkeys(_MATRIX.split(), _check_matrix),
    **dict.fromkeys(("cumulative_sum", "cumulative_prod", "take"), _check_flat_or_axis),
}  # fmt: skip
