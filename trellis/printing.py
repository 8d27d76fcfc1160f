"""How arrays print: as NumPy's do, and with the backend and the device. Only the elements shown come to the host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from trellis import tree
from trellis.array import Array
from trellis.dispatch import UnknownOperand, interpreters


def array_repr(x: Array) -> str:
    """The text of `repr(x)`.

    >>> import trellis as tl
    >>> tl.asarray([[1.0, 2.5], [3.0, 4.0]])
    Array([[1. , 2.5],
           [3. , 4. ]], dtype=float32, backend='numpy', device='cpu')
    """
    native = x._data
    backend = interpreters[type(native)]
    shape, dtype = backend.shape_of(native), backend.dtype_of(native)
    if backend.is_traced(native):
        return f"Array(<traced>, shape={_shape_text(shape)}, dtype={dtype}, backend={backend.name!r})"
    options = np.get_printoptions()
    long = _size(shape) > options["threshold"]
    if long and backend.name != "numpy":  # NumPy looks at the edges only, without a copy
        x = _edges(x, options["edgeitems"])
    values = _printable(backend.to_numpy(x._data))
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


def leaf_text(leaf: Any) -> str:
    """One line about a leaf of a Container: dtype, shape and framework of an array, the value of anything else."""
    native = leaf._data if isinstance(leaf, Array) else leaf
    try:
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


def _size(shape: tuple[int, ...]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


def _edges(x: Array, width: int) -> Array:
    """The first and the last elements along each long axis, and one between that NumPy replaces by dots."""
    from trellis.ops.manipulation import concat

    for axis, n in enumerate(x.shape):
        if n > 2 * width + 1:
            before = (slice(None),) * axis
            first = x[(*before, slice(0, width + 1), ...)]
            x = concat([first, x[(*before, slice(n - width, n), ...)]], axis=axis) if width else first
    return x


def _printable(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """NumPy aligns its own dtypes; a bfloat16 becomes the shortest decimal number that stands for it."""
    if x.dtype.name != "bfloat16":
        return x
    wide = x.astype(np.float64)
    edge = np.get_printoptions()["edgeitems"]
    if x.size > np.get_printoptions()["threshold"]:
        keep = [np.r_[0 : edge + 1, n - edge : n] if n > 2 * edge + 1 else np.arange(n) for n in x.shape]
        wide, x = wide[np.ix_(*keep)], x[np.ix_(*keep)]
    kind = x.dtype.type
    return np.array([_shortest(value, kind) for value in wide.ravel()], dtype=np.float64).reshape(wide.shape)


def _shortest(value: float, kind: Any) -> float:
    for digits in range(1, 5):
        candidate = float(f"{value:.{digits}g}")
        if float(kind(candidate)) == value:
            return candidate
    return value
