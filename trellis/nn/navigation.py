"""Find the way in a tree of Modules: up to the root, down to a path; what is frozen, what draws, where an error happened."""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.core.array import Array
from trellis.core.container import Container
from trellis.nn.structure import children, gather, modules, owner, places
from trellis.random.keys import key_data, make_key


def ancestors(module: Any) -> list[Any]:
    """The Modules above, the nearest first."""
    found: list[Any] = []
    module = owner(module)
    while True:
        parent = None if module._meta.parent is None else module._meta.parent()
        # A Module that was taken out of its parent has none any more.
        if parent is None or not any(child is module for child in children(parent)) or any(parent is one for one in found):
            return found
        found.append(parent)
        module = parent


def top_mod(module: Any, depth: int | None = None) -> Any:
    """The Module `depth` levels above: 1 the one that holds this one, None the root."""
    above = [owner(module), *ancestors(module)]
    if depth is None:
        return above[-1]
    if not 0 <= depth < len(above):
        raise ValueError(f"depth={depth}: {type(module).__name__} has {len(above) - 1} Modules above it; use at most as many")
    return above[depth]


def path_from(top: Any, module: Any) -> str:
    module = owner(module)
    return next(path for path, found, _ in modules(top) if found is module)


def add_place(error: BaseException, module: Any, args: tuple[Any, ...]) -> None:
    """A note in which layer an error happened: the innermost, with its parameters and what it was given."""
    if getattr(error, "__trellis_placed__", False):
        return
    try:
        error.__trellis_placed__ = True  # type: ignore[attr-defined]
        top = top_mod(module)
        path = path_from(top, module)
        own = ", ".join(f"{path} {x.shape}" for path, x in gather(module).to_flat_dict().items())
        given = ", ".join(str(x.shape) if hasattr(x, "shape") else type(x).__name__ for x in args)
        where = f"in layer {path!r} ({type(module).__name__}) of {type(top).__name__}" if path else f"in {type(module).__name__}"
        error.add_note(f"{where}; called with {given or 'nothing'}" + (f"; its parameters: {own}" if own else ""))
    except (AttributeError, RuntimeError, TypeError, ValueError):  # the note is a help: it must not hide the error
        return


# ---- frozen parameters ---------------------------------------------------------------------------------------------------------
def set_frozen(module: Any, path: str, frozen: bool) -> Any:
    found, op, below = list(places(module)), "freeze" if frozen else "unfreeze", f"{path}/" if path else ""
    unbuilt = [type(one).__name__ for place, one, _ in modules(module) if not one.built and f"{place}/".startswith(below)]
    if unbuilt:  # its parameters would be trained
        raise RuntimeError(f"{op}: {unbuilt[0]} is not built; call it once, or model.build()")
    chosen = {id(x) for place, _, _, x in found if f"{place}/".startswith(below)}
    if path and not chosen:
        raise ValueError(
            f"{op}: no parameter is at {path!r}; the module has {', '.join(map(repr, gather(module).to_flat_dict()))}"
        )
    for _, one, name, x in found:
        if id(x) in chosen:
            (one._meta.frozen.add if frozen else one._meta.frozen.discard)(name)
    return module


def frozen_paths(module: Any) -> set[str]:
    marked = {id(x) for _, one, name, x in places(module) if name in one._meta.frozen}
    return {path for path, x in gather(module).to_flat_dict().items() if id(x) in marked}


# ---- random state --------------------------------------------------------------------------------------------------------------
def _streams(module: Any) -> dict[str, Any]:
    """Path of the state -> stream, for each Module that draws from a seed of its own."""
    found = {f"{path}/draws" if path else "draws": one._meta.options.get("draws") for path, one, _ in modules(module)}
    return {path: stream for path, stream in found.items() if stream is not None}


def random_state(module: Any) -> Container:
    """For each Module that draws from a seed of its own: the words of the seed, and how many keys were taken of it."""
    made = Container()
    for path, stream in _streams(module).items():
        words = [*key_data("state", stream.key), *divmod(stream.count, 2**32)]
        made[path] = Array(np.array(words, np.uint32))
    return made


def set_random_state(module: Any, state: Any) -> None:
    given = Container(state).to_flat_dict()
    for path, stream in _streams(module).items():
        if (words := given.get(path)) is not None:
            numbers = [int(n) for n in np.asarray(words)]
            stream.key, stream.count = make_key((numbers[0], numbers[1])), numbers[2] * 2**32 + numbers[3]
