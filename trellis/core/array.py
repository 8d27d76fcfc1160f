"""`tl.Array`: the same array on every backend, and the interpreter that unwraps it, calls down and wraps the result.

An Array holds one native array. Its operators are the public ops, its methods are the public functions.

Rules of writing, the same on every backend:
- A basic index (ints, slices, None, Ellipsis) and the functions that only arrange axes make views, as in NumPy: permute_dims and
  its kin, expand_dims, squeeze, flip, split, unstack, and reshape where it needs no copy. A write to one is seen by the other.
  A view is a `View`: it holds its array and the steps from the array to the view, writes to the array, and reads again when the
  array holds another native array. The views of broadcast_to and diagonal are read-only.
- Everything else makes a new array: an index array or mask, an index of ints alone, every other function.
  Where the framework lets such a result share memory with its operand, both are marked, and the first write to either copies.
- `x[key] = value` changes the native array where the framework can, and rebinds it where not. In-place operators rebind.
  Both keep the dtype of `x`: a wider value of the same kind is narrowed, as in NumPy; one of another kind is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from trellis.core import dispatch, views
from trellis.core.dispatch import UnknownOperand, call, diagnose, find, find_all, interpreters, register
from trellis.core.dtypes import DType, bool as bool_
from trellis.core.indexing import HOST_DATA, INDEXED_ALIKE, beside, canonical_key, composed, is_plain
from trellis.core.interop import Interoperable, copied
from trellis.core.operators import Operators, install
from trellis.core.printing import array_repr
from trellis.core.table import OF_ONE_ARRAY, OF_TWO_ARRAYS, SHARING, TABLE, VIEWING

if TYPE_CHECKING:  # a stub of what is set on the class at run time
    from trellis.core.array_methods import ArrayMethods
else:
    ArrayMethods = Operators

API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")


_new = object.__new__  # with the data set after it, it takes two thirds of the time of `Array(data)`


# ---- operators: the public ops -------------------------------------------------------------------------------------------------
def _unary(op: str) -> Callable[..., Any]:
    shares = op in SHARING

    def operator(self: Array) -> Any:
        data = self._data
        result = _new(self._kind)
        result._data = made = getattr(interpreters[type(data)], op)(data)
        if made is data or (shares and type(data) is not np.ndarray):  # NumPy's kernels of these copy
            self._share()
            result._shared = True
        return result

    return operator


def _sharing(run: Callable[..., Any]) -> Callable[..., Any]:
    """An op whose result may be a view of the memory of its operand."""
    return lambda *operands, **params: marked(operands, run(*operands, **params))


def marked(operands: tuple[Any, ...], result: Any) -> Any:
    """`result`, marked like the operands as sharing memory."""
    for x in (*operands, *result) if isinstance(result, tuple) else (*operands, result):
        if isinstance(x, Array):
            x._share()
    return result


def binary(op: str, kind: Any = None, view: Any = None, find: Any = find) -> Callable[..., Any]:
    """The method of an op of two arrays, with a short path for two of the class `kind` or of its views."""
    kind, view = kind or Array, view or View

    def operator(self: Array, other: Any, /) -> Any:
        if type(other) is kind or type(other) is view:  # the common case, spelt out because each call counts
            a, b = self._data, other._data
            made = _new(self._kind)
            made._data = getattr(interpreters[type(a)] if type(a) is type(b) else find(a, b), op)(a, b)
            return made
        if type(other) is float or type(other) is int:
            made, data = _new(self._kind), self._data
            made._data = getattr(interpreters[type(data)], op)(data, other)
            return made
        if other is None and op in ("equal", "not_equal"):  # as in NumPy, no element is None
            return call("full_like", self, fill_value=op == "not_equal", dtype=bool_, device=None)
        try:
            return getattr(dispatch.find(self, other), op)(self, other)
        except UnknownOperand:
            return NotImplemented

    return operator


def _in_place(op: str) -> Callable[..., Any]:
    method = f"__{TABLE[op].operator}__"

    def operator(self: Array, other: Any, /) -> Any:
        result = getattr(self, method)(other)
        if not isinstance(result, self._kind):  # a Container; or a free array met one that is not, and the result is its
            return result
        made, own = result._data, self._data
        if type(made) is not type(own) or made.dtype is not own.dtype or made.shape != own.shape:
            if result.dtype.kind == self.dtype.kind:  # as in an assignment, float64 goes into float32
                result = call("astype", result, dtype=self.dtype, copy=False, device=None)
            for fact, mistake in (("dtype", TypeError), ("shape", ValueError)):
                new, old = getattr(result, fact), getattr(self, fact)
                if new != old:
                    raise mistake(f"in-place {op}: the result has {fact} {new}, the array {old}; write x = tl.{op}(x, y) instead")
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

    __slots__ = ("_shared", "_copies")
    __hash__ = None  # type: ignore[assignment]
    _shared: bool  # not set until an op marks the array
    _copies: dict[Any, Any]  # of a free array, on other frameworks; not set until there is one
    _view_kind: ClassVar[Any]  # the class of its views
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
        data = self._data
        return data.shape if type(data) is np.ndarray else interpreters[type(data)].shape_of(data)

    @property
    def ndim(self) -> int:
        data = self._data
        return data.ndim if type(data) is np.ndarray else interpreters[type(data)].rank_of(data)

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
        """The array with its axes in reverse order, as in NumPy."""
        rank = self.ndim
        if rank == 2:
            return interpreters[type(self)].matrix_transpose(self)
        return self if rank < 2 else call("permute_dims", self, axes=tuple(range(rank))[::-1])

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
        return map(self._kind, self._data) if type(self._data) is np.ndarray else iter(call("unstack", self, axis=0))

    def __contains__(self, value: Any) -> bool:
        return bool(call("any", call("equal", self, value), axis=None, keepdims=False))

    # ---- indexing ------------------------------------------------------------------------------------------------------------
    def __getitem__(self, key: Any) -> Array:
        data = self._data
        is_alike = type(data) is np.ndarray or (not dispatch.is_compiling() and type(data) in INDEXED_ALIKE)
        given, plain = key, is_plain(key)
        if is_alike and not plain and type(key) is tuple and len(key) == data.ndim:  # of one element: 0-d integers are ints
            as_int = interpreters[type(data)].as_int
            given = tuple([as_int(e._data) if type(e) is self._kind else e for e in key])
            plain = set(map(type, given)) == {int}
        if is_alike and plain:  # NumPy's own indexing is the model
            try:
                part = data[given]
                if type(part) is np.ndarray or part.ndim:
                    if isinstance(self, View):
                        return self._view(canonical_key(data, given)[0], part)
                    return self._view_kind(self, (None, "getitem", given), part, data)
                if type(data) is np.ndarray:
                    return self._kind(part)
                if given is not Ellipsis and (type(given) is not tuple or Ellipsis not in given):  # of ints alone
                    return self._kind(copied(part))
            except (IndexError, ValueError):
                pass  # the path below explains it, and reverses an axis where the framework does not
        spec, indices = canonical_key(data, key)
        if indices:
            if self._kind is not Array:  # host data in the key of a free array is free, too
                indices = canonical_key(self, key)[1]
            return call("getitem", self, *indices, key=spec)
        try:
            part = interpreters[type(data)].getitem(data, key=spec)
        except Exception as error:
            diagnose("getitem", (data,), {"key": spec}, error)
            raise
        if interpreters[type(data)].rank_of(part) or key is Ellipsis or (type(key) is tuple and Ellipsis in key):
            return self._view(spec, part)
        return self._kind(part)  # of ints alone; as in NumPy, x[0, ...] is a view and x[0] is not

    def _view(self, key: tuple[Any, ...], part: Any) -> View:
        """`part`, which the key selects from the native array, as a view."""
        data = self._data
        base, before, seen = (self._base, self._chain, self._seen) if isinstance(self, View) else (self, None, data)
        follows = interpreters[type(data)].follows
        if follows is not None and not follows(data, part, "getitem", {"key": key}):
            seen = None
        if isinstance(self, View) and (composed := self._composed(key)) is not None:
            before, key = None, composed
        return self._view_kind(base, (before, "getitem", {"key": key}), part, seen)

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(self._data) is np.ndarray and not isinstance(self, View) and type(value) in (float, int) and is_plain(key):
            try:
                self._write(key if type(key) is tuple else (key,), (), value)
                return
            except (IndexError, TypeError, OverflowError):
                pass  # the path below explains it, and looks at the key first
        spec, indices = canonical_key(self, key)
        if type(value) in HOST_DATA:
            value = beside(self, value)
        self._write(spec, indices, value)

    def _write(self, spec: tuple[Any, ...], indices: tuple[Any, ...], value: Any) -> None:
        self._own()
        self._data = _assigned(self._kind, self._data, spec, indices, value)

    def _own(self) -> None:
        """Before a write: have memory that no array shares which is no view."""
        if getattr(self, "_shared", False) and interpreters[type(self._data)].changes_in_place:
            self._data = copied(self._data)
            self._shared = False

    def _rebind(self, new: Any) -> None:
        self._data = unwrap(new)
        self._shared = False

    def _share(self) -> None:
        self._shared = True

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        if api_version is not None and api_version not in API_VERSIONS:
            raise ValueError(f"api_version={api_version!r} is unknown; use one of {', '.join(API_VERSIONS)}")
        return Array._namespace(self.backend)


class View(Array):
    """What a basic index, `tl.reshape` or `x.T` makes of an Array: a write to one is seen by the other."""

    __slots__ = ("_base", "_chain", "_part", "_seen")

    def __init__(self, base: Array, chain: tuple[Any, str, Any], part: Any, seen: Any) -> None:
        self._base, self._chain = base, chain  # the last step, with the chain of those before: most views need no more of it
        self._part, self._seen = part, seen  # the native array of the base that `part` is of; None if it does not follow changes

    @property
    def _steps(self) -> list[views.Step]:
        """The steps from the base to the view, first step first."""
        steps, chain = [], self._chain
        while chain is not None:
            chain, op, params = chain
            if type(params) is not dict:  # as it was given
                params = {"shape": params, "copy": None} if op == "reshape" else {"key": canonical_key(self._base, params)[0]}
            steps.append((op, params))
        self._chain = (None, *steps[0]) if len(steps) == 1 else self._chain
        return steps[::-1]

    @property
    def _data(self) -> Any:  # type: ignore[override]
        data = self._base._data
        if data is not self._seen:
            self._part, follows = views.read(data, self._steps)
            self._seen = data if follows else None
        return self._part

    def _share(self) -> None:
        self._base._share()

    def _composed(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The key of the base that selects what `key` selects here, if this is a single index."""
        if self._chain[0] is not None or self._chain[1] != "getitem":
            return None
        return composed(self._base.shape, self._steps[0][1]["key"], key)

    def _write(self, spec: tuple[Any, ...], indices: tuple[Any, ...], value: Any) -> None:
        views.check_writable(self._steps)
        self._base._own()
        part = self._data
        in_place = self._seen is not None and interpreters[type(part)].changes_in_place
        if not in_place and not indices and (key := self._composed(spec)) is not None:
            self._base._write(key, (), value)
        elif (new := _assigned(self._kind, part, spec, indices, value)) is not part or not in_place:
            self._base._rebind(views.written(self._base._data, self._steps, new))

    def _rebind(self, new: Any) -> None:
        self._write((slice(None),) * self.ndim, (), new)


