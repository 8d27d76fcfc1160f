"""Dropout, and the noise that decides which weights of attention are dropped."""

from __future__ import annotations

from trellis import ops as tl
from trellis.core.array import Array
from trellis.core.dtypes import float32
from trellis.core.typing import SeedLike
from trellis.random.sources import Draw, NativeKey

Sizes = tuple[int | None, ...]


def dropout(x: Array, *, prob: float, scale: bool, noise_shape: Sizes | None, seed: SeedLike) -> Array:
    if isinstance(seed, NativeKey) and noise_shape is None and scale:
        return Array(seed.generator.dropout(x._data, prob))
    noise = _uniform("dropout", x.shape if noise_shape is None else noise_shape, seed, x)
    return tl.where(noise >= prob, x * (1 / (1 - prob)) if scale and prob < 1 else x, 0)


def attention_noise(query: Array, key: Array, *, function: str, sizes: Sizes, seed: SeedLike) -> Array:
    """A uniform number for each weight: [..., q, k] of `sizes`, which may have an axis of heads more than query and key."""
    if None not in sizes:
        return _uniform(function, sizes, seed, query)
    rows, columns = query[..., :1], key[..., :1].mT
    if len(sizes) > query.ndim:
        rows, columns = tl.expand_dims(rows, -3), tl.expand_dims(columns, -3)
    return _uniform(function, sizes, seed, rows, columns)


def _uniform(function: str, sizes: Sizes, seed: SeedLike, *arrays: Array) -> Array:
    """Numbers in [0, 1) beside the first of the arrays. Unknown sizes are those of the shape that the arrays broadcast to."""
    draw = Draw(function, {"x": arrays[0]}, seed=seed, event=None)
    if None in sizes:
        dynamic = draw.interpreter.dynamic_shape(*(x._data for x in arrays), event=0)
        sizes = tuple(m if n is None else n for n, m in zip(sizes, dynamic))
    return draw.finish(draw.source.unit(sizes, float32))
