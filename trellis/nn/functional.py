"""A Module as a pure function of its parameters and buffers: of Containers, and of native arrays by path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trellis.core.container import Container
from trellis.core.hints import hooks
from trellis.nn.border import outside, run, run_copy
from trellis.nn.building import Stream
from trellis.nn.module import Module
from trellis.nn.structure import Binding, gather
from trellis.random.keys import Key

__all__ = ["functional_call"]
__getattr__, __dir__ = hooks(__name__, "tl")


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
    stream = seed if isinstance(seed, Stream | None) else Stream(Key(seed))
    result, copy = run_copy(model, args, kwargs, v, buffers, stream=stream)
    return result, gather(copy, buffers=True)


def set_modes(layers: Sequence[Module], mode_of: Callable[[Module], Any]) -> None:
    for layer in layers:
        mode = mode_of(layer)
        if mode is not None and layer.training is not bool(mode):
            layer.training = bool(mode)


def run_on(
    made: Module, v: Mapping[str, Any], buffers: Mapping[str, Any], stream: Any, mode_of: Callable[[Module], Any],
    args: tuple[Any, ...], kwargs: Mapping[str, Any],
) -> tuple[Any, dict[str, Any]]:  # fmt: skip
    """Run a skeleton on native arrays (path -> array): its result in native arrays, and path -> value of the buffers it changed.

    `mode_of` gives the mode of each layer of this run, or None to leave it; the layers draw from `stream`.
    """
    binding = Binding(stream=stream)
    try:
        one = made._copy(binding, Container.from_flat_dict(v), Container.from_flat_dict(buffers))
        set_modes([layer for _, layer in binding.pairs], mode_of)
        result = outside(run(one, args, dict(kwargs)))
        after = native_state(one, buffers=True)
        return result, {path: x for path, x in after.items() if x is not buffers[path]}
    finally:
        binding.release()


def native_state(module: Module, *, buffers: bool = False) -> dict[str, Any]:
    """Path -> native array, of the parameters or the buffers."""
    return {path: x._data for path, x in gather(module, buffers).to_flat_dict().items()}
