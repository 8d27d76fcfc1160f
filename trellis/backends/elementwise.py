"""One factory of elementwise ops. A backend gives a table: op -> its kernel, or its kernels by the kind of the dtype.

`rows_by_name` fills the table with the framework's functions of the same names, so a backend writes only the rows that differ.

A row becomes a dict from native dtype to kernel, over every dtype that we know. For a dtype outside of the op's domain it holds
`slow`, which promotes, converts numbers, or raises. So the fast path is one lookup and one call. A dtype that we do not know is a
KeyError, which `diagnose` names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trellis.core import errors, table
from trellis.core.dispatch import diagnose
from trellis.core.dtypes import DType, int64

Kernel = Callable[..., Any]
Kernels = dict[Any, Kernel]  # native dtype -> kernel
Row = Kernel | tuple[Kernel, Mapping[str, Kernel]]


def row(kernel: Kernel, **by_kind: Kernel) -> Row:
    """A kernel, and others for some kinds of dtypes: `row(jnp.floor, iu=same)` has `same` for both kinds of integers."""
    return kernel, by_kind


def kernels_of(op: str, given: Row, natives: Mapping[DType, Any], kinds: Mapping[DType, str]) -> Kernels:
    """Native dtype -> kernel, for the dtypes in the op's domain. `kinds` names narrower kinds that a row may have kernels for."""
    default, by_kind = given if isinstance(given, tuple) else (given, {})
    one_by_one = {kind: kernel for group, kernel in by_kind.items() for kind in group}
    return {
        native: one_by_one.get(kinds.get(dtype, ""), one_by_one.get(dtype.kind, default))
        for dtype, native in natives.items()
        if dtype.kind in table.kinds(op)
    }


def rows_by_name(namespaces: Sequence[Any], **given: Row) -> dict[str, Row]:
    """A row for each elementwise op: the given one, or the function of the same name in the first namespace that has one.

    An op that none has is left to its composite.
    """
    named = {op: getattr(space, op) for space in reversed(namespaces) for op in sorted(table.ELEMENTWISE) if hasattr(space, op)}
    return named | given


def default_kernel(given: Row) -> Kernel:
    return given[0] if isinstance(given, tuple) else given


def define(
    rows: Mapping[str, Row],
    natives: Mapping[DType, Any],
    promoted: Callable[..., Any],
    mixed: Callable[[str, Kernels, Kernel], Kernel] | None = None,
    kinds: Mapping[DType, str] | None = None,
) -> dict[str, Kernel]:
    """op -> function, for each row of a backend's table.

    `promoted(op, *operands)` gives the operands as arrays of the native dtype that the op computes in. `mixed(op, kernels, slow)`
    makes the function for two operands of different types or dtypes, where a backend has a shorter way for Python numbers.
    """
    made = {}
    for op, given in rows.items():
        kernels = kernels_of(op, given, natives, kinds or {})
        slow = _promoting(op, kernels, promoted)
        complete = dict.fromkeys(natives.values(), slow) | kernels
        if op in table.OF_TWO_ARRAYS:
            made[op] = binary(op, complete, slow if mixed is None else mixed(op, kernels, slow))
        else:
            made[op] = unary(op, complete)
    return made


def _promoting(op: str, kernels: Kernels, promoted: Callable[..., Any]) -> Kernel:
    def slow(*operands: Any) -> Any:
        operands = promoted(op, *operands)
        return kernels[operands[0].dtype](*operands)

    return slow


def unary(op: str, kernels: Kernels) -> Kernel:
    """A function of one array, from a kernel for every dtype that we know."""

    def run(x: Any) -> Any:
        try:
            return kernels[x.dtype](x)
        except Exception as error:
            diagnose(op, (x,), {}, error)
            raise

    return run


def binary(op: str, kernels: Kernels, slow: Kernel) -> Kernel:
    """A function of two arrays; `slow` takes operands of two types or dtypes."""

    # No `:=` here: AutoGraph, which reads what a tf.function calls, lacks it.
    def run(x1: Any, x2: Any) -> Any:
        try:
            if type(x1) is type(x2):
                dtype = x1.dtype
                if dtype is x2.dtype:
                    return kernels[dtype](x1, x2)
            return slow(x1, x2)
        except Exception as error:
            diagnose(op, (x1, x2), {}, error)
            raise

    return run


def clip_dtype(x: DType, bounds: Iterable[Any], default_int: DType = int64) -> DType:
    """The dtype that `clip` computes in, given the dtype of the array and the DType or Python number of each bound.

    A bound may be wider than the array, but not of a wider kind: an array of integers has no bound of 0.5.
    """
    given = list(bounds)
    table.compute_dtype("clip", [x])
    for bound in given:
        errors.check_assignable("clip", bound, x)
    return table.compute_dtype("clip", [x, *given], default_int)
