"""Fourier transforms: jnp's, in float32 or wider, of a dtype that the transform takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from trellis.backends.jax.common import widened
from trellis.backends.jax.host import compiled

__all__ = [
    "fft", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn", "rfft", "rfftn",
]  # fmt: skip


def _real_input(op: str, x: Any) -> None:
    if x.dtype.kind == "c":
        raise TypeError(f"{op}: expected a real dtype, got {x.dtype.name}; use tl.fft.fft, or take tl.real(x)")


def _one(op: str, native: Callable[..., Any]) -> Callable[..., Any]:
    kernel = compiled(lambda x, n, axis, norm: native(x, n, axis, norm), "n", "axis", "norm")
    real = op in ("rfft", "ihfft")

    def transform(x: Any, *, n: int | None, axis: int, norm: str) -> Any:
        if real:
            _real_input(op, x)
        return kernel(widened(x), n=n, axis=axis, norm=norm)

    return transform


def _many(op: str, native: Callable[..., Any]) -> Callable[..., Any]:
    kernel = compiled(lambda x, s, axes, norm: native(x, s, axes, norm), "s", "axes", "norm")

    def transform(x: Any, *, s: tuple[int, ...] | None, axes: tuple[int, ...] | None, norm: str) -> Any:
        if op == "rfftn":
            _real_input(op, x)
        return kernel(widened(x), s=s, axes=axes, norm=norm)

    return transform


fft = _one("fft", jnp.fft.fft)
ifft = _one("ifft", jnp.fft.ifft)
rfft = _one("rfft", jnp.fft.rfft)
irfft = _one("irfft", jnp.fft.irfft)
hfft = _one("hfft", jnp.fft.hfft)
ihfft = _one("ihfft", jnp.fft.ihfft)
fftn = _many("fftn", jnp.fft.fftn)
ifftn = _many("ifftn", jnp.fft.ifftn)
rfftn = _many("rfftn", jnp.fft.rfftn)
irfftn = _many("irfftn", jnp.fft.irfftn)

_fftshift = compiled(lambda x, axes: jnp.fft.fftshift(x, axes), "axes")
_ifftshift = compiled(lambda x, axes: jnp.fft.ifftshift(x, axes), "axes")


def fftshift(x: Any, *, axes: int | tuple[int, ...] | None) -> Any:
    return _fftshift(x, axes=axes)


def ifftshift(x: Any, *, axes: int | tuple[int, ...] | None) -> Any:
    return _ifftshift(x, axes=axes)
