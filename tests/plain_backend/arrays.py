"""A few ops that are not elementwise."""

from __future__ import annotations

from typing import Any

import numpy as np
from plain_arrays import PlainArray

from trellis.core.dtypes import DType

from .meta import NATIVE

__all__ = ["full", "reshape", "sum"]


def full(*, shape: tuple[int, ...], fill_value: Any, dtype: DType, device: Any) -> PlainArray:
    return PlainArray(np.full(shape, fill_value, NATIVE[dtype]))


def reshape(x: PlainArray, *, shape: tuple[int, ...], copy: bool | None) -> PlainArray:
    return PlainArray(x.values.reshape(shape))


def sum(x: PlainArray, *, axis: Any, dtype: DType | None, keepdims: bool) -> PlainArray:
    return PlainArray(x.values.sum(axis, None if dtype is None else NATIVE[dtype], keepdims=keepdims))