Array._kind, Array._view_kind = Array, View
install(Array, _unary, binary, in_place=_in_place)


class ArrayInterpreter:
    """Any op: unwrap, call down, wrap. Each op's function is made when it is used first."""

    level = 2
    name = "array"
    kind: Any = Array  # the class of the results
    view_kind: Any = View  # that of the views among them
    find_all = staticmethod(find_all)

    def __getattr__(self, op: str) -> Callable[..., Any]:
        lift = _lift_two if op in OF_TWO_ARRAYS or op == "solve" else _lift
        made = _unary(op) if op in OF_ONE_ARRAY else _viewing(op) if op in VIEWING else lift(op, self)
        made = _sharing(made) if op in SHARING and op not in OF_ONE_ARRAY else made
        setattr(self, op, made)
        return made

    # The most used reductions and shapes, spelt out: packing keywords and unpacking them again is a third of what a call costs.
    def sum(self, x: Array, *, axis: Any, dtype: Any, keepdims: bool) -> Array:
        data = x._data
        return self.kind(interpreters[type(data)].sum(data, axis=axis, dtype=dtype, keepdims=keepdims))

    def mean(self, x: Array, *, axis: Any, keepdims: bool) -> Array:
        data = x._data
        made = interpreters[type(data)].mean(data, axis=axis, keepdims=keepdims)
        return marked((x,), self.kind(made)) if made is data else self.kind(made)

    def reshape(self, x: Array, *, shape: tuple[int, ...], copy: bool | None) -> Array:
        data = x._data
        interpreter = interpreters[type(data)]
        made = interpreter.reshape(data, shape=shape, copy=copy)
        if copy:
            return self.kind(made)
        if type(data) is np.ndarray:  # it names the owner of its memory
            shared = made.base is data or (made.base is data.base is not None)
        else:
            shared = interpreter.follows is None or interpreter.follows(data, made, "reshape", None)
        if not isinstance(x, View):
            return self.view_kind(x, (None, "reshape", shape), made, data if shared else None)
        seen = x._seen
        if seen is not None and interpreter.changes_in_place and interpreter.lies_in_order(seen):  # the framework tells
            if not shared:
                return self.kind(made)
        elif not views.reshapes(x._base.shape, x._steps, interpreter.shape_of(made)):
            return marked((x,), self.kind(made))
        return self.view_kind(x._base, (x._chain, "reshape", shape), made, seen if shared else None)

    def unstack(self, x: Array, *, axis: int) -> tuple[Array, ...]:
        data, rank = x._data, x.ndim
        parts = interpreters[type(data)].unstack(data, axis=axis)
        if rank == 1:
            return marked((x,), wrap(parts, self.kind))
        return tuple(x._view(views.key_along(rank, axis, i), part) for i, part in enumerate(parts))

    def split(self, x: Array, *, indices: tuple[int, ...], axis: int) -> tuple[Array, ...]:
        data, rank = x._data, x.ndim
        parts = interpreters[type(data)].split(data, indices=indices, axis=axis)
        keys = [views.key_along(rank, axis, slice(*bounds)) for bounds in zip((0, *indices), (*indices, None))]
        return tuple(x._view(key, part) for key, part in zip(keys, parts))

    shape_of = staticmethod(lambda x: x.shape)
    rank_of = staticmethod(lambda x: x.ndim)
    dtype_of = staticmethod(lambda x: x.dtype)
    device_of = staticmethod(lambda x: x.device)

    def constant(self, value: np.ndarray[Any, Any], *, like: Array) -> Array:
        return self.kind(interpreters[type(like._data)].constant(value, like=like._data))


