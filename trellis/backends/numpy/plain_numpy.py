"""A value being differentiated in plain NumPy code: operators, methods and attributes of an ndarray, and NumPy's functions.

`np.f(x)` runs our op of the same meaning, so it is recorded like any other; its dtypes are ours. What has no row in the tables
raises a TypeError that names it; so does every change in place.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from trellis.dispatch import UnknownOperand, call, find, interpreters
from trellis.interop import UFUNCS


class PlainArray:
    """What an ndarray has, on a value being differentiated. The class of that adds `value`, `node` and `slot`."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]
    value: Any

    # ---- what it is ----------------------------------------------------------------------------------------------------------
    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.value.dtype

    @property
    def ndim(self) -> int:
        return self.value.ndim

    @property
    def size(self) -> int:
        return self.value.size

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def T(self) -> Any:
        return _functions()[np.transpose](self)

    @property
    def mT(self) -> Any:
        return call("matrix_transpose", self)

    @property
    def real(self) -> Any:
        return call("real", self)

    @property
    def imag(self) -> Any:
        return call("imag", self)

    def __repr__(self) -> str:
        return f"Traced({self.value!r})"

    def item(self, *index: Any) -> Any:
        return (self[index] if index else self).value.item()  # type: ignore[attr-defined]

    def tolist(self) -> Any:
        return self.value.tolist()

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __complex__(self) -> complex:
        return complex(self.value)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array with no dimensions")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over an array with no dimensions")
        return iter(call("unstack", self, axis=0))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError(
            "an array being differentiated cannot become a plain NumPy array: its gradient would be lost. Join such arrays with "
            "np.stack or np.concatenate instead of np.array([...]); take a value that needs no gradient with tl.stop_gradient(x)"
        )

    # ---- indexing ------------------------------------------------------------------------------------------------------------
    def __getitem__(self, key: Any) -> Any:
        from trellis.ops.indexing import getitem

        return getitem(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError(
            "x[key] = value: an array being differentiated cannot be changed in place; write x = tl.at(x)[key].set(value)"
        )

    # ---- NumPy's functions ---------------------------------------------------------------------------------------------------
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return _run_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        row = _functions().get(function)
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
    if method == "reduce" and name in _REDUCE:
        return _functions()[_REDUCE[name]](*inputs, **({"axis": 0} | dict(kwargs)))
    if method == "accumulate" and name in _ACCUMULATE:
        return _functions()[_ACCUMULATE[name]](*inputs, **({"axis": 0} | dict(kwargs)))
    if method == "outer":
        first, second = map(_as_operand, inputs)
        return _run_ufunc(ufunc, "__call__", (np.reshape(first, first.shape + (1,) * second.ndim), second), kwargs)
    what = method if method != "__call__" else ", ".join(kwargs)
    raise TypeError(f"np.{name}: {what} has no gradient here; use ops of trellis")


def _as_operand(x: Any) -> Any:
    """A list, as NumPy's functions take it, as an array."""
    return np.asarray(x) if isinstance(x, (list, tuple)) else x


_REDUCE = {"add": np.sum, "multiply": np.prod, "maximum": np.max, "minimum": np.min, "logical_and": np.all, "logical_or": np.any}
_ACCUMULATE = {"add": np.cumsum, "multiply": np.cumprod}
_OTHER_UFUNCS: dict[str, Callable[..., Any]] = {
    "cbrt": lambda x: np.sign(x) * np.abs(x) ** (1 / 3),
    "deg2rad": lambda x: x * (math.pi / 180),
    "degrees": lambda x: x * (180 / math.pi),
    "divmod": lambda x, y: (np.floor_divide(x, y), np.remainder(x, y)),
    "exp2": lambda x: call("pow", 2.0, x),
    "fabs": np.abs,
    "float_power": np.power,
    "fmax": lambda x, y: np.where(np.isnan(x), y, np.where(np.isnan(y), x, np.maximum(x, y))),
    "fmin": lambda x, y: np.where(np.isnan(x), y, np.where(np.isnan(y), x, np.minimum(x, y))),
    "fmod": lambda x, y: x - y * np.trunc(x / y),
    "logaddexp2": lambda x, y: np.logaddexp(x * math.log(2), y * math.log(2)) / math.log(2),
    "matvec": lambda x, y: np.matmul(x, y[..., None])[..., 0],
    "rad2deg": lambda x: x * (180 / math.pi),
    "radians": lambda x: x * (math.pi / 180),
    "vecdot": lambda x, y: call("vecdot", x, y, axis=-1),
    "vecmat": lambda x, y: np.matmul(np.conj(x)[..., None, :], y)[..., 0, :],
}  # fmt: skip


# ---- operators: the public ops, once each ------------------------------------------------------------------------------------
def _binary(op: str) -> Callable[..., Any]:
    def run(self: Any, other: Any, /) -> Any:
        try:
            return getattr(find(self, other), op)(self, other)
        except UnknownOperand:
            return NotImplemented

    return run


def _reflected(op: str) -> Callable[..., Any]:
    def run(self: Any, other: Any, /) -> Any:
        try:
            return getattr(find(other, self), op)(other, self)
        except UnknownOperand:
            return NotImplemented

    return run


def _unary(op: str) -> Callable[..., Any]:
    def run(self: Any) -> Any:
        return getattr(interpreters[type(self)], op)(self)

    return run


def _method(name: str) -> Callable[..., Any]:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _functions()[getattr(np, name)](self, *args, **kwargs)

    return run


def _sequence(name: str) -> Callable[..., Any]:
    """reshape and transpose take their numbers one by one as well."""

    def run(self: Any, *numbers: Any, **kwargs: Any) -> Any:
        if not numbers:
            return _functions()[getattr(np, name)](self, **kwargs)
        given = numbers[0] if len(numbers) == 1 else numbers
        return _functions()[getattr(np, name)](self, given, **kwargs)

    return run


def _forbidden(name: str, instead: str) -> Callable[..., Any]:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"x.{name}: an array being differentiated cannot be changed in place; {instead}")

    return run


_BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "pow", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}  # fmt: skip
_COMPARISONS = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
_UNARY = {"neg": "negative", "pos": "positive", "abs": "abs", "invert": "bitwise_invert"}
_METHODS = (
    "all", "any", "argmax", "argmin", "argsort", "clip", "cumprod", "cumsum", "diagonal", "dot", "max", "mean", "min", "nonzero",
    "prod", "ravel", "repeat", "round", "searchsorted", "squeeze", "std", "sum", "swapaxes", "take", "trace", "var",
)  # fmt: skip


def _install() -> None:
    for name, op in _UNARY.items():
        setattr(PlainArray, f"__{name}__", _unary(op))
    for name, op in (_BINARY | _COMPARISONS).items():
        setattr(PlainArray, f"__{name}__", _binary(op))
    for name, op in _BINARY.items():
        setattr(PlainArray, f"__r{name}__", _reflected(op))
    for name in _METHODS:
        setattr(PlainArray, name, _method(name))
    for name in ("reshape", "transpose"):
        setattr(PlainArray, name, _sequence(name))
    for name in ("conj", "conjugate"):
        setattr(PlainArray, name, _unary("conj"))
    for name, instead in (("sort", "use np.sort(x)"), ("fill", "use np.full_like"), ("put", "use tl.at(x)[key].set(value)"),
                          ("resize", "use np.resize"), ("partition", "use np.sort(x)"), ("setfield", "use tl.at")):  # fmt: skip
        setattr(PlainArray, name, _forbidden(name, instead))


def _copy(self: Any, order: str = "K") -> Any:
    return self  # nothing can change it


def _astype(self: Any, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True) -> Any:
    from trellis.ops.conversion import astype

    return astype(self, np.dtype(dtype), copy=copy)  # NumPy's meaning: `float` is float64


PlainArray.copy = PlainArray.__copy__ = _copy  # type: ignore[attr-defined]
PlainArray.__deepcopy__ = lambda self, memo: self  # type: ignore[attr-defined]
PlainArray.flatten = lambda self, order="C": _functions()[np.ravel](self, order)  # type: ignore[attr-defined]
PlainArray.astype = _astype  # type: ignore[attr-defined]
_install()
PlainArray.__divmod__ = lambda self, other: (self // other, self % other)  # type: ignore[attr-defined]
PlainArray.__index__ = lambda self: operator.index(self.value)  # type: ignore[attr-defined]

_FUNCTIONS: dict[Any, Callable[..., Any]] = {}


def _functions() -> dict[Any, Callable[..., Any]]:
    """NumPy's functions, each with the call that runs our op; made when the first is used."""
    if not _FUNCTIONS:
        from trellis.backends.numpy.plain_functions import rows

        _FUNCTIONS.update(rows())
    return _FUNCTIONS
