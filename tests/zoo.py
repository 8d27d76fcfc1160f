"""A zoo of small models, as data: every layer first and last, and the structures that people build of them.

`MODELS` is name -> `Model`: a builder without arguments, and the inputs of a call as NumPy arrays, a tuple of arguments or a dict
of keywords. `make(name, backend)` gives the model with the same values on every backend, its parts frozen as the row says.
Outputs are nests of arrays. The first axis of every input has 4 rows, so that a Trainer can take batches of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import trellis as tl
from trellis import nn
from trellis.core import tree

Build = Callable[[], tl.Module]
ROWS = 4


class Model(NamedTuple):
    """`frozen` are paths that are frozen after the model is built."""

    build: Build
    inputs: Any
    frozen: tuple[str, ...] = ()
    dtype: str | None = None  # that the whole tree is cast to
    draws: bool | str = False  # whether a run in training draws random numbers; "always": one in evaluation too


def normal(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def whole(high: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng([high, *shape]).integers(0, high, shape)


def make(name: str, backend: str = "numpy") -> tl.Module:
    """The model of a row on a backend: built on NumPy from one seed, called once if that is what builds it, and moved."""
    row = MODELS[name]
    with tl.using("numpy"):
        tl.seed(7)
        model = row.build()
        if not all(one.built for _, one in [("", model), *model.sub_mods().items()]):
            mode = model.training
            call(model.eval(), row.inputs)
            model.train(mode)
    if row.dtype:
        model.astype(row.dtype)
    for path in row.frozen:
        model.freeze(path)
    return model.to_backend(backend)


def call(model: Any, inputs: Any) -> Any:
    """A call with a row's inputs, or with other arrays in their places."""
    return model(**inputs) if isinstance(inputs, dict) else model(*inputs)


def placed(name: str, backend: str) -> Any:
    """The inputs of a row as Arrays of a backend, floating-point ones in the dtype of the model."""
    dtype = MODELS[name].dtype or "float32"

    def place(x: Any) -> Any:
        return tl.asarray(x, backend=backend, dtype=dtype if x.dtype.kind == "f" else None)

    return tree.map(place, MODELS[name].inputs)


def loss(outputs: Any, *targets: Any) -> Any:
    """The mean over all floating-point outputs of (y - 0.1)**2, in float32 at least."""
    total: Any = 0.0
    for y in tree.leaves(outputs):
        if tl.asarray(y).dtype.kind == "f":
            y = tl.astype(y, tl.float32) if tl.asarray(y).dtype.name in ("float16", "bfloat16") else y
            total = total + tl.mean((y - 0.1) ** 2)
    return total


# ---- every layer, first and last -----------------------------------------------------------------------------------------------
class Row(NamedTuple):
    """A layer with its channels last: how it is made, the inputs that it takes, and the size of the last axis of its result."""

    build: Build
    inputs: tuple[Any, ...]
    size: int
    draws: bool | str = False


VECTOR, LINE, IMAGE, VOLUME = normal(ROWS, 4), normal(ROWS, 6, 4), normal(ROWS, 6, 5, 4), normal(ROWS, 4, 3, 4, 4)
SEQUENCE, MEMORY = normal(ROWS, 5, 8), normal(ROWS, 3, 8)
WINDOWS = {"1D": LINE, "2D": IMAGE, "3D": VOLUME}


def _windowed(name: str, kind: type, *args: Any, size: int = 4, **given: Any) -> dict[str, Row]:
    return {name: Row(functools.partial(kind, *args, **given), (WINDOWS[name.removesuffix("Transpose")[-2:]],), size)}


