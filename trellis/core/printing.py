"""How arrays print: as NumPy's do, and with the backend and the device. Only the elements shown come to the host."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from trellis.core import tree
from trellis.core.dispatch import UnknownOperand, call, interpreters
from trellis.core.dtypes import bfloat16
from trellis.core.indexing import canonical_key
from trellis.core.typing import AnyArray

_WIDTH = 5  # how many elements at each end of a long axis a table shows


def array_repr(native: AnyArray) -> str:
    """The text of `repr(x)` for the Array of a native array.

    >>> import trellis as tl
    >>> tl.asarray([[1.0, 2.5], [3.0, 4.0]])
    Array([[1. , 2.5],
           [3. , 4. ]], dtype=float32, backend='numpy', device='cpu')
    """
    backend = interpreters[type(native)]
    shape, dtype = backend.shape_of(native), backend.dtype_of(native)
    if backend.is_traced(native):
        return f"Array(<traced>, shape={_shape_text(shape)}, dtype={dtype}, backend={backend.name!r})"
    options = np.get_printoptions()
    long = math.prod(shape) > options["threshold"]
    shown = native
    if long and (backend.name != "numpy" or dtype is bfloat16):  # NumPy looks at the edges only, without a copy
        shown = _edges(native, shape, options["edgeitems"])
    values = _printable(backend.to_numpy(shown))
    text = np.array2string(values, separator=", ", prefix="Array(", suffix=",", threshold=0 if long else options["threshold"])
    facts = [f"dtype={dtype}", f"backend={backend.name!r}", f"device={backend.device_of(native)!r}"]
    if long or (0 in shape and shape != (0,)):
        facts.insert(0, f"shape={shape}")
    if 0 in shape:
        text = "[]"
    suffix = ", ".join(facts) + ")"
    last_line = text.rsplit("\n", 1)[-1] if "\n" in text else f"Array({text}"
    separator = ", " if len(last_line) + len(suffix) + 2 <= max(options["linewidth"], 88) else ",\n      "
    return f"Array({text}{separator}{suffix}"


def array_html(native: AnyArray) -> str:
    """A table of the elements for notebooks, with dots between the edges of long axes; more than two axes are text."""
    backend = interpreters[type(native)]
    shape = backend.shape_of(native)
    if len(shape) not in (1, 2) or 0 in shape or backend.is_traced(native):
        return f"<pre>{escaped(array_repr(native))}</pre>"
    values = np.atleast_2d(_printable(backend.to_numpy(_edges(native, shape, _WIDTH)))).tolist()
    rows = [[f"{x:.5g}" if isinstance(x, float) else str(x) for x in row] for row in values]
    if shape[-1] > 2 * _WIDTH + 1:
        rows = [[*row[:_WIDTH], "…", *row[_WIDTH + 1 :]] for row in rows]
    if len(shape) == 2 and shape[0] > 2 * _WIDTH + 1:
        rows[_WIDTH] = ["…"] * len(rows[0])
    return table_html(f"Array {shape}, {backend.dtype_of(native)}, {backend.name}, {backend.device_of(native)}", rows)


def table_html(caption: str, rows: Iterable[Iterable[str]], header: Iterable[str] = ()) -> str:
    head = "".join(f"<th>{escaped(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(f'<td>{escaped(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><caption>{escaped(caption)}</caption>{head and f'<tr>{head}</tr>'}{body}</table>"


def outline_html(title: str, lines: Sequence[str]) -> str:
    """Indented lines below a title, as lists that fold."""
    groups: list[list[str]] = []
    for line in lines:
        inner = groups and len(line) - len(line.lstrip()) > len(lines[0]) - len(lines[0].lstrip())
        groups[-1].append(line) if inner else groups.append([line])
    items = "".join(f"<li>{outline_html(first, rest)}</li>" for first, *rest in groups)
    title = escaped(title.strip())
    return f"<details open><summary>{title}</summary><ul>{items}</ul></details>" if items else title


def escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def leaf_text(leaf: Any) -> str:
    """One line about a leaf of a Container: dtype, shape and framework of an array, the value of anything else."""
    try:
        backend = interpreters[type(leaf)]
        native = leaf._data if backend.name in ("array", "free") else leaf
        backend = interpreters[type(native)]
    except UnknownOperand:
        return repr(leaf)
    if backend.level:  # a number or None, or a variable that is being traced
        return repr(leaf)
    wrapped = " Array" if native is not leaf else ""
    return f"{backend.dtype_of(native)} {_shape_text(backend.shape_of(native))} {backend.name}{wrapped}"


def tree_lines(node: Any, indent: str) -> Iterator[str]:
    """A line for each leaf and each node below `node`."""
    for key, child in tree.children(node) or ():
        if not tree.children(child):
            yield f"{indent}{key}: {leaf_text(child)}"
            continue
        kind = "" if isinstance(child, Mapping) else f" {type(child).__name__}"
        yield f"{indent}{key}:{kind}"
        yield from tree_lines(child, indent + "  ")


def _shape_text(shape: tuple[int | None, ...] | None) -> str:
    return "unknown" if shape is None else str(shape)


def _edges(x: AnyArray, shape: tuple[int, ...], width: int) -> AnyArray:
    """The first and the last elements along each long axis, and one between that NumPy replaces by dots."""
    for axis, n in enumerate(shape):
        if n > 2 * width + 1:
            before = (slice(None),) * axis
            first = _slice(x, (*before, slice(0, width + 1), ...))
            x = call("concat", first, _slice(x, (*before, slice(n - width, n), ...)), axis=axis) if width else first
    return x


def _slice(x: AnyArray, key: Any) -> AnyArray:
    return call("getitem", x, key=canonical_key(x, key)[0])


def _printable(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """NumPy aligns its own dtypes; a bfloat16 becomes the shortest decimal number that stands for it."""
    if x.dtype.name != "bfloat16":
        return x
    shortest = [_shortest(float(value), x.dtype.type) for value in x.ravel()]
    return np.array(shortest, dtype=np.float64).reshape(x.shape)


def _shortest(value: float, kind: Any) -> float:
    for digits in range(1, 5):
        candidate = float(f"{value:.{digits}g}")
        if float(kind(candidate)) == value:
            return candidate
    return value
