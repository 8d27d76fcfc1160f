"""A Module as a pure function of its parameters and buffers."""

from __future__ import annotations

from typing import Any

from trellis.container import Container
from trellis.keys import Key
from trellis.nn.building import Stream
from trellis.nn.module import Module, _run
from trellis.nn.structure import Binding, gather
from trellis.transforms import grads_enter


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
    stream = None if seed is None else Stream(Key(seed))
    binding = Binding(constant=not grads_enter(), stream=stream)
    try:
        copy = model._copy(binding, v, buffers)
        result = _run(copy, args, kwargs)
        return result, gather(copy, buffers=True)
    finally:
        binding.release()
