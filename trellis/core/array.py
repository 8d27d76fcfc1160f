"""`tl.Array`: the same array on every backend, and the interpreter that unwraps it, calls down and wraps the result.

An Array holds one native array. Its operators are the public ops, its methods are the public functions.

Rules of writing, the same on every backend:
- A basic index (ints, slices, None, Ellipsis) makes a view of its array. A write to one is seen by the other. A view is a `View`:
  it holds its array and the key, writes to the array, and reads again when the array holds another native array.
- Everything else makes a new array: an index array or mask, an index of ints alone, every function, `tl.reshape` and `x.T` too.
  Where the framework lets such a result share memory with its operand, both are marked, and the first write to either copies.
- `x[key] = value` changes the native array where the framework can, and rebinds it where not. In-place operators rebind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from trellis.core import tree
from trellis.core.dispatch import UnknownOperand, call, diagnose, find, find_all, interpreters, register
from trellis.core.dtypes import DType, bool as bool_
from trellis.core.indexing import HOST_DATA, beside, canonical_key, composed
from trellis.core.interop import Interoperable, copied, native_function
from trellis.core.operators import Operators, install
from trellis.core.printing import array_repr
from trellis.core.table import OF_ONE_ARRAY, OF_TWO_ARRAYS, SHARING

if TYPE_CHECKING:  # a stub of what is set on the class at run time
    from trellis.core.array_methods import ArrayMethods
else:
    ArrayMethods = Operators

API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")


# ---- operators: the public ops -------------------------------------------------------------------------------------------------
def _unary(op: str) -> Callable[..., Any]:
    def operator(self: Array) -> Any:
        data = self._data
        made = getattr(interpreters[type(data)], op)(data)
        return Array(made) if made is not data else _marked((self,), Array(made))

    return _sharing(operator) if op in SHARING else operator


def _sharing(run: Callable[..., Any]) -> Callable[..., Any]:
    """An op whose result may be a view of the memory of its operand."""
    return lambda *operands, **params: _marked(operands, run(*operands, **params))


def _marked(operands: tuple[Any, ...], result: Any) -> Any:
    """`result`, marked like the operands as sharing memory."""
    for x in (*operands, *result) if isinstance(result, tuple) else (*operands, result):
        if isinstance(x, Array):
            x._share()
    return result


def _binary(op: str) -> Callable[..., Any]:
    def operator(self: Array, other: Any, /) -> Any:
        if type(other) is Array or type(other) is View:  # the common case, spelt out because each call counts
            a, b = self._data, other._data
            return Array(getattr(interpreters[type(a)] if type(a) is type(b) else find(a, b), op)(a, b))
        if type(other) is float or type(other) is int:
            return Array(getattr(interpreters[type(self._data)], op)(self._data, other))
        if other is None and op in ("equal", "not_equal"):  # as in NumPy, no element is None
            return call("full_like", self, fill_value=op == "not_equal", dtype=bool_, device=None)
        try:
            return getattr(find(self, other), op)(self, other)
        except UnknownOperand:
            return NotImplemented

    return operator


def _in_place(op: str) -> Callable[..., Any]:
    def operator(self: Array, other: Any, /) -> Any:
        try:
            result = getattr(find(self, other), op)(self, other)
        except UnknownOperand:
            return NotImplemented
        if not isinstance(result, Array):
            return result
        if result.dtype is not self.dtype:
            raise TypeError(
                f"in-place {op}: the result is {result.dtype}, the array {self.dtype}; write x = tl.{op}(x, y) instead"
            )
        if result.shape != self.shape:
            raise ValueError(
                f"in-place {op}: the result has shape {result.shape}, the array {self.shape}; write x = tl.{op}(x, y) instead"
            )
        self._rebind(result)
        return self

    return operator


class Array(ArrayMethods, Interoperable):
    """An array that follows the Python array API standard, whichever framework holds its data.

    >>> import trellis as tl
    >>> x = tl.asarray([[1.0, 2.0], [3.0, 4.0]])
    >>> x @ x + 1
    Array([[ 8., 11.],
           [16., 23.]], dtype=float32, backend='numpy', device='cpu')
    """

    __slots__ = ("_shared",)
    __hash__ = None  # type: ignore[assignment]
    _shared: bool  # not set until an op marks the array
    _namespace: ClassVar[Callable[[str], ModuleType]]  # of the Arrays on a backend; `namespaces` sets it

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
        shape = self.shape
        return None if None in shape else math.prod(shape)

    @property
    def device(self) -> str:
        return interpreters[type(self._data)].device_of(self._data)

    @property
    def mT(self) -> Array:
        return call("matrix_transpose", self)

    @property
    def T(self) -> Array:
        if self.ndim > 2:
            raise ValueError(f"x.T needs at most 2 dimensions, got shape {self.shape}; use x.mT or tl.permute_dims")
        return call("matrix_transpose", self) if self.ndim == 2 else self

    def to_device(self, device: Any, /, *, stream: Any = None) -> Array:
        """A copy on `device`, or the array itself if it is there already."""
        if stream is not None:
            raise ValueError(f"to_device: stream={stream!r} is not supported; leave it None")
        return call("to_device", self, device=device)

    def __repr__(self) -> str:
        return array_repr(self._data)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and not self.ndim else super().__format__(spec)

    # ---- Python numbers ------------------------------------------------------------------------------------------------------
    def item(self) -> Any:
        """The single element as a Python number."""
        return interpreters[type(self._data)].item(self._data)

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers; a number if there is no dimension."""
        return interpreters[type(self._data)].to_numpy(self._data).tolist()

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
        if self.ndim > 1 and self.shape[0] is not None:
            return (self[i] for i in range(self.shape[0]))  # views
        return iter(call("unstack", self, axis=0))

    def __contains__(self, value: Any) -> bool:
        return bool(call("any", call("equal", self, value), axis=None, keepdims=False))

    # ---- indexing ------------------------------------------------------------------------------------------------------------
    def __getitem__(self, key: Any) -> Array:
        data = self._data
        spec, indices = canonical_key(data, key)
        if indices:
            return call("getitem", self, *indices, key=spec)
        interpreter = interpreters[type(data)]
        try:
            part = interpreter.getitem(data, key=spec)
        except Exception as error:
            diagnose("getitem", (data,), {"key": spec}, error)
            raise
        for entry in spec:
            if type(entry) is not int:
                follows = interpreter.follows
                return self._view(spec, part, data if follows is None or follows(data, spec) else None)
        if key is Ellipsis or (type(key) is tuple and Ellipsis in key):  # as in NumPy, x[0, ...] is a view and x[0] is not
            return self._view(spec, part, None)
        return Array(part)

    def _view(self, spec: tuple[Any, ...], part: Any, seen: Any) -> View:
        return View(self, spec, part, seen)

    def __setitem__(self, key: Any, value: Any) -> None:
        spec, indices = canonical_key(self, key)
        if type(value) in HOST_DATA:
            value = beside(self, value)
        self._write(spec, indices, value)

    def _write(self, spec: tuple[Any, ...], indices: tuple[Any, ...], value: Any) -> None:
        target: Any = self
        if getattr(self, "_shared", False) and interpreters[type(self._data)].changes_in_place:
            target = Array(copied(self._data))
        self._rebind(call("setitem", target, value, *indices, key=spec))

    def _rebind(self, new: Array) -> None:
        self._data = new._data
        self._shared = False

    def _share(self) -> None:
        self._shared = True

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        if api_version is not None and api_version not in API_VERSIONS:
            raise ValueError(f"api_version={api_version!r} is unknown; use one of {', '.join(API_VERSIONS)}")
        return Array._namespace(self.backend)


