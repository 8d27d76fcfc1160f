"""NumPy values as JAX arrays, and small arrays that NumPy moves.

XLA compiles for each new shape, which takes 20 to 30 ms. What only moves elements (a slice, a reshape) NumPy does at once: with
the way there and back in 15 microseconds; a compiled call takes 8, jnp's own function 40 and more. The way back is the function
under `jax.device_put`, which itself takes 100. So this is how arrays are made, and how those move that are small, lie on the CPU
and are ready: nothing waits for them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

# Not public, but what JAX's own functions stand on; a JAX without them does all of this its way.
_PRIVATE = ("array.ArrayImpl", "core.ShapedArray", "core.trace_state_clean", "lib.xla_client.batched_device_put")
try:
    import jax._src

    _found: Any = [attrgetter(name)(jax._src) for name in _PRIVATE]
except (ImportError, AttributeError):
    _found = [None] * len(_PRIVATE)
ArrayImpl, ShapedArray, trace_state_clean, batched_device_put = _found

SMALL = 4096  # elements: what NumPy copies in the time that a call takes
_PATIENCE = 50  # how often to ask before giving up: 15 microseconds


@functools.lru_cache
def _cpu(sharding: Any) -> Any:
    """The CPU that holds arrays of this sharding, if it is one and has them all."""
    devices = sharding.device_set
    return next(iter(devices)) if len(devices) == 1 and next(iter(devices)).platform == "cpu" else None


def on_host(x: Any) -> bool:
    """Whether NumPy can look at the values where they are."""
    return not isinstance(x, jax.core.Tracer) and _cpu(x.sharding) is not None


def is_ready(x: Any) -> bool:
    """Whether NumPy can look at the values without waiting for them, but for what XLA does in the time of a call.

    Not while JAX traces a function: there what comes out of an operation is a tracer, also when its operands are not. And no
    weakly typed array, which must stay one.
    """
    if type(x) is not ArrayImpl or x.weak_type or _cpu(x.sharding) is None or not trace_state_clean():
        return False
    return x.is_ready() or any(x.is_ready() for _ in range(_PATIENCE))


def in_hand(x: Any, *others: Any) -> bool:
    """Whether NumPy can move the elements of the arrays at once: small ones, all on one device."""
    if not is_ready(x) or math.prod(x.shape) > SMALL:
        return False
    return not others or (all(map(in_hand, others)) and len({_cpu(y.sharding) for y in (x, *others)}) == 1)


def from_host(value: np.ndarray[Any, Any], place: Any = None) -> Any:
    """A JAX array with a copy of NumPy values: on the device `place`, or uncommitted on the default one."""
    if batched_device_put is None or not (place is None or isinstance(place, jax.Device)) or not trace_state_clean():
        return jax.device_put(value if 0 in value.strides else value.copy(), place)  # jit keeps a number for a broadcast one
    device = default_device(jax.config.jax_default_device) if place is None else place
    return _put(value, _sharding(device), device, place is not None)


def beside(x: Any, value: np.ndarray[Any, Any]) -> Any:
    """A JAX array with a copy of NumPy values where `x` is: an array that is on the host."""
    if batched_device_put is None:
        return jax.device_put(value.copy(), x.sharding if x.committed else None)
    sharding = x.sharding
    return _put(value, sharding, _cpu(sharding), x.committed)


def _put(value: np.ndarray[Any, Any], sharding: Any, device: Any, committed: bool) -> Any:
    try:
        return batched_device_put(_aval(value.shape, value.dtype), sharding, [value], [device], committed, True)
    except jax.errors.JaxRuntimeError:  # jax.transfer_guard, which lets pass what is put by its own function
        return jax.device_put(value.copy(), sharding if committed else None)


@functools.lru_cache
def default_device(chosen: Any) -> Any:
    """The device of new arrays, by `jax.config.jax_default_device`."""
    if chosen is None:
        return jax.local_devices()[0]
    return jax.local_devices(backend=chosen)[0] if isinstance(chosen, str) else chosen


@functools.lru_cache
def _sharding(device: Any) -> Any:
    return jax.sharding.SingleDeviceSharding(device)


@functools.lru_cache(4096)
def _aval(shape: tuple[int, ...], dtype: Any) -> Any:
    return ShapedArray(shape, dtype)


def compiled(function: Callable[..., Any], *static: str) -> Callable[..., Any]:
    """`function` as one call into XLA; inside another jit its operations appear as if written there."""
    return jax.jit(function, static_argnames=static, inline=True)


def moving(function: Callable[..., Any], *static: str) -> Callable[..., Any]:
    """`function(numpy_or_jnp, x, ...)`, which only moves elements: by NumPy for an array in hand, else compiled by XLA."""
    by_xla = compiled(functools.partial(function, jnp), *static)

    def run(x: Any, **params: Any) -> Any:
        if in_hand(x):
            found = function(np, np.asarray(x), **params)
            if type(found) is tuple:
                return tuple([beside(x, y) for y in found])
            if found.size <= SMALL:  # what is broadcast may be more
                return beside(x, found)
        return by_xla(x, **params)

    return run


def joining(function: Callable[..., Any], *static: str) -> Callable[..., Any]:
    """The same for `function(numpy_or_jnp, arrays, ...)`."""
    by_xla = compiled(functools.partial(function, jnp), *static)

    def run(arrays: Any, **params: Any) -> Any:
        if in_hand(*arrays) and len({x.committed for x in arrays}) == 1:
            return beside(arrays[0], function(np, list(map(np.asarray, arrays)), **params))
        return by_xla(arrays, **params)

    return run


_convert = compiled(lambda x, dtype: lax.convert_element_type(x, dtype), "dtype")


def cast(x: Any, dtype: Any) -> Any:
    """`x` in a native dtype, strongly typed."""
    if x.dtype is dtype and not x.weak_type:
        return x
    if _casts_alike(x.dtype, dtype) and in_hand(x):
        return beside(x, np.asarray(x).astype(dtype))
    return _convert(x, dtype=dtype)


@functools.lru_cache(4096)
def _casts_alike(source: Any, target: Any) -> bool:
    """Whether NumPy's cast is XLA's: to a wider dtype, or from integers to floats that hold them all."""
    return np.can_cast(source, target, "safe") or (source.kind in "biu" and target.kind in "fc" and target.itemsize > 2)