def _assigned(kind: Any, data: Any, spec: tuple[Any, ...], indices: tuple[Any, ...], value: Any) -> Any:
    """A native array with `value` at a key: changed where the framework can, else a new one."""
    new = unwrap(value)
    if indices or (type(new) is not type(data) and type(new) is not float and type(new) is not int):
        return unwrap(call("setitem", kind(data), value, *indices, key=spec))
    try:
        return interpreters[type(data)].setitem(data, new, key=spec)
    except Exception as error:
        diagnose("setitem", (data, new), {"key": spec}, error)
        raise


def unwrap(x: Any) -> Any:
    """The native array of a `tl.Array`; anything else as it is."""
    return x._data if isinstance(x, Array) else x


def _viewing(op: str) -> Callable[..., Any]:
    def run(x: Array, **params: Any) -> View:
        data = x._data
        interpreter = interpreters[type(data)]
        part = getattr(interpreter, op)(data, **params)
        base, before, seen = (x._base, x._chain, x._seen) if isinstance(x, View) else (x, None, data)
        if type(data) is not np.ndarray and interpreter.follows is not None and not interpreter.follows(data, part, op, params):
            seen = None  # on NumPy all of these lie in the memory of `x`
        made = _new(x._view_kind)
        made._base, made._chain, made._part, made._seen = base, (before, op, params), part, seen
        return made

    return run