install(Array, _unary, _binary, in_place=_in_place)


class View(Array):
    """What a basic index selects from an Array: a write to one is seen by the other."""

    __slots__ = ("_base", "_key", "_part", "_seen")

    def __init__(self, base: Array, key: tuple[Any, ...], part: Any, seen: Any) -> None:
        self._base, self._key = base, key
        self._part, self._seen = part, seen  # the native array of the base that `part` is of; None if it does not follow changes

    @property
    def _data(self) -> Any:  # type: ignore[override]
        data = self._base._data
        if data is not self._seen:
            self._part = interpreters[type(data)].getitem(data, key=self._key)
            if self._seen is not None:
                self._seen = data
        return self._part

    def _share(self) -> None:
        self._base._share()

    def _view(self, spec: tuple[Any, ...], part: Any, seen: Any) -> View:
        key = composed(self._base.shape, self._key, spec)
        if key is None:
            return View(self, spec, part, seen)
        follows = seen is not None and self._seen is not None  # else the part comes from a copy
        return View(self._base, key, part, self._base._data if follows else None)

    def _write(self, spec: tuple[Any, ...], indices: tuple[Any, ...], value: Any) -> None:
        key = None if indices else composed(self._base.shape, self._key, spec)
        if key is not None:
            self._base._write(key, (), value)
        else:
            self._rebind(call("setitem", Array(copied(self._data)), value, *indices, key=spec))

    def _rebind(self, new: Array) -> None:
        self._base._write(self._key, (), new)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return native_function(Array, function, args, kwargs or {})

    def __reduce__(self) -> tuple[Any, ...]:
        return Array(self._data).__reduce__()

    def __copy__(self) -> Array:
        return Array(copied(self._data))


