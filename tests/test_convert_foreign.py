"""Native modules as Modules, at their edges: outputs and inputs of other libraries' classes, other backends, parts replaced."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from helpers import to_numpy

import trellis as tl

X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
SEQUENCE = np.random.default_rng(1).normal(size=(2, 5, 3)).astype(np.float32)


# ---- torch ---------------------------------------------------------------------------------------------------------------------
class Output(OrderedDict[str, Any]):
    """Fields that are items too, in the way of Hugging Face's outputs."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)

    def __getitem__(self, key: Any) -> Any:
        return OrderedDict.__getitem__(self, key) if isinstance(key, str) else list(self.values())[key]


@dataclasses.dataclass
class Hidden(Output):
    last_hidden_state: Any = None
    pooled: Any = None
    hidden_states: Any = None


@pytest.mark.xdist_group("torch")
def test_outputs_that_are_dataclasses_and_mappings() -> None:
    import torch

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = torch.nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            y = self.line(x)
            return Hidden(last_hidden_state=y, hidden_states=(x, y))

    native = Model()
    model = tl.Module.from_torch_module(native)
    expected = native(torch.tensor(X))[0].detach().numpy()
    for given in (torch.tensor(X), tl.asarray(X, backend="torch")):
        found = model(given)
        assert type(found) is Hidden
        assert list(found) == ["last_hidden_state", "hidden_states"]
        assert found.pooled is None
        assert found.last_hidden_state is found["last_hidden_state"] is found[0]
        assert type(found[0]) is type(given)
        np.testing.assert_array_equal(to_numpy(tl.stop_gradient(found[0])), expected)
    _, grads = tl.value_and_grad(lambda v: tl.mean(model(tl.asarray(X, backend="torch"), v=v).last_hidden_state ** 2))(model.v)
    assert float(tl.max(tl.abs(grads["line/weight"]))) > 0


@pytest.mark.xdist_group("torch")
def test_packed_sequences() -> None:
    import torch
    from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

    native = torch.nn.LSTM(3, 4, batch_first=True)
    model = tl.Module.from_torch_module(native)
    packed = pack_padded_sequence(torch.tensor(SEQUENCE), torch.tensor([3, 5]), batch_first=True, enforce_sorted=False)
    expected, _ = native(packed)
    found, _ = model(packed)
    assert isinstance(found, PackedSequence)
    torch.testing.assert_close(pad_packed_sequence(found)[0], pad_packed_sequence(expected)[0])
    _, grads = tl.value_and_grad(lambda v: tl.mean(model(packed, v=v)[0].data ** 2))(model.v)
    want = torch.autograd.grad(native(packed)[0].data.square().mean(), list(native.parameters()))
    for path, gradient in zip(("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"), want):
        np.testing.assert_allclose(to_numpy(grads[path]), gradient.numpy(), rtol=1e-5, atol=1e-7)


@pytest.mark.xdist_group("torch")
def test_parts_of_torch_that_are_replaced() -> None:
    import torch

    native = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    model = tl.Module.from_torch_module(native)
    model.freeze("0/weight")
    native[1] = torch.nn.Linear(3, 5)
    assert {path: x.shape for path, x in model.v.to_flat_dict().items()} == {
        "0/weight": (3, 3), "0/bias": (3,), "1/weight": (5, 3), "1/bias": (5,)}  # fmt: skip
    assert model.frozen == {"0/weight"}
    model.v = model.v.map(lambda p: 0 * p)
    assert float(native[1].weight.detach().abs().sum()) == 0
    assert tuple(model(torch.tensor(X), v=model.v).shape) == (4, 5)
    torch.nn.utils.parametrizations.weight_norm(native[0])
    assert "0/parametrizations/weight/original1" in model.v
    native.append(torch.nn.BatchNorm1d(5))
    assert "2/running_mean" in model.buffers
    native[2] = torch.nn.Identity()
    assert len(model.buffers) == 0
    native[0] = native[2]
    assert list(model.v.to_flat_dict()) == ["1/weight", "1/bias"]


