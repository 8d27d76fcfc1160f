"""Elementwise ops: a kernel for each row of the table that NumPy has a ufunc for. The factory promotes, converts and raises."""

from __future__ import annotations

from typing import Any

import numpy as np
from plain_arrays import PlainArray

from trellis.backends.elementwise import Kernel, define
from trellis.core.table import TABLE, compute_dtype

from .meta import NATIVE, dtype_of


def _kernel(ufunc: Any) -> Kernel:
    return lambda *operands: PlainArray(ufunc(*(x.values for x in operands)))


def _promoted(op: str, *operands: Any) -> list[PlainArray]:
    dtype = NATIVE[compute_dtype(op, [dtype_of(x) if isinstance(x, PlainArray) else x for x in operands])]
    values = [x.values if isinstance(x, PlainArray) else x for x in operands]
    return [PlainArray(np.asarray(x, dtype)) for x in values]


_UFUNCS = {op: getattr(np, row.ufunc or op, None) for op, row in TABLE.items() if row.elementwise}
_KERNELS = {op: _kernel(ufunc) for op, ufunc in _UFUNCS.items() if ufunc is not None}
_KERNELS["expit"] = _kernel(lambda x: 1 / (1 + np.exp(-x)))

__all__ = ["where", *_KERNELS]  # pyright: ignore[reportUnsupportedDunderAll]
globals().update(define(_KERNELS, NATIVE, _promoted))


def where(condition: PlainArray, x1: Any, x2: Any) -> PlainArray:
    x1, x2 = _promoted("where", x1, x2)
    return PlainArray(np.where(condition.values, x1.values, x2.values))
