"""Images and other grids: resizing, sampling at points, rearranging channels and pixels, patches.

An image has the shape [batch, *spatial, channels], or with a channel-first `data_format` [batch, channels, *spatial]. What torch
has too means the same here: the same coordinates, weights and orders of channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from trellis.dispatch import call, interpreters
from trellis.ops.arguments import choice, integer
from trellis.ops.windows import channel_last, counts, pairs, per_axis, spatial
from trellis.typing import AnyArray

__all__ = ["fold", "grid_sample", "interpolate", "pixel_shuffle", "pixel_unshuffle", "resize", "unfold"]

# mode -> (what a backend calls it, the number of spatial axes that it is for)
_MODES = {
    "nearest": ("nearest", (1, 2, 3)), "nearest_exact": ("nearest_exact", (1, 2, 3)), "area": ("area", (1, 2, 3)),
    "linear": ("linear", (1, 2, 3)), "bilinear": ("linear", (2,)), "trilinear": ("linear", (3,)), "bicubic": ("cubic", (2,)),
}  # fmt: skip


def image_shape(op: str, x: AnyArray, dims: tuple[int, ...] = (1, 2, 3)) -> tuple[int | None, ...] | None:
    """The shape of a batch of images with so many spatial axes; None for a Container."""
    shape = interpreters[type(x)].shape_of(x)
    if shape is not None and len(shape) - 2 not in dims:
        ranks = " or ".join(str(d + 2) for d in dims)
        raise ValueError(f"{op}: x has shape {shape}; it needs {ranks} dimensions: batch, channels and {_spell(dims)}")
    return shape


def _spell(dims: tuple[int, ...]) -> str:
    return f"{' or '.join(map(str, dims))} spatial {'axis' if dims == (1,) else 'axes'}"


def each_leaf(op: str, function: Callable[[Any], Any], x: AnyArray) -> Any:
    """`function` of each leaf of a Container, whose shapes decide on the parameters."""
    from trellis.container import over_leaves  # here, because it is made of ops

    return over_leaves(op, function, x)


def known(op: str, sizes: tuple[int | None, ...]) -> tuple[int, ...]:
    """Spatial sizes that a result depends on, none of them unknown in a graph."""
    for axis, n in enumerate(sizes):
        if n is None:
            raise ValueError(f"{op}: the size of spatial axis {axis} is unknown in this graph; fix it with tf.ensure_shape")
    return sizes  # type: ignore[return-value]


# ---- resizing ------------------------------------------------------------------------------------------------------------------
def interpolate(
    x: AnyArray,
    size: int | Sequence[int] | None = None,
    /,
    *,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool = False,
    antialias: bool = False,
    data_format: str = "channel_last",
) -> AnyArray:
    """Images of another size: `size` for each spatial axis, or the old one times `scale_factor`, rounded down.

    `mode` is "nearest", "nearest_exact", "linear" ("bilinear", "trilinear"), "bicubic" or "area". `align_corners` maps centres of
    the first and last pixels onto each other, else their outer edges; `antialias` widens the filter where an image shrinks.

    >>> import trellis as tl
    >>> tl.interpolate(tl.asarray([[[0.0], [1.0]]]), 4, mode="linear")[0, :, 0]
    Array([0.  , 0.25, 0.75, 1.  ], dtype=float32, backend='numpy', device='cpu')
    """
    shape = image_shape("interpolate", x)
    options: Any = {"mode": mode, "align_corners": align_corners, "antialias": antialias, "data_format": data_format}
    if shape is None:
        return each_leaf("interpolate", lambda leaf: interpolate(leaf, size, scale_factor=scale_factor, **options), x)
    dims = len(shape) - 2
    name, allowed = _MODES[choice("interpolate", "mode", mode, tuple(_MODES))]
    if dims not in allowed:
        raise ValueError(f"interpolate: mode={mode!r} is for {_spell(allowed)}, but x has shape {shape}")
    if align_corners and name not in ("linear", "cubic"):
        raise ValueError(f"interpolate: align_corners=True has no meaning for mode={mode!r}; use it with linear or cubic modes")
    if antialias and (name not in ("linear", "cubic") or dims != 2):
        raise ValueError(f"interpolate: antialias=True is for 'bilinear' and 'bicubic', not for mode={mode!r} and shape {shape}")
    if interpreters[type(x)].dtype_of(x).kind == "c":
        raise TypeError("interpolate: expected a real dtype, got a complex one; resize tl.real(x) and tl.imag(x)")
    last = channel_last("interpolate", data_format, dims)
    sizes = known("interpolate", spatial(shape, last))
    if 0 in sizes:
        raise ValueError(f"interpolate: x has shape {shape}, and there is nothing to interpolate on a spatial axis of size 0")
    made, scales = _resized(sizes, size, scale_factor)
    return call(
        "interpolate",
        x,
        sizes=made,
        scales=scales,
        mode=name,
        align_corners=align_corners,
        antialias=antialias,
        channel_last=last,
    )


resize = interpolate


def _resized(sizes: tuple[int, ...], size: Any, scale_factor: Any) -> tuple[tuple[int, ...], tuple[float, ...] | None]:
    """The new sizes, and the scales if they are given: coordinates then follow these, not the rounded sizes."""
    dims = len(sizes)
    if (size is None) == (scale_factor is None):
        raise ValueError(f"interpolate: give size or scale_factor, one of them; got size={size!r}, scale_factor={scale_factor!r}")
    if size is not None:
        return per_axis("interpolate", "size", size, dims), None
    scales = tuple(scale_factor) if hasattr(scale_factor, "__iter__") else (scale_factor,) * dims
    if len(scales) != dims or any(not s > 0 for s in scales):
        raise ValueError(f"interpolate: scale_factor={scale_factor!r} must be a number above 0, or {dims} of them")
    made = tuple(math.floor(n * float(s)) for n, s in zip(sizes, scales))
    if 0 in made:
        raise ValueError(f"interpolate: scale_factor={scale_factor!r} leaves nothing of spatial sizes {sizes}: {made}")
    return made, tuple(map(float, scales))


# ---- sampling ------------------------------------------------------------------------------------------------------------------
def grid_sample(
    x: AnyArray,
    grid: AnyArray,
    /,
    *,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
    data_format: str = "channel_last",
) -> AnyArray:
    """Images at the points of `grid` [batch, *new spatial sizes, 2 or 3]: the coordinates are (x, y) or (x, y, z) from -1 to 1.

    `mode` is "bilinear" (trilinear in space), "nearest" or "bicubic" (2-D). Beyond the edge `padding_mode` gives "zeros", the
    "border", or the "reflection" of the image. -1 and 1 are the outer edges, with `align_corners` the centres of the last pixels.

    >>> import trellis as tl
    >>> image = tl.asarray([[[[1.0], [3.0]]]])
    >>> tl.grid_sample(image, tl.asarray([[[[-0.5, 0.0], [0.0, 0.0]]]]))[0, 0, :, 0]
    Array([1., 2.], dtype=float32, backend='numpy', device='cpu')
    """
    mode = choice("grid_sample", "mode", mode, ("bilinear", "nearest", "bicubic"))
    padding_mode = choice("grid_sample", "padding_mode", padding_mode, ("zeros", "border", "reflection"))
    shape, points = image_shape("grid_sample", x, (2, 3)), interpreters[type(grid)].shape_of(grid)
    if shape is None or points is None:
        raise TypeError("grid_sample: x and grid must be arrays; map over the leaves of a Container with tl.map")
    dims = len(shape) - 2
    if mode == "bicubic" and dims != 2:
        raise ValueError(f"grid_sample: mode='bicubic' is for 2 spatial axes, but x has shape {shape}")
    batches = {shape[0], points[0] if points else 0} - {None}
    if len(points) != dims + 2 or points[-1] != dims or len(batches) > 1:
        raise ValueError(
            f"grid_sample: grid has shape {points}, which does not fit x of shape {shape}; it needs the same batch size, "
            f"{dims} spatial sizes and a last axis of {dims} coordinates"
        )
    last = channel_last("grid_sample", data_format, dims)
    if 0 in known("grid_sample", spatial(shape, last)):
        raise ValueError(f"grid_sample: x has shape {shape}, and there is nothing to sample on a spatial axis of size 0")
    return call("grid_sample", x, grid, mode=mode, padding_mode=padding_mode, align_corners=align_corners, channel_last=last)


# ---- channels and pixels -------------------------------------------------------------------------------------------------------
def pixel_shuffle(x: AnyArray, factor: int, /, *, data_format: str = "NHWC") -> AnyArray:
    """Channels become pixels: [batch, height, width, channels * factor²] to [batch, height * factor, width * factor, channels].

    >>> import trellis as tl
    >>> tl.pixel_shuffle(tl.reshape(tl.arange(4), (1, 1, 1, 4)), 2)[0, :, :, 0]
    Array([[0, 1],
           [2, 3]], dtype=int64, backend='numpy', device='cpu')
    """
    shape, factor = image_shape("pixel_shuffle", x, (2,)), _factor("pixel_shuffle", factor)
    last = channel_last("pixel_shuffle", data_format, 2)
    channels = None if shape is None else shape[-1 if last else 1]
    if channels is not None and channels % factor**2:
        raise ValueError(
            f"pixel_shuffle: x has shape {shape} with {channels} channels, which {factor}² = {factor**2} must divide"
        )
    return call("pixel_shuffle", x, factor=factor, channel_last=last)


def pixel_unshuffle(x: AnyArray, factor: int, /, *, data_format: str = "NHWC") -> AnyArray:
    """Pixels become channels: [batch, height * factor, width * factor, channels] to [batch, height, width, channels * factor²].

    >>> import trellis as tl
    >>> tl.pixel_unshuffle(tl.reshape(tl.arange(4), (1, 2, 2, 1)), 2)[0, 0, 0, :]
    Array([0, 1, 2, 3], dtype=int64, backend='numpy', device='cpu')
    """
    shape, factor = image_shape("pixel_unshuffle", x, (2,)), _factor("pixel_unshuffle", factor)
    last = channel_last("pixel_unshuffle", data_format, 2)
    sizes = () if shape is None else spatial(shape, last)
    if any(n is not None and n % factor for n in sizes):
        raise ValueError(f"pixel_unshuffle: x has shape {shape}, and factor={factor} must divide height and width {sizes}")
    return call("pixel_unshuffle", x, factor=factor, channel_last=last)


def _factor(op: str, factor: Any) -> int:
    found = integer(op, "factor", factor)
    if found < 1:
        raise ValueError(f"{op}: factor={factor} is too small; it must be 1 or more")
    return found


# ---- patches -------------------------------------------------------------------------------------------------------------------
def unfold(
    x: AnyArray,
    window: int | Sequence[int],
    strides: int | Sequence[int] = 1,
    padding: Any = 0,
    /,
    *,
    dilations: int | Sequence[int] = 1,
    data_format: str = "channel_last",
) -> AnyArray:
    """Patches under a sliding window (im2col): [batch, number of windows, channels * elements of the window].

    Channel-first it is [batch, channels * elements, number of windows]. The elements of one channel stand together. `padding` is
    "SAME", "VALID", an int, or a (low, high) pair a spatial axis.

    >>> import trellis as tl
    >>> tl.unfold(tl.reshape(tl.arange(4), (1, 4, 1)), 2)[0]
    Array([[0, 1],
           [1, 2],
           [2, 3]], dtype=int64, backend='numpy', device='cpu')
    """
    shape = image_shape("unfold", x)
    if shape is None:
        return each_leaf(
            "unfold", lambda leaf: unfold(leaf, window, strides, padding, dilations=dilations, data_format=data_format), x
        )
    last = channel_last("unfold", data_format, len(shape) - 2)
    size, steps, edges, spread, _ = _windows("unfold", known("unfold", spatial(shape, last)), window, strides, padding, dilations)
    return call("unfold", x, window=size, strides=steps, padding=edges, dilations=spread, channel_last=last)


def fold(
    x: AnyArray,
    output_size: Sequence[int],
    window: int | Sequence[int],
    strides: int | Sequence[int] = 1,
    padding: Any = 0,
    /,
    *,
    dilations: int | Sequence[int] = 1,
    data_format: str = "channel_last",
) -> AnyArray:
    """Images of spatial sizes `output_size` from patches as `unfold` makes them; where patches overlap they are summed.

    >>> import trellis as tl
    >>> tl.fold(tl.ones((1, 3, 2)), (4,), 2)[0, :, 0]
    Array([1., 2., 2., 1.], dtype=float32, backend='numpy', device='cpu')
    """
    sizes = tuple(integer("fold", "output_size", n) for n in output_size)
    if not 1 <= len(sizes) <= 3 or any(n < 1 for n in sizes):
        raise ValueError(f"fold: output_size={output_size!r} must be 1 to 3 sizes, each 1 or more")
    last = channel_last("fold", data_format, len(sizes))
    size, steps, edges, spread, windows = _windows("fold", sizes, window, strides, padding, dilations)
    shape = interpreters[type(x)].shape_of(x)
    if shape is not None:
        elements, count = math.prod(size), math.prod(windows)
        if len(shape) != 3 or shape[1 if last else 2] not in (None, count) or (shape[2 if last else 1] or 0) % elements:
            expected = f"(batch, {count}, channels * {elements})" if last else f"(batch, channels * {elements}, {count})"
            raise ValueError(f"fold: x has shape {shape}; windows {size} on output_size={sizes} need the shape {expected}")
    return call("fold", x, sizes=sizes, window=size, strides=steps, padding=edges, dilations=spread, channel_last=last)


def _windows(op: str, sizes: tuple[int, ...], window: Any, strides: Any, padding: Any, dilations: Any) -> tuple[Any, ...]:
    """Window, strides, padding and dilations of each axis, and how many windows fit."""
    dims = len(sizes)
    size, steps = per_axis(op, "window", window, dims), per_axis(op, "strides", strides, dims)
    spread = per_axis(op, "dilations", dilations, dims)
    edges = pairs(op, padding, sizes, size, steps, spread)
    return size, steps, edges, spread, counts(op, sizes, size, steps, edges, spread)