class ArrayInterpreter:
    """Any op: unwrap, call down, wrap. Each op's function is made when it is used first."""

    level = 2
    name = "array"

    def __getattr__(self, op: str) -> Callable[..., Any]:
        made = _unary(op) if op in OF_ONE_ARRAY else _lift_two(op) if op in OF_TWO_ARRAYS else _lift(op)
        made = _sharing(made) if op in SHARING and op not in OF_ONE_ARRAY else made
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
        made = Array(interpreters[type(data)].reshape(data, shape=shape, copy=copy))
        made._shared = True
        if type(x) is Array:
            x._shared = True
        else:
            x._share()
        return made

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


def unwrap(x: Any) -> Any:
    """The native array of a `tl.Array`; anything else as it is."""
    return x._data if isinstance(x, Array) else x


def _lift_two(op: str) -> Callable[..., Any]:
    def run(x1: Any, x2: Any) -> Any:
        a, b = (x1._data, x2._data) if type(x1) is Array is type(x2) else (unwrap(x1), unwrap(x2))
        return Array(getattr(interpreters[type(a)] if type(a) is type(b) else find(a, b), op)(a, b))

    return run


def _lift(op: str) -> Callable[..., Any]:
    def run(*operands: Any, **params: Any) -> Any:
        if len(operands) == 1:
            data = operands[0]._data
            result = getattr(interpreters[type(data)], op)(data, **params)
        else:
            natives = [x._data if type(x) is Array else unwrap(x) for x in operands]
            result = getattr(find_all(*natives), op)(*natives, **params)
            data = natives[0]
            for data in natives:
                if data is result:
                    break
        if data is result:
            return _marked(operands, Array(result))
        return wrap(result) if isinstance(result, tuple) else Array(result)

    return run


def wrap(result: tuple[Any, ...]) -> Any:
    """An Array of each member of a tuple of native results."""
    return tuple(map(Array, result)) if type(result) is tuple else type(result)(*map(Array, result))


_interpreter = ArrayInterpreter()
register(Array, _interpreter)
register(View, _interpreter)
for _kind in (Array, View):
    tree.OPTREE_NODES[_kind] = (lambda x: ((x._data,), None, ("native",)), lambda _, children: Array(children[0]))
