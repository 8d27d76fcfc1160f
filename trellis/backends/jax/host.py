"""NumPy values as JAX arrays, and NumPy's work on small JAX arrays.

XLA compiles for each new shape, which takes 20 to 30 ms. NumPy slices or reshapes at once: 15 microseconds with the way there and
back; a compiled call takes 8, jnp's own function 40 and more. The way back is the function under `jax.device_put`, which itself
takes 100. So NumPy makes new arrays, and it moves the elements of arrays that are small, ready and on the CPU. No call waits for
an array.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

# Private functions under JAX's public ones. Where a version of JAX lacks them, its public functions do all of this.
_PRIVATE = ("array.ArrayImpl", "core.ShapedArray", "core.trace_state_clean", "lib.xla_client.batched_device_put")
try:
    import jax._src

    _found: Any = [attrgetter(name)(jax._src) for name in _PRIVATE]
except (ImportError, AttributeError):
    _found = [None] * len(_PRIVATE)
ArrayImpl, ShapedArray, trace_state_clean, batched_device_put = _found

SMALL = 4096  # elements: NumPy copies as many in the time that a call takes
_ATTEMPTS = 50  # how often `is_ready` asks before it gives up: 15 microseconds


@functools.lru_cache
def _cpu(sharding: Any) -> Any:
    """The CPU that holds arrays of this sharding whole, if there is one."""
    devices = sharding.device_set
    return next(iter(devices)) if len(devices) == 1 and next(iter(devices)).platform == "cpu" else None


def is_on_cpu(x: Any) -> bool:
    """Whether NumPy can read the values where they are."""
    return not isinstance(x, jax.core.Tracer) and _cpu(x.sharding) is not None


def is_ready_on_cpu(x: Any) -> bool:
    """Whether NumPy can read the values now, or after the microseconds that a call takes.

    The answer is no while JAX traces a function, where every operation gives a tracer, even one without traced operands. It is no
    for a weakly typed array too, because its result must stay weakly typed.
    """
    if type(x) is not ArrayImpl or x.weak_type or _cpu(x.sharding) is None or not trace_state_clean():
        return False
    return x.is_ready() or any(x.is_ready() for _ in range(_ATTEMPTS))


def are_small_and_ready(x: Any, *others: Any) -> bool:
    """Whether NumPy can move the elements of the arrays at once: they are small, ready, and on one CPU."""
    if not is_ready_on_cpu(x) or math.prod(x.shape) > SMALL:
        return False
    return not others or (all(map(are_small_and_ready, others)) and len({_cpu(y.sharding) for y in (x, *others)}) == 1)


def from_host(value: np.ndarray[Any, Any], place: Any = None) -> Any:
    """A JAX array with a copy of NumPy values: on the device `place`, or uncommitted on the default one."""
    if batched_device_put is None or not (place is None or isinstance(place, jax.Device)) or not trace_state_clean():
        return jax.device_put(value if 0 in value.strides else value.copy(), place)  # jit keeps a number for a broadcast one
    device = default_device(jax.config.jax_default_device) if place is None else place
    return _put(value, _sharding(device), device, place is not None)


def beside(x: Any, value: np.ndarray[Any, Any]) -> Any:
    """A JAX array with a copy of NumPy values on the device of `x`, which is a CPU."""
    if batched_device_put is None:
        return jax.device_put(value.copy(), x.sharding if x.committed else None)
    sharding = x.sharding
    return _put(value, sharding, _cpu(sharding), x.committed)


def _put(value: np.ndarray[Any, Any], sharding: Any, device: Any, committed: bool) -> Any:
    try:
        return batched_device_put(_aval(value.shape, value.dtype), sharding, [value], [device], committed, True)
    except jax.errors.JaxRuntimeError:  # jax.transfer_guard; it lets jax.device_put pass
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


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as one call into XLA; inside another jit its operations appear as if written there.

    Its keyword-only parameters are fixed when it is compiled, so its dtype checks run then, and cost nothing afterwards.
    """
    static = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    return jax.jit(function, static_argnames=static, inline=True)


def moving(function: Callable[..., Any]) -> Callable[..., Any]:
    """An op from `function(numpy_or_jnp, x, *, ...)`, which only moves elements: by NumPy for a small array, else by XLA."""
    by_xla = compiled(functools.partial(function, jnp))

    @functools.wraps(by_xla)
    def run(x: Any, **params: Any) -> Any:
        if are_small_and_ready(x):
            found = function(np, np.asarray(x), **params)
            if type(found) is tuple:
                return tuple([beside(x, y) for y in found])
            if found.size <= SMALL:  # a broadcast array may be larger
                return beside(x, found)
        return by_xla(x, **params)

    run.__module__ = function.__module__
    return run


def joining(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for `function(numpy_or_jnp, arrays, *, ...)`."""
    by_xla = compiled(functools.partial(function, jnp))

    def run(arrays: Any, **params: Any) -> Any:
        if are_small_and_ready(*arrays) and len({x.committed for x in arrays}) == 1:
            return beside(arrays[0], function(np, list(map(np.asarray, arrays)), **params))
        return by_xla(arrays, **params)

    return run


@compiled
def _convert(x: Any, *, dtype: Any) -> Any:
    """XLA drops the imaginary part before it asks whether a number is 0."""
    return x != 0 if dtype == np.bool_ and x.dtype.kind == "c" else lax.convert_element_type(x, dtype)


def cast(x: Any, dtype: Any) -> Any:
    """`x` in a native dtype, strongly typed."""
    if x.dtype is dtype and not x.weak_type:
        return x
    if _casts_alike(x.dtype, dtype) and are_small_and_ready(x):
        return beside(x, np.asarray(x).astype(dtype))
    return _convert(x, dtype=dtype)


@functools.lru_cache(4096)
def _casts_alike(source: Any, target: Any) -> bool:
    """Whether NumPy's cast gives what XLA's does: it goes to a wider dtype, or from integers to floats that hold them all."""
    return np.can_cast(source, target, "safe") or (source.kind in "biu" and target.kind in "fc" and target.itemsize > 2)
