"""The interpreter of values being differentiated: it unwraps the operands of an op, runs it, and records the row of its rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from trellis.backends.numpy.tape.recording import Traced, innermost
from trellis.backends.numpy.tape.rules import lift
from trellis.core import errors
from trellis.core.dispatch import register
from trellis.core.dtypes import DType


class TapeInterpreter:
    """Any op on values being differentiated. Each op's function is made when it is used first."""

    level = 1
    name = "numpy"
    changes_in_place = False
    follows = None

    def __getattr__(self, op: str) -> Callable[..., Any]:
        if op.startswith("_"):
            raise AttributeError(op)
        made = lift(op)
        setattr(self, op, made)
        return made

    def __repr__(self) -> str:
        return "<trellis backend numpy, being differentiated>"

    def to_numpy(self, x: Traced) -> Any:
        return np.asarray(innermost(x))

    def asarray(self, x: Traced, *, dtype: DType | None, device: Any, copy: bool | None) -> Any:
        if dtype is None or dtype is self.dtype_of(x):
            return x
        if copy is False:
            raise errors.copy_needed("asarray", f"dtype={dtype}")
        return self.astype(x, dtype=dtype, copy=True, device=device)

    def dlpack(self, x: Traced, **options: Any) -> Any:
        raise TypeError("DLPack: an array being differentiated cannot leave NumPy; take tl.stop_gradient(x) first")


register(Traced, TapeInterpreter())
