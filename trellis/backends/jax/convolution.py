"""Convolutions. XLA takes any layout by name, so nothing is transposed; each call is one compiled function."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from trellis.backends.jax.host import compiled

__all__ = ["convolution", "transposed_convolution"]

_STATIC = ("strides", "padding", "x_dilations", "dilations", "groups", "layouts")


def _layouts(dims: int, channel_last: bool, filter_channel_last: bool = True) -> tuple[str, str, str]:
    axes = "DHW"[3 - dims :]
    data = f"N{axes}C" if channel_last else f"NC{axes}"
    return data, f"{axes}IO" if filter_channel_last else f"OI{axes}", data


def _convolve(
    x: Any, filters: Any, bias: Any, strides: Any, padding: Any, x_dilations: Any, dilations: Any, groups: int, layouts: Any
) -> Any:
    result = lax.conv_general_dilated(
        x, filters, strides, padding, x_dilations, dilations, layouts, feature_group_count=groups
    )  # fmt: skip
    if bias is None:
        return result
    return result + (bias if layouts[0][-1] == "C" else jnp.expand_dims(bias, tuple(range(1, len(strides) + 1))))


_convolution = compiled(_convolve, *_STATIC)


def convolution(
    x: Any,
    filters: Any,
    bias: Any,
    *,
    strides: Any,
    padding: Any,
    x_dilations: Any,
    dilations: Any,
    groups: int,
    channel_last: bool,
    filter_channel_last: bool,
) -> Any:
    layouts = _layouts(len(strides), channel_last, filter_channel_last)
    return _convolution(
        x, filters, bias, strides=strides, padding=padding, x_dilations=x_dilations, dilations=dilations, groups=groups,
        layouts=layouts,
    )  # fmt: skip


def _transpose(x: Any, filters: Any, bias: Any, strides: Any, padding: Any, dilations: Any, groups: int, layouts: Any) -> Any:
    """Zeros between the elements of x, then a convolution with the filters flipped."""
    dims = len(strides)
    filters = lax.rev(filters, tuple(range(dims)))
    if groups > 1:  # [*window, in, out / groups] -> [*window, in / groups, out]
        *window, inside, outside = filters.shape
        split = filters.reshape(*window, groups, inside // groups, outside)
        filters = jnp.moveaxis(split, dims, dims + 1).reshape(*window, inside // groups, groups * outside)
    return _convolve(x, filters, bias, (1,) * dims, padding, strides, dilations, groups, layouts)


_transposed = compiled(_transpose, *(name for name in _STATIC if name != "x_dilations"))


def transposed_convolution(
    x: Any,
    filters: Any,
    bias: Any,
    *,
    strides: Any,
    padding: Any,
    output_shape: Any,
    dilations: Any,
    groups: int,
    channel_last: bool,
) -> Any:
    dims = len(strides)
    sizes = x.shape[1:-1] if channel_last else x.shape[2:]
    rows = zip(sizes, filters.shape, strides, padding, dilations, output_shape)
    padding = tuple(((k - 1) * d - low, m - 1 - (n - 1) * s + low) for n, k, s, (low, _), d, m in rows)
    return _transposed(
        x, filters, bias, strides=strides, padding=padding, dilations=dilations, groups=groups,
        layouts=_layouts(dims, channel_last),
    )  # fmt: skip
