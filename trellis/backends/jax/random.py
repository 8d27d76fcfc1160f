"""Random numbers: JAX's own Threefry with a layout that no setting changes, and jax.random for draws without a seed."""

from __future__ import annotations

import itertools
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.random import threefry2x32_p

from trellis.backends.jax import host
from trellis.backends.jax.meta import native_dtype, placement
from trellis.core import dtypes, errors
from trellis.core.dispatch import load
from trellis.core.dtypes import DType
from trellis.random.keys import DRAW, threefry as python_threefry
from trellis.random.state import current_state

__all__ = ["Generator", "check_draw", "draws_in_graph", "draws_on_host", "random_unit", "random_words", "threefry"]

_U32 = np.dtype("uint32")


def _words(key: Any) -> tuple[Any, Any]:
    if type(key) is tuple:
        return np.uint32(key[0]), np.uint32(key[1])
    return key[0], key[1]


def _mix(first: Any, second: Any, high: Any, low: Any) -> tuple[Any, Any]:
    shape = jnp.broadcast_shapes(jnp.shape(first), jnp.shape(high), jnp.shape(low))
    operands = (jnp.broadcast_to(jnp.asarray(x, _U32), shape) for x in (first, second, high, low))
    return threefry2x32_p.bind(*operands)


@jax.jit
def _hash(first: Any, second: Any, high: Any, low: Any) -> Any:
    return jnp.stack(_mix(first, second, high, low), axis=-1)


def threefry(key: Any, high: Any, low: Any) -> Any:
    return _hash(*_words(key), *(np.uint32(x) if isinstance(x, int) else lax.convert_element_type(x, _U32) for x in (high, low)))


def _counted(first: Any, second: Any, high: Any, low: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Both words of each element's block; the counter starts at (high, low)."""
    size = int(np.prod(shape, dtype=np.int64))
    if size > 2**32:
        raise ValueError(f"shape={shape}: at most 2**32 numbers can be drawn from one key on JAX; split the key")
    position = lax.iota(_U32, size) + low
    return tuple(x.reshape(shape) for x in _mix(first, second, high + (position < low).astype(_U32), position))


def _bits(first: Any, second: Any, high: Any, low: Any, *, shape: tuple[int, ...]) -> Any:
    x, y = _counted(first, second, high, low, shape)
    return x ^ y


def _unit(first: Any, second: Any, high: Any, low: Any, *, shape: tuple[int, ...], dtype: DType) -> Any:
    x, y = _counted(first, second, high, low, shape)
    if dtype is dtypes.float32:
        return lax.bitcast_convert_type(((x ^ y) >> np.uint32(9)) | np.uint32(0x3F800000), jnp.float32) - np.float32(1)
    if dtype is dtypes.float64:
        bits = (x.astype(jnp.uint64) << np.uint64(20)) | (y >> np.uint32(12)).astype(jnp.uint64)
        return lax.bitcast_convert_type(bits | np.uint64(0x3FF0000000000000), jnp.float64) - 1.0
    # the grids of halves, exact in float32: 10 and 7 bits
    low_bits, drop, step = (0xFFFF, 6, 2.0**-10) if dtype is dtypes.float16 else (0xFF, 1, 2.0**-7)
    whole = ((x ^ y) & np.uint32(low_bits)) >> np.uint32(drop)
    return (whole.astype(jnp.float32) * np.float32(step)).astype(native_dtype(dtype))


_jit_bits = jax.jit(_bits, static_argnames=("shape",))
_jit_unit = jax.jit(_unit, static_argnames=("shape", "dtype"))


def _start(offset: int) -> tuple[Any, Any]:
    return np.uint32(offset >> 32), np.uint32(offset & 0xFFFFFFFF)


def _placed(x: Any, device: Any) -> Any:
    place = placement(device)
    return x if place is None else jax.device_put(x, place)


def draws_on_host(device: Any) -> bool:
    """On a CPU, outside of traces: NumPy is three times as fast as XLA there."""
    if host.trace_state_clean is None or not host.trace_state_clean():
        return False
    place = placement(device)
    return getattr(host.default_device(jax.config.jax_default_device) if place is None else place, "platform", None) == "cpu"


def random_words(key: Any, *, shape: tuple[int, ...], offset: int, device: Any) -> Any:
    return _placed(_jit_bits(*_words(key), *_start(offset), shape=shape), device)


def random_unit(key: Any, *, shape: tuple[int, ...], dtype: DType, offset: int, device: Any) -> Any:
    native_dtype(dtype)  # 64 bits without x64 is an error
    return _placed(_jit_unit(*_words(key), *_start(offset), shape=shape, dtype=dtype), device)


class CallKey:
    """The key that one call of a function of `tl.compile` gets, as its trace sees it, and how many draws have taken of it."""

    def __init__(self, words: Any) -> None:
        self.words, self.taken, self.op = words, itertools.count(), ""

    def holds_here(self) -> bool:
        """Whether the function itself is being traced. In the body of a loop every step would draw the same numbers."""
        return getattr(jnp.zeros((), _U32), "_trace", None) is getattr(self.words, "_trace", None)

    def next(self) -> Any:
        return threefry(self.words, DRAW, next(self.taken))


CALL_KEY: ContextVar[CallKey | None] = ContextVar("trellis_jax_call_key", default=None)


def check_draw(op: str) -> None:
    """Under jit a draw from Python state would be a constant of the function. Eager grad and vmap compute, and may draw."""
    if isinstance(jnp.zeros((), _U32), jax.core.Tracer):
        key = _call_key()
        if key is None:
            raise errors.seed_needed(op, "jax.jit")
        key.op = op


def _call_key() -> CallKey | None:
    found = CALL_KEY.get()
    return found if found is not None and found.holds_here() else None


def draws_in_graph() -> bool:
    return _call_key() is not None


class Generator:
    """A key for each draw, counted up; inside a compiled function, of the key of its call."""

    outlives_seed = False

    def __init__(self, words: tuple[int, int]) -> None:
        self._seed, self._drawn = words, itertools.count()

    def graph_key(self) -> Any:
        key = _call_key()
        return key.next() if key is not None else np.array(python_threefry(self._seed, (DRAW, next(self._drawn))), _U32)

    def _key(self) -> Any:
        return jax.random.wrap_key_data(self.graph_key(), impl="threefry2x32")

    def words(self, *, shape: tuple[int, ...], device: Any) -> Any:
        return _placed(jax.random.bits(self._key(), shape, jnp.uint32), device)

    def unit(self, *, shape: tuple[int, ...], dtype: DType, device: Any) -> Any:
        return _placed(jax.random.uniform(self._key(), shape, native_dtype(dtype)), device)

    def normal(self, *, shape: tuple[int, ...], dtype: DType, device: Any) -> Any:
        return _placed(jax.random.normal(self._key(), shape, native_dtype(dtype)), device)


def new_key(op: str) -> Any:
    """The key of one call of a compiled function that draws in `op`."""
    check_draw(op)
    return current_state().generator(load("jax")).graph_key()