LAYERS: dict[str, Row] = {
    "Linear": Row(lambda: tl.Linear(4, 3), (VECTOR,), 3),
    "Bilinear": Row(lambda: tl.Bilinear(4, 4, 3), (VECTOR, normal(ROWS, 4, seed=1)), 3),
    "Embedding": Row(lambda: tl.Embedding(7, 3, padding_idx=2), (whole(7, ROWS, 5),), 3),
    "PReLU": Row(functools.partial(tl.PReLU, 4), (VECTOR,), 4),
    "Dropout": Row(lambda: tl.Dropout(0.5), (VECTOR,), 4, draws=True),
    "GumbelSoftmax": Row(lambda: tl.GumbelSoftmax(), (VECTOR,), 4, draws="always"),
    "Flatten": Row(lambda: tl.Flatten(), (LINE,), 24),
    "Identity": Row(lambda: tl.Identity(), (VECTOR,), 4),
    "Lambda": Row(lambda: tl.Lambda(lambda x: tl.tanh(2 * x)), (VECTOR,), 4),
    "Sequential": Row(lambda: tl.Sequential(tl.Linear(4, 4), tl.relu), (VECTOR,), 4),
    "Residual": Row(lambda: tl.Residual(tl.Linear(4, 4), shortcut=tl.Linear(4, 4)), (VECTOR,), 4),
    "ModuleList": Row(lambda: _Each(tl.ModuleList([tl.Linear(4, 4), tl.Tanh(), tl.Linear(4, 3)])), (VECTOR,), 3),
    "ModuleDict": Row(lambda: _Each(tl.ModuleDict({"b": tl.Linear(4, 4), "a": tl.Linear(4, 3)})), (VECTOR,), 3),
    "BatchNorm1D": Row(functools.partial(tl.BatchNorm1D, 4), (VECTOR,), 4),
    "BatchNorm2D": Row(functools.partial(tl.BatchNorm2D, 4, momentum=0.3), (IMAGE,), 4),
    "BatchNorm3D": Row(functools.partial(tl.BatchNorm3D, 4), (VOLUME,), 4),
    "LayerNorm": Row(lambda: tl.LayerNorm((6, 4)), (LINE,), 4),
    "RMSNorm": Row(lambda: tl.RMSNorm(4), (LINE,), 4),
    "GroupNorm": Row(functools.partial(tl.GroupNorm, 2, 4), (IMAGE,), 4),
    "InstanceNorm": Row(functools.partial(tl.InstanceNorm, 4), (IMAGE,), 4),
    "MultiHeadAttention": Row(lambda: tl.MultiHeadAttention(8, 2), (SEQUENCE,), 8),
    "TransformerEncoderLayer": Row(lambda: tl.TransformerEncoderLayer(8, 2, 12), (SEQUENCE,), 8, draws=True),
    "TransformerEncoder": Row(lambda: tl.TransformerEncoder(2, 8, 2, 12, dropout=0.0), (SEQUENCE,), 8),
    "TransformerDecoderLayer": Row(lambda: tl.TransformerDecoderLayer(8, 2, 12, dropout=0.0), (SEQUENCE, MEMORY), 8),
    "TransformerDecoder": Row(lambda: tl.TransformerDecoder(2, 8, 2, 12, dropout=0.0), (SEQUENCE, MEMORY), 8),
    "LSTM": Row(lambda: _First(tl.LSTM(8, 5)), (SEQUENCE,), 5),
    "GRU": Row(lambda: _First(tl.GRU(8, 5, bidirectional=True)), (SEQUENCE,), 10),
    "RNN": Row(lambda: _First(tl.RNN(8, 5, 2)), (SEQUENCE,), 5),
    "LSTMCell": Row(lambda: _First(tl.LSTMCell(8, 5)), (normal(ROWS, 8),), 5),
    "GRUCell": Row(lambda: tl.GRUCell(8, 5), (normal(ROWS, 8),), 5),
    "RNNCell": Row(lambda: tl.RNNCell(8, 5), (normal(ROWS, 8),), 5),
    "GLU": Row(lambda: tl.GLU(), (LINE,), 2),
    "SwiGLU": Row(lambda: tl.SwiGLU(), (LINE,), 2),
    "GlobalAvgPool": Row(functools.partial(tl.GlobalAvgPool), (IMAGE,), 4),
    "GlobalMaxPool": Row(functools.partial(tl.GlobalMaxPool), (VOLUME,), 4),
    **{
        name: row
        for dims in WINDOWS
        for name, row in {
            **_windowed(f"Conv{dims}", getattr(tl, f"Conv{dims}"), 4, 6, 3, padding="SAME", size=6),
            **_windowed(f"Conv{dims}Transpose", getattr(tl, f"Conv{dims}Transpose"), 4, 3, 2, 2, size=3),
            **_windowed(f"MaxPool{dims}", getattr(tl, f"MaxPool{dims}"), 2),
            **_windowed(f"AvgPool{dims}", getattr(tl, f"AvgPool{dims}"), 3, 2, "SAME"),
            **_windowed(f"AdaptiveAvgPool{dims}", getattr(tl, f"AdaptiveAvgPool{dims}"), 2),
            **_windowed(f"AdaptiveMaxPool{dims}", getattr(tl, f"AdaptiveMaxPool{dims}"), 2),
        }.items()
    },
    **{
        name: row
        for dims in ("1D", "2D")
        for name, row in {
            **_windowed(f"DepthwiseConv{dims}", getattr(tl, f"DepthwiseConv{dims}"), 4, 3, multiplier=2, size=8),
            **_windowed(f"SeparableConv{dims}", getattr(tl, f"SeparableConv{dims}"), 4, 3, 3, size=3),
        }.items()
    },
    **{
        name: Row(functools.partial(getattr(tl, name)), (VECTOR,), 4)
        for name in (
            "CELU", "ELU", "GELU", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "LogSigmoid", "LogSoftmax", "Mish",
            "ReLU", "ReLU6", "SELU", "Sigmoid", "SiLU", "Softmax", "Softplus", "Softsign", "Tanh",
        )
    },
}  # fmt: skip


