"""After an op has failed: find the mistake and say it in our words, the same for every framework.

Nothing here runs unless a framework has raised. Each check looks for one mistake in the operands and parameters; the first that
finds it raises, with the framework's own error as the cause. If none does, the framework's error goes on as it is.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from trellis.core import errors
from trellis.core.dtypes import DType
from trellis.core.shape_checks import Params, axes_in_range
from trellis.core.table import JOINED, ORDERED, PRODUCT, TABLE, Op, compute_dtype

_PUBLIC = ("trellis.ops", "trellis.ops.linalg", "trellis.ops.fft", "trellis.random")


class Facts(NamedTuple):
    """What is known about an array operand."""

    shape: tuple[int, ...]
    dtype: DType
    device: str
    values: Callable[[], np.ndarray[Any, Any]] | None  # None while a framework traces


Operands = Sequence[Facts | complex | None]


def check_present(op: str, operands: Sequence[Any], error: Exception | None) -> None:
    """TypeError if an operand is None where the public function `op` needs an array. Operands come in the order of its arrays."""
    public = next((vars(m)[op] for m in map(sys.modules.get, _PUBLIC) if m and inspect.isfunction(vars(m).get(op))), None)
    names = [] if public is None else array_parameters(public)
    for i, x in enumerate(operands):
        name, kind = names[min(i, len(names) - 1)] if names else ("", "None")
        if x is None and "None" not in kind:
            raise errors.missing_operand(op, name, kind) from error


def array_parameters(function: Callable[..., Any]) -> list[tuple[str, str]]:
    """The name and the annotation of each parameter of a public function that takes arrays."""
    given = inspect.signature(function).parameters.values()
    return [(p.name, str(p.annotation)) for p in given if "AnyArray" in str(p.annotation) or "Operand" in str(p.annotation)]


def explain(op: str, operands: Operands, params: Params, error: Exception) -> None:
    """Raise a clearer error from `error`, or return."""
    arrays = [x for x in operands if isinstance(x, Facts)]
    row = TABLE.get(op, Op(op))
    joins = row.dtypes == JOINED
    shapes = [x.shape if isinstance(x, Facts) else () for x in operands if joins or isinstance(x, Facts)]
    try:
        _check_devices(op, arrays)
        _check_dtypes(row, operands)
        if row.shapes:
            row.shapes(op, shapes, params)
        axes_in_range(op, shapes, params)
        if row.first_index:
            _check_indices(row, operands, shapes[0], params)
        if op in ("setitem", "index_update"):
            _check_value(op, operands, shapes[0], params)
    except (ValueError, TypeError, IndexError, OverflowError) as found:
        if type(found) is type(error) and str(found) == str(error):
            return
        raise found from error


def _check_devices(op: str, arrays: Sequence[Facts]) -> None:
    devices = {x.device for x in arrays}
    if len(devices) > 1:
        raise errors.two_devices(op, devices)


def _check_dtypes(row: Op, operands: Operands) -> None:
    operands = operands[1:] if row.name == "where" else operands
    items = [x.dtype if isinstance(x, Facts) else x for x in operands if x is not None]
    if row.domain is not None and row.name != "clip":
        compute_dtype(row.name, items)
    for x in items if row.dtypes == ORDERED else ():
        if isinstance(x, complex) or getattr(x, "kind", "") == "c":
            raise errors.no_order(row.name, x)
    if row.dtypes in (PRODUCT, JOINED):
        common = errors.common_dtype_of(row.name, items)
        if common.kind == "b" and row.dtypes == PRODUCT:
            raise errors.not_numeric(row.name)


def _check_indices(row: Op, operands: Operands, shape: tuple[int, ...], params: Params) -> None:
    """Every index of every array whose values are known against the axis on which it stands."""
    indices = iter([x for x in operands[row.first_index :] if isinstance(x, Facts)])
    if row.name.startswith("take"):
        _check_range(row.name, next(indices), params["axis"] or 0, shape)
    if row.name == "gather":
        _check_tuples(row.name, next(indices), params["batch_dims"], shape)
    axis = 0
    for entry in params.get("key", ()):
        index = next(indices) if entry == "array" else None
        if index is not None and index.dtype.kind == "b":
            axis += len(index.shape)
            continue
        if index is not None:
            _check_range("x[key]", index, axis, shape)
        axis += entry is not None


def _check_tuples(op: str, indices: Facts, first: int, shape: tuple[int, ...]) -> None:
    """Each column of index tuples against its axis; the first stands on axis `first`."""
    if indices.values is not None and indices.dtype.kind in "iu":
        values = indices.values()
        for column in range(values.shape[-1]):
            axis = first + column
            errors.check_in_range(op, values[..., column], axis, shape[axis])


def _check_range(op: str, index: Facts, axis: int, shape: tuple[int, ...]) -> None:
    if index.dtype.kind not in "iu":
        raise errors.index_dtype(op, index.dtype)
    if index.values is not None:
        errors.check_in_range(op, index.values(), axis, shape[axis])


def _check_value(op: str, operands: Operands, shape: tuple[int, ...], params: Params) -> None:
    """The shape of a value against that of the elements that it goes to; extra axes of size 1 in front are dropped."""
    value, *indices = operands[1:]
    known = [x.values() for x in indices if isinstance(x, Facts) and x.values is not None]
    if not isinstance(value, Facts) or len(known) < len(indices):
        return
    arrays = iter(known)
    key = tuple(next(arrays) if entry == "array" else entry for entry in params["key"])
    selected = np.broadcast_to(np.zeros(()), shape)[key].shape
    given = value.shape
    while len(given) > len(selected) and given[0] == 1:
        given = given[1:]
    if len(given) > len(selected) or any(n not in (1, m) for n, m in zip(reversed(given), reversed(selected))):
        name = "x[key] = value" if op == "setitem" else f"at(x)[key].{params['mode']}"
        raise errors.value_does_not_broadcast(name, value.shape, selected)
