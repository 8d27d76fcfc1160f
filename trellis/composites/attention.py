"""Linear maps, attention and embeddings, made of matrix products, softmax and take; dropout, of features and of attention."""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from typing import Any

from trellis import ops as tl
from trellis.composites.support import LARGEST, Maybe, arange, cast, count, floating, resize, single, wide
from trellis.core.array import Array
from trellis.core.dispatch import call
from trellis.core.dtypes import DType, bool as bool_, float32, float64
from trellis.core.typing import SeedLike
from trellis.random.sources import Draw, NativeKey

Sizes = tuple[int | None, ...]


# ---- linear --------------------------------------------------------------------------------------------------------------------
def linear(x: Array, weight: Array, bias: Maybe) -> Array:
    x, weight, bias = floating("linear", x, weight, bias, real=True)
    shape, outer = x.shape, weight.ndim - 2
    inner = len(shape) - outer - 1
    if not outer and inner > 1:  # one product of two matrices
        y = resize(x, (count(shape[:-1]), shape[-1])) @ weight.mT
        y = y if bias is None else y + bias
        return resize(y, (*shape[:-1], weight.shape[0]))
    matrices = weight.mT
    if outer and inner > 1:
        matrices = tl.expand_dims(matrices, tuple(range(outer, outer + inner - 1)))
    y = tl.expand_dims(x, -2) @ matrices if outer and not inner else x @ matrices
    y = tl.squeeze(y, -2) if outer and not inner else y
    return y if bias is None else y + _spread_bias(bias, outer, inner)


def _spread_bias(bias: Array, outer: int, inner: int) -> Array:
    """A bias [*outer, out] with `inner` axes of size 1 in between, so that it broadcasts against the result."""
    return bias if bias.ndim == 1 or not inner else tl.expand_dims(bias, tuple(range(outer, outer + inner)))


# ---- attention -----------------------------------------------------------------------------------------------------------------
def scaled_dot_product_attention(
    query: Array, key: Array, value: Array, mask: Array, noise: Array, *, scale: float, is_causal: bool, dropout_p: float
) -> Array:
    dtype, (query, key, value) = wide("scaled_dot_product_attention", query, key, value)
    weights = _attention_weights(query, key, mask, noise, scale, is_causal, dropout_p)
    return cast(weights @ value, dtype)


def _attention_weights(
    query: Array, key: Array, mask: Maybe, noise: Maybe, scale: float, is_causal: bool, dropout_p: float
) -> Array:
    scores = call("attention_scores", query, key, scale=scale)
    seen = _visible(mask, is_causal, scores)
    if seen is None:
        weights = tl.softmax(scores)
    else:  # a row that sees nothing is the softmax of equal numbers, then 0: it is finite, and so is its gradient
        weights = tl.where(seen, tl.softmax(tl.where(seen, scores, -LARGEST[scores.dtype] / 2)), 0)
    return weights if noise is None else _dropped(weights, noise, dropout_p)


def attention_scores(query: Array, key: Array, *, scale: float) -> Array:
    return query * scale @ key.mT


def _visible(mask: Maybe, is_causal: bool, scores: Array) -> Maybe:
    """Which keys each query may attend to, as bools; None for all."""
    mask = None if mask is None else _as_bool(mask)
    if not is_causal:
        return mask
    queries, keys = _places(scores), _places(scores.mT)
    before = tl.expand_dims(queries, -1) >= tl.expand_dims(keys, -2)
    return before if mask is None else mask & before


def _dropped(x: Array, noise: Array, prob: float) -> Array:
    return tl.where(noise >= prob, x * (1 / (1 - prob)) if prob < 1 else x, 0)


