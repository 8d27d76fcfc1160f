"""What a converted model costs in Haiku and Flax beside hand-written ones: the compiled gradient of a training step.

    python benchmarks/converters_jax.py [--case CNN] [--framework flax]

The model of Trellis has the weights of the module of Flax, and both must compute the same. All run in turn; a figure is the
median over the rounds of our CPU time divided by that of the hand-written one of the same round.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from measuring import ratio

import trellis as tl

TARGET = 1.05
RNGS = nnx.Rngs(0)


class Case(NamedTuple):
    ours: Callable[[], Any]
    flax: Callable[[], Any]
    haiku: Callable[[Any], Any]  # to be transformed
    shape: tuple[int, ...]


class CNN(tl.Module):
    def __init__(self) -> None:
        self.convs = [tl.Conv2D(3, 16, 3, 1, "SAME"), tl.Conv2D(16, 32, 3, 1, "SAME")]
        self.norms = [tl.BatchNorm2D(16), tl.BatchNorm2D(32)]
        self.out = tl.Linear(32, 10)

    def forward(self, x: Any) -> Any:
        for conv, norm in zip(self.convs, self.norms):
            x = tl.max_pool2d(tl.relu(norm(conv(x))), 2, 2, "VALID")
        return self.out(tl.mean(x, axis=(1, 2)))


class FlaxCNN(nnx.Module):
    def __init__(self) -> None:
        self.convs = nnx.List([nnx.Conv(i, o, (3, 3), rngs=RNGS) for i, o in ((3, 16), (16, 32))])
        self.norms = nnx.List([nnx.BatchNorm(n, momentum=0.9, rngs=RNGS) for n in (16, 32)])
        self.out = nnx.Linear(32, 10, rngs=RNGS)

    def __call__(self, x: Any) -> Any:
        for conv, norm in zip(self.convs, self.norms):
            x = nnx.max_pool(nnx.relu(norm(conv(x))), (2, 2), (2, 2))
        return self.out(jnp.mean(x, (1, 2)))


def haiku_cnn(x: Any) -> Any:
    for channels in (16, 32):
        x = hk.BatchNorm(True, True, 0.9)(hk.Conv2D(channels, 3)(x), True)
        x = hk.max_pool(jax.nn.relu(x), 2, 2, "VALID")
    return hk.Linear(10)(jnp.mean(x, (1, 2)))


class FlaxLSTM(nnx.Module):
    def __init__(self) -> None:
        self.rnn = nnx.RNN(nnx.OptimizedLSTMCell(64, 64, rngs=RNGS), rngs=RNGS)

    def __call__(self, x: Any) -> Any:
        return self.rnn(x)


def haiku_lstm(x: Any) -> Any:
    core = hk.LSTM(64)
    every: Any = hk.dynamic_unroll(core, jnp.swapaxes(x, 0, 1), core.initial_state(len(x)))[0]
    return jnp.swapaxes(every, 0, 1)


class FlaxEncoder(nnx.Module):
    def __init__(self) -> None:
        self.attention = nnx.MultiHeadAttention(8, 128, decode=False, rngs=RNGS)
        self.linear1, self.linear2 = nnx.Linear(128, 512, rngs=RNGS), nnx.Linear(512, 128, rngs=RNGS)
        self.norm1, self.norm2 = (nnx.LayerNorm(128, epsilon=1e-5, rngs=RNGS) for _ in range(2))

    def __call__(self, x: Any) -> Any:
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.linear2(nnx.relu(self.linear1(x))))


def haiku_encoder(x: Any) -> Any:
    norms = [hk.LayerNorm(-1, True, True) for _ in range(2)]
    x = norms[0](x + hk.MultiHeadAttention(8, 16, w_init=hk.initializers.VarianceScaling())(x, x, x))
    return norms[1](x + hk.Linear(128)(jax.nn.relu(hk.Linear(512)(x))))


def _flax_mlp() -> Any:
    sizes = ((784, 512), (512, 512), (512, 10))
    layers = [nnx.Linear(*size, rngs=RNGS) for size in sizes]
    return nnx.Sequential(layers[0], nnx.relu, layers[1], nnx.relu, layers[2])


CASES = {
    "MLP 256x784-512-512-10": Case(
        lambda: tl.Sequential(tl.Linear(784, 512), tl.ReLU(), tl.Linear(512, 512), tl.ReLU(), tl.Linear(512, 10)),
        _flax_mlp, lambda x: hk.nets.MLP([512, 512, 10])(x), (256, 784),
    ),
    "CNN 32x32x32x3, BatchNorm": Case(CNN, FlaxCNN, haiku_cnn, (32, 32, 32, 3)),
    "LSTM 16x32x64 -> 64": Case(lambda: tl.LSTM(64, 64, return_state=False), FlaxLSTM, haiku_lstm, (16, 32, 64)),
    "encoder layer 16x64x128, 8 heads": Case(
        lambda: tl.TransformerEncoderLayer(128, 8, 512, dropout=0.0), FlaxEncoder, haiku_encoder, (16, 64, 128)
    ),
}  # fmt: skip


def flax_step(module: Any, x: Any) -> Callable[[], Any]:
    graph, params, rest = nnx.split(module, nnx.Param, ...)

    def loss(params: Any, rest: Any) -> tuple[Any, Any]:
        merged = nnx.merge(graph, params, rest, copy=True)
        return jnp.mean(merged(x) ** 2), nnx.state(merged, nnx.BatchStat)

    run = jax.jit(jax.value_and_grad(loss, has_aux=True))
    return lambda: jax.block_until_ready(run(params, rest))


def haiku_step(function: Any, x: Any) -> Callable[[], Any]:
    pair = hk.transform_with_state(function)
    params, state = pair.init(jax.random.PRNGKey(0), x)

    def loss(params: Any, state: Any) -> Any:
        y, after = pair.apply(params, state, None, x)
        return jnp.mean(y**2), after

    run = jax.jit(jax.value_and_grad(loss, has_aux=True))
    return lambda: jax.block_until_ready(run(params, state))


def steps(case: Case) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Framework -> our step and the hand-written one."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=case.shape).astype(np.float32))
    native, model = case.flax(), case.ours()
    tl.convert.load_weights(model, native)
    made = model.to_haiku_module(check=False)
    flax = flax_step(model.to_flax_module(check=False), x), flax_step(native, x)
    haiku = haiku_step(lambda x: made()(x), x), haiku_step(case.haiku, x)
    for one in (flax[0], haiku[0]):
        (value, _), _ = one()
        (expected, _), _ = flax[1]()
        np.testing.assert_allclose(value, expected, rtol=1e-4)
    return {"flax": flax, "haiku": haiku}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", default="", help="only the models whose name holds this")
    parser.add_argument("--framework", default="", help="flax or haiku alone")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    print(f"{'compiled by JAX':<50}{'native ms':>10}{'ratio':>8}{'target':>8}")
    for name, case in CASES.items():
        for framework, (ours, native) in steps(case).items() if options.case in name else ():
            if options.framework in framework:
                found, milliseconds = ratio(ours, native, options.rounds)
                print(f"{f'{name}, {framework}':<50}{milliseconds:>10.2f}{found:>8.3f}{TARGET:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
