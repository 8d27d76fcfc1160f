"""The differences between two Containers, leaf by leaf, on the host; the two may be of different frameworks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trellis.core.dispatch import interpreters
from trellis.core.leaves import NUMBER, OTHER, kind_of, unwrap
from trellis.core.printing import leaf_text


@dataclass
class Difference:
    """Paths that one Container has and the other not, and for paths of both what differs. False if nothing does."""

    only_first: list[str] = field(default_factory=list)
    only_second: list[str] = field(default_factory=list)
    different: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.only_first or self.only_second or self.different)

    def __str__(self) -> str:
        lines = [f"only in the first: {path}" for path in self.only_first]
        lines += [f"only in the second: {path}" for path in self.only_second]
        lines += [f"different: {path}: {why}" for path, why in self.different.items()]
        return "\n".join(lines) or "no differences"


def compare(
    first: Mapping[str, Any], second: Mapping[str, Any], *,
    rtol: float, atol: float, equal_nan: bool, dtypes: bool, values: bool = True,
) -> Difference:  # fmt: skip
    """The difference of two dicts from path to leaf; `dtypes` says whether another dtype is one."""
    found = Difference([p for p in first if p not in second], [p for p in second if p not in first])
    if values:
        for path in first:
            if path in second:
                why = _leaf_difference(first[path], second[path], rtol, atol, equal_nan, dtypes)
                if why:
                    found.different[path] = why
    return found


def _leaf_difference(first: Any, second: Any, rtol: float, atol: float, equal_nan: bool, dtypes: bool) -> str | None:
    a, b = _host(first), _host(second)
    if a is None or b is None:  # at least one is not an array
        same = first is second or (a is b and type(first) is type(second) and bool(first == second))
        return None if same else f"{leaf_text(first)} and {leaf_text(second)}"
    if a.shape != b.shape:
        return f"shape {a.shape} and {b.shape}"
    if dtypes and a.dtype != b.dtype and NUMBER not in (kind_of(first), kind_of(second)):
        return f"dtype {a.dtype} and {b.dtype}"
    return _value_difference(a, b, rtol, atol, equal_nan)


def _value_difference(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], rtol: float, atol: float, equal_nan: bool) -> str | None:
    wrong = a != b
    if equal_nan:
        wrong = wrong & ~((a != a) & (b != b))
    if not wrong.any():
        return None
    with np.errstate(all="ignore"):
        wide_a, wide_b = _wide(a), _wide(b)
        distance = np.abs(wide_a - wide_b)
        wrong = wrong & ~(distance <= atol + rtol * np.abs(wide_b))
    if not wrong.any():
        return None
    distance = np.where(wrong, np.where(np.isnan(distance), np.inf, distance), 0)
    worst = np.unravel_index(np.argmax(distance), distance.shape)
    if not a.ndim:
        return f"largest difference {float(distance):.6g}"
    place = ", ".join(str(int(i)) for i in worst)
    return f"{int(wrong.sum())} of {a.size} elements, largest difference {float(distance[worst]):.6g} at [{place}]"


def _wide(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """In a dtype in which a difference neither wraps around nor rounds more than it must."""
    return x.astype(np.complex128 if np.iscomplexobj(x) else np.longdouble)


def _host(x: Any) -> np.ndarray[Any, Any] | None:
    """The leaf as a NumPy array; None if it is neither an array nor a number."""
    native = unwrap(x)
    kind = kind_of(native)
    if kind == OTHER:
        return None
    return np.asarray(native if kind == NUMBER else interpreters[type(native)].to_numpy(native))
