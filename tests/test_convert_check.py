"""The check of a conversion: it finds what differs, and lets every right model pass."""

from __future__ import annotations

from typing import Any

import haiku as hk
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

import trellis as tl
from trellis.convert import ConversionError

TO = ("to_torch_module", "to_haiku_module", "to_flax_module")


class Otherwise(tl.Module):
    """A layer and a function of its result, which is another one on every backend but NumPy."""

    def __init__(self, here: Any, elsewhere: Any) -> None:
        self.linear, self.functions = tl.Linear(3, 3, seed=0), (here, elsewhere)

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        return self.functions[y.backend != "numpy"](y)


def nan_at(place: int) -> Any:
    return lambda y: tl.where(tl.arange(3, dtype="int32", backend=y.backend) == place, tl.nan, y)


@pytest.mark.parametrize("convert", TO)
def test_nan_that_only_one_gives_is_found(convert: str) -> None:
    with pytest.raises(
        ConversionError, match="in evaluation: the outputs differ by a NaN or an infinity that only one of them has"
    ):
        getattr(Otherwise(lambda y: 0 * y + 0.5, lambda y: y + tl.nan), convert)()
    with pytest.raises(ConversionError, match="a NaN or an infinity that only one of them has"):
        getattr(Otherwise(nan_at(0), nan_at(1)), convert)()
    with pytest.raises(ConversionError, match="a NaN or an infinity that only one of them has"):
        getattr(Otherwise(lambda y: y, lambda y: y + tl.inf), convert)()


@pytest.mark.parametrize("convert", TO)
def test_nan_that_both_give_at_the_same_places_is_equal(convert: str) -> None:
    getattr(Otherwise(nan_at(1), nan_at(1)), convert)()
    getattr(Otherwise(lambda y: y + tl.nan, lambda y: y + tl.nan), convert)()
    with pytest.raises(ConversionError, match=r"the outputs differ by 0\.5"):
        getattr(Otherwise(nan_at(1), lambda y: nan_at(1)(y) + 0.5), convert)()


class Ends(tl.Module):
    """Batch normalization, and dropout in training, of few numbers."""

    def __init__(self, prob: float) -> None:
        self.first, self.norm, self.dropout = tl.Linear(4, 5, seed=0), tl.BatchNorm1D(5), tl.Dropout(prob)
        self.last = tl.Linear(5, 1, seed=1)

    def forward(self, x: Any) -> Any:
        return self.last(self.dropout(tl.tanh(self.norm(self.first(x)))))


@pytest.mark.parametrize("constant", [0.0, 1.0, -2.0])
@pytest.mark.parametrize("convert", TO)
def test_constant_inputs(convert: str, constant: float) -> None:
    for prob in (0.0, 0.5):
        getattr(Ends(prob), convert)(inputs=(np.full((5, 4), constant, np.float32),))


def test_constant_inputs_of_native_modules() -> None:
    class Block(hk.Module):
        def __call__(self, x: Any, is_training: bool) -> Any:
            x = jnp.tanh(hk.BatchNorm(True, True, 0.5)(hk.Linear(5)(x), is_training))
            return hk.Linear(1)(hk.dropout(hk.next_rng_key(), 0.5, x) if is_training else x)

    tl.Module.from_haiku_module(Block, instance_args=(jnp.ones((5, 4)),))
    rngs = nnx.Rngs(0)
    layers = nnx.Linear(4, 5, rngs=rngs), nnx.BatchNorm(5, rngs=rngs), nnx.Dropout(0.5, rngs=rngs), nnx.Linear(5, 1, rngs=rngs)
    tl.Module.from_flax_module(nnx.Sequential(*layers), instance_args=(jnp.ones((5, 4)),))
    native = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5), torch.nn.Dropout(), torch.nn.Linear(5, 1))
    tl.Module.from_torch_module(native, instance_args=(torch.ones(5, 4),))


class Sample(tl.Module):
    """Draws in evaluation too, as the samples of a variational model."""

    def __init__(self) -> None:
        self.line = tl.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        y = self.line(x)
        return y + tl.random_normal(shape=y.shape, seed=self.next_seed(), dtype=y.dtype, backend=y.backend)


