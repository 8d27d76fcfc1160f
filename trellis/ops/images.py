"""Images and other grids: resizing, sampling at points, rearranging channels and pixels, patches.

An image has the shape [batch, *spatial, channels], or with a channel-first `data_format` [batch, channels, *spatial]. The
coordinates, the weights and the order of channels are those of torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from trellis.core.dispatch import call, interpreters
from trellis.core.typing import AnyArray
from trellis.ops.arguments import choice, integer
from trellis.ops.shapes import Sizes, listed, shape_of
from trellis.ops.windows import Ints, Padding, channel_last, counts, per_axis, sliding, spatial

__all__ = ["fold", "grid_sample", "interpolate", "pixel_shuffle", "pixel_unshuffle", "resize", "unfold"]

# mode -> (its name in the backends, the numbers of spatial axes that it is for)
_MODES = {
    "nearest": ("nearest", (1, 2, 3)), "nearest_exact": ("nearest_exact", (1, 2, 3)), "area": ("area", (1, 2, 3)),
    "linear": ("linear", (1, 2, 3)), "bilinear": ("linear", (2,)), "trilinear": ("linear", (3,)), "bicubic": ("cubic", (2,)),
}  # fmt: skip


def image_shape(op: str, x: AnyArray, dims: tuple[int, ...] = (1, 2, 3)) -> Sizes:
    """The shape of a batch of images, which must have one of these numbers of spatial axes."""
    shape = interpreters[type(x)].shape_of(x)
    if len(shape) - 2 not in dims:
        ranks = " or ".join(str(d + 2) for d in dims)
        raise ValueError(f"{op}: x has shape {shape}; it needs {ranks} dimensions: batch, channels and {_spell(dims)}")
    return shape


def _spell(dims: tuple[int, ...]) -> str:
    return f"{' or '.join(map(str, dims))} spatial {'axis' if dims == (1,) else 'axes'}"


def known(op: str, sizes: Sizes, *, empty: bool = False) -> Sizes:
    """The spatial sizes, all of them known. Only if images may be `empty`, a size may be 0."""
    if None in sizes:
        axis = sizes.index(None)
        raise ValueError(f"{op}: the size of spatial axis {axis} is unknown in this graph; fix it with tf.ensure_shape")
    if 0 in sizes and not empty:
        raise ValueError(f"{op}: x has spatial sizes {sizes}; an image without pixels has nothing to read")
    return sizes


# ---- resizing ------------------------------------------------------------------------------------------------------------------
def interpolate(
    x: AnyArray, size: Ints | None = None, /, *, scale_factor: float | Sequence[float] | None = None, mode: str = "nearest",
    align_corners: bool = False, antialias: bool = False, data_format: str = "channel_last",
) -> AnyArray:  # fmt: skip
    """Images of another size: `size` for each spatial axis, or floor(old size * scale_factor).

    `mode` is "nearest", "nearest_exact", "linear" ("bilinear", "trilinear"), "bicubic" or "area". With `align_corners` the
    centres of the first and last pixels keep their places, else their outer edges do. `antialias` widens the filter where images
    shrink.

    >>> import trellis as tl
    >>> tl.interpolate(tl.asarray([[[0.0], [1.0]]]), 4, mode="linear")[0, :, 0]
    Array([0.  , 0.25, 0.75, 1.  ], dtype=float32, backend='numpy', device='cpu')
    """
    shape = image_shape("interpolate", x)
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
    made, scales = _resized(sizes, size, scale_factor)
    return call(
        "interpolate", x, sizes=made, scales=scales, mode=name, align_corners=align_corners, antialias=antialias,
        channel_last=last,
    )  # fmt: skip


resize = interpolate


def _resized(sizes: tuple[int, ...], size: Any, scale_factor: Any) -> tuple[tuple[int, ...], tuple[float, ...] | None]:
    """The new sizes, and the scales if they are given: the coordinates then follow the scales, not the rounded sizes."""
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
    x: AnyArray, grid: AnyArray, /, *, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False,
    data_format: str = "channel_last",
) -> AnyArray:  # fmt: skip
    """Images at the points of `grid` [batch, *new spatial sizes, 2 or 3]: the coordinates are (x, y) or (x, y, z) from -1 to 1.

    `mode` is "bilinear" (trilinear for 3 spatial axes), "nearest" or "bicubic" (2 spatial axes). Beyond the edge, `padding_mode`
    gives "zeros", the "border", or the "reflection" of the image. -1 and 1 are the outer edges of the image; with `align_corners`
    they are the centres of the outermost pixels.

    >>> import trellis as tl
    >>> image = tl.asarray([[[[1.0], [3.0]]]])
    >>> tl.grid_sample(image, tl.asarray([[[[-0.5, 0.0], [0.0, 0.0]]]]))[0, 0, :, 0]
    Array([1., 2.], dtype=float32, backend='numpy', device='cpu')
    """
    mode = choice("grid_sample", "mode", mode, ("bilinear", "nearest", "bicubic"))
    padding_mode = choice("grid_sample", "padding_mode", padding_mode, ("zeros", "border", "reflection"))
    shape, points = image_shape("grid_sample", x, (2, 3)), interpreters[type(grid)].shape_of(grid)
    dims = len(shape) - 2
    if mode == "bicubic" and dims != 2:
        raise ValueError(f"grid_sample: mode='bicubic' is for 2 spatial axes, but x has shape {shape}")
    batches = {shape[0], points[0] if points else 0} - {None}
    if len(points) != dims + 2 or points[-1] != dims or len(batches) > 1:
        wanted = listed(shape[0], *["size"] * dims, dims)
        raise ValueError(f"grid_sample: grid has shape {points}; for x of shape {shape} it must be {wanted}")
    last = channel_last("grid_sample", data_format, dims)
    known("grid_sample", spatial(shape, last))
    return call("grid_sample", x, grid, mode=mode, padding_mode=padding_mode, align_corners=align_corners, channel_last=last)


# ---- channels and pixels -------------------------------------------------------------------------------------------------------
def pixel_shuffle(x: AnyArray, factor: int, /, *, data_format: str = "NHWC") -> AnyArray:
    """Channels become pixels: [batch, height, width, channels * factor²] to [batch, height * factor, width * factor, channels].

    >>> import trellis as tl
    >>> tl.pixel_shuffle(tl.reshape(tl.arange(4), (1, 1, 1, 4)), 2)[0, :, :, 0]
    Array([[0, 1],
           [2, 3]], dtype=int64, backend='numpy', device='cpu')
    """
    shape, factor = image_shape("pixel_shuffle", x, (2,)), integer("pixel_shuffle", "factor", factor, 1)
    last = channel_last("pixel_shuffle", data_format, 2)
    channels = shape[-1 if last else 1]
    if channels is not None and channels % factor**2:
        raise ValueError(f"pixel_shuffle: x of shape {shape} has {channels} channels, which {factor}² = {factor**2} must divide")
    return call("pixel_shuffle", x, factor=factor, channel_last=last)


def pixel_unshuffle(x: AnyArray, factor: int, /, *, data_format: str = "NHWC") -> AnyArray:
    """Pixels become channels: [batch, height * factor, width * factor, channels] to [batch, height, width, channels * factor²].

    >>> import trellis as tl
    >>> tl.pixel_unshuffle(tl.reshape(tl.arange(4), (1, 2, 2, 1)), 2)[0, 0, 0, :]
    Array([0, 1, 2, 3], dtype=int64, backend='numpy', device='cpu')
    """
    shape, factor = image_shape("pixel_unshuffle", x, (2,)), integer("pixel_unshuffle", "factor", factor, 1)
    last = channel_last("pixel_unshuffle", data_format, 2)
    sizes = spatial(shape, last)
    if any(n is not None and n % factor for n in sizes):
        raise ValueError(f"pixel_unshuffle: x has shape {shape}, and factor={factor} must divide height and width {sizes}")
    return call("pixel_unshuffle", x, factor=factor, channel_last=last)


# ---- patches -------------------------------------------------------------------------------------------------------------------
def unfold(
    x: AnyArray, window: Ints, strides: Ints = 1, padding: Padding = 0, /, *, dilations: Ints = 1,
    data_format: str = "channel_last",
) -> AnyArray:  # fmt: skip
    """Patches under a sliding window (im2col): [batch, number of windows, channels * elements of the window].

    Channel first, it is [batch, channels * elements, number of windows]. The elements of one channel are neighbours. `padding` is
    "SAME", "VALID", an int, or a (low, high) pair per spatial axis.

    >>> import trellis as tl
    >>> tl.unfold(tl.reshape(tl.arange(4), (1, 4, 1)), 2)[0]
    Array([[0, 1],
           [1, 2],
           [2, 3]], dtype=int64, backend='numpy', device='cpu')
    """
    shape = image_shape("unfold", x)
    last = channel_last("unfold", data_format, len(shape) - 2)
    sizes = known("unfold", spatial(shape, last), empty=True)
    size, steps, edges, spread = sliding("unfold", sizes, window, strides, padding, dilations)
    counts("unfold", sizes, size, steps, edges, spread)
    return call("unfold", x, window=size, strides=steps, padding=edges, dilations=spread, channel_last=last)


def fold(
    x: AnyArray, output_size: Sequence[int], window: Ints, strides: Ints = 1, padding: Padding = 0, /, *,
    dilations: Ints = 1, data_format: str = "channel_last",
) -> AnyArray:  # fmt: skip
    """The adjoint of `unfold`: images of spatial sizes `output_size` from patches; patches that overlap add up.

    >>> import trellis as tl
    >>> tl.fold(tl.ones((1, 3, 2)), (4,), 2)[0, :, 0]
    Array([1., 2., 2., 1.], dtype=float32, backend='numpy', device='cpu')
    """
    sizes = tuple(integer("fold", "output_size", n) for n in output_size)
    if not 1 <= len(sizes) <= 3 or any(n < 1 for n in sizes):
        raise ValueError(f"fold: output_size={output_size!r} must be 1 to 3 sizes, each 1 or more")
    last = channel_last("fold", data_format, len(sizes))
    size, steps, edges, spread = sliding("fold", sizes, window, strides, padding, dilations)
    shape, elements, count = shape_of(x), math.prod(size), math.prod(counts("fold", sizes, size, steps, edges, spread))
    if len(shape) != 3 or shape[1 if last else 2] not in (None, count) or (shape[2 if last else 1] or 0) % elements:
        expected = f"(batch, {count}, channels * {elements})" if last else f"(batch, channels * {elements}, {count})"
        raise ValueError(f"fold: x has shape {shape}; windows {size} on output_size={sizes} need the shape {expected}")
    return call("fold", x, sizes=sizes, window=size, strides=steps, padding=edges, dilations=spread, channel_last=last)
