"""`tl.Array`: the same array on every backend, and the interpreter that unwraps it, calls down and wraps the result.

An Array holds one native array and nothing else. Its operators are the public ops, its methods are the public functions.
Assignment changes the native array where the framework allows it and rebinds it where not; in-place operators always rebind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from trellis.dispatch import UnknownOperand, call, diagnose, find, find_all, interpreters, register
from trellis.dtypes import DType
from trellis.ops.indexing import canonical_key, setitem

if TYPE_CHECKING:
    from types import ModuleType


# ---- operators: the public ops, once each --------------------------------------------------------------------------------------
def _unary(op: str) -> Callable[..., Any]:
    def operator(self: Array) -> Any:
        data = self._data
        return Array(getattr(interpreters[type(data)], op)(data))

    return operator


def _binary(op: str) -> Callable[..., Any]:
    def operator(self: Array, other: Any, /) -> Any:
        if type(other) is Array:  # the common case, spelt out because each call counts
            a, b = self._data, other._data
            return Array(getattr(interpreters[type(a)] if type(a) is type(b) else find(a, b), op)(a, b))
        try:
            return getattr(find(self, other), op)(self, other)
        except UnknownOperand:
            return NotImplemented

    return operator


def _reflected(op: str) -> Callable[..., Any]:
    def operator(self: Array, other: Any, /) -> Any:
        try:
            return getattr(find(other, self), op)(other, self)
        except UnknownOperand:
            return NotImplemented

    return operator


def _in_place(op: str) -> Callable[..., Any]:
    def operator(self: Array, other: Any, /) -> Any:
        try:
            result = getattr(find(self, other), op)(self, other)
        except UnknownOperand:
            return NotImplemented
        if type(result) is not Array:
            return result
        if result.dtype is not self.dtype:
            raise TypeError(
                f"in-place {op}: the result is {result.dtype}, the array {self.dtype}; write x = tl.{op}(x, y) instead"
            )
        if result.shape != self.shape:
            raise ValueError(
                f"in-place {op}: the result has shape {result.shape}, the array {self.shape}; write x = tl.{op}(x, y) instead"
            )
        self._data = result._data
        return self

    return operator


def _arithmetic(op: str) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """x + y, y + x for a y that is no Array, and x += y."""
    return _binary(op), _reflected(op), _in_place(op)


class Array:
    """An array that follows the Python array API standard, whichever framework holds its data.

    >>> import trellis as tl
    >>> x = tl.asarray([[1.0, 2.0], [3.0, 4.0]])
    >>> x @ x + 1
    Array([[ 8., 11.],
           [16., 23.]], dtype=float32, backend='numpy', device='cpu')
    """

    __slots__ = ("_data", "__weakref__")

    _data: Any
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, data: Any) -> None:
        self._data = data

    __neg__, __pos__, __abs__, __invert__ = _unary("negative"), _unary("positive"), _unary("abs"), _unary("bitwise_invert")
    __add__, __radd__, __iadd__ = _arithmetic("add")
    __sub__, __rsub__, __isub__ = _arithmetic("subtract")
    __mul__, __rmul__, __imul__ = _arithmetic("multiply")
    __truediv__, __rtruediv__, __itruediv__ = _arithmetic("divide")
    __floordiv__, __rfloordiv__, __ifloordiv__ = _arithmetic("floor_divide")
    __mod__, __rmod__, __imod__ = _arithmetic("remainder")
    __pow__, __rpow__, __ipow__ = _arithmetic("pow")
    __matmul__, __rmatmul__, __imatmul__ = _arithmetic("matmul")
    __and__, __rand__, __iand__ = _arithmetic("bitwise_and")
    __or__, __ror__, __ior__ = _arithmetic("bitwise_or")
    __xor__, __rxor__, __ixor__ = _arithmetic("bitwise_xor")
    __lshift__, __rlshift__, __ilshift__ = _arithmetic("bitwise_left_shift")
    __rshift__, __rrshift__, __irshift__ = _arithmetic("bitwise_right_shift")
    __lt__, __le__, __gt__, __ge__ = _binary("less"), _binary("less_equal"), _binary("greater"), _binary("greater_equal")
    __eq__, __ne__ = _binary("equal"), _binary("not_equal")  # type: ignore[assignment]

    # ---- what it is ----------------------------------------------------------------------------------------------------------
    @property
    def native(self) -> Any:
        """The framework's own array, not copied."""
        return self._data

    @property
    def backend(self) -> str:
        """The name of the framework that holds the data."""
        return interpreters[type(self._data)].name

    @property
    def dtype(self) -> DType:
        return interpreters[type(self._data)].dtype_of(self._data)

    @property
    def shape(self) -> tuple[int, ...]:
        return interpreters[type(self._data)].shape_of(self._data)

    @property
    def ndim(self) -> int:
        return interpreters[type(self._data)].rank_of(self._data)

    @property
    def size(self) -> int | None:
        count = 1
        for n in self.shape:
            if n is None:
                return None
            count *= n
        return count

    @property
    def device(self) -> str:
        return interpreters[type(self._data)].device_of(self._data)

    @property
    def mT(self) -> Array:
        return call("matrix_transpose", self)

    @property
    def T(self) -> Array:
        if self.ndim != 2:
            raise ValueError(f"x.T needs 2 dimensions, got shape {self.shape}; use x.mT or tl.permute_dims")
        return call("matrix_transpose", self)

    def to_device(self, device: Any, /, *, stream: Any = None) -> Array:
        """A copy on `device`, or the array itself if it is there already."""
        if stream is not None:
            raise ValueError(f"to_device: stream={stream!r} is not supported; leave it None")
        return call("to_device", self, device=device)

    def __repr__(self) -> str:
        from trellis.printing import array_repr

        return array_repr(self)

    # ---- Python numbers ------------------------------------------------------------------------------------------------------
    def item(self) -> Any:
        """The single element as a Python number."""
        return interpreters[type(self._data)].item(self._data)

    def _scalar(self, kind: str) -> Any:
        if self.ndim != 0:
            raise TypeError(
                f"{kind}(x): only an array with no dimensions is a number, got shape {self.shape}; use x.item() or tl.reshape"
            )
        return self.item()

    def __bool__(self) -> bool:
        return bool(self._scalar("bool"))

    def __int__(self) -> int:
        return int(self._scalar("int"))

    def __float__(self) -> float:
        return float(self._scalar("float"))

    def __complex__(self) -> complex:
        return complex(self._scalar("complex"))

    def __index__(self) -> int:
        if self.dtype.kind not in "iu":
            raise TypeError(f"index(x): only an integer array is an index, got {self.dtype}")
        return int(self._scalar("index"))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len(x): an array with no dimensions has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        if not self.shape:
            raise TypeError("iter(x): an array with no dimensions cannot be iterated over")
        return iter(call("unstack", self, axis=0))

    def __contains__(self, value: Any) -> bool:
        return bool(call("any", call("equal", self, value), axis=None, keepdims=False))

    # ---- indexing ------------------------------------------------------------------------------------------------------------
    def __getitem__(self, key: Any) -> Array:
        data = self._data
        spec, indices = canonical_key(data, key)
        if indices:
            return call("getitem", self, *indices, key=spec)
        try:
            return Array(interpreters[type(data)].getitem(data, key=spec))
        except Exception as error:
            diagnose("getitem", (data,), {"key": spec}, error)
            raise

    def __setitem__(self, key: Any, value: Any) -> None:
        self._data = setitem(self, key, value)._data

    # ---- other libraries -----------------------------------------------------------------------------------------------------
    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        import trellis

        if api_version is not None and api_version not in trellis.API_VERSIONS:
            raise ValueError(f"api_version={api_version!r} is unknown; use one of {', '.join(trellis.API_VERSIONS)}")
        return trellis

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(interpreters[type(self._data)].to_numpy(self._data), dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from trellis.interop import array_ufunc

        return array_ufunc(ufunc, method, inputs, kwargs)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from trellis.interop import native_function

        return native_function(function, args, kwargs or {})

    def __reduce__(self) -> tuple[Any, ...]:
        from trellis.interop import reduce_array

        return reduce_array(self)

    def __copy__(self) -> Array:
        return call("asarray", self, dtype=None, device=None, copy=True)

    def __deepcopy__(self, memo: Any) -> Array:
        return self.__copy__()

    def __jax_array__(self) -> Any:
        return self._require("jax")

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> Any:
        data = self._require("tensorflow")
        return interpreters[type(data)].as_tf_tensor(data, dtype, name)

    def _require(self, backend: str) -> Any:
        if self.backend != backend:
            raise TypeError(f'this Array is on {self.backend}; bring it to {backend} first: tl.to_backend(x, "{backend}")')
        return self._data

    def __dlpack__(
        self, *, stream: Any = None, max_version: tuple[int, int] | None = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        return interpreters[type(self._data)].dlpack(
            self._data, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self) -> tuple[Any, int]:
        return interpreters[type(self._data)].dlpack_device(self._data)


class ArrayInterpreter:
    """Any op: unwrap, call down, wrap. Each op's function is made when it is used first."""

    level = 2
    name = "array"

    def __getattr__(self, op: str) -> Callable[..., Any]:
        made = _unary(op) if op in _ONE_ARRAY.split() else _lift_two(op) if op in _TWO_ARRAYS.split() else _lift(op)
        setattr(self, op, made)
        return made

    # The most used reductions and shapes, spelt out: packing keywords and unpacking them again is a third of what a call costs.
    def sum(self, x: Array, *, axis: Any, dtype: Any, keepdims: bool) -> Array:
        data = x._data
        return Array(interpreters[type(data)].sum(data, axis=axis, dtype=dtype, keepdims=keepdims))

    def mean(self, x: Array, *, axis: Any, keepdims: bool) -> Array:
        data = x._data
        return Array(interpreters[type(data)].mean(data, axis=axis, keepdims=keepdims))

    def reshape(self, x: Array, *, shape: tuple[int, ...], copy: bool | None) -> Array:
        data = x._data
        return Array(interpreters[type(data)].reshape(data, shape=shape, copy=copy))

    def shape_of(self, x: Array) -> Any:
        return x.shape

    def rank_of(self, x: Array) -> Any:
        return x.ndim

    def dtype_of(self, x: Array) -> Any:
        return x.dtype

    def device_of(self, x: Array) -> Any:
        return x.device

    def constant(self, value: np.ndarray[Any, Any], *, like: Array) -> Array:
        return Array(interpreters[type(like._data)].constant(value, like=like._data))


# Elementwise ops of arrays alone, the most of what people call in loops: they need no packing of what they are given.
_ONE_ARRAY = """abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh digamma erf erfc erfinv exp expit expm1
    floor gammaln i0 imag isfinite isinf isnan log log10 log1p log2 logical_not logit negative positive real reciprocal round
    sign signbit sin sinh sqrt square tan tanh trunc"""
_TWO_ARRAYS = """add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal
    floor_divide greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor matmul maximum minimum
    multiply nextafter not_equal pow remainder subtract xlogy"""


def _unwrap(x: Any) -> Any:
    return x._data if isinstance(x, Array) else x


def _lift_two(op: str) -> Callable[..., Any]:
    def run(x1: Any, x2: Any) -> Any:
        a, b = (x1._data, x2._data) if type(x1) is Array is type(x2) else (_unwrap(x1), _unwrap(x2))
        return Array(getattr(interpreters[type(a)] if type(a) is type(b) else find(a, b), op)(a, b))

    return run


def _lift(op: str) -> Callable[..., Any]:
    def run(*operands: Any, **params: Any) -> Any:
        if len(operands) == 1:
            data = operands[0]._data
            result = getattr(interpreters[type(data)], op)(data, **params)
        else:
            natives = [x._data if type(x) is Array else _unwrap(x) for x in operands]
            result = getattr(find_all(*natives), op)(*natives, **params)
        return wrap(result) if isinstance(result, tuple) else Array(result)

    return run


def wrap(result: tuple[Any, ...]) -> Any:
    """An Array of each member of a tuple of native results."""
    return tuple(map(Array, result)) if type(result) is tuple else type(result)(*map(Array, result))


register(Array, ArrayInterpreter())
