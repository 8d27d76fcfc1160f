"""Python's functions in a graph of torch: arithmetic on sizes, and control flow."""

from __future__ import annotations

import math
import operator
from typing import Any

from trellis.trace.rows.support import Table, is_array
from trellis.transforms import control


def _item(x: Any) -> Any:
    return x.item() if is_array(x) else x


def _cond(pred: Any, *operands: Any, true: Any, false: Any) -> list[Any]:
    return list(control.cond(pred, lambda *xs: true.run(list(xs)), lambda *xs: false.run(list(xs)), *operands))


_OPERATORS = "add sub mul floordiv truediv mod pow neg eq ne lt le gt ge and_ or_ getitem"
TABLE: Table = {
    **{f"py.{name}": getattr(operator, name) for name in _OPERATORS.split()},
    **{f"py.{name}": getattr(math, name) for name in ("ceil", "floor", "trunc", "sqrt")},
    "sym_size.int": lambda x, dim: x.shape[dim],
    "sym_numel.default numel.default": lambda x: math.prod(x.shape),
    "sym_stride.int": lambda x, dim: math.prod(x.shape[dim + 1 :]) if dim != -1 else 1,
    "sym_storage_offset.default": lambda x: 0,  # each array has memory of its own
    "py.sym_max py.max": max,
    "py.sym_min py.min": min,
    "py.sym_float py.float": float,
    "py.sym_int py.int": int,
    "py.sym_not": operator.not_,
    "py.sym_sum": lambda args: sum(args),
    "py.sym_ite": lambda test, a, b: a if test else b,
    "py._sym_sqrt": math.sqrt,
    "py.abs": abs,
    "py.round": round,
    "item.default _local_scalar_dense.default": _item,
    "higher_order.cond": _cond,
}
