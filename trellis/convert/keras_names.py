"""The names and layouts that Keras has for the weights of layers; see `layouts.Row`.

Filters are [*window, in, out] in both. Each layer of a recurrent network, at `layer0`, `layer0_reverse`, ... of ours, is one of
its own in Keras.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.convert.layouts import Row, Value, Values, blocks, matrix, row, same, swapped
from trellis.nn.attention import MultiHeadAttention
from trellis.nn.convolution import Convolution, DepthwiseConvolution, SeparableConvolution, TransposedConvolution
from trellis.nn.embedding import Embedding
from trellis.nn.functions import PReLU
from trellis.nn.linear import Linear
from trellis.nn.normalization import BatchNorm, Normalization, RMSNorm
from trellis.nn.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell


# ---- depthwise filters: [*window, 1, channels * multiplier] and [*window, channels, multiplier] --------------------------------
def _apart(layer: Any, x: Value) -> Values:
    channels = getattr(layer, "num_channels", None) or layer.input_channels
    return (x.reshape(*x.shape[:-2], channels, -1),)


def _together(layer: Any, x: Value) -> Values:
    return (x.reshape(*x.shape[:-2], 1, -1),)


# ---- attention: [3 * heads * size, in] and, for each of query, key and value, [in, heads, size] --------------------------------
_PARTS = ("query", "key", "value")


def _split(layer: Any, x: Value) -> Values:
    return tuple(np.transpose(part).reshape(-1, layer.num_heads, part.shape[0] // layer.num_heads) for part in np.split(x, 3))


def _fused(layer: Any, *parts: Value) -> Values:
    return (np.concatenate([np.transpose(part.reshape(part.shape[0], -1)) for part in parts]),)


def _one(name: str, part: str) -> Row:
    """A projection by itself."""

    def to_native(layer: Any, x: Value) -> Values:
        return (np.transpose(x).reshape(-1, layer.num_heads, x.shape[0] // layer.num_heads),)

    return Row((name,), (f"{part}/kernel",), to_native, _fused)


def _split_bias(layer: Any, x: Value) -> Values:
    return tuple(part.reshape(layer.num_heads, -1) for part in np.split(x, 3))


def _fused_bias(layer: Any, *parts: Value) -> Values:
    return (np.concatenate([part.reshape(-1) for part in parts]),)


def _from_heads(layer: Any, x: Value) -> Values:
    """[out, heads * size] to [heads, size, out]."""
    return (np.transpose(x).reshape(layer.num_heads, -1, x.shape[0]),)


def _to_heads(layer: Any, x: Value) -> Values:
    return (np.transpose(x.reshape(-1, x.shape[-1])),)


# ---- recurrent layers ----------------------------------------------------------------------------------------------------------
_KERNELS = (same("kernel", "kernel"), same("recurrent_kernel", "recurrent_kernel"))
_GATES = (1, 0, 2)  # of a GRU: reset, update, new of ours, and update, reset, new: its own inverse


def _one_bias(layer: Any, bias: Value, recurrent_bias: Value) -> Values:
    return (bias + recurrent_bias,)


def _two_biases(layer: Any, bias: Value) -> Values:
    return bias, np.zeros_like(bias)


def _gru_biases(layer: Any, bias: Value, recurrent_bias: Value) -> Values:
    return (np.stack([blocks(bias, _GATES), blocks(recurrent_bias, _GATES)]),)


def _from_gru_biases(layer: Any, bias: Value) -> Values:
    if bias.ndim != 2:
        raise ValueError(f"a GRU of Keras with reset_after=False, whose bias has shape {bias.shape}, computes another formula")
    return blocks(bias[0], _GATES), blocks(bias[1], _GATES)


def _gates(x: Value) -> Value:
    return blocks(x, _GATES)


_BIASES = ("bias", "recurrent_bias")
_SIMPLE = (*_KERNELS, Row(_BIASES, ("bias",), _one_bias, _two_biases))
_GRU = (
    *(row(name, name, _gates, _gates) for name in ("kernel", "recurrent_kernel")),
    Row(_BIASES, ("bias",), _gru_biases, _from_gru_biases),
)
_FILTER = (same("w", "kernel"), same("b", "bias"))
_AFFINE = (same("w", "gamma"), same("b", "beta"))

# Class -> rows. The nearest class of a layer that is listed decides; those of a network are for each of its layers.
TABLE: dict[type, tuple[Row, ...]] = {
    Linear: (matrix("w", "kernel"), same("b", "bias")),
    Embedding: (same("w", "embeddings"),),
    PReLU: (same("w", "alpha"),),
    Convolution: _FILTER,
    TransposedConvolution: (swapped("w", "kernel"), same("b", "bias")),
    DepthwiseConvolution: (Row(("w",), ("kernel",), _apart, _together), same("b", "bias")),
    SeparableConvolution: (
        Row(("depthwise/w",), ("depthwise_kernel",), _apart, _together),
        same("pointwise/w", "pointwise_kernel"),
        same("pointwise/b", "bias"),
    ),
    Normalization: _AFFINE,
    RMSNorm: (same("w", "scale"),),
    BatchNorm: (*_AFFINE, same("running_mean", "moving_mean"), same("running_variance", "moving_variance")),
    MultiHeadAttention: (
        Row(("in_proj_weights",), tuple(f"{part}/kernel" for part in _PARTS), _split, _fused),
        *(_one(f"{part[0]}_proj_weights", part) for part in _PARTS),
        Row(("in_proj_bias",), tuple(f"{part}/bias" for part in _PARTS), _split_bias, _fused_bias),
        Row(("out_proj_weights",), ("attention_output/kernel",), _from_heads, _to_heads),
        same("out_proj_bias", "attention_output/bias"),
    ),
    LSTM: _SIMPLE,
    LSTMCell: _SIMPLE,
    RNN: _SIMPLE,
    RNNCell: _SIMPLE,
    GRU: _GRU,
    GRUCell: _GRU,
}
