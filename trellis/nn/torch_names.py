"""The names and layouts that torch has for the parameters and buffers of layers, for state dicts and converters.

A layer names its rows in `_torch_rows`. Values are NumPy arrays, so that torch need not be installed. The path of a Module in
the tree is torch's, with numbers for the members of lists. A parameter without a row has the name of its attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from trellis.core.array import Array
from trellis.nn import building
from trellis.nn.structure import ARRAY, KINDS, MODULE, SEQUENCE, SKIP, as_array, items, members
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

Row = tuple[str, Layout]  # a name in torch, and the layout there
Rows = Mapping[str, Row]  # by attribute
AFFINE: Rows = {"w": ("weight", SAME), "b": ("bias", SAME)}
CONVOLUTION: Rows = {"w": ("weight", FILTER), "b": ("bias", SAME)}
TRANSPOSED_CONVOLUTION: Rows = {"w": ("weight", TRANSPOSED_FILTER), "b": ("bias", SAME)}
NORMALIZATION: Rows = {**AFFINE, "running_variance": ("running_var", SAME), "batches": ("num_batches_tracked", SAME)}
ATTENTION: Rows = {
    **{f"{name}_proj_weights": (f"{name}_proj_weight", SAME) for name in ("in", "q", "k", "v")},
    "out_proj_weights": ("out_proj.weight", SAME),
    "in_proj_bias": ("in_proj_bias", SAME),
    "out_proj_bias": ("out_proj.bias", SAME),
}
TRANSFORMER: Rows = {"attention": ("self_attn", SAME), "cross_attention": ("multihead_attn", SAME)}
RECURRENT: Rows = {  # of a cell, and of each layer of a network
    "kernel": ("weight_ih", MATRIX), "recurrent_kernel": ("weight_hh", MATRIX),
    "bias": ("bias_ih", SAME), "recurrent_bias": ("bias_hh", SAME),
}  # fmt: skip


class Place(NamedTuple):
    """Where an array stands: its name in torch, and its layout there."""

    key: str
    array: Array
    layout: Layout
    is_buffer: bool


def places(module: Any, prefix: str = "", above: tuple[int, ...] = ()) -> Iterator[Place]:
    """Every place of an array in a tree. An array that is shared has several places, as in torch's state dict."""
    if id(module) in above:
        return

    def walk(value: Any, kind: int, name: str, row: Row, is_buffer: bool = False) -> Iterator[Place]:
        key, layout = row
        if kind == ARRAY:
            yield Place(prefix + key, value, layout, is_buffer)
        elif kind == MODULE:
            yield from places(value, f"{prefix}{key}.", (*above, id(module)))
        elif kind != SKIP:
            for part, member in items(value, kind):
                path, default = f"{name}/{part}", f"{key}.{part[1:] if kind == SEQUENCE else part}"
                yield from walk(member, KINDS[type(member)], path, module._torch_row(path, default))

    for name, value, kind in members(module):
        yield from walk(value, kind, name, module._torch_row(name, name), name in module._meta.buffers)


def to_state_dict(module: Any) -> dict[str, Value]:
    """Parameters and buffers as NumPy arrays under the names and in the layouts of torch's `state_dict`."""
    return {key: np.array(layout.to_torch(to_numpy(x._data)), order="C") for key, x, layout, _ in places(module)}


def load_state_dict(module: Any, state_dict: Mapping[str, Any], *, strict: bool = True) -> Any:
    """Take over a `state_dict` of torch, of arrays of any framework; it must fit, else nothing changes.

    Without `strict` it may hold other names, or lack some; shapes must fit still.
    """
    owner = f"{type(module).__name__}.load_torch_state_dict"
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"{owner}: expected a dict of arrays, got {type(state_dict).__name__}")
    found = list(places(module))
    present = {id(place.array) for place in found if place.key in state_dict}
    missing = [place.key for place in found if place.key not in state_dict and id(place.array) not in present]
    known = {place.key for place in found}
    unexpected = [key for key in state_dict if key not in known]
    listed = (("missing", missing), ("unexpected", unexpected)) if strict else ()
    problems = [f"{what} {building._listed(keys)}" for what, keys in listed if keys]
    replaced: dict[int, Array] = {}
    for key, own, layout, _ in found:
        if key in state_dict:
            value = _value(owner, key, state_dict[key])
            wanted = layout.to_torch(np.broadcast_to(np.float32(0), own.shape)).shape
            if value.shape != wanted:
                problems.append(f"{key!r} has shape {value.shape}, expected {wanted}")
            else:
                data = np.ascontiguousarray(layout.from_torch(value)).reshape(own.shape)
                replaced[id(own)] = building.array_like(own, data, own.dtype)
    if problems:
        raise ValueError(f"{owner}: the state dict does not fit: {'; '.join(problems)}")
    building.replace(module, replaced, set())
    return module


def _value(owner: str, key: str, value: Any) -> Value:
    array = as_array(value)
    if array is None and not isinstance(value, (int, float, np.generic)):
        raise TypeError(f"{owner}: {key!r} is a {type(value).__name__}; expected an array")
    return np.asarray(value if array is None else to_numpy(array._data))
