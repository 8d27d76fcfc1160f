"""Linear maps and attention on TensorFlow's kernels; lengths that the graph does not know included."""

from __future__ import annotations

from typing import Any

from tensorflow.python.ops import gen_math_ops, gen_nn_ops

from trellis.backends.tensorflow.arrangement import reshaped, transposed
from trellis.backends.tensorflow.meta import rank_of, tensor
from trellis.backends.tensorflow.shapes import product, sizes
from trellis.composites import composed
from trellis.composites.support import floating


def linear(x: Any, weight: Any, bias: Any) -> Any:
    x, weight, bias = floating("linear", x, weight, bias, real=True)
    if rank_of(weight) > 2:
        return composed.linear(x, weight, bias)
    *batch, features = sizes(x)
    rows = tensor(x) if len(batch) == 1 else reshaped(x, (product(batch), features))
    y = gen_math_ops.mat_mul(rows, weight, transpose_b=True)
    y = y if bias is None else gen_nn_ops.bias_add(y, bias)
    return y if len(batch) == 1 else reshaped(y, (*batch, sizes(weight)[0]))


def attention_scores(query: Any, key: Any, *, scale: float) -> Any:
    return gen_math_ops.batch_mat_mul_v2(gen_math_ops.mul(query, scale), key, adj_y=True)


def split_heads(x: Any, *, heads: int) -> Any:
    *batch, length, features = sizes(x)
    return _swapped_heads(reshaped(x, (*batch, length, heads, features // heads)))


def merge_heads(x: Any) -> Any:
    *batch, heads, length, features = sizes(x)
    return reshaped(_swapped_heads(x), (*batch, length, heads * features))


def _swapped_heads(x: Any) -> Any:
    """[..., length, heads, features] to [..., heads, length, features], or back."""
    batch = rank_of(x) - 3
    return transposed(x, (*range(batch), batch + 1, batch, batch + 2))