def _lift_two(op: str, own: ArrayInterpreter) -> Callable[..., Any]:
    kind, find = own.kind, own.find_all  # torch.compile reads a class in a closure, but does not call it

    def run(x1: Any, x2: Any) -> Any:
        a, b = (x1._data, x2._data) if type(x1) is kind is type(x2) else (unwrap(x1), unwrap(x2))
        made = _new(kind)
        made._data = getattr(interpreters[type(a)] if type(a) is type(b) else find(a, b), op)(a, b)
        return made

    return run


def _lift(op: str, own: ArrayInterpreter) -> Callable[..., Any]:
    find_all = own.find_all

    def run(*operands: Any, **params: Any) -> Any:
        if len(operands) == 1:
            data = operands[0]._data
            result = getattr(interpreters[type(data)], op)(data, **params)
        else:
            natives = [x._data if isinstance(x, Array) else x for x in operands]
            data = natives[0]
            alike = len(natives) == 2 and type(natives[1]) is type(data)
            result = getattr(interpreters[type(data)] if alike else find_all(*natives), op)(*natives, **params)
            for data in natives:
                if data is result:
                    break
        if data is result:
            return marked(operands, own.kind(result))
        return wrap(result, own.kind) if isinstance(result, tuple) else own.kind(result)

    return run


def wrap(result: tuple[Any, ...], kind: Any = Array) -> Any:
    """An Array of each member of a tuple of native results."""
    return tuple(map(kind, result)) if type(result) is tuple else type(result)(*map(kind, result))


_interpreter = ArrayInterpreter()
register(Array, _interpreter)
register(View, _interpreter)
