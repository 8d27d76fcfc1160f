"""Convolutions. XLA takes any layout by name, so nothing is transposed; each call is one compiled function."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from trellis.backends.jax.host import compiled


def _convolution(
    x: Any, filters: Any, bias: Any, *, strides: Any, padding: Any, x_dilations: Any, dilations: Any, groups: int,
    channel_last: bool, filter_channel_last: bool,
) -> Any:  # fmt: skip
    axes = "DHW"[3 - len(strides) :]
    layout = f"N{axes}C" if channel_last else f"NC{axes}"
    layouts = layout, f"{axes}IO" if filter_channel_last else f"OI{axes}", layout
    result = lax.conv_general_dilated(
        x, filters, strides, padding, x_dilations, dilations, layouts, feature_group_count=groups
    )  # fmt: skip
    if bias is None:
        return result
    return result + (bias if channel_last else jnp.expand_dims(bias, tuple(range(1, len(strides) + 1))))


def _transposed_convolution(
    x: Any, filters: Any, bias: Any, *, strides: Any, padding: Any, output_shape: Any, dilations: Any, groups: int,
    channel_last: bool,
) -> Any:  # fmt: skip
    """Zeros between the elements of x, then a convolution with the filters flipped."""
    dims = len(strides)
    sizes = x.shape[1:-1] if channel_last else x.shape[2:]
    rows = zip(sizes, filters.shape, strides, padding, dilations, output_shape)
    ends = tuple(((k - 1) * d - low, m - 1 - (n - 1) * s + low) for n, k, s, (low, _), d, m in rows)
    filters = lax.rev(filters, tuple(range(dims)))
    if groups > 1:  # [*window, in, out / groups] -> [*window, in / groups, out]
        *window, inside, outside = filters.shape
        split = filters.reshape(*window, groups, inside // groups, outside)
        filters = jnp.moveaxis(split, dims, dims + 1).reshape(*window, inside // groups, groups * outside)
    return _convolution(
        x, filters, bias, strides=(1,) * dims, padding=ends, x_dilations=strides, dilations=dilations, groups=groups,
        channel_last=channel_last, filter_channel_last=True,
    )  # fmt: skip


convolution = compiled(_convolution)
transposed_convolution = compiled(_transposed_convolution)
