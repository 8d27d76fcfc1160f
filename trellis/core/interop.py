"""`tl.Array` and `tl.Container` in the hands of other libraries: torch's functions, NumPy's ufuncs, copy, pickle, DLPack.

What comes out (each is tested):
- torch.f(Array) and tensor + Array give an Array; np.ufunc(Array) and ndarray + Array give an Array, on any backend;
- jnp.f(Array), tf.f(Array), jax.Array + Array and tf.Tensor + Array give the framework's own array, for JAX and TensorFlow ask
  only for the data;
- tensor[Array] gives an Array (torch warns of a sequence as index before it asks us), ndarray[Array] an ndarray; JAX and
  TensorFlow refuse an Array as index, so there write x[index.native];
- np.add.reduce, accumulate, outer and at work where we have the op; `out=Array` of a ufunc is written to;
- np.sum(Array), np.concatenate and NumPy's other functions with an op here give an Array on its backend; those without one, or
  with arguments that the op does not take, give NumPy's own result for np.asarray(Array). `out=Array` is written to; functions
  that change another argument, such as np.copyto, raise.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from trellis.core import tree
from trellis.core.dispatch import UnknownOperand, call, interpreters, load
from trellis.core.dtypes import DType, as_dtype
from trellis.core.indexing import HOST_DATA, beside, canonical_key
from trellis.core.late import when_imported
from trellis.core.table import COMPARISONS, TABLE, UFUNCS, operators

# tensor + Array arrives as Tensor.add(tensor, Array), Tensor.__add__ or Tensor.__radd__; array + tensor never: our operator runs.
# Name of the method -> op, and whether its operands are swapped.
_TORCH_NAMES = {"div": "divide", "remainder": "remainder"}  # others have the names of Python's operators
_TORCH_OPERATORS: dict[str, tuple[str, bool]] = {
    **{name: (op, False) for name, op in (*operators(2), *_TORCH_NAMES.items())},
    **{f"__{name}__": (op, False) for name, op in operators(2)},
    **{f"__r{name}__": (op, True) for name, op in operators(2) if name not in COMPARISONS},
}


NUMPY_FUNCTIONS: dict[Any, Callable[..., Any]] = {}  # function of NumPy -> its row, made of our ops; NumPy's backend fills it


class Interoperable:
    """The protocols of other libraries for an object that holds one native array in `_data`."""

    __slots__ = ("_data", "__weakref__")
    __array_priority__ = 1.0  # dask asks for it; NumPy asks for `__array_ufunc__`
    _kind: ClassVar[Any]  # the class of what an index array, a copy and an operator make of it; of a view that of its array

    def __init__(self, data: Any) -> None:
        self._data = data

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        data = interpreters[type(self._data)].to_numpy(self._data)
        if copy is None and not data.flags.writeable and data is not self._data:
            copy = True  # JAX lends its memory for reading only; libraries such as SciPy pass it on to code that may write
        return np.array(data, dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return array_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return numpy_function(function, args, kwargs)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return native_function(cls._kind, function, args, kwargs or {})

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle: the data as a NumPy array, and the backend's name. Not the device: a loaded array is on the default one."""
        interpreter = interpreters[type(self._data)]
        return restore, (self._kind, interpreter.name, np.asarray(interpreter.to_numpy(self._data)))

    def __copy__(self) -> Any:
        return self._kind(copied(self._data))

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__copy__()

    def __jax_array__(self) -> Any:
        return self._require("jax")

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> Any:
        data = self._require("tensorflow")
        return interpreters[type(data)].as_tf_tensor(data, dtype, name)

    def _require(self, backend: str, like: Any = None) -> Any:
        """The native array, which must be of `backend`. A free array goes there, to the device of `like`."""
        own = interpreters[type(self._data)].name
        if own != backend:
            raise TypeError(f'the Array is on {own}; bring it to {backend} first: tl.to_backend(x, "{backend}")')
        return self._data

    def __dlpack__(
        self, *, stream: Any = None, max_version: tuple[int, int] | None = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        return interpreters[type(self._data)].dlpack(
            self._data, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self) -> tuple[Any, int]:
        return interpreters[type(self._data)].dlpack_device(self._data)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """One column of the elements, for polars: it makes the column itself."""
        if "polars" not in sys.modules:
            raise TypeError("a tl.Array is an Arrow stream for polars only; elsewhere pass np.asarray(x)")
        return sys.modules["polars"].Series(np.asarray(self)).__arrow_c_stream__(requested_schema)


# ---- torch ---------------------------------------------------------------------------------------------------------------------
def native_function(
    wrapper: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], like: Any = None
) -> Any:
    """Run a function of torch on Arrays: on their tensors, with the resulting tensors as Arrays. Free ones go beside `like`.

    An operator of torch.Tensor with an Array on its right is our op, with our promotion. An Array that the function changes in
    place comes back as the object it was.
    """
    torch: Any = sys.modules["torch"]
    name = getattr(function, "__name__", "")
    if name in _TORCH_OPERATORS and len(args) == 2 and not kwargs and function is getattr(torch.Tensor, name, None):
        op, swapped = _TORCH_OPERATORS[name]
        return call(op, *(reversed(args) if swapped else args))
    given: dict[int, Any] = {}

    def unwrap(x: Any) -> Any:
        if not isinstance(x, Interoperable):
            given.setdefault(id(x), x)
            return x
        try:
            data = x._require("torch", like)
        except TypeError as error:
            raise TypeError(f"torch.{name}: {error}") from None
        given[id(data)] = x
        return data

    def wrap(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        return given[id(x)] if id(x) in given else wrapper(x)

    natives, options = tree.map(unwrap, (tuple(args), dict(kwargs)))
    return tree.map(wrap, function(*natives, **options))


def _collate(batch: list[Any], *, collate_fn_map: Any = None) -> Any:
    return call("stack", *batch, axis=0)


# torch.utils.data.default_collate makes tensors of what it knows. A batch of Arrays stays an Array, on its own backend.
when_imported("torch.utils.data._utils.collate", lambda module: module.default_collate_fn_map.setdefault(Interoperable, _collate))


def _promote_for_xarray(module: Any) -> None:
    """xarray knows the missing value of NumPy's dtypes alone, which `shift` and `where` ask for. NumPy's stands for ours."""
    of_numpy = module.maybe_promote

    def maybe_promote(dtype: Any) -> Any:
        if not isinstance(dtype, DType):
            return of_numpy(dtype)
        promoted, missing = of_numpy(np.dtype(dtype))  # type: ignore[call-overload]
        return as_dtype(promoted), missing

    module.maybe_promote = maybe_promote


when_imported("xarray.core.dtypes", _promote_for_xarray)


# ---- NumPy ---------------------------------------------------------------------------------------------------------------------
def array_ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Run a NumPy ufunc on Arrays: our op of the same meaning, on whichever backend the Arrays are."""
    name = ufunc.__name__
    out = kwargs.get("out", (None,))
    if len(out) == 1 and isinstance(out[0], Interoperable):
        out[0][...] = array_ufunc(ufunc, method, inputs, {k: v for k, v in kwargs.items() if k != "out"})  # type: ignore[index]
        return out[0]
    if method != "__call__":
        return _ufunc_method(name, method, inputs, kwargs)
    if "out" in kwargs:
        raise TypeError(
            f"np.{name}: out= and in-place operators such as x += y with a NumPy x do not work with a tl.Array; write x = x + y"
        )
    if kwargs:
        raise TypeError(
            f"np.{name}: {', '.join(kwargs)} does not work with a tl.Array; use tl.{UFUNCS.get(name, name)} and tl.astype"
        )
    if name not in UFUNCS:
        raise TypeError(f"np.{name} has no op in trellis; convert first: np.{name}(np.asarray(x))")
    op = UFUNCS[name]
    if TABLE[op].operator in COMPARISONS:  # NumPy makes a 0-d array of a scalar that is compared, as it does of no other operand
        inputs = tuple(x[()] if type(x) is np.ndarray and not x.ndim else x for x in inputs)
    return call(op, *inputs)


# Method of ufuncs -> ufunc -> the function of NumPy that does the same.
UFUNC_METHODS: dict[str, dict[str, Any]] = {
    "accumulate": {"add": np.cumsum, "multiply": np.cumprod},
    "reduce": {
        "add": np.sum, "logical_and": np.all, "logical_or": np.any, "maximum": np.max, "minimum": np.min, "multiply": np.prod,
    },
}  # fmt: skip
_UPDATES = {"add": "add", "multiply": "multiply", "maximum": "max", "minimum": "min"}


def _ufunc_method(name: str, method: str, inputs: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """np.add.reduce, accumulate, outer and at, where we have the op."""
    x, is_function = inputs[0], method in UFUNC_METHODS
    table: dict[str, Any] = UFUNC_METHODS[method] if is_function else {"at": _UPDATES, "outer": UFUNCS}.get(method, {})
    allowed = {"axis", "dtype", "keepdims"} if is_function else set()
    if name not in table or not kwargs.keys() <= allowed or not isinstance(x, Interoperable):
        raise TypeError(
            f"np.{name}.{method}({', '.join(kwargs)}) does not work on a tl.Array; use trellis, or np.asarray(x) first"
        )
    if is_function:
        return numpy_function(table[name], (x,), {"axis": 0, **kwargs})
    if method == "outer":
        shape = (*x.shape, *(1,) * np.ndim(inputs[1]))  # type: ignore[attr-defined]
        return call(table[name], call("reshape", x, shape=shape, copy=None), inputs[1])
    spec, indices = canonical_key(x, inputs[1])
    value = beside(x, inputs[2]) if type(inputs[2]) in HOST_DATA else inputs[2]
    x[...] = call("index_update", x, value, *indices, key=spec, mode=table[name])  # type: ignore[index]
    return None


def numpy_function(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Run a function of NumPy on Arrays: our op of the same meaning on their backend, else NumPy's own on host copies."""
    load("numpy")  # which fills the table
    out = kwargs.get("out")
    if isinstance(out, Interoperable):
        out[...] = numpy_function(function, args, {name: value for name, value in kwargs.items() if name != "out"})  # type: ignore[index]
        return out
    row = NUMPY_FUNCTIONS.get(function)
    if row is not None and out is None:
        try:
            return row(*args, **kwargs)
        except (TypeError, ValueError):
            pass  # an argument that the op does not take, or arrays of two frameworks: NumPy takes both, or names the mistake

    def host(x: Any) -> Any:
        if not isinstance(x, Interoperable):
            return x
        view = np.asarray(x).view()
        view.flags.writeable = False  # a write of np.copyto or np.put to a copy would be lost
        return view

    return function(*tree.map(host, tuple(args)), **tree.map(host, dict(kwargs)))


# ---- copy and pickle -----------------------------------------------------------------------------------------------------------
def copied(leaf: Any) -> Any:
    """A copy of an array with data of its own; of anything else what copy.deepcopy makes."""
    try:
        interpreter = interpreters[type(leaf)]
    except UnknownOperand:
        return copy.deepcopy(leaf)
    if interpreter.level in (0, 1):
        return interpreter.asarray(leaf, dtype=None, device=None, copy=True)
    return copy.deepcopy(leaf)


def restore(wrapper: type, backend: str, data: np.ndarray[Any, Any]) -> Any:
    """The Array that `__reduce__` took apart."""
    return wrapper(load(backend).from_numpy(data, dtype=None, device=None, copy=None))
