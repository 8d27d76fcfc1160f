"""NumPy's methods of arrays on `tl.Array`, as the frameworks' own arrays have them: each is the public function of its name.

Methods that change a NumPy array in place are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.core.array import Array
from trellis.core.printing import array_html
from trellis.ops.conversion import asarray, to_numpy
from trellis.ops.creation import zeros_like
from trellis.ops.elementwise import imag, real, round as round_
from trellis.ops.manipulation import permute_dims, reshape


def _reshape(self: Array, *shape: Any, copy: bool | None = None) -> Any:
    return reshape(self, shape[0] if len(shape) == 1 else shape, copy=copy)


def _transpose(self: Array, *axes: Any) -> Any:
    order = axes[0] if len(axes) == 1 else axes
    return permute_dims(self, order or range(self.ndim)[::-1])


_IN_PLACE = ("resize", "sort")
_OTHER_FORMS = {
    "__divmod__": lambda self, other: (self // other, self % other),
    "__rdivmod__": lambda self, other: (other // self, other % self),
    "__round__": lambda self, digits=None: round_(self, digits or 0),
    "_repr_html_": lambda self: array_html(self._data),
    "copy": lambda self: asarray(self, copy=True),
    "flatten": lambda self: reshape(self, (-1,), copy=True),
    "imag": property(lambda self: zeros_like(self) if self.dtype.kind == "b" else imag(self)),  # `hasattr` must find it
    "numpy": to_numpy,
    "ravel": lambda self: reshape(self, (-1,)),
    "real": property(lambda self: self if self.dtype.kind == "b" else real(self)),
    "reshape": _reshape,
    "transpose": _transpose,
}


def install_methods(modules: list[Any]) -> None:
    """Give `tl.Array` each function of these modules that is a method of NumPy's arrays."""
    public = {name: getattr(module, name) for module in modules for name in module.__all__}
    shared = {name: function for name, function in public.items() if hasattr(np.ndarray, name) and name not in _IN_PLACE}
    for name, method in (shared | _OTHER_FORMS).items():
        if name not in vars(Array):
            setattr(Array, name, method)