class _Each(tl.Module):
    """Runs the members of a ModuleList or a ModuleDict one after the other."""

    def __init__(self, members: Any) -> None:
        self.members = members

    def forward(self, x: Any) -> Any:
        for one in self.members.values() if isinstance(self.members, tl.ModuleDict) else self.members:
            x = one(x)
        return x


class _First(tl.Module):
    """The first of several results."""

    def __init__(self, layer: tl.Module) -> None:
        self.layer = layer

    def forward(self, *args: Any) -> Any:
        return self.layer(*args)[0]


class First(tl.Module):
    """A layer, and a line behind it."""

    def __init__(self, row: Row) -> None:
        self.layer, self.out = row.build(), tl.Linear(row.size, 3)

    def forward(self, *args: Any) -> Any:
        return self.out(self.layer(*args))


class Last(tl.Module):
    """A line from channels to channels, and a layer behind it."""

    def __init__(self, row: Row) -> None:
        channels = row.inputs[0].shape[-1]
        self.line, self.layer = tl.Linear(channels, channels), row.build()

    def forward(self, x: Any, *args: Any) -> Any:
        return self.layer(self.line(x), *args)


# ---- structures ----------------------------------------------------------------------------------------------------------------
class Parameters(tl.Module):
    """Parameters in lists, tuples and dicts, one in another."""

    def __init__(self) -> None:
        self.scales = [tl.asarray(normal(4)), tl.asarray(normal(4, seed=1))]
        self.table = {"shift": tl.asarray(normal(4, seed=2)), "pair": (tl.asarray(normal(4, 4)), tl.asarray(normal(4, seed=3)))}
        self.deep = {"a": [{"b": tl.asarray(normal(4, seed=4))}]}

    def forward(self, x: Any) -> Any:
        w, b = self.table["pair"]
        return (x * self.scales[0] + self.table["shift"]) @ w * self.scales[1] + b * self.deep["a"][0]["b"]


class Nested(tl.Module):
    """Layers and parameters side by side in lists and dicts."""

    def __init__(self) -> None:
        self.blocks = [{"line": tl.Linear(4, 4), "gain": tl.asarray(normal(4))}, {"line": tl.Linear(4, 4), "gain": tl.ones(4)}]
        self.heads = {"mean": [tl.Linear(4, 2), tl.Linear(2, 1)], "scale": (tl.Linear(4, 1),)}

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = tl.tanh(block["line"](x)) * block["gain"]
        mean = x
        for layer in self.heads["mean"]:
            mean = layer(mean)
        return {"mean": mean, "scale": tl.softplus(self.heads["scale"][0](x))}


class Private(tl.Module):
    """Attributes with a leading underscore."""

    def __init__(self) -> None:
        self._first, self._gain = tl.Linear(4, 4), tl.ones(4)

    def forward(self, x: Any) -> Any:
        return self._first(x) * self._gain


