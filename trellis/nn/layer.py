"""The common part of the layers: checks of arguments, text, and the initial values of parameters."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from trellis.core.array import Array
from trellis.nn.building import Options, initial_key
from trellis.nn.module import Module
from trellis.ops.arguments import integer
from trellis.ops.conversion import asarray
from trellis.random.initializers import Initializer, as_initializer
from trellis.random.keys import Key, fold_in


class Layer(Module):
    """A Module that keeps the arguments of its constructor as attributes of the same names, and shows them in its text."""

    def _repr_arguments(self) -> str:
        shown, behind = [], []
        for name, parameter in _parameters(type(self)).items():
            value, default = _text(getattr(self, name)), _text(parameter.default)
            if parameter.kind is parameter.KEYWORD_ONLY:
                behind += [] if value == default else [f"{name}={value}"]
            else:
                shown.append((value, value == default))
        while shown and shown[-1][1]:  # a default at the end says nothing
            shown.pop()
        return ", ".join([*(text for text, _ in shown), *behind])


def _parameters(layer: type) -> dict[str, inspect.Parameter]:
    """The parameters of a constructor, and those by keyword of the next one above, if it hands on options of any name."""
    found: dict[str, inspect.Parameter] = {}
    for constructor in [vars(kind)["__init__"] for kind in layer.__mro__ if "__init__" in vars(kind)]:
        own = dict(inspect.signature(constructor).parameters)
        rest = own.popitem()[1]
        found |= {n: p for n, p in own.items() if n != "self" and (not found or (p.kind is p.KEYWORD_ONLY and n not in found))}
        if rest.annotation != "Any":
            break
    return found


def _text(value: Any) -> str:
    if isinstance(value, tuple) and value and type(value[0]) is int and len(set(value)) == 1:
        return repr(value[0])
    return value.__name__ if inspect.isfunction(value) else repr(value)


def size(layer: str, name: str, value: Any) -> int:
    """An argument that counts something, such as channels: an int, 1 or more."""
    return integer(layer, name, value, 1)


def probability(layer: str, name: str, value: Any) -> float:
    if not 0 <= value <= 1:
        raise ValueError(f"{layer}: {name}={value!r}; a probability is between 0 and 1")
    return value


def inherited(options: Mapping[str, Any]) -> Iterator[Options]:
    """The options of one layer after the other inside a layer with these: the same place and dtype, another key of its seed."""
    seed, count = options.get("seed"), 0
    while True:
        given: Options = {"device": options.get("device"), "dtype": options.get("dtype"), "backend": options.get("backend")}
        yield given if seed is None else {**given, "seed": fold_in(Key(seed), count)}
        count += 1


def initial(
    module: Any, argument: str, shape: tuple[int, ...], device: Any, dtype: Any, *, in_axis: int = -1, out_axis: int = -2
) -> Array:
    """The first value of a parameter, by the initializer that the attribute `argument` of the layer names."""
    name = type(module).__name__
    initializer = as_initializer(name, argument, getattr(module, argument))
    if isinstance(initializer, Initializer):
        key = initial_key(module)
        return initializer(shape, in_axis=in_axis, out_axis=out_axis, dtype=dtype, device=device, seed=key)
    made = asarray(initializer(shape), dtype=dtype, device=device)
    if tuple(made.shape) != shape:
        raise ValueError(f"{name}: {argument} returned an array of shape {made.shape} when asked for {shape}")
    return made


def weight_and_bias(
    module: Any, shape: tuple[int, ...], device: Any, dtype: Any, *, in_axis: int = -1, out_axis: int = -2
) -> dict[str, Array | None]:
    """`w` of this shape, and `b` with one number per output channel, or None without bias."""
    w = initial(module, "weight_initializer", shape, device, dtype, in_axis=in_axis, out_axis=out_axis)
    bias = (module.output_channels,)
    return {"w": w, "b": initial(module, "bias_initializer", bias, device, dtype) if module.with_bias else None}
