"""The names and layouts that Flax has for the parameters of layers, in nnx and in linen; see `layouts.Row`.

Filters are [*window, in, out] in both. Each layer of a recurrent network, at `layer0`, `layer0_reverse`, ... of ours, is a cell
in Flax. Several rows of the same arrays are for different layers of Flax: the first whose names are there applies.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.convert import keras_names
from trellis.convert.layouts import BIASES, Row, Value, Values, matrix, row, same, split, summed_biases
from trellis.nn.attention import MultiHeadAttention
from trellis.nn.convolution import Convolution, TransposedConvolution
from trellis.nn.functions import PReLU
from trellis.nn.linear import Embedding, Linear
from trellis.nn.normalization import BatchNorm, Normalization
from trellis.nn.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell


def mirrored(x: Value) -> Value:
    """Filters of transposed convolutions: ours are those of the convolution that they are the adjoint of, JAX's are applied."""
    return np.flip(x, tuple(range(x.ndim - 2)))


# ---- recurrent cells -----------------------------------------------------------------------------------------------------------
_SUMMED = summed_biases("dense_i/bias")


def _from_lstm_biases(layer: Any, *parts: Value) -> Values:
    return _SUMMED.from_native(layer, np.concatenate(parts))


def _gru_bias(layer: Any, bias: Value, recurrent_bias: Value) -> Values:
    """nnx has none inside the product with the reset gate."""
    if np.split(recurrent_bias, 3)[2].any():
        raise ValueError("a GRUCell of nnx has no recurrent bias for the new state, and that of this layer is not zero")
    return _SUMMED.to_native(layer, bias, recurrent_bias)


def _gru_biases(layer: Any, bias: Value, recurrent_bias: Value) -> Values:
    (r, z, new), (more_r, more_z, inside) = np.split(bias, 3), np.split(recurrent_bias, 3)
    return r + more_r, z + more_z, new, inside


def _from_gru_biases(layer: Any, r: Value, z: Value, new: Value, inside: Value) -> Values:
    return np.concatenate([r, z, new]), np.concatenate([np.zeros_like(r), np.zeros_like(z), inside])


def _four(first: str, forget: str, kind: str) -> tuple[str, ...]:
    return tuple(f"{first}{gate}/{kind}" for gate in ("i", forget, "g", "o"))


_FUSED = (same("kernel", "dense_i/kernel"), same("recurrent_kernel", "dense_h/kernel"))
_LSTM = (
    *_FUSED,
    summed_biases("dense_h/bias"),
    split("kernel", _four("i", "f_", "kernel"), axis=-1),
    split("kernel", _four("i", "f", "kernel"), axis=-1),
    split("recurrent_kernel", _four("h", "f", "kernel"), axis=-1),
    Row(BIASES, _four("h", "f", "bias"), lambda layer, a, b: tuple(np.split(a + b, 4)), _from_lstm_biases),
)
_GRU = (
    *_FUSED,
    _SUMMED._replace(to_native=_gru_bias),
    split("kernel", ("ir/kernel", "iz/kernel", "in/kernel"), axis=-1),
    split("recurrent_kernel", ("hr/kernel", "hz/kernel", "hn/kernel"), axis=-1),
    Row(BIASES, ("ir/bias", "iz/bias", "in/bias", "hn/bias"), _gru_biases, _from_gru_biases),
)
_SIMPLE = (*_FUSED, _SUMMED, same("kernel", "i/kernel"), same("recurrent_kernel", "h/kernel"), summed_biases("i/bias"))
_AFFINE = (same("w", "scale"), same("b", "bias"))


# As in Keras, but for one name.
_ROWS = keras_names.TABLE[MultiHeadAttention]
_ATTENTION = tuple(x._replace(native=tuple(name.replace("attention_output", "out") for name in x.native)) for x in _ROWS)

# Class -> rows. The nearest class of a layer that is listed decides; those of a network are for each of its layers.
TABLE: dict[type, tuple[Row, ...]] = {
    Linear: (matrix("w", "kernel"), same("b", "bias")),
    Embedding: (same("w", "embedding"),),
    PReLU: (row("w", "negative_slope", lambda x: x.reshape(()) if x.size == 1 else x, lambda x: x.reshape(-1)),),
    Convolution: (same("w", "kernel"), same("b", "bias")),
    TransposedConvolution: (row("w", "kernel", mirrored, mirrored), same("b", "bias")),
    Normalization: _AFFINE,
    BatchNorm: (*_AFFINE, same("running_mean", "mean"), same("running_variance", "var")),
    MultiHeadAttention: _ATTENTION,
    **dict.fromkeys((LSTM, LSTMCell), _LSTM),
    **dict.fromkeys((GRU, GRUCell), _GRU),
    **dict.fromkeys((RNN, RNNCell), _SIMPLE),
}
