"""Make tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from trellis.backends.torch.meta import native_device
from trellis.backends.torch.operands import DTYPE, FLOAT, NATIVE, UNSIGNED
from trellis.backends.torch.unsigned import wide
from trellis.core import errors
from trellis.core.dtypes import DType
from trellis.core.typing import Sizes


def full(*, shape: Sizes, fill_value: Any, dtype: DType, device: Any) -> torch.Tensor:
    return _filled("full", shape, fill_value, NATIVE[dtype], native_device(device))


def _filled(op: str, shape: Any, value: Any, dtype: torch.dtype, device: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.to(dtype=dtype, device=device).expand(shape).clone()
    errors.check_fill(op, value, DTYPE[dtype])
    if type(value) is float and dtype in FLOAT and not math.isinf(value) and abs(value) > torch.finfo(dtype).max:
        value = math.copysign(math.inf, value)  # torch refuses what it would have to round to infinity
    return torch.full(shape, value, dtype=dtype, device=device)


def full_like(x: torch.Tensor, *, fill_value: Any, dtype: DType | None, device: Any) -> torch.Tensor:
    wanted = x.dtype if dtype is None else NATIVE[dtype]
    return _filled("full_like", x.shape, fill_value, wanted, x.device if device is None else native_device(device))


def empty(*, shape: Sizes, dtype: DType, device: Any) -> torch.Tensor:
    return torch.empty(shape, dtype=NATIVE[dtype], device=native_device(device))


def empty_like(x: torch.Tensor, *, dtype: DType | None, device: Any) -> torch.Tensor:
    wanted = x.dtype if dtype is None else NATIVE[dtype]
    return torch.empty(x.shape, dtype=wanted, device=x.device if device is None else native_device(device))


def arange(*, start: Any, stop: Any, step: Any, dtype: DType, device: Any) -> torch.Tensor:
    wanted, place = NATIVE[dtype], native_device(device)
    exact = all(isinstance(v, int) for v in (start, stop, step))
    count = -((start - stop) // step) if exact else math.ceil((stop - start) / step)
    if count <= 0:
        return torch.empty((0,), dtype=wanted, device=place)
    if exact and dtype.kind in "iu":
        if max(abs(start), abs(start + count * step)) < 2**53:
            return torch.arange(start, start + count * step, step, dtype=torch.int64, device=place).to(wanted)
        # torch finds the number of steps in double precision, and counts only in signed integers: these wrap there and back
        return (torch.arange(count, dtype=torch.int64, device=place) * _wrapped(step) + _wrapped(start)).to(wanted)
    return torch.arange(count, dtype=torch.float64, device=place).mul_(step).add_(start).to(wanted)


def _wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def eye(*, n_rows: int, n_cols: int, k: int, dtype: DType, device: Any) -> torch.Tensor:
    place = native_device(device)
    columns, rows = torch.arange(n_cols, device=place), torch.arange(n_rows, device=place)
    return (columns - rows[:, None] == max(-n_rows, min(k, n_cols))).to(NATIVE[dtype])  # k may be more than int64 holds


def _frequencies(native: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def run(*, n: int, d: float, dtype: DType, device: Any) -> torch.Tensor:
        return native(n, d=d, dtype=torch.float64, device=native_device(device)).to(NATIVE[dtype])

    return run


fftfreq, rfftfreq = _frequencies(torch.fft.fftfreq), _frequencies(torch.fft.rfftfreq)


def _triangle(native: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def run(x: torch.Tensor, *, k: int) -> torch.Tensor:
        return native(wide(x), k).to(x.dtype) if x.dtype in UNSIGNED else native(x, k)

    return run


tril, triu = _triangle(torch.tril), _triangle(torch.triu)
