"""The table of Keras's names and layouts, on Keras's own layers."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from converter_cases import MODELS

import trellis as tl
from trellis.convert.keras_names import TABLE

DENSE = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)


@pytest.mark.xdist_group("tensorflow")
def test_rows_on_layers_of_keras() -> None:
    """Each row of the table on a layer of Keras: our layer computes what Keras's does, and the way back is exact."""
    keras: Any = importlib.import_module("keras")  # here, since it brings TensorFlow with it
    layers = keras.layers
    images, sequence = MODELS["CNN"][1], MODELS["transformer"][1]
    attention = layers.MultiHeadAttention(2, 4)
    attention(sequence, sequence)
    cases: list[tuple[Any, Any, Any, Callable[..., Any]]] = [
        (tl.Linear(3, 5), layers.Dense(5), DENSE, _first),
        (tl.Embedding(7, 3), layers.Embedding(7, 3), MODELS["LSTM"][1], _first),
        (tl.Conv2D(2, 5, 3, 1, "SAME"), layers.Conv2D(5, 3, padding="same"), images, _first),
        (tl.Conv1D(8, 5, 3), layers.Conv1D(5, 3), sequence, _first),
        (tl.Conv2DTranspose(2, 5, 3, 2, "VALID"), layers.Conv2DTranspose(5, 3, 2), images, _first),
        (tl.DepthwiseConv2D(2, 3, multiplier=3), layers.DepthwiseConv2D(3, depth_multiplier=3), images, _first),
        (tl.SeparableConv2D(2, 5, 3), layers.SeparableConv2D(5, 3), images, _first),
        (tl.BatchNorm2D(2, eps=1e-3).eval(), layers.BatchNormalization(), images, _first),
        (tl.LayerNorm(8, eps=1e-3), layers.LayerNormalization(), sequence, _first),
        (tl.RMSNorm(8, eps=1e-6), layers.RMSNormalization(epsilon=1e-6), sequence, _first),
        (tl.GroupNorm(2, 8, eps=1e-3), layers.GroupNormalization(2), MODELS["transformer"][1], _first),
        (tl.LSTM(8, 5, return_state=False), layers.LSTM(5, return_sequences=True), sequence, _first),
        (tl.GRU(8, 5, return_state=False), layers.GRU(5, return_sequences=True), sequence, _first),
        (tl.RNN(8, 5, return_state=False), layers.SimpleRNN(5, return_sequences=True), sequence, _first),
        (tl.MultiHeadAttention(8, 2), attention, sequence, lambda layer, x: layer(x, x)),
    ]
    generator = np.random.default_rng(0)
    for ours, theirs, x, call in cases:
        call(theirs, x)
        for variable in theirs.weights:  # so that no zero or one hides a mistake
            variable.assign(0.1 + generator.uniform(size=variable.shape).astype(np.float32) / 2)
        rows = next(TABLE[kind] for kind in type(ours).__mro__ if kind in TABLE)
        weights = {_below(variable, theirs): np.asarray(variable) for variable in theirs.weights}
        state = {**ours.v.to_flat_dict(), **ours.buffers.to_flat_dict()}
        top = "layer0/" if isinstance(ours, (tl.LSTM, tl.GRU, tl.RNN)) else ""
        used = set()
        for row in rows:
            if all(f"{top}{name}" in state for name in row.own):
                natives = [weights[name] for name in row.native]
                own = row.from_native(ours, *natives)
                for back, value in zip(row.to_native(ours, *own), natives, strict=True):
                    np.testing.assert_array_equal(back, value)
                state |= {f"{top}{name}": tl.asarray(value.copy()) for name, value in zip(row.own, own, strict=True)}
                used |= set(row.native)
        assert used == set(weights), (type(ours).__name__, used, list(weights))
        names = ours.v.to_flat_dict()
        ours.v = tl.Container.from_flat_dict({path: x for path, x in state.items() if path in names})
        ours.buffers = tl.Container.from_flat_dict({path: x for path, x in state.items() if path not in names})
        np.testing.assert_allclose(np.asarray(call(theirs, x)), ours(x), rtol=2e-5, atol=2e-5)
    with pytest.raises(ValueError, match="reset_after=False, whose bias has shape"):
        TABLE[tl.GRU][-1].from_native(None, np.zeros(3))


def _first(layer: Any, x: Any) -> Any:
    return layer(x)


def _below(variable: Any, layer: Any) -> str:
    """The name of a variable below its layer; the cell of a recurrent layer has no name of its own in the table."""
    path = variable.path.split("/")
    return "/".join(path[-2:]) if type(layer).__name__ == "MultiHeadAttention" else path[-1]
