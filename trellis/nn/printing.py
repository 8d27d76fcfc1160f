"""Text about Modules: the tree with its arrays, and a table of what happens in one call."""

from __future__ import annotations

from typing import Any

from trellis.core import tree
from trellis.core.array import Array
from trellis.nn.building import count
from trellis.nn.structure import ARRAY, KINDS, MODULE, SKIP, gather, is_floating, items, key_of, members, modules
from trellis.nn.tracking import run_tracked


def module_repr(module: Any) -> str:
    """A line for each Module and each array, with shapes and counts."""
    return "\n".join([_title(module), *_lines(module, "  ", {id(module)})])


def _title(module: Any) -> str:
    numbers = count(gather(module))
    return f"{type(module).__name__}({module._repr_arguments()})" + (f", {numbers:,} parameters" if numbers else "")


def _lines(module: Any, indent: str, seen: set[int]) -> list[str]:
    found, meta = [], module._meta
    for name, value, _ in members(module):
        mark = "buffer, " if name in meta.buffers else "frozen, " if name in meta.frozen else ""
        found += _member_lines(key_of(name), value, mark, indent, seen, meta.frozen, name)
    return found


def _member_lines(key: str, value: Any, mark: str, indent: str, seen: set[int], frozen: set[str], place: str) -> list[str]:
    kind = KINDS[type(value)]
    if kind == SKIP:
        return []
    if kind == ARRAY:
        again = ", as above" if id(value) in seen else ""
        seen.add(id(value))
        return [f"{indent}{key}: {mark}{value.dtype} {value.shape} {value.backend}{again}"]
    if kind == MODULE:
        if id(value) in seen:
            return [f"{indent}{key}: {type(value).__name__}, as above"]
        seen.add(id(value))
        return [f"{indent}{key}: {_title(value)}", *_lines(value, indent + "  ", seen)]
    inside = []
    for name, member in items(value, kind):
        if KINDS[type(member)] != ARRAY or is_floating(member):
            mark = "frozen, " if f"{place}/{name}" in frozen else ""
            inside += _member_lines(name, member, mark, indent + "  ", seen, frozen, f"{place}/{name}")
    return [f"{indent}{key}: {type(value).__name__}", *inside] if inside else []


def summary(model: Any, *args: Any, **kwargs: Any) -> None:
    """Print a table of the layers that a call of `model` runs: output shape, parameters and backend of each, and the totals.

    >>> import trellis as tl
    >>> tl.summary(tl.Sequential(tl.Linear(3, 4), tl.tanh, tl.Linear(4, 1)), tl.ones((2, 3)))
    layer             output shape  parameters  backend
    ---------------------------------------------------
    v0 (Linear)             (2, 4)          16    numpy
    v2 (Linear)             (2, 1)           5    numpy
    ---------------------------------------------------
    Sequential              (2, 1)          21    numpy
    """
    model.build(*args)
    before = model._meta.rets, model._meta.order
    result = run_tracked(model, args, kwargs, track_submod_rets=True)
    rets = model.submod_rets
    model._meta.rets, model._meta.order = before
    rows = [("layer", "output shape", "parameters", "backend")]
    for path, module, level in modules(model):
        if level and path in rets:
            result_of = rets[path][-1]
            name = f"{path} ({type(module).__name__})"
            rows.append((name, _shapes(result_of), f"{_own_count(module):,}", _backend(module, result_of)))
    total = (type(model).__name__, _shapes(result), f"{count(gather(model)):,}", _backend(model, result))
    print(_table([*rows, total]))


def _own_count(module: Any) -> int:
    """Numbers in the parameters that no layer below holds."""
    below = {id(x) for child in module.sub_mods(1).values() for x in gather(child).to_flat_dict().values()}
    return sum(x.size or 0 for x in gather(module).to_flat_dict().values() if id(x) not in below)


def _shapes(result: Any) -> str:
    shapes = [tuple(x.shape) for x in tree.leaves(result) if hasattr(x, "shape")]
    return ", ".join(map(str, shapes)) if shapes else "-"


def _backend(module: Any, result: Any) -> str:
    arrays = [*gather(module).to_flat_dict().values(), *(x for x in tree.leaves(result) if isinstance(x, Array))]
    return next((x.backend for x in arrays), "-")


def _table(rows: list[tuple[str, str, str, str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows)]
    widths[0] = max(widths[0], 16)
    lines = [f"{first:<{widths[0]}}" + "".join(f"  {x:>{n}}" for x, n in zip(rest, widths[1:])) for first, *rest in rows]
    rule = "-" * (sum(widths) + 6)
    return "\n".join([lines[0], rule, *lines[1:-1], rule, lines[-1]])
