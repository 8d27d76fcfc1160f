"""Linear maps, attention and embeddings out of matrix products, softmax and take."""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from typing import Any

from trellis.composites.support import (
    LARGEST,
    arange,
    cast,
    count,
    dtype_of,
    floating,
    rank_of,
    resize,
    shape_of,
    single,
)  # fmt: skip
from trellis.dispatch import call
from trellis.dtypes import DType, bool as bool_, float32, float64
from trellis.ops.comparison import equal, greater, greater_equal, less, logical_and, not_equal
from trellis.ops.conversion import astype
from trellis.ops.creation import full_like
from trellis.ops.elementwise import add, cos, divide, exp, multiply, sin, sqrt, square, subtract
from trellis.ops.indexing import getitem, take
from trellis.ops.linalg import matmul, matrix_transpose
from trellis.ops.manipulation import concat, expand_dims, moveaxis, reshape, squeeze, stack
from trellis.ops.products import softmax
from trellis.ops.reduction import cumulative_sum, mean, sum
from trellis.ops.searching import where
from trellis.transforms import stop_gradient

__all__ = [
    "attention_scores", "embedding", "linear", "merge_heads", "multi_head_attention", "one_hot", "padding_mask",
    "rotary_embedding", "scaled_dot_product_attention", "split_heads",
]  # fmt: skip


# ---- linear --------------------------------------------------------------------------------------------------------------------
def linear(x: Any, weight: Any, bias: Any) -> Any:
    x, weight, bias = optional_floating("linear", x, weight, bias)
    shape, outer = shape_of(x), rank_of(weight) - 2
    inner = len(shape) - outer - 1
    if not outer and inner > 1:  # one product of two matrices
        y = matmul(resize(x, (count(shape[:-1]), shape[-1])), matrix_transpose(weight))
        y = y if bias is None else add(y, bias)
        return resize(y, (*shape[:-1], shape_of(weight)[0]))
    matrices = matrix_transpose(weight)
    if outer and inner > 1:
        matrices = expand_dims(matrices, tuple(range(outer, outer + inner - 1)))
    y = matmul(expand_dims(x, -2), matrices) if outer and not inner else matmul(x, matrices)
    y = squeeze(y, -2) if outer and not inner else y
    return y if bias is None else add(y, spread_bias(bias, outer, inner))


def spread_bias(bias: Any, outer: int, inner: int) -> Any:
    """A bias [*outer, out] with an axis for each of `inner` axes of the result in between."""
    return bias if rank_of(bias) == 1 or not inner else expand_dims(bias, tuple(range(outer, outer + inner)))


def optional_floating(op: str, *operands: Any) -> list[Any]:
    """The arrays among the operands, which may be None, in their common real floating-point dtype."""
    dtype = dtype_of(operands[0])
    if dtype.kind == "f" and all(x is None or dtype_of(x) is dtype for x in operands):
        return list(operands)
    computed = iter(floating(op, *(x for x in operands if x is not None), real=True))
    return [None if x is None else next(computed) for x in operands]


# ---- attention -----------------------------------------------------------------------------------------------------------------
def scaled_dot_product_attention(
    query: Any, key: Any, value: Any, mask: Any, noise: Any, *, scale: float, is_causal: bool, dropout_p: float
) -> Any:
    query, key, value = optional_floating("scaled_dot_product_attention", query, key, value)
    dtype = dtype_of(query)
    query, key, value = (cast(x, single(dtype)) for x in (query, key, value))
    weights = attention_weights(query, key, mask, noise, scale, is_causal, dropout_p)
    return cast(matmul(weights, value), dtype)


def attention_weights(query: Any, key: Any, mask: Any, noise: Any, scale: float, is_causal: bool, dropout_p: float) -> Any:
    scores = call("attention_scores", query, key, scale=scale)
    seen = visible(mask, is_causal, scores)
    if seen is None:
        weights = softmax(scores)
    else:  # a row of which nothing is seen is softmax of equal numbers, then 0: finite, as its gradient is
        weights = where(seen, softmax(where(seen, scores, -LARGEST[dtype_of(scores)] / 2)), 0)
    return weights if noise is None else dropped(weights, noise, dropout_p)


