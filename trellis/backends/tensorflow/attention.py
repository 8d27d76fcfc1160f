"""Linear maps and attention on TensorFlow's kernels; lengths that the graph does not know included."""

from __future__ import annotations

from typing import Any

from tensorflow.python.ops import gen_array_ops, gen_math_ops, gen_nn_ops

from trellis.backends.tensorflow.meta import rank_of, tensor
from trellis.backends.tensorflow.shapes import product, reshaped, sizes, vector
from trellis.composites import attention
from trellis.composites.attention import optional_floating

__all__ = ["attention_scores", "linear", "merge_heads", "split_heads"]


def linear(x: Any, weight: Any, bias: Any) -> Any:
    x, weight, bias = optional_floating("linear", x, weight, bias)
    if rank_of(weight) > 2:
        return attention.linear(x, weight, bias)
    *batch, features = sizes(x)
    rows = tensor(x) if len(batch) == 1 else reshaped(x, (product(batch), features))
    y = gen_math_ops.mat_mul(rows, weight, transpose_b=True)
    y = y if bias is None else gen_nn_ops.bias_add(y, bias)
    return y if len(batch) == 1 else reshaped(y, (*batch, sizes(weight)[0]))


def attention_scores(query: Any, key: Any, *, scale: float) -> Any:
    return gen_math_ops.batch_mat_mul_v2(gen_math_ops.mul(query, scale), key, adj_y=True)


def split_heads(x: Any, *, heads: int) -> Any:
    *batch, length, features = sizes(x)
    order = (*range(len(batch)), len(batch) + 1, len(batch), len(batch) + 2)
    return gen_array_ops.transpose(reshaped(x, (*batch, length, heads, features // heads)), vector(order))


def merge_heads(x: Any) -> Any:
    *batch, heads, length, features = sizes(x)
    order = (*range(len(batch)), len(batch) + 1, len(batch), len(batch) + 2)
    return reshaped(gen_array_ops.transpose(x, vector(order)), (*batch, length, heads * features))
