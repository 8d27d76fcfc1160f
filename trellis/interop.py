"""`tl.Array` in the hands of other libraries: torch's functions, NumPy's ufuncs, copy and pickle.

What comes out (each is tested):
- torch.f(Array) and tensor + Array give an Array; np.ufunc(Array) and ndarray + Array give an Array, on any backend;
- jnp.f(Array), tf.f(Array), jax.Array + Array and tf.Tensor + Array give the framework's own array, for JAX and TensorFlow ask
  only for the data;
- tensor[Array] gives an Array (torch warns of a sequence as index before it asks us), ndarray[Array] an ndarray; JAX and
  TensorFlow refuse an Array as index, so there write x[index.native];
- np.asarray(Array), and NumPy functions that are no ufuncs, give NumPy's (`__array_function__` is left out on purpose:
  NumPy's functions have other rules than the standard's, so we do not lend them our name).
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from trellis import tree
from trellis.array import Array
from trellis.dispatch import call, interpreters, load

# ---- torch ---------------------------------------------------------------------------------------------------------------------
# tensor + Array arrives as Tensor.add(tensor, Array), array + tensor never arrives: our own operator runs. Name -> op, swapped.
_OPERATORS: dict[str, tuple[str, bool]] = {
    "add": ("add", False), "sub": ("subtract", False), "mul": ("multiply", False), "div": ("divide", False),
    "__add__": ("add", False), "__sub__": ("subtract", False), "__mul__": ("multiply", False), "__truediv__": ("divide", False),
    "__floordiv__": ("floor_divide", False), "__mod__": ("remainder", False), "remainder": ("remainder", False),
    "__pow__": ("pow", False), "__matmul__": ("matmul", False), "__and__": ("bitwise_and", False),
    "__or__": ("bitwise_or", False), "__xor__": ("bitwise_xor", False), "__lshift__": ("bitwise_left_shift", False),
    "__rshift__": ("bitwise_right_shift", False), "__eq__": ("equal", False), "__ne__": ("not_equal", False),
    "__lt__": ("less", False), "__le__": ("less_equal", False), "__gt__": ("greater", False), "__ge__": ("greater_equal", False),
    "__rsub__": ("subtract", True), "__rtruediv__": ("divide", True), "__rfloordiv__": ("floor_divide", True),
    "__rmod__": ("remainder", True), "__rpow__": ("pow", True), "__rmatmul__": ("matmul", True),
}  # fmt: skip


def native_function(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Run a function of torch on Arrays: on their tensors, with the resulting tensors as Arrays.

    An operator of torch.Tensor with an Array on its right is our op, with our promotion. What the function changed in place
    comes back as the object it was.
    """
    torch: Any = sys.modules["torch"]
    name = getattr(function, "__name__", "")
    if name in _OPERATORS and len(args) == 2 and not kwargs and function is getattr(torch.Tensor, name, None):
        op, swapped = _OPERATORS[name]
        return call(op, *(reversed(args) if swapped else args))
    given: dict[int, Any] = {}

    def unwrap(x: Any) -> Any:
        if not isinstance(x, Array):
            given.setdefault(id(x), x)
            return x
        if not isinstance(x._data, torch.Tensor):
            raise TypeError(f'torch.{name}: the Array is on {x.backend}; bring it to torch first: tl.to_backend(x, "torch")')
        given[id(x._data)] = x
        return x._data

    def wrap(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        return given[id(x)] if id(x) in given else Array(x)

    natives, options = tree.map(unwrap, (tuple(args), dict(kwargs)))
    return tree.map(wrap, function(*natives, **options))


# ---- NumPy ---------------------------------------------------------------------------------------------------------------------
_RENAMED = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctan2": "atan2", "arctanh": "atanh", "conjugate": "conj", "invert": "bitwise_invert", "left_shift": "bitwise_left_shift",
    "power": "pow", "psi": "digamma", "right_shift": "bitwise_right_shift", "rint": "round", "true_divide": "divide",
}  # fmt: skip
_SAME_NAME = """add bitwise_and bitwise_or bitwise_xor ceil copysign cos cosh divide equal exp expm1 floor floor_divide greater
    greater_equal hypot isfinite isinf isnan less less_equal log log10 log1p log2 logaddexp logical_and logical_not logical_or
    logical_xor matmul maximum minimum multiply negative nextafter not_equal positive reciprocal remainder sign signbit sin sinh
    sqrt square subtract tan tanh trunc erf erfc erfinv expit gammaln i0 logit xlogy"""  # from erf on: scipy.special's
UFUNCS: dict[str, str] = {name: name for name in _SAME_NAME.split()} | _RENAMED


def array_ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Run a NumPy ufunc on Arrays: our op of the same meaning, on whichever backend the Arrays are."""
    name = ufunc.__name__
    if method != "__call__":
        raise TypeError(f"np.{name}.{method} does not work on a tl.Array; use a reduction of trellis, or np.asarray(x) first")
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
    return call(UFUNCS[name], *inputs)


# ---- copy and pickle -----------------------------------------------------------------------------------------------------------
def copied(leaf: Any) -> Any:
    """A copy of an array with data of its own; of anything else what copy.deepcopy makes."""
    if isinstance(leaf, Array):
        return Array(copied(leaf._data))
    if type(leaf) in interpreters and interpreters[type(leaf)].level == 0:
        return interpreters[type(leaf)].asarray(leaf, dtype=None, device=None, copy=True)
    return copy.deepcopy(leaf)


def reduce_array(x: Array) -> tuple[Any, ...]:
    """For pickle: the data as a NumPy array, and the backend's name. Not the device: what is loaded is on the default one."""
    return restore, (x.backend, np.asarray(interpreters[type(x._data)].to_numpy(x._data)))


def restore(backend: str, data: np.ndarray[Any, Any]) -> Array:
    """The Array that `reduce_array` took apart."""
    return Array(load(backend).from_numpy(data, dtype=None, device=None, copy=None))