class Created(tl.Module):
    """Variables and buffers by the methods that make them."""

    def _create_variables(self, device: Any, dtype: Any) -> Any:
        nest = {"w": tl.asarray(normal(4, 3), dtype=dtype), "pair": [tl.zeros(3, dtype=dtype), tl.ones(3, dtype=dtype)]}
        return {"nest": nest, "b": tl.zeros(3, dtype=dtype)}

    def _create_buffers(self, device: Any, dtype: Any) -> Any:
        return {"calls": tl.zeros((), dtype=dtype), "table": tl.asarray(normal(3), dtype=dtype)}

    def forward(self, x: Any) -> Any:
        if self.training:
            self.calls = self.calls + 1
        nest: Any = self.nest
        return (x @ nest["w"] + nest["pair"][0]) * nest["pair"][1] + self.b + self.table


class OwnsLayers(tl.Module):
    """Variables that are those of a layer, under another name."""

    def __init__(self) -> None:
        self.line = tl.Linear(4, 4)

    def _create_variables(self, device: Any, dtype: Any) -> Any:
        return {"x": self.line.v}

    def forward(self, x: Any) -> Any:
        return self.line(x)


class Lazy(tl.Module):
    """A layer that its first call makes."""

    def __init__(self) -> None:
        super().__init__(build_mode="on_call")

    def _build(self, x: Any) -> None:
        self.line = tl.Linear(x.shape[-1], 3)

    def forward(self, x: Any) -> Any:
        return self.line(x)


class Tied(tl.Module):
    """Two layers that share an array."""

    def __init__(self) -> None:
        self.first, self.second = tl.Linear(4, 4), tl.Linear(4, 4)
        self.second.w = self.first.w

    def forward(self, x: Any) -> Any:
        return self.second(tl.tanh(self.first(x)))


class TiedEmbedding(tl.Module):
    """A table that embeds, and transposed gives the scores."""

    def __init__(self) -> None:
        self.table = tl.Embedding(7, 4)
        self.mix = tl.Linear(4, 4)
        self.scores = tl.Linear(4, 7, with_bias=False)
        self.scores.w = self.table.w

    def forward(self, tokens: Any) -> Any:
        return self.scores(tl.tanh(self.mix(self.table(tokens))))


class TiedInNests(tl.Module):
    """One array as an attribute, in a list and in a dict of another layer."""

    def __init__(self) -> None:
        self.w = tl.asarray(normal(4, 4))
        self.rows = [self.w, tl.ones(4)]
        self.inner = Holder({"w": self.w})

    def forward(self, x: Any) -> Any:
        return self.inner(tl.tanh(x @ self.rows[0]) * self.rows[1]) @ self.w


class Holder(tl.Module):
    def __init__(self, table: dict[str, Any]) -> None:
        self.table = table

    def forward(self, x: Any) -> Any:
        return x @ self.table["w"]


class Shared(tl.Module):
    """A layer used twice, and held by two others."""

    def __init__(self) -> None:
        line = tl.Linear(4, 4)
        self.left, self.right, self.norm = tl.Sequential(line, tl.tanh), tl.Sequential(line, tl.relu), tl.BatchNorm1D(4)
        self.again = [line, self.norm]

    def forward(self, x: Any) -> Any:
        return self.again[1](self.left(x)) + self.norm(self.again[0](self.right(x)))


class Buffers(tl.Module):
    """Buffers of several dtypes: read, changed in training, of no elements, and None."""

    def __init__(self) -> None:
        self.line = tl.Linear(4, 4)
        self.index = tl.asarray([3, 1, 0])
        self.mask = tl.asarray([True, False, True])
        self.register_buffer("mean", tl.zeros(3))
        self.register_buffer("count", tl.asarray(0))
        self.register_buffer("empty", tl.zeros((0, 3)))
        self.register_buffer("nothing", None)

    def forward(self, x: Any) -> Any:
        y = tl.where(self.mask, tl.take(self.line(x), self.index, axis=1), 0.0)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * tl.mean(y, axis=0)
            self.count = self.count + 1
        return y - self.mean