@pytest.mark.parametrize("convert", TO)
def test_a_model_that_always_draws(convert: str) -> None:
    getattr(Sample(), convert)()


def test_a_wrong_model_that_draws_is_found_in_evaluation() -> None:
    model = tl.Sequential(tl.Linear(3, 3, seed=0), tl.Dropout(0.5), Otherwise(lambda y: y, lambda y: y + 0.1))
    with pytest.raises(ConversionError, match=r"in evaluation: the outputs differ by 0\.1; .* is 'v2', call 0, by 0\.1"):
        model.to_torch_module(inputs=np.ones((2, 3), np.float32))


class Mixed(tl.Module):
    """float32 first, float64 behind it: the result is float64, and as exact as float32."""

    def __init__(self) -> None:
        self.first, self.second = tl.Linear(8, 16, seed=0), tl.Linear(16, 3, seed=1, dtype="float64")

    def forward(self, x: Any) -> Any:
        return self.second(tl.tanh(self.first(x)))


def test_mixed_dtypes() -> None:
    for seed in range(5):
        x = np.random.default_rng(seed).normal(size=(64, 8)).astype(np.float32)
        assert Mixed().to_torch_module(inputs=x)(torch.tensor(x)).dtype is torch.float64


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_differences_are_relative_to_the_size_of_the_outputs(size: float) -> None:
    Otherwise(lambda y: size * y, lambda y: size * (y * (1 + 1e-6))).to_torch_module()
    with pytest.raises(ConversionError, match="the outputs differ by"):
        Otherwise(lambda y: size * y, lambda y: size * (y * 1.01)).to_torch_module()


def test_float64_is_held_to_more_digits() -> None:
    model = tl.Sequential(Otherwise(lambda y: y, lambda y: y * (1 + 1e-6)), dtype="float64")
    with pytest.raises(ConversionError, match="the outputs differ by"):
        model.to_torch_module()


def test_results_that_are_nothing_but_rounding() -> None:
    def noise(y: Any) -> Any:
        return (y * 3 - y) - 2 * y

    Otherwise(noise, lambda y: noise(y) * 2).to_torch_module()


@pytest.mark.parametrize("convert", TO)
def test_keys_with_dots(convert: str) -> None:
    class Dotted(tl.Module):
        def __init__(self) -> None:
            self.parts = {"a.b": tl.Linear(3, 3, seed=0), "c": {"d.e": tl.Linear(3, 2, seed=1)}}

        def forward(self, x: Any) -> Any:
            return self.parts["c"]["d.e"](self.parts["a.b"](x))

    getattr(Dotted(), convert)()


def test_inputs_outside_of_the_domain_are_not_drawn() -> None:
    """Drawn numbers would be negative and give NaN; those that are given show the difference."""
    model = Otherwise(lambda y: y, lambda y: y + 0.1)
    model.linear.w, model.linear.b = tl.eye(3), tl.zeros(3)
    root = tl.Sequential(lambda x: tl.sqrt(tl.abs(x) - 1), model)
    with pytest.raises(ConversionError, match=r"differ by 0\.1"):
        root.to_torch_module(inputs=np.full((2, 3), 2.0, np.float32))


@pytest.mark.parametrize("convert", TO)
def test_one_row_cannot_be_trained_on(convert: str) -> None:
    """Batch normalization raises for it. What can run is checked."""
    with pytest.warns(UserWarning, match=r"the check ran in evaluation only, as training raises ValueError\('batch_norm: "):
        getattr(Ends(0.0), convert)(inputs=(np.ones((1, 4), np.float32),))
    wrong = tl.Sequential(tl.BatchNorm1D(3), Otherwise(lambda y: y, lambda y: y + 0.1))
    with pytest.raises(ConversionError, match=r"in evaluation: the outputs differ by 0\.1"):
        getattr(wrong, convert)(inputs=(np.ones((1, 3), np.float32),))