@pytest.mark.xdist_group("torch")
def test_torch_stays_on_torch() -> None:
    import torch

    native = torch.nn.Linear(3, 3)
    alone = tl.Module.from_torch_module(native)
    with pytest.raises(ValueError, match=r"Linear, a module of torch, runs on torch and cannot hold arrays of numpy"):
        alone.v = tl.to_backend(alone.v, "numpy")
    assert alone.v["weight"].backend == "torch"
    whole = tl.Sequential(tl.Linear(3, 3, backend="torch"), alone)
    check_refusal(
        whole, "jax", r"Linear, a module of torch, runs on torch and cannot hold arrays of jax; build the model anew there"
    )
    assert whole.astype("float64").v["v1/weight"].dtype is tl.float64
    assert native.weight.dtype is torch.float64


def check_refusal(model: tl.Module, backend: str, message: str) -> None:
    """An error that says so, and nothing that changed."""
    before = {path: x._data for path, x in model.v.to_flat_dict().items()}
    with pytest.raises(ValueError, match=message):
        model.to_backend(backend)
    assert all(x._data is before[path] for path, x in model.v.to_flat_dict().items())


def check_data(model: tl.Module, backend: str, expected: Any) -> None:
    """NumPy arrays and free ones are data, as for layers of Trellis; an Array of another backend is a mistake."""
    first = tl.Sequential(model, tl.Identity())
    for one in (model, first):
        for given in (X, tl.asarray(X.tolist())):
            found = one(given)
            assert type(found) is tl.Array
            assert found.backend == backend
            np.testing.assert_allclose(to_numpy(tl.stop_gradient(found)), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(to_numpy(tl.stop_gradient(model(X, v=model.v))), expected, rtol=1e-5, atol=1e-6)
    kind = type(model.native).__name__ if not isinstance(model.native, tuple) else model.native.name
    text = rf"{kind}, a module of .*, runs on {backend}, and an argument is an array of numpy; bring it with tl.to_backend\(x, "
    for one in (model, first):
        with pytest.raises(TypeError, match=text):
            one(tl.asarray(X, backend="numpy"))


@pytest.mark.xdist_group("torch")
def test_data_for_torch() -> None:
    import torch

    class Scaled(torch.nn.Linear):
        def forward(self, x: Any, scale: Any = 1.0) -> Any:  # type: ignore[override]
            return super().forward(x) * scale

    native = Scaled(3, 2)
    model, expected = tl.Module.from_torch_module(native), native(torch.tensor(X)).detach().numpy()
    check_data(model, "torch", expected)
    relu: Any = tl.Module.from_torch_module(torch.nn.ReLU(), instance_args=(X,))  # which has no arrays
    check_data(relu, "torch", np.maximum(X, 0))
    for scale in (np.float32(2), np.array(2, np.float32), 2):  # a scalar of NumPy is a number
        np.testing.assert_allclose(to_numpy(tl.stop_gradient(model(torch.tensor(X), scale=scale))), 2 * expected, rtol=1e-5)


# ---- JAX -----------------------------------------------------------------------------------------------------------------------
@pytest.mark.xdist_group("jax")
def test_modules_of_jax_stay_on_jax() -> None:
    import haiku as hk
    import jax
    from flax import linen, nnx

    native: Any = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
    kernel, model = native.kernel.get_value(), tl.Module.from_flax_module(native)
    check_refusal(model, "torch", r"Linear, a module of flax, runs on jax and cannot hold arrays of torch")
    assert native.kernel.get_value() is kernel
    with pytest.raises(ValueError, match=r"Linear, a module of flax, runs on jax and cannot hold arrays of torch"):
        model.v = tl.to_backend(model.v, "torch")
    assert isinstance(native.bias.get_value(), jax.Array)
    check_refusal(
        tl.Module.from_flax_module(linen.Dense(3), instance_args=(X,)), "numpy", r"Dense, .* cannot hold arrays of numpy"
    )
    check_refusal(
        tl.Module.from_haiku_module(hk.Linear, (3,), instance_args=(X,)), "torch", r"Linear, .* cannot hold arrays of torch"
    )
    whole = tl.Sequential(tl.Linear(3, 3, backend="jax"), model)
    with pytest.raises(ValueError, match=r"runs on jax and cannot hold arrays of torch"):
        whole.to_torch_module()
    assert whole.to_backend("jax").v["v0/w"].backend == "jax"


@pytest.mark.xdist_group("jax")
def test_data_for_jax() -> None:
    from flax import linen, nnx

    native = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    check_data(tl.Module.from_flax_module(native), "jax", np.asarray(native(X)))
    model = tl.Module.from_flax_module(linen.Dense(2), instance_args=(X,))
    check_data(model, "jax", X @ to_numpy(model.v["params/kernel"]) + to_numpy(model.v["params/bias"]))


@pytest.mark.xdist_group("jax")
def test_parts_of_a_converted_model_are_not_replaced_in_nnx() -> None:
    """The model computes as before, so that the new part would not be used."""
    import jax.numpy as jnp
    from flax import nnx

    class Net(tl.Module):
        def __init__(self) -> None:
            self.body, self.drop, self.out = [tl.Linear(3, 4)], tl.Dropout(0.5), tl.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            return self.out(self.drop(self.body[0](x)))

    def put(native: Any, name: str, value: Any) -> None:
        *above, last = name.split("/")
        for key in above:
            native = getattr(native, key)
        delattr(native, last) if value is None else setattr(native, last, value)

    line, net = nnx.Linear(4, 2, rngs=nnx.Rngs(0)), Net()
    rows = {
        "out": (line, "out"), "body/v0": (line, "body/v0"), "drop": (nnx.Dropout(0.1), "drop"),
        "out/w": (jnp.ones((2, 4)), "out/w"), "body": (None, "body/v0/w"),
    }  # fmt: skip
    for name, (value, named) in rows.items():
        native = net.to_flax_module(check=False)
        put(native, name, value)
        for use in (lambda native: native(jnp.asarray(X)), tl.Module.from_flax_module):
            with pytest.raises(
                RuntimeError, match=f"Net: {named!r} was replaced or removed; change the Trellis model and convert"
            ):
                use(native)
    native = net.to_flax_module(check=False)
    put(native, "more", line)  # a part beside those of the model
    put(native, "out/w", nnx.Param(jnp.zeros((2, 4))))  # another value
    assert not np.asarray(native.eval() or native(jnp.asarray(X))).any()


@pytest.mark.xdist_group("jax")
def test_parts_of_nnx_that_are_replaced() -> None:
    from flax import nnx

    rngs = nnx.Rngs(0)
    native: Any = nnx.Sequential(nnx.Linear(3, 3, rngs=rngs), nnx.Linear(3, 3, rngs=rngs))
    model = tl.Module.from_flax_module(native)
    native.layers[1] = nnx.Linear(3, 5, rngs=rngs)
    assert model.v["layers/1/kernel"].shape == (3, 5)
    model.v = model.v.map(lambda p: 0 * p)
    assert float(native.layers[1].kernel[...].sum()) == 0
    assert model(tl.asarray(X, backend="jax"), v=model.v).shape == (4, 5)


# ---- Keras ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.xdist_group("tensorflow")
def test_keras_stays_where_it_is() -> None:
    import keras

    native = keras.layers.Dense(3)
    native(X)
    model = tl.Module.from_keras_module(native)
    check_refusal(model, "torch", r"Dense, a module of keras, runs on tensorflow and cannot hold arrays of torch")
    with pytest.raises(
        ValueError, match=r"Dense, a module of keras, cannot change the dtype of its variables; make it with dtype='float64'"
    ):
        model.astype("float64")
    assert model.astype("float32").to_backend("tensorflow").v["kernel"].dtype is tl.float32
    stack = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3), keras.layers.Dense(2)])
    model = tl.Module.from_keras_module(stack)
    stack.pop()
    stack.add(keras.layers.Dense(5))
    assert sorted(x.shape for x in model.v.to_flat_dict().values()) == [(3,), (3, 3), (3, 5), (5,)]
    assert tuple(model(X).shape) == (4, 5)


@pytest.mark.xdist_group("tensorflow")
def test_data_for_keras() -> None:
    import keras

    native = keras.layers.Dense(2)
    expected = np.asarray(native(X))
    check_data(tl.Module.from_keras_module(native), "tensorflow", expected)
