"""`Free`: a `tl.Array` that belongs to no framework yet, and its interpreter, below those of all arrays.

Creation and random functions make free arrays unless `backend=`, `device=` or `like=` says where. Among themselves they compute
where they lie, on the default backend, and stay free. Beside any other array they are what a Python number is: they go to its
framework and device, and the result is its: native if it is native, an `Array` if it is an `Array`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from trellis.core import dispatch, tree
from trellis.core.array import Array, ArrayInterpreter, View, binary, unwrap
from trellis.core.dispatch import FREE, LISTS, SCALARS, Bringing, TwoFrameworks, UnknownOperand, interpreters, load, register
from trellis.core.interop import native_function
from trellis.core.moving import Met, brought, is_tied, meet
from trellis.core.operators import install
from trellis.core.pytrees import Node, register as register_node


class Free(Array):
    """An Array that belongs to no framework yet."""

    __slots__ = ()

    def _own(self) -> None:
        super()._own()
        self._copies = {}

    def _rebind(self, new: Any) -> None:
        super()._rebind(new)
        self._copies = {}

    def _require(self, backend: str, like: Any = None) -> Any:
        return beside(self, anchor(load(backend)) if like is None else unwrap(like))

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> Any:
        frame: Any = sys._getframe(1)
        for _ in range(16):  # in tensor + x TensorFlow asks for `__radd__` if it cannot convert x: that is our op and promotes
            if frame is not None and frame.f_code.co_name == "binary_op_wrapper":
                raise TypeError("a free array beside a tensor")
            frame = frame and frame.f_back
        return super().__tf_tensor__(dtype, name)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        like = committed(tree.leaves((tuple(args), kwargs or {})))
        return native_function(Free if like is None else kind_of(like), function, args, kwargs or {}, like)


class FreeView(View, Free):
    """What a basic index selects from a free array."""

    __slots__ = ()

    def _write(self, spec: tuple[Any, ...], indices: tuple[Any, ...], value: Any) -> None:
        like = committed([value])
        if like is not None:  # as in a write to the free array itself, the result lies where the value does
            base: Any = self._base
            base._rebind(beside(base, unwrap(like)))
        super()._write(spec, indices, value)


Free._kind, Free._view_kind = Free, FreeView
View.__name__ = Free.__name__ = FreeView.__name__ = Array.__name__  # errors name the class that a user knows
install(Free, None, lambda op: binary(op, Free, FreeView, meet))


def anchor(backend: Any, device: Any = None) -> Any:
    """A native array of a backend, to bring others beside it."""
    return backend.full(shape=(), fill_value=0, dtype=backend.default_int(), device=device)


def beside(x: Free, like: Any) -> Any:
    """The native array of a free array, in the framework and on the device of the native array `like`."""
    if type(x) is FreeView:  # which does not learn of a write to its base
        return brought(x._data, like)
    if not hasattr(x, "_copies"):
        x._copies = {}
    return brought(x._data, like, x._copies)


def kind_of(like: Any) -> Any:
    """What wraps a native array so that it is like another: the class of an Array; for a native one nothing does."""
    return type(like)._kind if isinstance(like, Array) else as_it_is


def class_of(x: Any) -> Any:
    """Array or Free; None for a native array."""
    return type(x)._kind if isinstance(x, Array) else None


def as_it_is(x: Any) -> Any:
    return x


def committed(values: Sequence[Any]) -> Any:
    """The first value that belongs to a framework; None if there is none."""
    for x in values:
        try:
            found = interpreters[type(x)]
        except UnknownOperand:
            continue
        if 0 <= found.level < 4 and not dispatch.is_scalar(x):
            return x
    return None


def settled(values: Sequence[Any], like: Any = None) -> list[Any]:
    """The values, with free ones brought to the framework of `like`, else of the others, else of one of them."""
    values = list(values)
    free = [x._data for x in values if isinstance(x, Free)]
    if not free:
        return values
    if like is None and (like := committed(values)) is None:
        like = Free(next((x for x in free if is_tied(x)), free[0]))
    kind, native = kind_of(like), unwrap(like)
    try:
        return [kind(beside(x, native)) if isinstance(x, Free) else x for x in values]
    except Met as met:
        met.like = like  # as it was given: native, or an Array
        raise


def commit(nest: Any) -> Any:
    """The nest with its free arrays as Arrays of the framework where they lie."""
    if isinstance(nest, Array):
        return Array(nest._data) if isinstance(nest, Free) else nest
    return tree.map(commit, nest) if any(isinstance(x, Free) for x in tree.leaves(nest)) else nest


def with_data(run: Any, function: Any, args: Any, kwargs: Any) -> Any:
    """`run(function, args, kwargs)`; where NumPy arrays meet a framework, which holds the parameters, again with them free."""
    try:
        return run(function, args, kwargs)
    except TwoFrameworks:
        if not any(isinstance(x, np.ndarray) for x in tree.leaves((args, kwargs))):
            raise
    return run(function, *tree.map(lambda x: Free(x) if isinstance(x, np.ndarray) else x, (args, kwargs)))


class FreeInterpreter(ArrayInterpreter):
    """Any op on free arrays alone, with numbers: the result is free."""

    level = FREE
    name = "free"
    kind, view_kind = Free, FreeView
    find_all = staticmethod(meet)

    def to_device(self, x: Free, *, device: Any) -> Array:
        return Array(interpreters[type(x._data)].to_device(x._data, device=device))


def _beside(best: Any, operands: tuple[Any, ...]) -> Any:
    """The interpreter of operands among which are free arrays or lists. A Container asks again for each leaf."""
    if best.level == 4:
        return best
    for x in operands:
        if interpreters[type(x)].level == LISTS:
            return interpreters[type(x)]
    like = committed(operands)  # no NumPy scalar: that belongs to no framework, either
    return _interpreter if like is None else Bringing(best.level, lambda operands: settled(operands, like))


_interpreter = FreeInterpreter()
SCALARS.beside = _beside
ARRAYS = (Array, View, Free, FreeView)
register(Free, _interpreter)
register(FreeView, _interpreter)


def _rebuilt(name: str, children: Iterable[Any]) -> Array:
    made = object.__new__(Free if name == "Free" else Array)  # children may be anything, so nothing is looked at
    (made._data,) = children
    return made


for _kind in ARRAYS:
    register_node(_kind, Node(lambda x: (("native",), (x._data,), x._kind.__qualname__), _rebuilt, "GetAttrKey"))
