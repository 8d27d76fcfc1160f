"""A Module as a pure function of its parameters and buffers."""

from __future__ import annotations

from typing import Any

from trellis.core.container import Container
from trellis.nn.border import run_copy
from trellis.nn.building import Stream
from trellis.nn.module import Module
from trellis.nn.structure import gather
from trellis.random.keys import Key


def functional_call(
    model: Module, v: Any, buffers: Any, *args: Any, seed: int | Key | None = None, **kwargs: Any
) -> tuple[Any, Container]:
    """Run `model` on parameters and buffers that are arguments: the result, and the buffers after the call.

    Nothing of `model` changes, so it compiles and differentiates on every backend, BatchNorm and Dropout included. With `seed`,
    an int or a `tl.Key` (which may be an argument of a compiled function), each layer that draws takes another key of it: the
    same numbers on every backend. `buffers=None` takes those of the model.

    >>> import trellis as tl
    >>> model = tl.Linear(3, 2, seed=0)
    >>> y, buffers = tl.functional_call(model, model.v, model.buffers, tl.ones((1, 3)))
    >>> y.shape, len(buffers)
    ((1, 2), 0)
    """
    if not isinstance(model, Module):
        raise TypeError(f"functional_call: model is a {type(model).__name__}; expected a tl.Module")
    if not model.built:
        raise RuntimeError(f"functional_call: {type(model).__name__} is not built; call it once, or model.build()")
    result, copy = run_copy(model, args, kwargs, v, buffers, stream=None if seed is None else Stream(Key(seed)))
    return result, gather(copy, buffers=True)
