"""The names and layouts that torch has for the parameters and buffers of layers: one table, for state dicts and converters.

Values are NumPy arrays, so that torch need not be there. The path of a Module in the tree is torch's, with numbers for the
members of lists; the name of a parameter that is not a layer's own is that of its attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from trellis.array import Array
from trellis.dispatch import target
from trellis.nn import building
from trellis.nn.attention import MultiHeadAttention, TransformerDecoderLayer, TransformerEncoderLayer
from trellis.nn.composition import ModuleList
from trellis.nn.convolution import Convolution, TransposedConvolution
from trellis.nn.embedding import Bilinear, Embedding
from trellis.nn.functions import PReLU
from trellis.nn.linear import Linear, Sequential
from trellis.nn.normalization import Normalization
from trellis.nn.recurrent import Cell, RecurrentNetwork
from trellis.nn.structure import ARRAY, KINDS, MODULE, SEQUENCE, SKIP, as_array, items
from trellis.ops.conversion import to_numpy

Value = np.ndarray[Any, Any]


class Layout(NamedTuple):
    """Both ways between our axes and torch's."""

    to_torch: Callable[[Value], Value]
    from_torch: Callable[[Value], Value]


SAME = Layout(lambda x: x, lambda x: x)
MATRIX = Layout(lambda x: x.T, lambda x: x.T)  # [in, out] and [out, in]
FILTER = Layout(lambda x: np.moveaxis(x, (-1, -2), (0, 1)), lambda x: np.moveaxis(x, (0, 1), (-1, -2)))  # [*k, in, out]
TRANSPOSED_FILTER = Layout(lambda x: np.moveaxis(x, (-2, -1), (0, 1)), lambda x: np.moveaxis(x, (0, 1), (-2, -1)))

Row = tuple[str, Layout]
_AFFINE: dict[str, Row] = {"w": ("weight", SAME), "b": ("bias", SAME)}
_RECURRENT: dict[str, Row] = {
    "kernel": ("weight_ih", MATRIX),
    "recurrent_kernel": ("weight_hh", MATRIX),
    "bias": ("bias_ih", SAME),
    "recurrent_bias": ("bias_hh", SAME),
}

# Class -> the attributes that have other names or layouts in torch. The nearest class of a layer that is listed decides.
TABLE: dict[type, dict[str, Row]] = {
    Linear: _AFFINE,
    Bilinear: _AFFINE,
    Embedding: _AFFINE,
    PReLU: _AFFINE,
    Convolution: {"w": ("weight", FILTER), "b": ("bias", SAME)},
    TransposedConvolution: {"w": ("weight", TRANSPOSED_FILTER), "b": ("bias", SAME)},
    Normalization: {**_AFFINE, "running_variance": ("running_var", SAME), "batches": ("num_batches_tracked", SAME)},
    MultiHeadAttention: {
        "in_proj_weights": ("in_proj_weight", SAME),
        **{f"{name}_proj_weights": (f"{name}_proj_weight", SAME) for name in "qkv"},
        "out_proj_weights": ("out_proj.weight", SAME),
        "out_proj_bias": ("out_proj.bias", SAME),
    },
    TransformerEncoderLayer: {"attention": ("self_attn", SAME)},
    TransformerDecoderLayer: {"attention": ("self_attn", SAME), "cross_attention": ("multihead_attn", SAME)},
    Cell: _RECURRENT,
}


class Place(NamedTuple):
    """Where an array stands: its name in torch, and its layout there."""

    key: str
    array: Array
    layout: Layout
    is_buffer: bool


def rows(module: Any) -> Mapping[str, Row]:
    return next((TABLE[kind] for kind in type(module).__mro__ if kind in TABLE), {})


def places(module: Any, prefix: str = "", above: tuple[int, ...] = ()) -> Iterator[Place]:
    """Every place of an array in a tree, those that are shared more than once, as in torch's state dict."""
    if id(module) in above:
        return
    table, meta = rows(module), module._meta
    for name, value in module.__dict__.items():
        kind = KINDS[type(value)]
        if kind == SKIP or name in meta.plain:
            continue
        key, layout = table.get(name, (name, SAME))
        if isinstance(module, (Sequential, ModuleList)) and name[0] == "v" and name[1:].isdigit():
            key = name[1:]
        if isinstance(module, RecurrentNetwork) and name.startswith("layer"):
            for part, array in value.items():
                key, layout = _RECURRENT[part]
                yield Place(f"{prefix}{key}_l{name[len('layer') :]}", array, layout, False)
        else:
            yield from _member(value, kind, f"{prefix}{key}", layout, name in meta.buffers, (*above, id(module)))


def _member(value: Any, kind: int, key: str, layout: Layout, is_buffer: bool, above: tuple[int, ...]) -> Iterator[Place]:
    if kind == ARRAY:
        yield Place(key, value, layout, is_buffer)
    elif kind == MODULE:
        yield from places(value, f"{key}.", above)
    elif kind != SKIP:
        for name, member in items(value, kind):
            inner = name[1:] if kind == SEQUENCE else name
            yield from _member(member, KINDS[type(member)], f"{key}.{inner}", SAME, False, above)


def to_state_dict(module: Any) -> dict[str, Value]:
    """Names of torch -> copies of the values, in its layouts."""
    return {key: np.array(layout.to_torch(to_numpy(x._data)), order="C") for key, x, layout, _ in places(module)}


def load_state_dict(module: Any, given: Mapping[str, Any], strict: bool = True) -> None:
    """Put the values of a state dict of torch in a tree of Modules: all are checked first, then all are put."""
    owner = f"{type(module).__name__}.load_torch_state_dict"
    if not isinstance(given, Mapping):
        raise TypeError(f"{owner}: expected a dict of arrays, got {type(given).__name__}")
    found = list(places(module))
    known = {place.key for place in found}
    present = {id(place.array) for place in found if place.key in given}
    problems = []
    if strict:
        missing = [place.key for place in found if place.key not in given and id(place.array) not in present]
        unexpected = [key for key in given if key not in known]
        problems = [
            f"{what} {building._listed(keys)}" for what, keys in (("missing", missing), ("unexpected", unexpected)) if keys
        ]
    values = {place.key: _value(owner, place.key, given[place.key]) for place in found if place.key in given}
    for place in found:
        if place.key in values:
            wanted = place.layout.to_torch(np.broadcast_to(np.float32(0), place.array.shape)).shape
            if values[place.key].shape != wanted:
                problems.append(f"{place.key!r} has shape {values[place.key].shape}, expected {wanted}")
    if problems:
        raise ValueError(f"{owner}: the state dict does not fit: {'; '.join(problems)}")
    replaced = {id(p.array): _like(p, values[p.key]) for p in found if p.key in values}
    building.replace(module, replaced, set())


def _value(owner: str, key: str, value: Any) -> Value:
    array = as_array(value)
    if array is None and not isinstance(value, (int, float, np.generic)):
        raise TypeError(f"{owner}: {key!r} is a {type(value).__name__}; expected an array")
    return np.asarray(value if array is None else to_numpy(array._data))


def _like(place: Place, value: Value) -> Array:
    own = place.array
    data = np.ascontiguousarray(place.layout.from_torch(value)).reshape(own.shape)
    return Array(target(own.backend).from_numpy(data, dtype=own.dtype, device=own.device, copy=True))