def attention_scores(query: Any, key: Any, *, scale: float) -> Any:
    return matmul(multiply(query, scale), matrix_transpose(key))


def visible(mask: Any, is_causal: bool, scores: Any) -> Any:
    """Which keys each query may attend to, as bools; None for all."""
    if mask is not None and dtype_of(mask) is not bool_:
        mask = not_equal(mask, 0)
    if not is_causal:
        return mask
    queries, keys = places(scores), places(matrix_transpose(scores))
    before = greater_equal(expand_dims(queries, -1), expand_dims(keys, -2))
    return before if mask is None else logical_and(mask, before)


def dropped(x: Any, noise: Any, prob: float) -> Any:
    return where(greater_equal(noise, prob), multiply(x, 1 / (1 - prob)) if prob < 1 else x, 0)


def split_heads(x: Any, *, heads: int) -> Any:
    """[..., length, features] as [..., heads, length, features / heads]."""
    *batch, length, features = shape_of(x)
    return moveaxis(resize(x, (*batch, length, heads, features // heads)), -2, -3)  # type: ignore[operator]


def merge_heads(x: Any) -> Any:
    *batch, heads, length, features = shape_of(x)
    return resize(moveaxis(x, -3, -2), (*batch, length, heads * features))  # type: ignore[operator]


def multi_head_attention(
    query: Any, key: Any, value: Any, mask: Any, key_padding_mask: Any, in_weights: Any, q_weights: Any, k_weights: Any,
    v_weights: Any, out_weights: Any, in_bias: Any, out_bias: Any, noise: Any, *, scale: float, num_heads: int, dropout_p: float,
    is_causal: bool, return_attention_weights: bool, average_attention_weights: bool,
) -> Any:  # fmt: skip
    weights = (q_weights, k_weights, v_weights)
    parts = [call("split_heads", x, heads=num_heads) for x in _projected(query, key, value, in_weights, weights, in_bias)]
    seen = _joint_mask(mask, key_padding_mask, rank_of(query) == 3, num_heads, shape_of(query)[0])
    if not return_attention_weights:
        options = {"scale": scale, "is_causal": is_causal, "dropout_p": dropout_p}
        attended = call("scaled_dot_product_attention", *parts, seen, noise, **options)
        return _output(attended, out_weights, out_bias)
    q, k, v = optional_floating("multi_head_attention", *parts)
    dtype = dtype_of(q)
    q, k, v = (cast(x, single(dtype)) for x in (q, k, v))
    shares = attention_weights(q, k, seen, noise, scale, is_causal, dropout_p)
    result = _output(cast(matmul(shares, v), dtype), out_weights, out_bias)
    return result, cast(mean(shares, axis=-3) if average_attention_weights else shares, dtype)


def _output(attended: Any, weights: Any, bias: Any) -> Any:
    merged = call("merge_heads", attended)
    if weights is not None:
        return call("linear", merged, weights, bias)
    return merged if bias is None else add(merged, bias)


def _projected(query: Any, key: Any, value: Any, packed: Any, weights: Any, bias: Any) -> Any:
    """Queries, keys and values of all heads; of one array, and one array of weights, by one product."""
    if packed is None and weights[0] is None:
        widths = [shape_of(x)[-1] for x in (query, key, value)]
        inputs = (query, key, value)
        return inputs if bias is None else [add(x, b) for x, b in zip(inputs, _parts(bias, widths, 0))]
    if packed is not None:
        width = shape_of(query)[-1] if shape_of(packed)[0] is None else shape_of(packed)[0] // 3  # type: ignore[operator]
        if key is query and value is query:
            return _parts(call("linear", query, packed, bias), [width] * 3, -1)
        weights = _parts(packed, [width] * 3, 0)
    biases = [None] * 3 if bias is None else _parts(bias, [shape_of(w)[0] for w in weights], 0)
    return [call("linear", x, w, b) for x, w, b in zip((query, key, value), weights, biases)]


def _parts(x: Any, widths: list[Any], axis: int) -> list[Any]:
    ends = [0, *accumulate(widths)]
    before = (...,) if axis else ()
    return [getitem(x, (*before, slice(a, b))) for a, b in pairwise(ends)]


def _joint_mask(mask: Any, padding: Any, batched: bool, heads: int, batch: Any) -> Any:
    """Both masks as one that broadcasts to [batch, heads, q, k], or without batch."""
    if mask is not None and rank_of(mask) == 3 and batched:
        first = shape_of(mask)[0]
        if first == 1 or (first == batch and heads != 1) or (first is None and batch is None):
            mask = expand_dims(mask, 1)
        else:
            mask = reshape(mask, (-1, heads, *(n or -1 for n in shape_of(mask)[1:])))
    if padding is None:
        return mask
    padding = expand_dims(padding, (1, 2) if batched else (0, 1))
    if mask is None:
        return padding
    return logical_and(*(x if dtype_of(x) is bool_ else not_equal(x, 0) for x in (mask, padding)))


# ---- embeddings ----------------------------------------------------------------------------------------------------------------
def embedding(indices: Any, weight: Any, *, padding_idx: Any, max_norm: Any) -> Any:
    rows = take(weight, indices, axis=0)
    if padding_idx is not None:
        rows = where(expand_dims(equal(indices, padding_idx), -1), stop_gradient(rows), rows)
    if max_norm is None:
        return rows
    wide = cast(rows, single(dtype_of(rows)))
    squares = sum(square(wide), axis=-1, keepdims=True)
    above = greater(squares, max_norm**2)
    factor = where(above, divide(max_norm, sqrt(where(above, squares, 1.0))), 1.0)
    return cast(multiply(wide, factor), dtype_of(rows))


def one_hot(indices: Any, *, num_classes: int, axis: int, dtype: DType) -> Any:
    classes = resize(arange(indices, num_classes), (num_classes,) + (1,) * (rank_of(indices) - axis))
    hot = equal(expand_dims(astype(indices, dtype_of(classes)), axis), classes)
    return hot if dtype is bool_ else astype(hot, dtype)


def rotary_embedding(x: Any, positions: Any, *, base: float, interleaved: bool, dim: int, scale: float) -> Any:
    (x,) = floating("rotary_embedding", x, real=True)
    dtype, half = dtype_of(x), dim // 2
    compute = float64 if dtype is float64 else float32
    if positions is None:
        positions = places(x)
    rates = multiply(arange(x, half, compute), -2 * math.log(base) / max(dim, 1))
    angles = multiply(expand_dims(multiply(astype(positions, compute), scale), -1), exp(rates))
    sines, cosines = sin(angles), cos(angles)
    wide = astype(getitem(x, (..., slice(0, dim))), compute)
    spans = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, half), slice(half, None))
    first, second = (getitem(wide, (..., s)) for s in spans)
    turned = [subtract(multiply(first, cosines), multiply(second, sines)), add(multiply(second, cosines), multiply(first, sines))]
    joined = call("merge_heads", moveaxis(stack(turned, axis=-1), -2, -3)) if interleaved else concat(turned, axis=-1)
    joined = cast(joined, dtype)
    return joined if dim == shape_of(x)[-1] else concat([joined, getitem(x, (..., slice(dim, None)))], axis=-1)


def places(x: Any) -> Any:
    """0, 1, 2, ... along the last axis but one, whose size a graph may not know."""
    length = shape_of(x)[-2]
    if length is not None:
        return arange(x, length)
    ones = full_like(stop_gradient(getitem(x, (..., 0))), 1, dtype=float32)
    return subtract(cumulative_sum(ones, axis=-1), 1)


def padding_mask(lengths: Any, *, size: int) -> Any:
    places = arange(lengths, size)
    return less(places, expand_dims(astype(lengths, dtype_of(places)), -1))
