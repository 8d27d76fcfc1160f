"""What the tables of torch's ops share: torch's promotion, dtypes that the backend has, and random draws.

A table maps names of ATen overloads, several separated by spaces, to one of our ops by name or to a function. The function takes
the arguments in the order of ATen's schema, tensors as `tl.Array`s, and returns what the op returns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from trellis import ops as tl
from trellis.core.array import Array
from trellis.core.dispatch import target
from trellis.core.dtypes import KIND_ORDER, DType, bool as bool_, complex64, complex128, float32, float64, int32, int64

Row = Callable[..., Any]
Table = dict[str, "str | Row"]
DRAW: ContextVar[Callable[[], Any]] = ContextVar("trellis_transpiled_seed", default=lambda: None)  # the seed of the next draw


def expanded(table: Table) -> dict[str, Row]:
    """One entry per overload, each a function."""
    found: dict[str, Row] = {}
    for names, row in table.items():
        for name in names.split():
            found[name] = getattr(tl, row) if isinstance(row, str) else row
    return found


def is_array(x: Any) -> bool:
    return not (x is None or isinstance(x, (bool, int, float, complex)))


def supported(dtype: DType) -> DType:
    """The dtype, or the narrower one that JAX has in its place without x64."""
    if target().default_int() is int32 and target().name == "jax":
        return {int64: int32, float64: float32, complex128: complex64}.get(dtype, dtype)
    return dtype


def cast(x: Any, dtype: DType | None) -> Any:
    """`x` as an array of this dtype; None leaves it."""
    if dtype is None:
        return x
    dtype = supported(dtype)
    if not is_array(x):
        return tl.full((), x, dtype=dtype)
    return x if x.dtype is dtype else tl.astype(x, dtype)


def full(shape: Any, value: Any, dtype: DType | None) -> Array:
    """An array of one number on the backend of the call."""
    return tl.full(sizes(shape), value, dtype=None if dtype is None else supported(dtype))


def sizes(shape: Any) -> tuple[int, ...]:
    """A shape; the one size that a graph of TensorFlow does not know is -1."""
    return tuple(-1 if n is None else int(n) for n in shape)


def together(a: Any, b: Any) -> tuple[Any, Any]:
    """Two operands by torch's rule: an array without axes, like a number, does not widen one with axes of its kind."""
    if is_array(a) and is_array(b) and a.dtype is not b.dtype and (a.ndim == 0) is not (b.ndim == 0):
        return (_weak(a, b), b) if a.ndim == 0 else (a, _weak(b, a))
    if is_array(a) is not is_array(b):
        x, number = (a, b) if is_array(a) else (b, a)
        if x.dtype is bool_ and not isinstance(number, bool):
            x = cast(x, int64 if isinstance(number, int) else float32)
        return (x, number) if is_array(a) else (number, x)
    return a, b


def _weak(scalar: Any, beside: Any) -> Any:
    if KIND_ORDER[scalar.dtype.kind] <= KIND_ORDER[beside.dtype.kind]:
        return cast(scalar, beside.dtype)
    return cast(scalar, {"i": int64, "u": int64, "f": float32, "c": complex64}[scalar.dtype.kind])


def axis_of(dim: int, ndim: int) -> int:
    return dim % ndim if ndim else 0


def neutral(dtype: DType, op: str) -> Any:
    """The number that "add", "multiply", "max" or "min" with any other leaves as it is."""
    if op in ("max", "min") and dtype.kind in "iu":
        return getattr(tl.iinfo(dtype), "min" if op == "max" else "max")
    return {"add": 0, "multiply": 1, "max": -math.inf, "min": math.inf}[op]


def axes_of(dim: Any) -> Any:
    """The axes of a reduction: torch's empty list means all."""
    if dim is None or isinstance(dim, int):
        return dim
    return tuple(dim) or None


def no_draws() -> None:
    """Set as `DRAW`, it turns dropout off, so that a model can be compared with its original."""


def drops() -> bool:
    return DRAW.get() is not no_draws


def seed() -> Any:
    return DRAW.get()()


def integers(x: Any) -> Any:
    """Bools as integers, for ops that only have numbers."""
    return cast(x, int64) if is_array(x) and x.dtype is bool_ else x


def floats(x: Any) -> Any:
    """Bools and integers as floats."""
    return x if x.dtype.kind in "fc" else cast(x, float32)


def are_bools(*operands: Any) -> bool:
    return all(isinstance(x, bool) or (is_array(x) and x.dtype is bool_) for x in operands)


def counting(row: Row) -> Row:
    """A row that adds or multiplies elements, for bools, too: true is 1, and the result is true where it is not 0."""

    def run(x: Any, *rest: Any, **params: Any) -> Any:
        if x.dtype is not bool_:
            return row(x, *rest, **params)
        return row(integers(x), *[integers(r) if isinstance(r, Array) else r for r in rest], **params) != 0

    return run


def whole(row: Row) -> Row:
    """A row that has floats only, for integers, too."""

    def run(x: Any, *rest: Any, **params: Any) -> Any:
        if x.dtype.kind in "fc":
            return row(x, *rest, **params)
        wide = [cast(r, float64) if isinstance(r, Array) else r for r in (x, *rest)]
        return cast(tl.trunc(row(*wide, **params) * (1 + 1e-9)), x.dtype)  # 2.9999999999999996 is 3

    return run
