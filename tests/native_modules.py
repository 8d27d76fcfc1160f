"""Modules as people write them in other frameworks: at least 30 of each, as data.

`of_<framework>()` gives name -> (a function that makes the native module as a `tl.Module`, its input as a NumPy array of 6 rows).
Each is put into a model of Trellis, with layers of Trellis in front and behind, and trained by the Trainer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import trellis as tl
from trellis.core import tree

Made = tuple[Callable[[], tl.Module], np.ndarray[Any, Any]]
_draw = np.random.default_rng(8)
VECTOR = _draw.normal(size=(6, 4)).astype(np.float32)
SEQUENCE = _draw.normal(size=(6, 5, 4)).astype(np.float32)
IMAGE = _draw.normal(size=(6, 8, 8, 4)).astype(np.float32)
FIRST = np.ascontiguousarray(np.moveaxis(IMAGE, -1, 1))


class Whole(tl.Module):
    """A line over the last axis, the native module, and a line over the means of its results."""

    def __init__(self, native: tl.Module, x: Any, backend: str) -> None:
        self.first = tl.Linear(x.shape[-1], x.shape[-1], backend=backend, seed=0)
        self.native = native
        self.out = tl.Linear(self.features(tl.asarray(x, backend=backend)).shape[-1], 2, backend=backend, seed=1)

    def features(self, x: Any) -> Any:
        result = self.native(tl.tanh(self.first(x)))
        y = next(y for y in tree.leaves(result) if isinstance(y, tl.Array) and y.dtype.kind == "f")
        return tl.mean(tl.reshape(y, (6, -1, y.shape[-1])), axis=1)

    def forward(self, x: Any) -> Any:
        return self.out(self.features(x))


def train(made: Made, backend: str) -> None:
    """Some epochs of the Trainer: the loss falls, the native parameters change and are finite."""
    make, x = made
    model = Whole(make(), x, backend)
    before = {path: np.array(tl.to_numpy(p)) for path, p in model.native.v.to_flat_dict().items()}
    target = np.stack([x.reshape(6, -1).mean(1), x.reshape(6, -1).max(1)], axis=1)
    history = tl.Trainer(seed=0, progress=False).fit(
        model, (x, target), lambda y, want: tl.mean((y - want) ** 2), tl.Adam(1e-2), epochs=6, batch_size=6
    )
    losses = history["loss"]
    assert np.isfinite(losses).all(), losses
    assert min(losses[1:]) < losses[0], losses
    after = {path: np.array(tl.to_numpy(p)) for path, p in model.native.v.to_flat_dict().items()}
    assert sorted(after) == sorted(before)
    assert all(np.isfinite(p).all() for p in after.values())
    assert not before or any((after[path] != before[path]).any() for path in before)
    assert tuple(model.eval()(tl.asarray(x, backend=backend)).shape) == (6, 2)


# ---- torch ---------------------------------------------------------------------------------------------------------------------
def of_torch() -> dict[str, Made]:
    import torch
    from torch import nn
    from torch.nn.utils import parametrizations, rnn
    from torch.nn.utils.parametrize import register_parametrization

    torch.manual_seed(0)

    class Packed(nn.Module):
        def __init__(self, kind: Any, **options: Any) -> None:
            super().__init__()
            self.rnn = kind(4, 5, batch_first=True, **options)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            packed = rnn.pack_padded_sequence(x, torch.tensor([5, 4, 4, 3, 2, 1]), batch_first=True)
            return rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]

    class Symmetric(nn.Module):
        def forward(self, w: torch.Tensor) -> torch.Tensor:
            return w.triu() + w.triu(1).T

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
            self.b.weight = self.a.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(torch.tanh(self.a(x)))

    class Attend(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

        def forward(self, x: torch.Tensor) -> Any:
            return self.attention(x, x, x, need_weights=True)

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerDecoderLayer(4, 2, 8, dropout=0.0, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
            return self.layer(x, x, tgt_mask=mask)

    class Outputs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line, self.scale = nn.Linear(4, 4), nn.Parameter(torch.ones(4))
            self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> Any:
            if self.training:
                self.steps += 1
            return {"a": self.line(x) * self.scale, "other": (x, None)}

    class Unrolled(nn.Module):
        def __init__(self, kind: Any) -> None:
            super().__init__()
            self.cell = kind(4, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            state: Any = None
            for i in range(x.shape[1]):
                state = self.cell(x[:, i], state)
            return state[0] if isinstance(state, tuple) else state

    def encoder(**options: Any) -> nn.Module:
        return nn.TransformerEncoder(
            nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, **options), 2, enable_nested_tensor=False
        )

    def frozen() -> nn.Module:
        made = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        made[0].requires_grad_(False)
        return made

    def convolution(*layers: Any) -> nn.Module:
        return nn.Sequential(nn.Conv2d(4, 6, 3, padding=1), *layers)

    images = {
        "convolution": convolution,
        "batch normalization": lambda: convolution(nn.BatchNorm2d(6), nn.ReLU()),
        "group normalization": lambda: convolution(nn.GroupNorm(2, 6)),
        "pooling": lambda: convolution(nn.MaxPool2d(2)),
        "instance normalization": lambda: convolution(nn.InstanceNorm2d(6, affine=True)),
        "transposed convolution": lambda: nn.ConvTranspose2d(4, 4, 2, 2),
        "spectral norm": lambda: parametrizations.spectral_norm(nn.Conv2d(4, 6, 3)),
        "grouped convolution": lambda: nn.Conv2d(4, 4, 3, groups=4),
        "dropout of channels": lambda: convolution(nn.Dropout2d(0.2)),
    }
    sequences = {
        "packed LSTM": lambda: Packed(nn.LSTM),
        "packed GRU": lambda: Packed(nn.GRU, bidirectional=True),
        "packed RNN": lambda: Packed(nn.RNN, num_layers=2),
        "LSTM": lambda: nn.LSTM(4, 5, 2, batch_first=True, dropout=0.1),
        "LSTM with projections": lambda: nn.LSTM(4, 5, proj_size=3, batch_first=True),
        "LSTM cells": lambda: Unrolled(nn.LSTMCell),
        "GRU cells": lambda: Unrolled(nn.GRUCell),
        "encoder": lambda: encoder(dropout=0.0),
        "encoder, norm first": lambda: encoder(dropout=0.1, norm_first=True),
        "encoder, gelu": lambda: encoder(dropout=0.0, activation="gelu"),
        "decoder": Decoder,
        "attention": Attend,
        "line convolution": lambda: nn.Sequential(nn.Conv1d(5, 5, 3, padding=1), nn.BatchNorm1d(5)),
    }
    vectors = {
        "weight norm": lambda: parametrizations.weight_norm(nn.Linear(4, 4)),
        "orthogonal": lambda: parametrizations.orthogonal(nn.Linear(4, 4)),
        "own parametrization": lambda: register_parametrization(nn.Linear(4, 4), "weight", Symmetric()),
        "tied": Tied, "several outputs and a buffer": Outputs, "frozen in part": frozen,
        "layer normalization": lambda: nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4), nn.PReLU()),
        "dropout": lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 4)),
        "lazy": lambda: nn.LazyLinear(4),
    }  # fmt: skip

    def make(build: Any, x: Any) -> Callable[[], tl.Module]:
        return lambda: tl.Module.from_torch_module(build(), instance_args=(torch.tensor(x),))

    found: dict[str, Made] = {}
    for table, x in ((images, FIRST), (sequences, SEQUENCE), (vectors, VECTOR)):
        found |= {name: (make(build, x), x) for name, build in table.items()}
    return found


# ---- Flax ----------------------------------------------------------------------------------------------------------------------
def of_flax() -> dict[str, Made]:
    import jax
    import jax.numpy as jnp
    from flax import linen, nnx

    def rngs() -> Any:
        return nnx.Rngs(params=0, dropout=1)

    class Unrolled(nnx.Module):
        def __init__(self, kind: Any) -> None:
            self.layer = nnx.RNN(kind(4, 5, rngs=rngs()))

        def __call__(self, x: Any) -> Any:
            return self.layer(x)

    class Noise(nnx.Module):
        """Draws by streams of its own."""

        def __init__(self, rngs: Any) -> None:
            self.line, self.rngs = nnx.Linear(4, 4, rngs=rngs), rngs
            self.deterministic = False

        def __call__(self, x: Any) -> Any:
            y = self.line(x)
            return y if self.deterministic else y + 0.01 * jax.random.normal(self.rngs.dropout(), y.shape)

    class Counter(nnx.Module):
        def __init__(self) -> None:
            self.line, self.calls = nnx.Linear(4, 4, rngs=rngs()), nnx.Variable(jnp.zeros((), jnp.int32))

        def __call__(self, x: Any) -> Any:
            self.calls[...] = self.calls[...] + 1
            return {"a": self.line(x)}

    class Tied(nnx.Module):
        def __init__(self) -> None:
            self.a, self.b = nnx.Linear(4, 4, rngs=rngs()), nnx.Linear(4, 4, rngs=rngs())
            self.b.kernel = self.a.kernel

        def __call__(self, x: Any) -> Any:
            return self.b(nnx.tanh(self.a(x)))

    class Block(nnx.Module):
        def __init__(self) -> None:
            self.attention = nnx.MultiHeadAttention(2, 4, decode=False, rngs=rngs())
            self.norm, self.lines = (
                nnx.LayerNorm(4, rngs=rngs()),
                nnx.List([nnx.Linear(4, 8, rngs=rngs()), nnx.Linear(8, 4, rngs=rngs())]),
            )
            self.dropout = nnx.Dropout(0.1, rngs=rngs())

        def __call__(self, x: Any) -> Any:
            x = x + self.attention(self.norm(x))
            return x + self.dropout(self.lines[1](nnx.gelu(self.lines[0](x))))

    class Linen(linen.Module):
        part: Any

        @linen.compact
        def __call__(self, x: Any, train: bool = True) -> Any:
            return linen.Dense(4)(linen.relu(self.part(x, train)))

    class Plain(linen.Module):
        layers: Any

        @linen.compact
        def __call__(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x

    class Encoder(linen.Module):
        @linen.compact
        def __call__(self, x: Any, deterministic: bool = False) -> Any:
            y = linen.MultiHeadDotProductAttention(2, dropout_rate=0.1)(linen.LayerNorm()(x), deterministic=deterministic)
            return x + y + linen.Dense(4)(linen.gelu(linen.Dense(8)(x)))

    class Setup(linen.Module):
        def setup(self) -> None:
            self.scale = self.param("scale", linen.initializers.ones, (4,))
            self.count = self.variable("counts", "calls", lambda: jnp.zeros((), jnp.int32))
            self.line = linen.Dense(4)

        def __call__(self, x: Any) -> Any:
            self.count.value += 1
            return self.line(x) * self.scale

    def nnx_of(build: Any) -> Callable[[], tl.Module]:
        return lambda: tl.Module.from_flax_module(build())

    def linen_of(build: Any, x: Any) -> Callable[[], tl.Module]:
        return lambda: tl.Module.from_flax_module(build(), instance_args=(x,))

    images = {
        "convolution": lambda: nnx.Conv(4, 6, (3, 3), rngs=rngs()),
        "batch normalization": lambda: nnx.Sequential(
            nnx.Conv(4, 6, (3, 3), rngs=rngs()), nnx.BatchNorm(6, rngs=rngs()), nnx.relu
        ),
        "group normalization": lambda: nnx.GroupNorm(4, num_groups=2, rngs=rngs()),
        "transposed convolution": lambda: nnx.ConvTranspose(4, 4, (2, 2), (2, 2), rngs=rngs()),
        "pooling": lambda: nnx.Sequential(nnx.Conv(4, 6, (3, 3), rngs=rngs()), lambda x: nnx.max_pool(x, (2, 2), (2, 2))),
        "instance normalization": lambda: nnx.InstanceNorm(4, rngs=rngs()),
    }
    sequences = {
        "LSTM": lambda: Unrolled(nnx.OptimizedLSTMCell),
        "GRU": lambda: Unrolled(nnx.GRUCell),
        "simple recurrence": lambda: Unrolled(nnx.SimpleCell),
        "block": Block,
        "attention": lambda: nnx.MultiHeadAttention(2, 4, decode=False, rngs=rngs()),
    }
    vectors = {
        "line": lambda: nnx.Linear(4, 4, rngs=rngs()),
        "dropout": lambda: nnx.Sequential(nnx.Linear(4, 4, rngs=rngs()), nnx.Dropout(0.3, rngs=rngs())),
        "noise": lambda: Noise(rngs()),
        "counter": Counter,
        "tied": Tied,
        "low rank": lambda: nnx.LoRALinear(4, 4, lora_rank=2, rngs=rngs()),
        "layer normalization": lambda: nnx.LayerNorm(4, rngs=rngs()),
        "RMS normalization": lambda: nnx.RMSNorm(4, rngs=rngs()),
        "einsum": lambda: nnx.Einsum("ab,bc->ac", (4, 4), (4,), rngs=rngs()),
        "prelu": lambda: nnx.PReLU(),
    }
    of_linen = {
        "linen line": (lambda: linen.Dense(4), VECTOR),
        "linen stack": (lambda: Plain([linen.Dense(4), linen.tanh, linen.Dense(4)]), VECTOR),
        "linen batch normalization": (lambda: Linen(lambda x, train: linen.BatchNorm(use_running_average=not train)(x)), VECTOR),
        "linen dropout": (lambda: Linen(lambda x, train: linen.Dropout(0.2, deterministic=not train)(x)), VECTOR),
        "linen encoder": (Encoder, SEQUENCE),
        "linen setup": (Setup, VECTOR),
        "linen LSTM": (lambda: linen.RNN(linen.OptimizedLSTMCell(5)), SEQUENCE),
        "linen GRU, both ways": (lambda: linen.Bidirectional(linen.RNN(linen.GRUCell(3)), linen.RNN(linen.GRUCell(3))), SEQUENCE),
        "linen convolution": (lambda: Plain([linen.Conv(4, (3, 3)), linen.GroupNorm(2)]), IMAGE),
        "linen weight norm": (lambda: Plain([linen.WeightNorm(linen.Dense(4))]), VECTOR),
    }
    found: dict[str, Made] = {}
    for table, x in ((images, IMAGE), (sequences, SEQUENCE), (vectors, VECTOR)):
        found |= {name: (nnx_of(build), x) for name, build in table.items()}
    return found | {name: (linen_of(build, x), x) for name, (build, x) in of_linen.items()}


# ---- Haiku ---------------------------------------------------------------------------------------------------------------------
def of_haiku() -> dict[str, Made]:
    import haiku as hk
    import jax
    import jax.numpy as jnp

    def of_class(kind: Any, *args: Any, x: Any = VECTOR, **kwargs: Any) -> Made:
        return lambda: tl.Module.from_haiku_module(kind, args, kwargs, instance_args=(x,)), x

    def of_function(function: Any, x: Any = VECTOR) -> Made:
        return lambda: tl.Module.from_haiku_module(hk.transform_with_state(function), instance_args=(x,)), x

    def unrolled(core: Callable[[], Any]) -> Any:
        def run(x: Any) -> Any:
            made = core()
            return hk.dynamic_unroll(made, jnp.swapaxes(x, 0, 1), made.initial_state(x.shape[0]))[0].swapaxes(0, 1)

        return run

    def mean_of(network: Any) -> Any:
        def run(x: Any, is_training: bool) -> Any:
            return network()(x, is_training)

        return run

    def dropped(x: Any, is_training: bool) -> Any:
        x = hk.Linear(8)(x)
        return hk.Linear(4)(hk.dropout(hk.next_rng_key(), 0.2, x) if is_training else x)

    def counted(x: Any) -> Any:
        calls = hk.get_state("calls", (), jnp.int32, jnp.zeros)
        hk.set_state("calls", calls + 1)
        return {"a": hk.Linear(4)(x)}

    def attend(x: Any) -> Any:
        return x + hk.MultiHeadAttention(2, 2, w_init=hk.initializers.VarianceScaling(1.0))(x, x, x)

    def block(x: Any, is_training: bool) -> Any:
        for _ in range(2):
            x = x + attend(hk.LayerNorm(-1, True, True)(x))
            y = jax.nn.gelu(hk.Linear(8)(hk.LayerNorm(-1, True, True)(x)))
            x = x + hk.Linear(4)(hk.dropout(hk.next_rng_key(), 0.1, y) if is_training else y)
        return x

    def normalized(x: Any, is_training: bool) -> Any:
        return jax.nn.relu(hk.BatchNorm(True, True, 0.9)(hk.Conv2D(6, 3)(x), is_training))

    def tied(x: Any) -> Any:
        line = hk.Linear(4)
        return line(jnp.tanh(line(x)))

    def parameter(x: Any) -> Any:
        return (
            x @ hk.get_parameter("w", (4, 4), init=hk.initializers.RandomNormal(0.5)) * hk.get_parameter("s", (4,), init=jnp.ones)
        )

    def averaged(x: Any) -> Any:
        return hk.Linear(4)(x) - hk.ExponentialMovingAverage(0.9)(jnp.mean(x, axis=0))

    def spectral(x: Any) -> Any:
        w = hk.get_parameter("w", (4, 4), init=hk.initializers.RandomNormal(0.5))
        return x @ hk.SpectralNorm()(w)

    def small_resnet() -> Any:
        return hk.nets.ResNet(
            (1, 1, 1, 1), 4, bottleneck=False, channels_per_group=(4, 4, 8, 8), use_projection=(True, True, True, True)
        )

    big = np.random.default_rng(3).normal(size=(6, 16, 16, 4)).astype(np.float32)
    return {
        "line": of_class(hk.Linear, 4),
        "bias": of_class(hk.Bias),
        "MLP": of_class(hk.nets.MLP, [8, 4]),
        "MLP without the last activation": of_class(hk.nets.MLP, [8, 4], activate_final=False, with_bias=False),
        "layer normalization": of_class(hk.LayerNorm, -1, True, True),
        "RMS normalization": of_class(hk.RMSNorm, -1),
        "group normalization": of_class(hk.GroupNorm, 2, x=IMAGE),
        "instance normalization": of_class(hk.InstanceNorm, True, True, x=IMAGE),
        "convolution": of_class(hk.Conv2D, 6, 3, x=IMAGE),
        "transposed convolution": of_class(hk.Conv2DTranspose, 4, 2, 2, x=IMAGE),
        "depthwise convolution": of_class(hk.DepthwiseConv2D, 1, 3, x=IMAGE),
        "line convolution": of_class(hk.Conv1D, 4, 3, x=SEQUENCE),
        "separable convolution": of_class(hk.SeparableDepthwiseConv2D, 1, 3, x=IMAGE),
        "batch normalization": of_function(normalized, IMAGE),
        "ResNet": of_function(mean_of(small_resnet), big),
        "MobileNet": of_function(mean_of(lambda: hk.nets.MobileNetV1((2, 1), (8, 8), 4)), big),
        "LSTM": of_function(unrolled(lambda: hk.LSTM(5)), SEQUENCE),
        "GRU": of_function(unrolled(lambda: hk.GRU(5)), SEQUENCE),
        "recurrence": of_function(unrolled(lambda: hk.VanillaRNN(5)), SEQUENCE),
        "deep recurrence": of_function(unrolled(lambda: hk.DeepRNN([hk.LSTM(5), jnp.tanh, hk.GRU(4)])), SEQUENCE),
        "attention": of_function(attend, SEQUENCE),
        "transformer": of_function(block, SEQUENCE),
        "dropout": of_function(dropped),
        "counter": of_function(counted),
        "tied": of_function(tied),
        "parameters": of_function(parameter),
        "averages": of_function(averaged),
        "spectral norm": of_function(spectral),
        "sequence": of_function(lambda x: hk.Sequential([hk.Linear(4), jax.nn.relu, hk.Linear(4)])(x)),
        "pooling": of_function(lambda x: hk.MaxPool(2, 2, "SAME")(hk.Conv2D(4, 3)(x)), IMAGE),
        "remat": of_function(lambda x: hk.remat(hk.Linear(4))(x)),
    }


# ---- Keras ---------------------------------------------------------------------------------------------------------------------
def of_keras() -> dict[str, Made]:
    import keras

    layers, ops = keras.layers, keras.ops

    def functional(x: Any, build: Any) -> Any:
        inputs = keras.Input(x.shape[1:])
        return keras.Model(inputs, build(inputs))

    class Attend(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.norm = layers.MultiHeadAttention(2, 2, dropout=0.1), layers.LayerNormalization()
            self.lines = [layers.Dense(8, activation="gelu"), layers.Dense(4)]

        def call(self, x: Any, training: Any = None) -> Any:
            x = self.norm(x + self.attention(x, x, training=training))
            return x + self.lines[1](self.lines[0](x))

    class Counter(layers.Layer):
        def build(self, shape: Any) -> None:
            self.calls = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False, name="calls")
            self.w = self.add_weight(shape=(shape[-1], 4), name="w")

        def call(self, x: Any) -> Any:
            self.calls.assign(self.calls + 1)
            return {"a": x @ self.w}

    class Penalty(layers.Layer):
        def build(self, shape: Any) -> None:
            self.line = layers.Dense(4)
            self.line.build(shape)

        def call(self, x: Any) -> Any:
            self.add_loss(ops.mean(x**2))
            return self.line(x)

    class Several(tl.Module):
        """A functional model with two inputs: the rows, and their halves; in a list, or by names."""

        def __init__(self, native: tl.Module, named: bool) -> None:
            self.native, self.named = native, named

        def forward(self, x: Any) -> Any:
            return self.native({"a": x, "b": x[..., :2]} if self.named else [x, x[..., :2]])

    def several(build: Any, x: Any = VECTOR, named: bool = False) -> Made:
        def make() -> tl.Module:
            a, b = keras.Input(x.shape[1:], name="a"), keras.Input((*x.shape[1:-1], 2), name="b")
            return Several(tl.Module.from_keras_module(keras.Model({"a": a, "b": b} if named else [a, b], build(a, b))), named)

        return make, x

    def twins(a: Any, b: Any) -> Any:
        line, narrow = layers.Dense(4), layers.Dense(2)
        return layers.Subtract()([line(a), line(layers.Concatenate()([narrow(a), b]))])

    def attended(a: Any, b: Any) -> Any:
        return layers.MultiHeadAttention(2, 2)(a, b) + layers.LSTM(4, return_sequences=True)(b)

    def two_outputs(inputs: Any) -> Any:
        hidden = layers.Dense(4, activation="tanh")(inputs)
        return [layers.Dense(3)(hidden), layers.Dense(2)(hidden)]

    def skip(inputs: Any) -> Any:
        x = layers.Conv2D(4, 3, padding="same")(inputs)
        return layers.Add()([inputs, layers.BatchNormalization()(x)])

    def shared(inputs: Any) -> Any:
        line = layers.Dense(4)
        return line(ops.tanh(line(inputs)))

    def frozen() -> Any:
        made = keras.Sequential([keras.Input((4,)), layers.Dense(4), layers.Dense(4)])
        made.layers[0].trainable = False
        return made

    images = {
        "convolution": lambda: layers.Conv2D(6, 3),
        "batch normalization": lambda: functional(IMAGE, skip),
        "transposed convolution": lambda: layers.Conv2DTranspose(4, 2, 2),
        "depthwise convolution": lambda: layers.DepthwiseConv2D(3),
        "separable convolution": lambda: layers.SeparableConv2D(4, 3),
        "group normalization": lambda: layers.GroupNormalization(2),
        "pooling": lambda: keras.Sequential([layers.Conv2D(6, 3), layers.MaxPooling2D(2)]),
        "dropout of channels": lambda: keras.Sequential([layers.Conv2D(6, 3), layers.SpatialDropout2D(0.2)]),
    }
    sequences = {
        "LSTM": lambda: layers.LSTM(5, return_sequences=True),
        "GRU": lambda: layers.GRU(5),
        "recurrence": lambda: layers.SimpleRNN(5),
        "both ways": lambda: layers.Bidirectional(layers.LSTM(3, return_sequences=True)),
        "stateful LSTM": lambda: layers.LSTM(5, stateful=True),
        "stateful GRU": lambda: layers.GRU(5, stateful=True, return_sequences=True),
        "dropped recurrence": lambda: layers.LSTM(5, dropout=0.2, recurrent_dropout=0.2),
        "attention": Attend,
        "stacked cells": lambda: layers.RNN([layers.LSTMCell(5), layers.GRUCell(3)]),
        "over time": lambda: layers.TimeDistributed(layers.Dense(3)),
        "line convolution": lambda: layers.Conv1D(4, 3),
        "masked recurrence": lambda: keras.Sequential([layers.Masking(), layers.GRU(5)]),
    }
    vectors = {
        "line": lambda: layers.Dense(4),
        "stack": lambda: keras.Sequential([layers.Dense(8, activation="relu"), layers.Dense(4)]),
        "dropout": lambda: keras.Sequential([layers.Dense(8), layers.Dropout(0.3), layers.Dense(4)]),
        "noise": lambda: keras.Sequential([layers.Dense(4), layers.GaussianNoise(0.1)]),
        "unit normalization": lambda: keras.Sequential([layers.Dense(4), layers.UnitNormalization()]),
        "layer normalization": lambda: layers.LayerNormalization(),
        "counter": Counter,
        "penalty": Penalty,
        "two outputs": lambda: functional(VECTOR, two_outputs),
        "shared": lambda: functional(VECTOR, shared),
        "frozen in part": frozen,
        "spectral norm": lambda: layers.SpectralNormalization(layers.Dense(4)),
        "prelu": lambda: layers.PReLU(),
    }

    def make(build: Any, x: Any) -> Callable[[], tl.Module]:
        return lambda: tl.Module.from_keras_module(build(), instance_args=(ops.convert_to_tensor(x),))

    found: dict[str, Made] = {}
    for table, x in ((images, IMAGE), (sequences, SEQUENCE), (vectors, VECTOR)):
        found |= {name: (make(build, x), x) for name, build in table.items()}
    return found | {
        "several inputs": several(lambda a, b: layers.Add()([layers.Dense(4)(a), layers.Dense(4)(b)])),
        "inputs by name": several(lambda a, b: {"y": layers.Dense(3)(layers.Concatenate()([a, b]))}, named=True),
        "twins": several(twins),
        "two sequences": several(attended, SEQUENCE),
        "two images, two outputs": several(lambda a, b: [layers.Conv2D(4, 3)(a), layers.Conv2D(3, 3)(b)], IMAGE),
    }


TABLES: dict[str, Callable[[], dict[str, Made]]] = {"torch": of_torch, "keras": of_keras, "haiku": of_haiku, "flax": of_flax}
