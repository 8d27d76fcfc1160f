"""What a type checker says of results: `make types` checks this file with pyright and mypy. Nothing here runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_type

import numpy as np

import trellis as tl

if TYPE_CHECKING:
    import jax
    import torch

N = np.ndarray[Any, Any]


def of_numpy(x: np.ndarray[tuple[int], np.dtype[np.float64]], n: N) -> None:
    assert_type(tl.sum(x), N)
    assert_type(tl.mean(x, axis=0, keepdims=True), N)
    assert_type(tl.argmax(x), N)
    assert_type(tl.exp(x), N)
    assert_type(tl.add(x, x), N)
    assert_type(tl.add(x, 2), N)
    assert_type(tl.multiply(2.5, x), N)
    assert_type(tl.matmul(n, n), N)
    assert_type(tl.where(x > 0, x, 0.0), N)
    assert_type(tl.concat([x, x]), N)
    assert_type(tl.stack([x, x], axis=1), N)
    assert_type(tl.reshape(x, (-1, 1)), N)
    assert_type(tl.softmax(x), N)
    assert_type(tl.relu(x), N)
    assert_type(tl.einsum("ij,jk->ik", n, n), N)
    assert_type(tl.split(x, 2), tuple[N, ...])
    assert_type(tl.top_k(x, 2).values, N)
    assert_type(tl.zeros_like(x), N)
    assert_type(tl.astype(x, tl.float32), N)
    assert_type(tl.conv2d(n, n, 1, "SAME"), N)
    assert_type(tl.linalg.inv(n), N)
    assert_type(tl.linalg.svd(n).S, N)
    assert_type(tl.fft.fft(x), N)
    assert_type(tl.mse_loss(x, x), N)
    assert_type(tl.dropout(x, 0.5), N)
    assert_type(tl.Linear(3, 4)(x), N)
    assert_type(tl.Conv2D(3, 4, 3)(n), N)
    assert_type(tl.BatchNorm2D(3)(n), N)
    assert_type(tl.ReLU()(x), N)
    assert_type(tl.asarray(x), tl.Array)


def of_torch(x: torch.Tensor) -> None:
    assert_type(tl.sum(x), torch.Tensor)
    assert_type(tl.max(x, axis=1), torch.Tensor)
    assert_type(tl.std(x, correction=1), torch.Tensor)
    assert_type(tl.log(x), torch.Tensor)
    assert_type(tl.subtract(x, x), torch.Tensor)
    assert_type(tl.divide(1, x), torch.Tensor)
    assert_type(tl.maximum(x, 0.0), torch.Tensor)
    assert_type(tl.matmul(x, x), torch.Tensor)
    assert_type(tl.where(x > 0, x, 0.0), torch.Tensor)
    assert_type(tl.concat([x, x]), torch.Tensor)
    assert_type(tl.expand_dims(x, 0), torch.Tensor)
    assert_type(tl.softmax(x, axis=-1), torch.Tensor)
    assert_type(tl.gelu(x), torch.Tensor)
    assert_type(tl.sort(x), torch.Tensor)
    assert_type(tl.nonzero(x), tuple[torch.Tensor, ...])
    assert_type(tl.top_k(x, 2).indices, torch.Tensor)
    assert_type(tl.unique_all(x).counts, torch.Tensor)
    assert_type(tl.linalg.qr(x).Q, torch.Tensor)
    assert_type(tl.linalg.eigh(x).eigenvalues, torch.Tensor)
    assert_type(tl.layer_norm(x, -1), torch.Tensor)
    assert_type(tl.cross_entropy(x, x), torch.Tensor)
    assert_type(tl.Linear(3, 4)(x), torch.Tensor)
    assert_type(tl.LayerNorm(4)(x), torch.Tensor)
    assert_type(tl.Embedding(10, 4)(x), torch.Tensor)
    assert_type(tl.Dropout(0.1)(x), torch.Tensor)
    assert_type(tl.stop_gradient(x), torch.Tensor)


def of_jax(x: jax.Array) -> None:
    assert_type(tl.sum(x), jax.Array)
    assert_type(tl.prod(x, axis=(0, 1)), jax.Array)
    assert_type(tl.sin(x), jax.Array)
    assert_type(tl.pow(x, 2), jax.Array)
    assert_type(tl.greater(x, 0), jax.Array)
    assert_type(tl.matmul(x, x), jax.Array)
    assert_type(tl.permute_dims(x, (1, 0)), jax.Array)
    assert_type(tl.unstack(x), tuple[jax.Array, ...])
    assert_type(tl.cumulative_sum(x), jax.Array)
    assert_type(tl.ones_like(x), jax.Array)
    assert_type(tl.linalg.cholesky(x), jax.Array)
    assert_type(tl.max_pool2d(x, 2, 2, "VALID"), jax.Array)
    assert_type(tl.Linear(3, 4)(x), jax.Array)
    assert_type(tl.GELU()(x), jax.Array)


def of_arrays(x: tl.Array, c: tl.Container, n: N) -> None:
    assert_type(tl.sum(x), tl.Array)
    assert_type(tl.exp(x), tl.Array)
    assert_type(tl.add(x, x), tl.Array)
    assert_type(tl.add(x, 1), tl.Array)
    assert_type(tl.add(1, x), tl.Array)
    assert_type(tl.add(n, x), tl.Array)
    assert_type(tl.add(1, 2), tl.Array)
    assert_type(tl.concat([x, x]), tl.Array)
    assert_type(tl.exp(2.0), tl.Array)
    assert_type(tl.linalg.solve(x, x), tl.Array)
    assert_type(tl.exp(c), tl.Container)
    assert_type(tl.add(c, 1), tl.Container)
    assert_type(tl.multiply(x, c), tl.Container)
    assert_type(tl.Linear(3, 4)(x), tl.Array)
    assert_type(tl.Linear(3, 4)(x, v=c), tl.Array)
    assert_type(tl.to_numpy(x), N)
    assert_type(tl.to_numpy(c), tl.Container)
    assert_type(tl.to_device(x, "cpu"), tl.Array)


def of_anything(x: Any) -> None:
    """An array without types, as those of TensorFlow: nothing is claimed."""
    assert_type(tl.sum(x), Any)
    assert_type(tl.exp(x), Any)
    assert_type(tl.add(x, x), Any)
    assert_type(tl.Linear(3, 4)(x), Any)


def created(x: tl.Array) -> None:
    assert_type(tl.zeros(3), tl.Array)
    assert_type(tl.ones((2, 3), dtype=tl.float32), tl.Array)
    assert_type(tl.full(3, 1.0), tl.Array)
    assert_type(tl.arange(3), tl.Array)
    assert_type(tl.linspace(0, 1, 5), tl.Array)
    assert_type(tl.eye(3), tl.Array)
    assert_type(tl.asarray([1, 2]), tl.Array)
    assert_type(tl.array([1.0]), tl.Array)
    assert_type(tl.random_normal(shape=(2, 3), seed=0), tl.Array)
    assert_type(tl.random_uniform(low=0.0, high=1.0, shape=3), tl.Array)
    assert_type(tl.randint(0, 10, shape=3), tl.Array)
    assert_type(tl.causal_mask(4), tl.Array)


def methods(x: tl.Array) -> None:
    assert_type(x @ x, tl.Array)
    assert_type(x + 1, tl.Array)
    assert_type(1 - x, tl.Array)
    assert_type(-x, tl.Array)
    assert_type(x == x, tl.Array)
    assert_type(x < 1, tl.Array)
    assert_type(x[0], tl.Array)
    assert_type(x.T, tl.Array)
    assert_type(x.shape, tuple[int, ...])
    assert_type(x.dtype, tl.DType)
    assert_type(x.sum(axis=0), tl.Array)
    assert_type(x.mean(keepdims=True), tl.Array)
    assert_type(x.reshape(2, -1), tl.Array)
    assert_type(x.astype("int32"), tl.Array)
    assert_type(x.numpy(), N)
    assert_type(x.real, tl.Array)
    assert_type(float(x), float)
    assert_type(divmod(x, 2), tuple[tl.Array, tl.Array])


def programs(model: tl.Linear, x: tl.Array, other: tl.Module) -> None:
    assert_type(tl.Linear(3, 4), tl.Linear)
    assert_type(tl.ReLU(), tl.ReLU)
    assert_type(model.v, tl.Container)
    assert_type(model.input_channels, int)
    assert_type(model.eval(), tl.Linear)
    assert_type(other(x), Any)
    assert_type(tl.Sequential(tl.Linear(3, 4), tl.ReLU()), tl.Sequential)
    assert_type(tl.Adam(0.1), tl.Adam)
    assert_type(tl.Adam(0.1).step(model.v, model.v), tl.Container)
    assert_type(tl.Adam(0.1).update(model.v, model.v, tl.Container()), tuple[tl.Container, tl.Container])
    assert_type(tl.Trainer(), tl.Trainer)
    assert_type(tl.pi, float)
    assert_type(tl.float32, tl.DType)

    def loss(v: tl.Container, scale: float = 1.0) -> tl.Array:
        return tl.mean(model(x, v=v)) * scale

    assert_type(tl.value_and_grad(loss)(model.v, scale=2.0), tuple[tl.Array, Any])
    assert_type(tl.compile(loss)(model.v), tl.Array)
    assert_type(tl.vmap(loss)(model.v, 1.0), tl.Array)
    assert_type(tl.grad(loss)(model.v), Any)


class Net(tl.Module):
    def __init__(self, width: int) -> None:
        self.hidden = tl.Linear(3, width)
        self.norm = tl.LayerNorm(width)

    def forward(self, x: tl.Array) -> tl.Array:
        return tl.tanh(self.norm(self.hidden(x)))


assert_type(Net(8), Net)
assert_type(Net(8).hidden, tl.Linear)
assert_type(Net(8).v, tl.Container)