class BuffersInList(tl.Module):
    """Batch normalizations in a list: their buffers are in it too."""

    def __init__(self) -> None:
        self.norms = [tl.BatchNorm1D(4), tl.BatchNorm1D(4, momentum=None)]
        self.line = tl.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.norms[1](tl.tanh(self.line(self.norms[0](x))))


class OddNames(tl.Module):
    """Layers under names that are no Python names."""

    def __init__(self, *names: str) -> None:
        self.layers = {name: tl.Linear(4, 4) for name in names}
        for name in names:
            setattr(self, f"of {name}", tl.Linear(4, 4))

    def forward(self, x: Any) -> Any:
        for name, layer in self.layers.items():
            x = tl.tanh(layer(x)) + getattr(self, f"of {name}")(x)
        return x


class OddAttributes(tl.Module):
    """Attributes whose names other frameworks use themselves, or that sort in another order than they were set."""

    def __init__(self) -> None:
        names = ("weight", "parameters", "children", "name", "kernel", "10", "9", "class", "Größe")
        self.names = names
        for name in names:
            setattr(self, name, tl.Linear(4, 4))

    def forward(self, x: Any) -> Any:
        for name in self.names:
            x = tl.tanh(getattr(self, name)(x))
        return x


class SeveralInputs(tl.Module):
    def __init__(self) -> None:
        self.a, self.b = tl.Linear(4, 3), tl.Linear(8, 3)

    def forward(self, x: Any, y: Any, gate: Any = None) -> Any:
        total = self.a(x) + self.b(y)
        return total if gate is None else total * gate


class NestOfInputs(tl.Module):
    """One argument that is a nest of arrays."""

    def __init__(self) -> None:
        self.a, self.b = tl.Linear(4, 3), tl.Linear(8, 3)

    def forward(self, pair: Any, scale: Any) -> Any:
        return self.a(pair[0]) * scale + self.b(pair[1])


class Keywords(tl.Module):
    """Keywords, one of which may be missing."""

    def __init__(self) -> None:
        self.line, self.other = tl.Linear(4, 3), tl.Linear(4, 3)

    def forward(self, x: Any, *, mask: Any = None, extra: Any = None, flip: bool = False) -> Any:
        y = self.line(-x if flip else x)
        y = y if mask is None else tl.where(mask, y, 0.0)
        return y if extra is None else y + self.other(extra)


class SeveralOutputs(tl.Module):
    """A tuple, a dict in it, a whole number beside."""

    def __init__(self) -> None:
        self.line = tl.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        y = self.line(x)
        return y, {"softmax": tl.softmax(y), "class": tl.argmax(y, axis=-1)}, [tl.sum(y)]


class Mixed(tl.Module):
    """A float16 layer between float32 ones."""

    def __init__(self) -> None:
        self.first, self.half, self.last = tl.Linear(4, 4), tl.Linear(4, 4, dtype="float16"), tl.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        y = self.half(tl.astype(self.first(x), "float16"))
        return self.last(tl.astype(y, self.first.w.dtype))


class Noise(tl.Module):
    """Draws by a key of the run."""

    def __init__(self) -> None:
        self.line = tl.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        y = self.line(x)
        if not self.training:
            return y
        return y + 0.1 * tl.random_normal(shape=y.shape, seed=self.next_seed(), dtype=y.dtype, backend=y.backend)


class Unused(tl.Module):
    """A layer and a parameter that no call uses."""

    def __init__(self) -> None:
        self.line, self.unused, self.spare = tl.Linear(4, 3), tl.Linear(3, 2), tl.ones(2)

    def forward(self, x: Any) -> Any:
        return self.line(x)


class Empty(tl.Module):
    """A parameter without elements, and one without axes."""

    def __init__(self) -> None:
        self.nothing, self.scale, self.line = tl.zeros((0, 4)), tl.asarray(0.5), tl.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.line(tl.concat([x, self.nothing])) * self.scale


class Recurrent(tl.Module):
    """A cell in a loop of the user's own."""

    def __init__(self) -> None:
        self.cell, self.out = tl.LSTMCell(8, 5), tl.Linear(5, 2)

    def forward(self, x: Any) -> Any:
        state: Any = None
        for i in range(x.shape[1]):
            state = self.cell(x[:, i], state)
        return self.out(state[0])


