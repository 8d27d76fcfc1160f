"""The border of a Module: outside native arrays or `tl.Array`s, inside `tl.Array`s. `forward` runs across it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from trellis.core import tree
from trellis.core.array import Array
from trellis.core.dispatch import interpreters
from trellis.core.free import Free, with_data
from trellis.core.hints import refuse
from trellis.core.leaves import ARRAY, kind_of, unwrap
from trellis.nn.navigation import add_place
from trellis.nn.structure import Binding
from trellis.random.keys import Key
from trellis.transforms.gradients import grads_enter

_PLAIN = (bool, int, float, complex, str, Key)  # types that are no nests and no arrays, or stay whole


def run(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`forward`, with Arrays for native arrays. An error gets a note that names the layer."""
    tracker = None if module._bound is None else module._bound.tracker
    if tracker is not None:
        tracker.begin(module)
    try:
        plain = not kwargs
        for x in args:
            if type(x) is not Array:
                plain = False
        result = module.forward(*args) if plain else with_data(across, module.forward, args, kwargs)
    except Exception as error:
        if isinstance(error, TypeError) and "forward() got an unexpected keyword argument" in str(error):
            refuse(type(module).__name__, kwargs, inspect.signature(module.forward).parameters, error)
        add_place(error, module, args)
        raise
    if tracker is not None:
        tracker.end(module, result)
    return result


def run_copy(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], v: Any = None, buffers: Any = None, *, tracker: Any = None,
    stream: Any = None, keep_buffers: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """Run a copy of the tree on other parameters and buffers: the result, and the copy.

    With `keep_buffers` the Module itself takes over the buffers that the run changed.
    """
    binding = Binding(constant=not grads_enter(), tracker=tracker, stream=stream)
    try:
        copy = module._copy(binding, v, buffers)
        result = run(copy, args, kwargs)
        if keep_buffers:
            binding.keep_buffers()
        return result, copy
    finally:
        binding.release()


def across(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`function` of the arguments with a `tl.Array` for each native array; if all arrays are native, the results are too."""
    native: list[bool] = []
    args = tuple([inside(x, native) for x in args])
    if kwargs:
        kwargs = {name: inside(x, native) for name, x in kwargs.items()}
    result = function(*args, **kwargs)
    return outside(result) if native and all(native) else result


def inside(x: Any, native: list[bool] | None = None) -> Any:
    """A nest with a `tl.Array` for each native array; `native` gets one entry per array, whether it was native.

    A key stays as it is: its words are no argument of the network.
    """
    native = [] if native is None else native
    kind = type(x)
    if isinstance(x, Array):
        native.extend([] if isinstance(x, Free) else [False])
        return x
    if x is None or kind in _PLAIN:
        return x
    if kind is list or kind is tuple:
        return kind([inside(member, native) for member in x])
    if kind is dict:
        return {key: inside(member, native) for key, member in x.items()}
    if tree.children(x) is not None:  # a Container, a named tuple, a dataclass
        return tree.map(lambda leaf: inside(leaf, native), x)
    if kind_of(x) != ARRAY or interpreters[kind].level > 1:
        return x
    native.append(True)
    return Array(x)


def outside(x: Any) -> Any:
    """A nest with the native array of each `tl.Array`."""
    return unwrap(x) if isinstance(x, Array) else tree.map(unwrap, x)
