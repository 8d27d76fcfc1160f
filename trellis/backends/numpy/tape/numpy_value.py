"""A value being differentiated in plain NumPy code: operators, methods and attributes of an ndarray, and NumPy's functions.

`np.f(x)` runs our op of the same meaning, so it is recorded like any other, and its dtypes are ours. A function without a row in
the tables raises a TypeError that names it; so does every change in place.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from trellis.backends.numpy.tape.numpy_functions import FUNCTIONS
from trellis.core.dispatch import call
from trellis.core.interop import UFUNC_METHODS
from trellis.core.operators import Operators, install, unary_operator
from trellis.core.table import UFUNCS
from trellis.ops.conversion import astype
from trellis.ops.indexing import getitem


def _converted(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda self: convert(self.value)


class PlainArray(Operators):
    """The attributes and methods of an ndarray, on a value being differentiated. The subclass adds `value`, `node` and `slot`."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]
    value: Any

    # ---- what it is ----------------------------------------------------------------------------------------------------------
    shape: Any = property(attrgetter("value.shape"))  # attrgetter makes no Python call
    dtype: Any = property(attrgetter("value.dtype"))
    ndim: Any = property(attrgetter("value.ndim"))
    size: Any = property(attrgetter("value.size"))
    itemsize: Any = property(attrgetter("value.itemsize"))
    below: Any = property(attrgetter("value"))  # where the values are, and where the shape and dtype are
    form: Any = property(attrgetter("value"))
    T: Any = property(lambda self: FUNCTIONS[np.transpose](self))
    mT, real, imag = (property(partial(call, op)) for op in ("matrix_transpose", "real", "imag"))
    __bool__, __int__, __float__, __complex__ = map(_converted, (bool, int, float, complex))
    __index__, tolist = _converted(operator.index), _converted(operator.methodcaller("tolist"))

    def __repr__(self) -> str:
        return f"Traced({self.value!r})"

    def item(self, *index: Any) -> Any:
        return (self[index] if index else self).value.item()

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array with no dimensions")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over an array with no dimensions")
        return iter(call("unstack", self, axis=0))

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def copy(self, order: str = "K") -> Any:
        return self  # nothing can change it

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def flatten(self, order: str = "C") -> Any:
        return FUNCTIONS[np.ravel](self, order)

    def astype(self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True) -> Any:
        return astype(self, np.dtype(dtype), copy=copy)  # NumPy's meaning: `float` is float64

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError(
            "an array being differentiated cannot become a plain NumPy array: its gradient would be lost. Join such arrays with "
            "np.stack or np.concatenate instead of np.array([...]); take a value that needs no gradient with tl.stop_gradient(x)"
        )

    # ---- indexing ------------------------------------------------------------------------------------------------------------
    def __getitem__(self, key: Any) -> Any:
        return getitem(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError(
            "x[key] = value: an array being differentiated cannot be changed in place; write x = tl.at(x)[key].set(value)"
        )

    # ---- NumPy's functions ---------------------------------------------------------------------------------------------------
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return _run_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        row = FUNCTIONS.get(function)
        if row is None or kwargs.get("out") is not None:
            raise TypeError(_refusal(_name(function), row is None))
        try:
            return row(*args, **kwargs)
        except TypeError as error:
            if "unexpected keyword argument" in str(error) or "positional argument" in str(error):
                raise TypeError(f"np.{_name(function)} on an array being differentiated: {error}") from None
            raise


def _name(function: Any) -> str:
    return f"{function.__module__}.{function.__name__}".removeprefix("numpy.")


def _refusal(name: str, unknown: bool) -> str:
    if unknown:
        return f"np.{name} has no gradient here; use an op of trellis, or np.{name} on tl.stop_gradient(x)"
    return f"np.{name}: out= changes an array in place, which differentiation does not allow; use the result"


def _run_ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    name = ufunc.__name__
    if method == "__call__" and not kwargs:
        op = UFUNCS.get(name)
        if op is not None:
            return call(op, *map(_as_operand, inputs))
        if name in _OTHER_UFUNCS:
            return _OTHER_UFUNCS[name](*map(_as_operand, inputs))
        raise TypeError(_refusal(name, True))
    if any(x is not None for x in kwargs.get("out", ())):
        raise TypeError(
            f"np.{name}: out= and in-place operators such as x += y, where x is an ndarray and y is being differentiated, change "
            f"an array in place, which differentiation does not allow; write x = x + y, or tl.at(x)[key].add(y) for a part"
        )
    if name in (functions := UFUNC_METHODS.get(method, {})):
        return FUNCTIONS[functions[name]](*inputs, **({"axis": 0} | dict(kwargs)))
    if method == "outer":
        first, second = map(_as_operand, inputs)
        return _run_ufunc(ufunc, "__call__", (np.reshape(first, first.shape + (1,) * second.ndim), second), kwargs)
    what = method if method != "__call__" else ", ".join(kwargs)
    raise TypeError(f"np.{name}: {what} has no gradient here; use ops of trellis")


def _as_operand(x: Any) -> Any:
    """`x`, or the array of a list, which NumPy's functions take."""
    return np.asarray(x) if isinstance(x, (list, tuple)) else x


_OTHER_UFUNCS: dict[str, Callable[..., Any]] = {
    "cbrt": lambda x: np.sign(x) * np.abs(x) ** (1 / 3),
    "divmod": lambda x, y: (np.floor_divide(x, y), np.remainder(x, y)),
    "exp2": lambda x: call("pow", 2.0, x),
    "fabs": np.abs,
    "float_power": np.power,
    "fmax": lambda x, y: np.where(np.isnan(x), y, np.where(np.isnan(y), x, np.maximum(x, y))),
    "fmin": lambda x, y: np.where(np.isnan(x), y, np.where(np.isnan(y), x, np.minimum(x, y))),
    "fmod": lambda x, y: x - y * np.trunc(x / y),
    "logaddexp2": lambda x, y: np.logaddexp(x * math.log(2), y * math.log(2)) / math.log(2),
    "matvec": lambda x, y: np.matmul(x, y[..., None])[..., 0],
    "vecdot": lambda x, y: call("vecdot", x, y, axis=-1),
    "vecmat": lambda x, y: np.matmul(np.conj(x)[..., None, :], y)[..., 0, :],
    **dict.fromkeys(("deg2rad", "radians"), lambda x: x * (math.pi / 180)),
    **dict.fromkeys(("degrees", "rad2deg"), lambda x: x * (180 / math.pi)),
}  # fmt: skip


# ---- operators and methods -----------------------------------------------------------------------------------------------------
def _method(name: str) -> Callable[..., Any]:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return FUNCTIONS[getattr(np, name)](self, *args, **kwargs)

    return run


def _sequence(name: str) -> Callable[..., Any]:
    """reshape and transpose take their numbers one by one as well."""
    run = _method(name)
    return lambda self, *numbers, **kwargs: run(self, *(numbers if len(numbers) < 2 else [numbers]), **kwargs)


def _forbidden(name: str, instead: str) -> Callable[..., Any]:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"x.{name}: an array being differentiated cannot be changed in place; {instead}")

    return run


_METHODS = """all any argmax argmin argsort clip cumprod cumsum diagonal dot max mean min nonzero prod ravel repeat round
    searchsorted squeeze std sum swapaxes take trace var"""
_FORBIDDEN = {
    "fill": "use np.full_like",
    "partition": "use np.sort(x)",
    "put": "use tl.at(x)[key].set(value)",
    "resize": "use np.resize",
    "setfield": "use tl.at",
    "sort": "use np.sort(x)",
}
_INSTALLED = {
    **{name: _method(name) for name in _METHODS.split()},
    **{name: _sequence(name) for name in ("reshape", "transpose")},
    **{name: unary_operator("conj") for name in ("conj", "conjugate")},
    **{name: _forbidden(name, instead) for name, instead in _FORBIDDEN.items()},
}
install(PlainArray)
for _attribute, _made in _INSTALLED.items():
    setattr(PlainArray, _attribute, _made)