class Attend(tl.Module):
    """Attention between two sequences, with masks."""

    def __init__(self) -> None:
        self.attention = tl.MultiHeadAttention(8, 2, key_dim=8, value_dim=8)

    def forward(self, x: Any, memory: Any, padding: Any) -> Any:
        return self.attention(x, memory, memory, key_padding_mask=padding, return_attention_weights=True)


class Method(tl.Module):
    """A computation under the other name of `forward`, and a layer that another method makes."""

    def _build(self, *args: Any, **kwargs: Any) -> None:
        self.line = tl.Linear(4, 4)

    def _forward(self, x: Any) -> Any:
        return self.line(x)


class Deep(tl.Module):
    """Modules in Modules in Modules."""

    def __init__(self, depth: int) -> None:
        self.line = tl.Linear(4, 4)
        self.below = Deep(depth - 1) if depth else None

    def forward(self, x: Any) -> Any:
        y = tl.tanh(self.line(x))
        return y if self.below is None else self.below(y)


class WithParent(tl.Module):
    """A child that knows its parent, which is not finished when the child is made."""

    def __init__(self) -> None:
        self.child = Child(self)
        self.line = tl.Linear(4, 4)
        self.scale = tl.ones(4)

    def forward(self, x: Any) -> Any:
        return self.child(self.line(x)) * self.scale


class Child(tl.Module):
    def __init__(self, above: Any) -> None:
        self.above, self.line = above, tl.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.line(x) * self.above.scale


class Steps(tl.Module):
    """Control flow of Trellis's own around a layer."""

    def __init__(self) -> None:
        self.line = tl.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return tl.scan(lambda carry, _: ((y := tl.tanh(self.line(carry))), y), x, length=3)[0]


class Autoencoder(tl.Module):
    """Convolutions down and up, a normalization and a skip between them."""

    def __init__(self) -> None:
        self.down = tl.Sequential(tl.Conv2D(1, 4, 3, 2, 1), tl.BatchNorm2D(4), tl.ReLU())
        self.up = tl.Sequential(tl.Conv2DTranspose(4, 2, 2, 2), tl.GroupNorm(1, 2), tl.SiLU())
        self.out = tl.Conv2D(3, 1, 1)

    def forward(self, x: Any) -> Any:
        return self.out(tl.concat([self.up(self.down(x)), x], axis=-1))


class Language(tl.Module):
    """Tokens and places, an encoder with a causal mask, and scores by the same table."""

    def __init__(self) -> None:
        self.tokens, self.places = tl.Embedding(11, 8), tl.asarray(normal(5, 8))
        self.encoder = tl.TransformerEncoder(2, 8, 2, 12, dropout=0.0, norm_first=True)

    def forward(self, tokens: Any) -> Any:
        x = self.encoder(self.tokens(tokens) + self.places, is_causal=True)
        return x @ tl.matrix_transpose(self.tokens.w)


def _mlp() -> tl.Module:
    return tl.Sequential(tl.Linear(4, 6), tl.Tanh(), tl.Linear(6, 6), tl.BatchNorm1D(6), tl.Linear(6, 3))


def _image_first(**options: Any) -> tl.Module:
    first: Any = {"data_format": "channel_first", **options}
    layers = (
        tl.Conv2D(2, 4, 3, padding=1, **first),
        tl.GroupNorm(2, 4, **first),
        tl.PReLU(4, **first),
        tl.MaxPool2D(2, data_format="NCHW"),
    )
    return tl.Sequential(*layers, tl.InstanceNorm(4, **first), tl.Flatten(), tl.Linear(36, 3))


def _half(dtype: str) -> dict[str, Model]:
    return {
        f"mlp in {dtype}": Model(_mlp, (VECTOR,), dtype=dtype),
        f"images in {dtype}": Model(Autoencoder, (normal(ROWS, 8, 8, 1),), dtype=dtype),
        f"sequences in {dtype}": Model(lambda: tl.Sequential(_First(tl.LSTM(8, 5)), tl.LayerNorm(5)), (SEQUENCE,), dtype=dtype),
        f"attention in {dtype}": Model(lambda: tl.TransformerEncoderLayer(8, 2, 12, dropout=0.0), (SEQUENCE,), dtype=dtype),
        f"tied in {dtype}": Model(Tied, (VECTOR,), dtype=dtype),
    }


