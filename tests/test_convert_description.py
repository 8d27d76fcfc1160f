"""Modules as JSON and back: what a file of structure holds, and what it refuses."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from helpers import to_numpy

import trellis as tl
from trellis.convert.description import describe, rebuild

X = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)


def halved(x: Any) -> Any:
    return x / 2


class Everything(tl.Module):
    """An attribute of each kind that can be written."""

    def __init__(self) -> None:
        self.first = tl.Linear(6, 6, seed=1, weight_initializer=tl.Uniform(-0.5, 0.5))
        self.again = self.first
        self.parts = [self.first, OrderedDict(norm=tl.BatchNorm1D(6), drop=tl.Dropout(0.5, seed=2))]
        self.functions = (tl.tanh, halved)
        self.table = tl.asarray([1, 0, 2])
        self.scale = tl.asarray([0.5, 2.0, 1.0])
        self.options = {"axis": -1, 3: None, "flags": (True, 1.5), "mask": np.array([[True, False]])}
        self.encoder = tl.TransformerEncoderLayer(6, 2, 8, activation="gelu", dropout=0.0)
        self.dtype = tl.float32
        self.count = np.int64(3)

    def forward(self, x: Any) -> Any:
        for layer in (*self.parts[:1], *self.parts[1].values()):
            x = layer(self.again(x))
        for function in self.functions:
            x = function(x)
        return self.encoder(x[:, None])[:, 0][:, self.table] * self.scale * self.count


def brought(model: tl.Module, **known: Any) -> Any:
    return rebuild(json.loads(json.dumps(describe(model))), "numpy", known.get)


def test_a_model_comes_back() -> None:
    model = Everything()
    model.freeze("encoder/linear1")
    model(X)
    made = brought(model, Everything=Everything, halved=halved)
    assert type(made) is Everything
    assert made.again is made.first is made.parts[0]
    assert made.frozen == model.frozen
    assert made.mod_depth() == 0
    assert made.encoder.attention.top_mod() is made
    assert made.options["flags"] == (True, 1.5)
    assert made.options[3] is None
    np.testing.assert_array_equal(made.options["mask"], [[True, False]])
    assert not np.any(to_numpy(made.first.w))
    made.set_state(model.state())
    for mode in (True, False):  # random state included
        np.testing.assert_array_equal(made.train(mode)(X), model.train(mode)(X))
    assert made.buffers.all_equal(model.buffers)


def test_what_cannot_be_written_is_said() -> None:
    with pytest.raises(TypeError, match=r"Sequential\.v1 is a lambda, which has no name to be found by; define it with `def`"):
        describe(tl.Sequential(tl.Linear(2, 2), lambda x: x))
    odd = tl.Sequential(tl.Linear(2, 2))
    object.__setattr__(odd, "lock", object())
    with pytest.raises(TypeError, match=r"Sequential\.lock is a object, which cannot be written as structure"):
        describe(odd)


def test_what_cannot_be_read_is_said() -> None:
    data = describe(Everything())
    with pytest.raises(ValueError, match=r"the class 'Everything' of the model is not known here; give it: custom_objects="):
        rebuild(data, "numpy")
    with pytest.raises(ValueError, match=r"the function 'halved' of the model is not known here"):
        rebuild(data, "numpy", {"Everything": Everything}.get)
    with pytest.raises(TypeError, match=r"'Everything' is <built-in function print>; expected a subclass of Module"):
        rebuild(data, "numpy", {"Everything": print}.get)
    for wrong in ("value", "__init__", None):
        with pytest.raises(ValueError, match="which this version does not know"):
            rebuild({"kind": wrong}, "numpy")
    for name in ("tl._sys", "tl.pi", "tl.nothing"):
        with pytest.raises(ValueError, match="is not known here"):
            rebuild({"kind": "function", "name": name}, "numpy")
