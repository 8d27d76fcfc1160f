"""Fourier transforms: jnp's, in float32 or wider, of a dtype that the transform takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from trellis.backends.jax.host import compiled
from trellis.backends.jax.operands import widened
from trellis.core import errors

_ONE_AXIS = ("fft", "hfft", "ifft", "ihfft", "irfft", "rfft")
_MANY_AXES = ("fftn", "ifftn", "irfftn", "rfftn")
_REAL_INPUT = ("ihfft", "rfft", "rfftn")


def _operand(op: str, x: Any) -> Any:
    if op in _REAL_INPUT and x.dtype.kind == "c":
        raise errors.not_real(op, x.dtype.name)
    return widened(x)


def _one(op: str) -> Callable[..., Any]:
    return compiled(lambda x, *, n, axis, norm: getattr(jnp.fft, op)(_operand(op, x), n, axis, norm))


def _many(op: str) -> Callable[..., Any]:
    return compiled(lambda x, *, s, axes, norm: getattr(jnp.fft, op)(_operand(op, x), s, axes, norm))


__all__ = [*_ONE_AXIS, *_MANY_AXES]  # pyright: ignore[reportUnsupportedDunderAll]
globals().update({op: _one(op) for op in _ONE_AXIS} | {op: _many(op) for op in _MANY_AXES})