_MASK = np.array([[True] * 3, [True, False, True], [False, True, True], [True, True, False]])
_PADDING = np.array([[True] * 3, [True, True, False], [True, False, False], [True] * 3])

STRUCTURES: dict[str, Model] = {
    "mlp": Model(_mlp, (VECTOR,)),
    "one parameter": Model(lambda: tl.PReLU(), (VECTOR,)),
    "no bias": Model(lambda: tl.Linear(4, 3, with_bias=False), (VECTOR,)),
    "rank 5": Model(lambda: tl.Linear(4, 3), (VOLUME,)),
    "parameters in nests": Model(Parameters, (VECTOR,)),
    "parameters in nests, frozen in part": Model(Parameters, (VECTOR,), frozen=("scales/v0", "table/pair", "deep")),
    "layers in nests": Model(Nested, (VECTOR,)),
    "layers in nests, frozen in part": Model(Nested, (VECTOR,), frozen=("blocks/v0", "heads/mean/v1/w")),
    "underscores": Model(Private, (VECTOR,)),
    "created": Model(Created, (VECTOR,)),
    "created, frozen in part": Model(Created, (VECTOR,), frozen=("nest/pair/v0", "b")),
    "variables of a layer": Model(OwnsLayers, (VECTOR,)),
    "built by a call": Model(Lazy, (VECTOR,)),
    "_build and _forward": Model(Method, (VECTOR,)),
    "tied": Model(Tied, (VECTOR,)),
    "tied and frozen by the first": Model(Tied, (VECTOR,), frozen=("first/w",)),
    "tied and frozen by the second": Model(Tied, (VECTOR,), frozen=("second",)),
    "tied embedding": Model(TiedEmbedding, (whole(7, ROWS, 3),)),
    "tied in nests": Model(TiedInNests, (VECTOR,)),
    "tied in nests, frozen by the last": Model(TiedInNests, (VECTOR,), frozen=("inner/table/w",)),
    "shared": Model(Shared, (VECTOR,)),
    "shared and frozen": Model(Shared, (VECTOR,), frozen=("right",)),
    "buffers": Model(Buffers, (VECTOR,)),
    "buffers in a list": Model(BuffersInList, (VECTOR,)),
    "names with dots": Model(lambda: OddNames("a.b", "a.c", "a"), (VECTOR,)),
    "names that look alike": Model(lambda: OddNames("a.b", "a·b", "a_b", "a b", "a··b"), (VECTOR,)),
    "names with spaces": Model(lambda: OddNames("a b", " "), (VECTOR,)),
    "names that are keywords": Model(lambda: OddNames("class", "def", "None"), (VECTOR,)),
    "names that are numbers": Model(lambda: OddNames("0", "10", "9", "2"), (VECTOR,)),
    "names with signs": Model(lambda: OddNames("a-b", "ü", "a:b", "v1", "v0"), (VECTOR,)),
    "names that others use": Model(OddAttributes, (VECTOR,)),
    "several inputs": Model(SeveralInputs, (VECTOR, normal(ROWS, 8))),
    "several inputs, one optional": Model(SeveralInputs, (VECTOR, normal(ROWS, 8), normal(ROWS, 3))),
    "a nest of inputs": Model(NestOfInputs, ((VECTOR, normal(ROWS, 8)), normal(ROWS, 3))),
    "keywords": Model(Keywords, {"x": VECTOR, "mask": _MASK}),
    "keywords, others": Model(Keywords, {"x": VECTOR, "extra": normal(ROWS, 4, seed=5)}),
    "several outputs": Model(SeveralOutputs, (VECTOR,)),
    "whole numbers": Model(lambda: tl.Sequential(tl.Embedding(7, 4), tl.Flatten(), tl.Linear(12, 3)), (whole(7, ROWS, 3),)),
    "all frozen but the head": Model(_mlp, (VECTOR,), frozen=("v0", "v2", "v3")),
    "head frozen": Model(_mlp, (VECTOR,), frozen=("v4",)),
    "frozen below a normalization": Model(_image_first, (normal(ROWS, 2, 6, 6),), frozen=("v0",)),
    "channels first": Model(_image_first, (normal(ROWS, 2, 6, 6),)),
    "dropout with a seed": Model(
        lambda: tl.Sequential(tl.Linear(4, 8), tl.Dropout(0.5, seed=3), tl.Linear(8, 3)), (VECTOR,), draws=True
    ),
    "dropout": Model(lambda: tl.Sequential(tl.Linear(4, 8), tl.Dropout(0.5), tl.Linear(8, 3)), (VECTOR,), draws=True),
    "noise": Model(Noise, (VECTOR,), draws=True),
    "unused parts": Model(Unused, (VECTOR,)),
    "empty and 0-d parameters": Model(Empty, (VECTOR,)),
    "a cell in a loop": Model(Recurrent, (SEQUENCE,)),
    "bidirectional stack": Model(lambda: tl.LSTM(8, 5, 2, bidirectional=True, dropout=0.25), (SEQUENCE,), draws=True),
    "time first": Model(lambda: _First(tl.GRU(8, 5, time_major=True)), (normal(ROWS, 5, 8),)),
    "relu recurrence, frozen below": Model(
        lambda: tl.Sequential(tl.Linear(8, 8), _First(tl.RNN(8, 5, activation="relu"))), (SEQUENCE,), frozen=("v0",)
    ),
    "attention to others": Model(Attend, (SEQUENCE, MEMORY, _PADDING)),
    "language model": Model(Language, (whole(11, ROWS, 5),)),
    "language model, table frozen": Model(Language, (whole(11, ROWS, 5),), frozen=("tokens", "places")),
    "deep": Model(lambda: Deep(6), (VECTOR,)),
    "a child with its parent": Model(WithParent, (VECTOR,)),
    "control flow": Model(Steps, (VECTOR,)),
    "autoencoder": Model(Autoencoder, (normal(ROWS, 8, 8, 1),)),
    "functions between layers": Model(
        lambda: tl.Sequential(tl.Linear(4, 4), tl.tanh, lambda x: x * 2, tl.Linear(4, 3)), (VECTOR,)
    ),
    "residuals": Model(
        lambda: tl.Sequential(*[tl.Residual(tl.LayerNorm(4), tl.Linear(4, 4), tl.gelu) for _ in range(3)]), (VECTOR,)
    ),
    "lists of lists": Model(
        lambda: tl.Sequential(tl.Sequential(tl.Sequential(tl.Linear(4, 4)), tl.Linear(4, 4)), tl.Linear(4, 2)), (VECTOR,)
    ),
    "grouped and dilated": Model(lambda: tl.Conv2D(4, 6, 3, groups=2, dilations=2, padding="SAME"), (IMAGE,)),
    "statistics without parameters": Model(lambda: tl.Sequential(tl.BatchNorm1D(4, affine=False), tl.Linear(4, 3)), (VECTOR,)),
    "statistics over all batches": Model(lambda: tl.Sequential(tl.Linear(4, 4), tl.BatchNorm1D(4, momentum=None)), (VECTOR,)),
    "two dtypes": Model(Mixed, (VECTOR,)),
    **_half("float16"),
    **_half("bfloat16"),
    **_half("float64"),
}  # fmt: skip

MODELS: dict[str, Model] = {
    **STRUCTURES,
    **{f"{name} first": Model(functools.partial(First, row), row.inputs, draws=row.draws) for name, row in LAYERS.items()},
    **{
        f"{name} last": Model(functools.partial(Last, row), row.inputs, draws=row.draws)
        for name, row in LAYERS.items()
        if row.inputs[0].dtype.kind == "f"
    },
}


def layers_of_trellis() -> set[str]:
    """The names of all layers that the package has; each must be in `LAYERS`."""
    found = {name: getattr(nn, name) for name in nn.__all__}
    return {name for name, kind in found.items() if isinstance(kind, type) and issubclass(kind, tl.Module)} - {"Module"}
