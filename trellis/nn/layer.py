"""What the layers share: checks of their arguments, and the initial values of their parameters."""

from __future__ import annotations

from typing import Any

from trellis.array import Array
from trellis.nn.building import initial_key
from trellis.nn.initializers import Initializer, as_initializer
from trellis.ops.arguments import integer
from trellis.ops.conversion import asarray


def size(layer: str, name: str, value: Any, minimum: int = 1) -> int:
    """A number of channels and the like."""
    found = integer(layer, name, value)
    if found < minimum:
        raise ValueError(f"{layer}: {name}={value!r} must be {minimum} or more")
    return found


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
