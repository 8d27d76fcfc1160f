"""The names and layouts that Haiku has for the parameters and the state of layers; see `layouts.Row`.

Filters are [*window, in, out] in both. Each layer of a recurrent network, at `layer0`, `layer0_reverse`, ... of ours, is a core
of its own in Haiku.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.convert.flax_names import mirrored
from trellis.convert.layouts import BIASES, PARTS, Row, Value, Values, blocks, flat, matrix, reshaped, row, same, split, swapped
from trellis.nn.attention import MultiHeadAttention
from trellis.nn.convolution import Convolution, TransposedConvolution
from trellis.nn.linear import Embedding, Linear
from trellis.nn.normalization import BatchNorm, Normalization
from trellis.nn.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell


# ---- one number per channel, as Haiku shapes it --------------------------------------------------------------------------------
def _is_last(layer: Any) -> bool:
    return layer.data_format in ("channel_last", "NWC", "NHWC", "NDHWC")


def _bias(layer: Any, x: Value) -> Value:
    return x if _is_last(layer) else x.reshape(-1, *[1] * layer.dims)


def _beside(layer: Any, x: Value) -> Value:
    """With one axis per axis of the input; two, if the input may have two or three."""
    ones = [1] * (layer.axes[0] - 1)
    return x.reshape(*ones, -1) if _is_last(layer) or len(ones) == 1 else x.reshape(1, -1, *ones[1:])


# ---- batch normalization: averages, and the sums that they are made of ---------------------------------------------------------
def _statistics(layer: Any, mean: Value, variance: Value, batches: Value) -> Values:
    decay = 0.0 if layer.momentum is None else 1.0 - layer.momentum
    counted = np.asarray(batches, np.int32)
    made: list[Value] = []
    for average in (_beside(layer, mean), _beside(layer, variance)):
        made += [counted, (average * (1 - decay ** int(counted))).astype(average.dtype), average]
    return tuple(made)


def _from_statistics(layer: Any, *found: Value) -> Values:
    counted, _, mean, _, _, variance = found
    return mean.reshape(-1), variance.reshape(-1), counted.reshape(())


_AVERAGES = tuple(f"~/{which}_ema/{name}" for which in ("mean", "var") for name in ("counter", "hidden", "average"))

# ---- recurrent cores -----------------------------------------------------------------------------------------------------------
_GATES = (0, 2, 1, 3)  # input, forget, new, output of ours, and input, new, forget, output: its own inverse


def _lstm_kernel(layer: Any, kernel: Value, recurrent_kernel: Value) -> Values:
    return (blocks(np.concatenate([kernel, recurrent_kernel]), _GATES),)


def _from_lstm_kernel(layer: Any, x: Value) -> Values:
    return tuple(np.split(blocks(x, _GATES), [x.shape[0] - x.shape[1] // 4]))


def _forget(x: Value) -> Value:
    """1 for the forget gate, 0 for the others: Haiku adds it."""
    return np.repeat(np.array([0, 1, 0, 0], x.dtype), x.size // 4)


def _lstm_bias(layer: Any, bias: Value, recurrent_bias: Value) -> Values:
    return (blocks(bias + recurrent_bias - _forget(bias), _GATES),)


def _from_lstm_bias(layer: Any, x: Value) -> Values:
    return blocks(x, _GATES) + _forget(x), np.zeros_like(x)


def _other_formula(layer: Any, *arrays: Value) -> Values:
    raise ValueError("a GRU of Haiku computes another formula: it resets the state before the product with the weights")


def _as_relu(layer: Any, x: Value) -> Value:
    if layer.activation != "relu":
        raise ValueError(f"an RNN of Haiku has relu where this layer has {layer.activation}; make it with activation='relu'")
    return x


_LSTM = (
    Row(("kernel", "recurrent_kernel"), ("linear/w",), _lstm_kernel, _from_lstm_kernel),
    Row(BIASES, ("linear/b",), _lstm_bias, _from_lstm_bias),
)
_GRU = (Row(("kernel", "recurrent_kernel", *BIASES), ("w_i", "w_h", "b"), _other_formula, _other_formula),)
_KERNELS = (reshaped("kernel", "linear/w", _as_relu, _as_relu), same("recurrent_kernel", "linear_1/w"))
_RNN = (*_KERNELS, same("bias", "linear/b"), same("recurrent_bias", "linear_1/b"))


_AFFINE = (same("w", "scale"), same("b", "offset"))
_CHANNELS = tuple(reshaped(own, native, _beside, flat) for own, native in (("w", "scale"), ("b", "offset")))

# Class -> rows. The nearest class of a layer that is listed decides; those of a network are for each of its layers.
TABLE: dict[type, tuple[Row, ...]] = {
    Linear: (matrix("w", "w"), same("b", "b")),
    Embedding: (same("w", "embeddings"),),
    Convolution: (same("w", "w"), reshaped("b", "b", _bias, flat)),
    TransposedConvolution: (row("w", "w", *[lambda x: swapped(mirrored(x))] * 2), reshaped("b", "b", _bias, flat)),
    Normalization: _AFFINE,
    BatchNorm: (*_CHANNELS, Row(("running_mean", "running_variance", "batches"), _AVERAGES, _statistics, _from_statistics)),
    MultiHeadAttention: (
        split("in_proj_weights", tuple(f"{part}/w" for part in PARTS), lambda layer, x: x.T, lambda layer, x: x.T),
        *(matrix(f"{part[0]}_proj_weights", f"{part}/w") for part in PARTS),
        split("in_proj_bias", tuple(f"{part}/b" for part in PARTS)),
        matrix("out_proj_weights", "linear/w"),
        same("out_proj_bias", "linear/b"),
    ),
    **dict.fromkeys((LSTM, LSTMCell), _LSTM),
    **dict.fromkeys((GRU, GRUCell), _GRU),
    **dict.fromkeys((RNN, RNNCell), _RNN),
}
