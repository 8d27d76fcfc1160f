"""Text about Modules: the tree with its arrays, and a table of what happens in one call."""

from __future__ import annotations

from typing import Any

from trellis import tree
from trellis.array import Array
from trellis.nn.building import count
from trellis.nn.structure import ARRAY, KINDS, MODULE, SKIP, gather, is_floating, items, key_of, modules
from trellis.nn.tracking import run_tracked


def module_repr(module: Any) -> str:
    """A line for each Module and each array, with shapes and counts."""
    return "\n".join([_title(module), *_lines(module, "  ", {id(module)})])


def _head(module: Any) -> str:
    return type(module).__name__


def _title(module: Any) -> str:
    arguments = module._repr_arguments()
    numbers = count(gather(module))
    return f"{_head(module)}({arguments})" + (f", {numbers:,} parameters" if numbers else "")


def _lines(module: Any, indent: str, seen: set[int]) -> list[str]:
    found = []
    for name, value in module.__dict__.items():
        if name not in module._meta.plain:
            mark = "buffer, " if name in module._meta.buffers else "frozen, " if name in module._meta.frozen else ""
            found += _member_lines(key_of(name), value, mark, indent, seen)
    return found


def _member_lines(key: str, value: Any, mark: str, indent: str, seen: set[int]) -> list[str]:
    kind = KINDS[type(value)]
    if kind == SKIP:
        return []
    if kind == ARRAY:
        again = ", as above" if id(value) in seen else ""
        seen.add(id(value))
        return [f"{indent}{key}: {mark}{value.dtype} {value.shape} {value.backend}{again}"]
    if kind == MODULE:
        if id(value) in seen:
            return [f"{indent}{key}: {_head(value)}, as above"]
        seen.add(id(value))
        return [f"{indent}{key}: {_title(value)}", *_lines(value, indent + "  ", seen)]
    inside = [
        line
        for name, member in items(value, kind)
        if KINDS[type(member)] != ARRAY or is_floating(member)
        for line in _member_lines(name, member, "", indent + "  ", seen)
    ]
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
    copy = model if model.built else model.build(*args)
    before = copy._meta.rets, copy._meta.order
    result = run_tracked(copy, args, None, {**kwargs, "track_submod_rets": True})
    rets = copy.submod_rets
    copy._meta.rets, copy._meta.order = before
    rows = []
    for path, module, level in modules(copy):
        if level and path in rets:
            own = sum(count(gather(child)) for child in (module,)) if module.mod_height() == 0 else _own_count(module)
            rows.append((f"{path} ({_head(module)})", _shapes(rets[path][-1]), f"{own:,}", _backend(module, rets[path][-1])))
    total = (_head(copy), _shapes(result), f"{count(gather(copy)):,}", _backend(copy, result))
    print(_table([("layer", "output shape", "parameters", "backend"), *rows, total]))


def _own_count(module: Any) -> int:
    """Numbers in the parameters that no layer below holds."""
    below = {id(x) for child in module.sub_mods(1).values() for x in gather(child).to_flat_dict().values()}
    own = [x for x in gather(module).to_flat_dict().values() if id(x) not in below]
    return sum(x.size or 0 for x in own)


def _shapes(result: Any) -> str:
    shapes = [tuple(x.shape) for x in tree.leaves(result) if hasattr(x, "shape")]
    return ", ".join(map(str, shapes)) if shapes else "-"


def _backend(module: Any, result: Any) -> str:
    arrays = [*gather(module).to_flat_dict().values(), *(x for x in tree.leaves(result) if isinstance(x, Array))]
    return next((x.backend for x in arrays), "-")


def _table(rows: list[tuple[str, str, str, str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    widths[0] = max(widths[0], 16)
    lines = [
        f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]:>{widths[3]}}".rstrip() for row in rows
    ]
    rule = "-" * (sum(widths) + 6)
    return "\n".join([lines[0], rule, *lines[1:-1], rule, lines[-1]])
