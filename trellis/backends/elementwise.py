"""Elementwise ops for frameworks whose arrays carry a cheap dtype: run natively where dtypes agree, else take the slow way.

The fast path is one function and two attribute reads: a dtype in `direct` means that the framework's own kernel does exactly
what the standard says. `slow` promotes, converts scalars, emulates missing kernels, or raises.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

from trellis.dispatch import diagnose

Native = Callable[..., Any]


def unary(name: str, native: Native, direct: Set[Any], slow: Native) -> Native:
    def op(x: Any) -> Any:
        try:
            if x.dtype in direct:
                return native(x)
            return slow(x)
        except Exception as error:
            diagnose(name, (x,), {}, error)
            raise

    return op


def binary(name: str, native: Native, direct: Set[Any], slow: Native) -> Native:
    def op(x1: Any, x2: Any) -> Any:
        try:
            if type(x1) is type(x2) and (dtype := x1.dtype) is x2.dtype and dtype in direct:
                return native(x1, x2)
            return slow(x1, x2)
        except Exception as error:
            diagnose(name, (x1, x2), {}, error)
            raise

    return op
