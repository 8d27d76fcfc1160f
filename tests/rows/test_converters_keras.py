"""A row of the conformance matrix: a Module as a Keras model."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from converter_cases import INPUT, LABEL, MLP, MLP_PATHS, by_hand, falls
from helpers import make, to_numpy

import trellis as tl


def test_to_keras_module(backend: str) -> None:
    keras: Any = importlib.import_module("keras")  # here, since it brings TensorFlow with it
    model = MLP(backend=backend, seed=0)
    before = {path: to_numpy(x).copy() for path, x in model.v.to_flat_dict().items()}
    native = model.to_keras_module()
    assert isinstance(native, keras.Model)
    assert [x.path for x in native.trainable_weights] == [f"{native.name}/{path}" for path in MLP_PATHS]
    np.testing.assert_allclose(native.predict(INPUT, verbose=0), by_hand(model.v, INPUT), atol=1e-5)
    np.testing.assert_allclose(native.predict(INPUT, verbose=0), to_numpy(model(make(backend, INPUT))), atol=1e-5)

    native.compile(optimizer=keras.optimizers.SGD(1e-3), loss="mae")
    falls(native.fit(INPUT, LABEL, batch_size=len(INPUT), epochs=10, verbose=0).history["loss"])

    assert all(np.array_equal(to_numpy(model.v[path]), value) for path, value in before.items())
    back = tl.Module.from_keras_module(native)
    assert type(back) is MLP
    for variable, (path, value) in zip(native.trainable_weights, before.items(), strict=True):
        now = to_numpy(back.v[path])
        np.testing.assert_array_equal(now, variable.numpy())
        assert not np.array_equal(now, value)
    model.v = back.to_backend(backend).v
    np.testing.assert_allclose(to_numpy(model(make(backend, INPUT))), native.predict(INPUT, verbose=0), atol=1e-5)
