"""Bring data in, move it between frameworks, devices and dtypes, and take it out again."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trellis.core import dispatch, dtypes, tree
from trellis.core.array import Array, marked
from trellis.core.dispatch import BACKENDS, SCALARS, UnknownOperand, call, chosen_backend, interpreters, load, target
from trellis.core.dtypes import DType
from trellis.core.free import Free, kind_of
from trellis.core.leaves import unwrap
from trellis.core.moving import framework_of
from trellis.core.typing import AnyArray, DeviceLike, DTypeLike, Like
from trellis.ops.arguments import check_fits, optional_dtype

__all__ = [
    "array", "asarray", "astype", "backends", "from_dlpack", "is_array", "stop_gradient", "to_backend", "to_device", "to_native",
    "to_numpy",
]  # fmt: skip


_KINDS = {bool: "b", int: "i", float: "f", complex: "c"}


def placed(op: str, backend: str | None, device: DeviceLike, like: Any) -> tuple[Any, Any, Callable[[Any], Any], DType | None]:
    """Where a new array is made: the framework, the device, what wraps the result, and the dtype of `like`.

    Without `backend`, `device` and `like` it belongs to no framework yet.
    """
    if like is None:
        return target(backend), device, Free if backend is None and device is None else Array, None
    data = unwrap(like)
    found = _interpreter_of(data)
    if found is None:
        raise TypeError(f"{op}: like must be an array, got {type(like).__name__}")
    if backend is not None and backend != framework_of(data):
        raise ValueError(f"{op}: backend={backend!r}, but like is on {framework_of(data)}; leave one of them out")
    device = found.device_of(data) if device is None else device
    return load(framework_of(data)), device, kind_of(like), found.dtype_of(data)


def asarray(
    obj: Any, /, dtype: DTypeLike = None, *, device: DeviceLike = None, copy: bool | None = None, backend: str | None = None,
    like: Like = None,
) -> Array:  # fmt: skip
    """A `tl.Array` of a number, a nest of numbers, any framework's array, or an object with a buffer.

    Numbers and NumPy arrays go to the backend that `tl.using` or `tl.set_backend` chose; without a choice they are on NumPy. The
    arrays of other frameworks stay where they are, because a gradient does not follow them elsewhere. `backend` moves them all.
    Nothing is copied unless `backend`, the choice, `dtype`, `device` or `copy` ask for it.

    >>> import trellis as tl
    >>> tl.asarray([1, 2, 3], dtype="float32")
    Array([1., 2., 3.], dtype=float32, backend='numpy', device='cpu')
    """
    goal, device, kind, found = placed("asarray", backend, device, like)
    if like is not None:
        backend, dtype = goal.name, dtype or found
    elif kind is Free and not isinstance(obj, Free) and _interpreter_of(unwrap(obj)) is not None:
        kind = Free if isinstance(obj, np.generic) else Array  # the array of a framework stays one
    data = native_array(obj, optional_dtype(dtype), device, copy, backend)
    # Not a second Array on the data without a copy: where assignment rebinds, it would not see a change of the first.
    # With copy=True there is one even of a value being differentiated, whose data is its own copy because nothing changes it.
    if isinstance(obj, Array) and data is obj._data and not copy:
        return obj if kind is obj._kind else marked((obj,), kind(data))
    return kind(data)


array = asarray


def as_data(x: Any) -> Any:
    """Lists and NumPy arrays as free arrays: they hold no gradient, so as data they go where the other operands are."""
    return asarray(x) if type(x) in (list, tuple) else Free(x) if type(x) is np.ndarray else x


def as_arrays(data: Any) -> Any:
    """Lists of numbers and the DataFrames of pandas and polars as NumPy arrays, also in a tuple; anything else as it is."""
    if type(data) is tuple:
        return tuple([as_arrays(x) for x in data])
    first = data
    while type(first) is list and first:
        first = first[0]
    numbers = first is not data and isinstance(first, (int, float))
    table = hasattr(data, "__array__") and not is_array(data)
    return unwrap(asarray(data, backend="numpy")) if numbers or table else data


def native_array(obj: Any, dtype: dtypes.DType | None, device: Any, copy: bool | None, backend: str | None) -> AnyArray:
    """The native array that `asarray` wraps."""
    data = unwrap(obj)
    source = _interpreter_of(data)
    if source is None:
        return _from_python(data, dtype, device, copy, target(backend))
    if backend is None and isinstance(data, (np.ndarray, np.generic)):
        backend = chosen_backend()
    goal = source if backend is None else target(backend)
    if goal.name != source.name:  # a value on NumPy's tape has an interpreter of its own
        if copy is False:
            raise ValueError(f"asarray: copy=False, but {source.name} to {goal.name} may have to copy; use from_dlpack")
        return _bring(data, source, goal, dtype, device)
    return source.asarray(data, dtype=dtype, device=device, copy=copy)


def _interpreter_of(x: Any) -> Any:
    """The interpreter of a native array (or of a value traced over one); None for anything else."""
    try:
        found = interpreters[type(x)]
    except UnknownOperand:
        return None
    return None if found.level < 0 or found.level in (2, 4) else found


def _from_python(obj: Any, dtype: dtypes.DType | None, device: Any, copy: bool | None, goal: Any) -> AnyArray:
    if copy is False and not _has_buffer(obj):
        raise ValueError(f"asarray: copy=False, but a {type(obj).__name__} has to be copied into an array; use copy=None")
    if not isinstance(obj, (list, tuple, bool, int, float, complex)) and not _has_buffer(obj) and not hasattr(obj, "__array__"):
        raise TypeError(f"asarray: obj is a {type(obj).__name__}; expected a number, a nest of numbers, or an array")
    if dtype is None and type(obj) in _KINDS and (type(obj) is not int or abs(obj) < 2**31):
        dtype = dtypes.default_of(_KINDS[type(obj)], goal.default_int())
        return goal.full(shape=(), fill_value=obj, dtype=dtype, device=device)  # torch.compile cannot read a NumPy array
    weak = all(type(leaf) in (bool, int, float, complex) for leaf in _leaves(obj))  # the dtype is ours to choose
    if weak and dispatch.is_compiling():  # which cannot read a NumPy array
        kinds = [_KINDS[type(leaf)] for leaf in _leaves(obj)]
        dtype = dtype or dtypes.default_of(max(kinds, key="bifc".index) if kinds else "f", goal.default_int())
        return goal.from_numpy(obj, dtype=dtype, device=device, copy=None)
    if not weak:
        for leaf in _leaves(obj):
            if isinstance(leaf, np.ndarray):
                interpreters[type(leaf)]  # raises for a subclass that is another kind of array
        obj = tree.map(lambda leaf: to_numpy(leaf) if is_array(leaf) else leaf, obj)
    try:
        value = np.asarray(obj, dtype=None if dtype is None or (dtype.kind != "u" and weak) else dtype.name)
    except OverflowError as error:
        raise OverflowError(f"asarray: {error}; the dtype is {dtype or goal.default_int()}") from error
    except ValueError as error:
        raise ValueError(f"asarray: the nest of numbers has no rectangular shape; {error}") from error
    if value.dtype.kind == "O" and all(isinstance(leaf, int) for leaf in _leaves(obj)):
        raise OverflowError(f"asarray: {max(_leaves(obj), key=abs)} does not fit in any integer dtype; use a float")
    if value.dtype.kind in "OUSMm":
        raise TypeError(f"asarray: obj holds {value.dtype}, not numbers; expected bool, int, float or complex")
    if weak and dtype is None:
        dtype = dtypes.default_of(value.dtype.kind, goal.default_int())
    if weak and dtype is not None and dtype.kind in "iu" and value.dtype.kind in "iu" and value.size:
        check_fits("asarray", dtype, int(value.min()), int(value.max()))
    return goal.from_numpy(value, dtype=dtype, device=device, copy=copy)


def _has_buffer(obj: Any) -> bool:
    try:
        memoryview(obj)
    except TypeError:
        return False
    return True


def _leaves(obj: Any) -> Iterator[Any]:
    if isinstance(obj, (list, tuple)):
        for item in obj:
            yield from _leaves(item)
    else:
        yield obj


def _bring(x: AnyArray, source: Any, goal: Any, dtype: Any, device: Any) -> AnyArray:
    """Move a native array to another framework: by DLPack from an accelerator, else through host memory, shared if it can be."""
    if source.device_of(x) != "cpu":
        try:
            return goal.asarray(goal.from_dlpack(x, device=None, copy=None), dtype=dtype, device=device, copy=None)
        except (BufferError, TypeError, ValueError, RuntimeError):
            pass  # the goal's build has no such device: by host memory
    return goal.from_numpy(source.to_numpy(x), dtype=dtype, device=device, copy=None)


def from_dlpack(x: Any, /, *, device: DeviceLike = None, copy: bool | None = None, backend: str | None = None) -> Array:
    """A `tl.Array` of any object with `__dlpack__`, sharing its memory where possible.

    >>> import numpy as np, trellis as tl
    >>> tl.from_dlpack(np.arange(3.0)).dtype
    trellis.float64
    """
    if not hasattr(x, "__dlpack__"):
        raise TypeError(f"from_dlpack: x is a {type(x).__name__} without __dlpack__; use tl.asarray")
    data = unwrap(x)
    source = _interpreter_of(data)
    goal = source if source is not None and backend is None else target(backend)
    if goal is source:
        return Array(goal.asarray(data, dtype=None, device=device, copy=copy))
    # As an Array, whose __dlpack__ takes all of the standard's arguments; TensorFlow's own refuses dl_device and max_version.
    return Array(goal.from_dlpack(x if source is None else Array(data), device=device, copy=copy))


def astype(x: AnyArray, dtype: DTypeLike, /, *, copy: bool = True, device: DeviceLike = None) -> AnyArray:
    """The array in another dtype; `copy=False` returns `x` itself where nothing changes.

    A float outside the range of an integer dtype (NaN, -1.0 as uint8) becomes any integer: each framework has its own.

    >>> import trellis as tl
    >>> tl.astype(tl.asarray([1.7, -1.7]), tl.int32)
    Array([ 1, -1], dtype=int32, backend='numpy', device='cpu')
    """
    return call("astype", x, dtype=dtypes.as_dtype(dtype), copy=copy, device=device)


def stop_gradient(x: AnyArray, /, *, preserve_type: bool = True) -> AnyArray:
    """The array as a constant: no gradient flows through it.

    `preserve_type` keeps a torch Parameter or a tf.Variable one; without it they become plain arrays.

    >>> import trellis as tl
    >>> tl.grad(lambda x: x * tl.stop_gradient(x))(tl.asarray(3.0))
    Array(3., dtype=float32, backend='numpy', device='cpu')
    """
    return call("stop_gradient", x, preserve_type=preserve_type)


def to_device(x: AnyArray, device: DeviceLike, /) -> AnyArray:
    """The array on another device of its framework; `x` itself if it is there.

    >>> import trellis as tl
    >>> tl.to_device(tl.zeros(2), "cpu").device
    'cpu'
    """
    return call("to_device", x, device=device)


def to_backend(x: Any, backend: str, /) -> Any:
    """The array, or every array in a nest, on another framework: natives become natives, `tl.Array`s stay `tl.Array`s.

    >>> import trellis as tl
    >>> tl.to_backend({"w": tl.zeros(2)}, "numpy")["w"].backend
    'numpy'
    """
    goal = load(backend)

    def bring(leaf: Any) -> Any:
        source = _interpreter_of(unwrap(leaf))
        if source is None or (source is goal and not isinstance(leaf, Free)):
            return leaf
        if source is goal:
            return marked((leaf,), Array(leaf._data))
        moved = _bring(unwrap(leaf), source, goal, None, None)
        return Array(moved) if isinstance(leaf, Array) else moved

    return tree.map(bring, x)


def to_numpy(x: Any, /) -> Any:
    """The array, or every array in a nest, as `numpy.ndarray`; memory is shared where the framework allows it.

    >>> import trellis as tl
    >>> tl.to_numpy(tl.ones(2))
    array([1., 1.], dtype=float32)
    """

    def convert(leaf: Any) -> Any:
        source = _interpreter_of(unwrap(leaf))
        return leaf if source is None else source.to_numpy(unwrap(leaf))

    return tree.map(convert, x)


def to_native(x: Any, /) -> Any:
    """The framework's own array of a `tl.Array`, or of every `tl.Array` in a nest; other leaves stay.

    >>> import trellis as tl
    >>> tl.to_native(tl.ones(2))
    array([1., 1.], dtype=float32)
    """
    return tree.map(unwrap, x)


def is_array(x: Any, /) -> bool:
    """Whether `x` is a `tl.Array` or an array of one of the frameworks.

    >>> import numpy as np, trellis as tl
    >>> tl.is_array(np.zeros(2)), tl.is_array([0.0])
    (True, False)
    """
    return isinstance(x, Array) or _interpreter_of(x) is not None


@dataclass(frozen=True)
class BackendInfo:
    """A backend: its name, whether it is installed, and its version. Reading `devices` loads the framework."""

    name: str
    installed: bool
    version: str | None = field(default=None)

    @property
    def devices(self) -> list[str]:
        return load(self.name).devices() if self.installed else []


def backends() -> list[BackendInfo]:
    """The backends of Trellis, and which of them are installed. The call imports no framework.

    >>> import trellis as tl
    >>> [b.name for b in tl.backends()]
    ['numpy', 'jax', 'torch', 'tensorflow']
    """
    return [_backend_info(name) for name in BACKENDS]


def _backend_info(name: str) -> BackendInfo:
    from importlib import metadata  # here, because it takes longer to import than all of trellis

    module = BACKENDS[name][0]
    if importlib.util.find_spec(module) is None:
        return BackendInfo(name, False)
    for distribution in (module, f"{module}-cpu"):
        try:
            return BackendInfo(name, True, metadata.version(distribution))
        except metadata.PackageNotFoundError:
            continue
    return BackendInfo(name, True, dispatch.load(name).version())


def _of_numbers(x: Any) -> Any:
    """A list of numbers as a free array. A list of arrays is refused, because a gradient would not follow them."""
    for leaf in _leaves(x) if isinstance(x, (list, tuple)) else ():
        if not isinstance(leaf, (bool, int, float, complex, np.generic)):
            held = "Array" if isinstance(leaf, Array) else type(leaf).__name__
            raise UnknownOperand(
                f"expected an array or a list of numbers, got a list that holds {held}; join arrays with tl.stack or tl.concat"
            )
    return asarray(x) if isinstance(x, (list, tuple)) else x


class Lists(dispatch.Scalars):
    """The interpreter of lists and tuples of numbers: they become free arrays, and the op runs on these."""

    level, name, as_array = dispatch.LISTS, "list", staticmethod(_of_numbers)


SCALARS.as_array = asarray
interpreters[list] = interpreters[tuple] = Lists()