def split_heads(x: Array, *, heads: int) -> Array:
    """From [..., length, features] to [..., heads, length, features / heads]."""
    *batch, length, features = x.shape
    return tl.moveaxis(resize(x, (*batch, length, heads, features // heads)), -2, -3)  # type: ignore[operator]


def merge_heads(x: Array) -> Array:
    *batch, heads, length, features = x.shape
    return resize(tl.moveaxis(x, -3, -2), (*batch, length, heads * features))  # type: ignore[operator]


def multi_head_attention(
    query: Array, key: Array, value: Array, mask: Maybe, key_padding_mask: Maybe, in_weights: Maybe, q_weights: Maybe,
    k_weights: Maybe, v_weights: Maybe, out_weights: Maybe, in_bias: Maybe, out_bias: Maybe, noise: Maybe, *, scale: float,
    num_heads: int, dropout_p: float, is_causal: bool, return_attention_weights: bool, average_attention_weights: bool,
) -> Any:  # fmt: skip
    query, key, value, in_weights, *weights, out_weights, in_bias, out_bias = floating(
        "multi_head_attention", query, key, value, in_weights, q_weights, k_weights, v_weights, out_weights, in_bias, out_bias,
        real=True,
    )  # fmt: skip
    parts = [call("split_heads", x, heads=num_heads) for x in _projected(query, key, value, in_weights, weights, in_bias)]
    seen = _joint_mask(mask, key_padding_mask, query.ndim == 3, num_heads, query.shape[0])
    if not return_attention_weights:
        options = {"scale": scale, "is_causal": is_causal, "dropout_p": dropout_p}
        return _output(call("scaled_dot_product_attention", *parts, seen, noise, **options), out_weights, out_bias)
    dtype = query.dtype
    q, k, v = (cast(x, single(dtype)) for x in parts)
    shares = _attention_weights(q, k, seen, noise, scale, is_causal, dropout_p)
    result = _output(cast(shares @ v, dtype), out_weights, out_bias)
    return result, cast(tl.mean(shares, axis=-3) if average_attention_weights else shares, dtype)


def _output(attended: Array, weights: Maybe, bias: Maybe) -> Array:
    merged = call("merge_heads", attended)
    if weights is not None:
        return call("linear", merged, weights, bias)
    return merged if bias is None else merged + bias


def _projected(query: Array, key: Array, value: Array, packed: Maybe, weights: Any, bias: Maybe) -> Any:
    """Queries, keys and values of all heads. One product computes the three if they share their array and their weights."""
    inputs = (query, key, value)
    if packed is None and weights[0] is None:
        return inputs if bias is None else [x + b for x, b in zip(inputs, _parts(bias, [x.shape[-1] for x in inputs], 0))]
    if packed is not None:
        width = query.shape[-1] if packed.shape[0] is None else packed.shape[0] // 3  # type: ignore[operator]
        if key.native is query.native and value.native is query.native:
            return _parts(call("linear", query, packed, bias), [width] * 3, -1)
        weights = _parts(packed, [width] * 3, 0)
    biases = [None] * 3 if bias is None else _parts(bias, [w.shape[0] for w in weights], 0)
    return [call("linear", x, w, b) for x, w, b in zip(inputs, weights, biases)]


def _parts(x: Array, widths: list[Any], axis: int) -> list[Array]:
    ends = [0, *accumulate(widths)]
    before = (...,) if axis else ()
    return [x[*before, a:b] for a, b in pairwise(ends)]


def _joint_mask(mask: Maybe, padding: Maybe, batched: bool, heads: int, batch: int | None) -> Maybe:
    """Both masks as one that broadcasts to [batch, heads, q, k], or to [heads, q, k] without a batch."""
    if mask is not None and mask.ndim == 3 and batched:
        first = mask.shape[0]
        if first == 1 or (first == batch and heads != 1) or (first is None and batch is None):
            mask = tl.expand_dims(mask, 1)
        else:
            mask = tl.reshape(mask, (-1, heads, *(n or -1 for n in mask.shape[1:])))
    if padding is None:
        return mask
    keys = tl.expand_dims(padding, (1, 2) if batched else (0, 1))
    return keys if mask is None else _as_bool(mask) & _as_bool(keys)


def _as_bool(mask: Array) -> Any:
    return mask if mask.dtype is bool_ else mask != 0


# ---- embeddings ----------------------------------------------------------------------------------------------------------------
def embedding(indices: Array, weight: Array, *, padding_idx: int | None, max_norm: float | None) -> Array:
    rows = tl.take(weight, indices, axis=0)
    if padding_idx is not None:
        rows = tl.where(tl.expand_dims(indices == padding_idx, -1), tl.stop_gradient(rows), rows)
    if max_norm is None:
        return rows
    wide = cast(rows, single(rows.dtype))
    squares = tl.sum(tl.square(wide), axis=-1, keepdims=True)
    above = squares > max_norm**2
    factor = tl.where(above, max_norm / tl.sqrt(tl.where(above, squares, 1.0)), 1.0)
    return cast(wide * factor, rows.dtype)


def one_hot(indices: Array, *, num_classes: int, axis: int, dtype: DType) -> Array:
    classes = resize(arange(indices, num_classes), (num_classes,) + (1,) * (indices.ndim - axis))
    hot = tl.expand_dims(tl.astype(indices, classes.dtype), axis) == classes
    return hot if dtype is bool_ else tl.astype(hot, dtype)


def rotary_embedding(x: Array, positions: Maybe, *, base: float, interleaved: bool, dim: int, scale: float) -> Array:
    (x,) = floating("rotary_embedding", x, real=True)
    dtype, half = x.dtype, dim // 2
    compute = float64 if dtype is float64 else float32
    if positions is None:
        positions = _places(x)
    rates = arange(x, half, compute) * (-2 * math.log(base) / max(dim, 1))
    angles = tl.expand_dims(tl.astype(positions, compute) * scale, -1) * tl.exp(rates)
    sines, cosines = tl.sin(angles), tl.cos(angles)
    wide = tl.astype(x[..., 0:dim], compute)
    spans = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, half), slice(half, None))
    first, second = (wide[..., s] for s in spans)
    turned = [first * cosines - second * sines, second * cosines + first * sines]
    joined = call("merge_heads", tl.moveaxis(tl.stack(turned, axis=-1), -2, -3)) if interleaved else tl.concat(turned, axis=-1)
    joined = cast(joined, dtype)
    return joined if dim == x.shape[-1] else tl.concat([joined, x[..., dim:]], axis=-1)


def _places(x: Array) -> Array:
    """0, 1, 2, ... along the last axis but one, whose size a graph may not know."""
    length = x.shape[-2]
    if length is not None:
        return arange(x, length)
    ones = tl.full_like(tl.stop_gradient(x[..., 0]), 1, dtype=float32)
    return tl.cumulative_sum(ones, axis=-1) - 1


def padding_mask(lengths: Array, *, size: int) -> Array:
    places = arange(lengths, size)
    return places < tl.expand_dims(tl.astype(lengths, places.dtype), -1)


# ---- dropout -----------------------------------------------------------------------------------------------------------------
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
