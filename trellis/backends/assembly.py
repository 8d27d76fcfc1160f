"""A framework's namespace, made of the modules of its folder and, for ops that it does not define, of the composites."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np

from trellis.composites import composed
from trellis.core.dispatch import BACKENDS
from trellis.core.dtypes import DType, int64
from trellis.core.typing import Sizes


class Backend(SimpleNamespace):
    """A framework's namespace: its own ops, and the composite of each op that it does not define.

    The methods are what most frameworks have in common; a backend with a function of the same name has that.
    """

    level = 0
    name: str
    changes_in_place = False  # whether `setitem` changes the array that it is given
    # Of x, a view of it, and the op and its parameters that made the view: whether that shows each change of x. None if always.
    follows: Callable[[Any, Any, str, Any], bool] | None = None
    as_int: Callable[[Any], int | None]  # where arrays change: the int of a 0-d array of integers; None of any other
    full: Callable[..., Any]
    full_like: Callable[..., Any]
    from_numpy: Callable[..., Any]
    lies_in_order: Callable[[Any], bool]  # where arrays change: whether one is known to lie in memory in C order

    def __repr__(self) -> str:
        return f"<trellis backend {self.name}>"

    def version(self) -> str:
        return sys.modules[BACKENDS[self.name][0]].__version__

    def default_int(self) -> DType:
        return int64

    def holds_gradient(self, x: Any) -> bool:
        return False

    def check_draw(self, op: str) -> None:
        """Raise where numbers cannot be drawn without a seed."""

    def draws_in_graph(self) -> bool:
        return False

    def draws_on_host(self, device: Any) -> bool:
        """Whether NumPy can draw the random numbers for a device."""
        return False

    def empty(self, *, shape: Sizes, dtype: DType, device: Any) -> Any:
        return self.full(shape=shape, fill_value=0, dtype=dtype, device=device)

    def empty_like(self, x: Any, *, dtype: DType | None, device: Any) -> Any:
        return self.full_like(x, fill_value=0, dtype=dtype, device=device)

    def linspace(self, *, start: Any, stop: Any, num: int, endpoint: bool, dtype: DType, device: Any) -> Any:
        values = 2 * np.linspace(start / 2, stop / 2, num, endpoint)  # by halves, whose difference cannot overflow
        values = np.floor(values) if dtype.kind in "iu" else values
        return self.from_numpy(values, dtype=dtype, device=device, copy=None)

    def fftfreq(self, *, n: int, d: float, dtype: DType, device: Any) -> Any:
        return self.from_numpy(np.fft.fftfreq(n, d), dtype=dtype, device=device, copy=None)

    def rfftfreq(self, *, n: int, d: float, dtype: DType, device: Any) -> Any:
        return self.from_numpy(np.fft.rfftfreq(n, d), dtype=dtype, device=device, copy=None)


def assemble(name: str, modules: Iterable[Any]) -> Backend:
    own = {op: getattr(module, op) for module in modules for op in module.__all__}
    return Backend(name=name, **(vars(composed) | own))
