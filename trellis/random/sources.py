"""Streams of random numbers, written once for every backend, and the arguments of one draw.

Rules this file obeys:
- Everything here is a `tl.Array`. `Draw` wraps the arguments of a public function, and unwraps its result if they were native.
- A source gives words, uniforms and normals: from a key, those of the portable stream; without one, those of the framework's own
  generator. The samplers do not know which.
- Results that must agree bit for bit come from exact operations only: integers, powers of two, and no product that a compiler can
  fuse into a sum. Decisions (accept, count) are made in float64 where the backend has it, so that a last bit rarely turns one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trellis import ops as tl
from trellis.core import dtypes, rerun
from trellis.core.array import Array
from trellis.core.coefficients import COEFFICIENTS
from trellis.core.dispatch import SCALARS, drawing, find_all, interpreters, load, target
from trellis.core.dtypes import DType, float32, float64
from trellis.core.free import anchor, kind_of, settled
from trellis.core.leaves import unwrap
from trellis.core.moving import framework_of
from trellis.core.typing import DeviceLike, DTypeLike, Like, Operand, SeedLike, Shape
from trellis.ops import arguments
from trellis.ops.conversion import placed
from trellis.ops.shapes import broadcasts
from trellis.random.keys import STREAM, Key, derived, holder, one_key
from trellis.random.state import generator as own_generator, next_key, next_key_of

Size = tuple[Any, ...]  # ints; in a compiled TensorFlow function also tensors


# ---- where numbers come from ---------------------------------------------------------------------------------------------------
class Seeded:
    """The portable stream of one key. Its streams are independent; stream 0 is what `jax.random` makes of the key."""

    def __init__(self, words: Any, interpreter: Any, device: Any) -> None:
        self._words, self._ops, self._device = words, interpreter, device

    def _draw(self, op: str, stream: int, **params: Any) -> Any:
        """What an op of this framework draws; None if it has no such op. On a CPU it is NumPy's, which takes fewer passes."""
        key = derived(self._words, STREAM, stream) if stream else self._words
        if type(key) is tuple and self._ops.draws_on_host(self._device):
            made = getattr(load("numpy"), op)(key, device=None, **params)
            return Array(self._ops.from_numpy(made, dtype=None, device=self._device, copy=None))
        own = getattr(self._ops, op, None)
        return own and Array(own(key, device=self._device, **params))

    def words(self, shape: Size, stream: int = 0, offset: int = 0) -> Array:
        """Random uint32."""
        return self._draw("random_words", stream, shape=shape, offset=offset)

    def unit(self, shape: Size, dtype: DType, stream: int = 0, offset: int = 0) -> Array:
        """Uniform in [0, 1)."""
        return self._draw("random_unit", stream, shape=shape, dtype=dtype, offset=offset)

    def normal(self, shape: Size, dtype: DType, stream: int = 0, offset: int = 0) -> Array:
        if (found := self._draw("random_normal", stream, shape=shape, dtype=dtype, offset=offset)) is not None:
            return found
        grid = computing(dtype)
        unit = self.unit(shape, grid, stream, offset)
        return tl.astype(normal_quantile(inside(unit, grid), tails=False), dtype, copy=False)


class Unseeded:
    """The framework's own generator of this context, or a given generator."""

    def __init__(self, op: str, interpreter: Any, device: Any, generator: Any = None) -> None:
        if generator is None:
            interpreter.check_draw(op)
            generator = own_generator(interpreter)
        self._generator, self._device = generator, device

    def words(self, shape: Size, stream: int = 0, offset: int = 0) -> Array:
        return Array(self._generator.words(shape=shape, device=self._device))

    def unit(self, shape: Size, dtype: DType, stream: int = 0, offset: int = 0) -> Array:
        return Array(self._generator.unit(shape=shape, dtype=dtype, device=self._device))

    def normal(self, shape: Size, dtype: DType, stream: int = 0, offset: int = 0) -> Array:
        return Array(self._generator.normal(shape=shape, dtype=dtype, device=self._device))


class NativeKey(Key):
    """A generator of a framework in the place of a key, for modules that live there: each draw gives other numbers."""

    __slots__ = ("generator",)

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    @property
    def _data(self) -> Any:
        """A key of the portable stream, for callers that ask for words."""
        return self.generator.words(shape=(2,), device=None)


class Draw:
    """The arguments of one call: parameters as Arrays, the shape, the dtype, and the source of numbers.

    `portable` takes a key from the state of the context if there is no seed. `event` is the rank of one sample, None if the
    parameters do not broadcast.
    """

    def __init__(
        self, op: str, parameters: dict[str, Any], *, shape: Shape | None = None, device: DeviceLike = None,
        backend: str | None = None, like: Like = None, seed: SeedLike = None, portable: bool = False, event: int | None = 0,
    ) -> None:  # fmt: skip
        self.op = op
        if seed is None and (run := rerun.current()) is not None:
            seed = next_key_of(run)
        native = seed.generator if isinstance(seed, NativeKey) and not portable else None
        words = None if seed is None or native is not None else one_key(op, seed)
        given, device, backend = self._settle(parameters, words, device, backend, like)
        self.values: dict[str, Any] = {n: v if is_number(v) else Array(unwrap(v)) for n, v in given.items()}
        self.arrays = [v for v in self.values.values() if not is_number(v)]
        self.interpreter = self._interpreter(words, backend)
        if self.arrays and device is None:
            device = self.arrays[0].device
        self.device = device
        self.shape: Size = () if event is None else self._shape(shape, event)
        if words is not None:
            words = _brought(words, self.interpreter)
        elif portable:
            words = next_key(op, self.interpreter)
        self.words = words
        if words is not None:
            self.source: Any = getattr(seed, "source", Seeded)(words, self.interpreter, device)
        else:
            self.source = Unseeded(op, self.interpreter, device, native)

    def _settle(self, parameters: dict[str, Any], words: Any, device: Any, backend: Any, like: Any) -> tuple[Any, Any, Any]:
        """The parameters in one framework, the device and the backend; `kind` is the class of the result."""
        _, device, self.kind, self.dtype = placed(self.op, backend, device, like)
        backend = backend if like is None else framework_of(unwrap(like))
        values = [_number_or_array(value) for value in parameters.values()]
        values = settled(values, like if like is not None or backend is None else Array(anchor(target(backend))))
        arrays = [v for v in values if not is_number(v)]
        if like is None and arrays:
            kinds = [kind_of(v) for v in arrays]
            self.kind = Array if Array in kinds else kinds[0]
        return dict(zip(parameters, values)), device, backend

    def _interpreter(self, words: Any, backend: Any) -> Any:
        if not self.arrays:
            held = None if words is None else holder(words)
            if backend is None and held is None and words is None:
                return drawing(self.op)
            return held if held is not None and backend is None else target(backend)
        found = find_all(*(x._data for x in self.arrays))
        found = load(found.name) if found.level else found  # a value on the tape: NumPy draws
        if backend is not None and target(backend) is not found:
            raise ValueError(f"{self.op}: backend={backend!r}, but the arrays are of {found.name}; leave backend out")
        return found

    def _shape(self, shape: Shape | None, event: int) -> Size:
        sizes = [x.shape[: len(x.shape) - event] for x in self.arrays]
        wanted = None if shape is None else arguments.shape(self.op, shape)
        if any(None in s for s in sizes):
            natives = (x._data for x in self.arrays)
            return self.interpreter.dynamic_shape(*natives, event=event) if wanted is None else wanted
        try:
            together = np.broadcast_shapes(*sizes)
        except ValueError:
            shown = ", ".join(map(str, sizes))
            raise ValueError(f"{self.op}: the shapes {shown} of the parameters do not broadcast together") from None
        if wanted is not None and not broadcasts(together, wanted):
            raise ValueError(f"{self.op}: parameters of shape {together} do not broadcast to shape={wanted}")
        return together if wanted is None else wanted

    def float_dtype(self, dtype: DTypeLike) -> DType:
        """The real floating dtype asked for, else that of the arrays, else the default one."""
        if dtype is not None:
            found = dtypes.as_dtype(dtype)
            if found.kind != "f":
                raise TypeError(f"{self.op}: dtype={found} is no real floating-point dtype; use tl.float32, or tl.randint")
            self.interpreter.native_dtype(found)  # raises on JAX without x64
            return found
        found = dtypes.common_dtype([x.dtype for x in self.arrays]) if self.arrays else self.dtype or dtypes.default_float()
        if found.kind == "c":
            raise TypeError(f"{self.op}: the parameters must be real, got {found}")
        return found if found.kind == "f" else dtypes.default_float()

    def integer_dtype(self, dtype: DTypeLike) -> DType:
        if dtype is None:
            dtype = self.dtype if self.dtype is not None and self.dtype.kind in "iu" else self.interpreter.default_int()
        found = dtypes.as_dtype(dtype)
        if found.kind not in "iu":
            raise TypeError(f"{self.op}: dtype={found} is no integer dtype; use tl.int32 or tl.int64")
        self.interpreter.native_dtype(found)
        return found

    @property
    def wide(self) -> DType:
        """The dtype of decisions: float64; on JAX without x64 float32."""
        return float64 if self.interpreter.default_int() is dtypes.int64 else float32

    def parameter(self, name: str, dtype: DType) -> Any:
        """A parameter as an Array of `dtype`, also where it is a Python number."""
        return self.constant(self.values[name], dtype)

    def constant(self, value: Any, dtype: DType) -> Any:
        if not is_number(value):
            return tl.astype(value, dtype, copy=False)
        return Array(self.interpreter.full(shape=(), fill_value=value, dtype=dtype, device=self.device))

    def require(self, name: str, wrong: Callable[[Any], Any], expected: str, *, worst: str = "min") -> None:
        """ValueError where `wrong(value)` holds anywhere; a traced value cannot be looked at."""
        value = self.values[name]
        if is_number(value):
            if wrong(value):
                raise ValueError(f"{self.op}: {name}={value!r}; {expected}")
        elif is_concrete(value) and value.size and bool(tl.any(wrong(value))):
            extreme = (tl.min if worst == "min" else tl.max)(value).item()
            raise ValueError(f"{self.op}: {name} holds {extreme!r}; {expected}")

    def is_concrete(self, *values: Any) -> bool:
        """Whether Python can read results made of these values: neither they nor the key are traced."""
        known = self.words is None or holder(self.words) is None or is_concrete(Array(self.words))
        return known and is_concrete(*values, self.constant(0, float32))

    def finish(self, result: Array, dtype: DType | None = None) -> Any:
        """The result in `dtype`; native if all arrays among the parameters are, and free if nothing says where it belongs."""
        if dtype is not None:
            result = tl.astype(result, dtype, copy=False)
        return self.kind(result._data)


def _number_or_array(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()  # a NumPy scalar is a Python number here
    if isinstance(value, (list, tuple)):
        return tl.asarray(value)
    interpreters[type(value)]  # an unknown type says so
    return value


def is_number(value: Operand) -> bool:
    return interpreters[type(value)] is SCALARS


def is_concrete(*values: Operand) -> bool:
    return not any(interpreters[type(x._data)].is_traced(x._data) for x in values if not is_number(x))


def computing(dtype: DType) -> DType:
    """Halves are computed in float32."""
    return float64 if dtype is float64 else float32


def _brought(words: Any, interpreter: Any) -> Any:
    """Words that another framework holds, as Python ints."""
    held = holder(words)
    if held is None or held is interpreter:
        return words
    return tuple(held.to_numpy(words).tolist())


# ---- uniforms ------------------------------------------------------------------------------------------------------------------
def inside(u: Array, dtype: DType) -> Array:
    """Numbers of the grid of [0, 1) moved to the middle of its cells: exact, symmetric, never 0 or 1.

    `maximum` changes nothing, but keeps XLA from adding up the constants before and after it, which would round.
    """
    return tl.maximum(u, 0.0) + (2.0**-53 if dtype is float64 else 2.0**-24)


def fine_unit(source: Any, shape: Size, wide: DType, stream: int) -> Array:
    """Uniform in (0, 1) with 46 bits, of which float32 keeps those that it can: close to 0 it is as fine as float64."""
    coarse, rest = (tl.astype(source.unit(shape, float32, stream + i), wide, copy=False) for i in (0, 1))
    return tl.minimum(coarse + (rest + 2.0**-24) * 2.0**-23, 1.0 - (2.0**-24 if wide is float32 else 2.0**-53))


def between(u: Array, low: Array, high: Array, dtype: DType) -> Array:
    """low + u * (high - low), in [low, high). A number that rounds up to `high` becomes `low`, so that both ends get their share.

    The product goes through `maximum`, which changes nothing: XLA would fuse it with the sum and round once instead of twice.
    """
    u, start, stop = (tl.astype(x, computing(dtype), copy=False) for x in (u, low, high))
    spread = tl.astype(start + tl.maximum(u * (stop - start), 0.0), dtype, copy=False)
    return tl.where(spread >= high, low, spread)


# ---- normals: Wichura's AS 241, whose central part needs no logarithm ---------------------------------------------------------
# float32 and float64 -> numerator and denominator of each part: centre, middle, tails
QUANTILE = [
    [[COEFFICIENTS[f"{size}_{part}_{half}"] for half in ("above", "under")] for part in ("centre", "middle", "tail")]
    for size in ("single", "double")
]


def normal_quantile(p: Array, *, tails: bool = True) -> Array:
    """The number below which a standard normal number is with probability `p`, in (0, 1).

    Without `tails` no float32 `p` may be below 1e-11; float64 always has them.
    """
    centre, middle, tail = QUANTILE[p.dtype is float64]
    q = p - 0.5
    near = q * ratio(centre, 0.180625 - q * q)
    r = tl.sqrt(-tl.log(tl.minimum(p, 1.0 - p)))
    far = ratio(middle, r - 1.6)
    if tails or p.dtype is float64:
        far = tl.where(r <= 5.0, far, ratio(tail, r - 5.0))
    return tl.where(tl.abs(q) <= 0.425, near, tl.where(q < 0.0, -far, far))


def ratio(part: Sequence[Sequence[Any]], x: Array) -> Array:
    """The quotient of two polynomials, given by their coefficients, by Horner's rule."""
    above, under = (functools.reduce(lambda value, c: value * x + c, coefficients) for coefficients in part)
    return above / under


# ---- integers ------------------------------------------------------------------------------------------------------------------
def _product(a: Array, b: Array, half: int) -> tuple[Array, Array]:
    """High and low word of the product of two words of 2 * half bits, in arithmetic of such words."""
    mask = (1 << half) - 1
    a0, a1, b0, b1 = a & mask, a >> half, b & mask, b >> half
    middle = a1 * b0 + ((a0 * b0) >> half)
    second = a0 * b1 + (middle & mask)
    return a1 * b1 + (middle >> half) + (second >> half), a * b


def _scaled(high: Array, low: Array, span: Array, half: int) -> Array:
    """floor(span * (high, low) / 2**(4 * half)): a number below `span`, for a uniform fraction of two words."""
    top, rest = _product(high, span, half)
    total = rest + _product(low, span, half)[0]
    return top + tl.astype(total < rest, span.dtype, copy=False)


def below(source: Any, shape: Size, span: Array, stream: int = 0) -> Array:
    """Uniform integers in [0, span), span of uint32 or uint64. A span below 2**32 gives the same numbers in both.

    The fraction has twice the bits of the span (for a small span 64), so no number is favoured by more than one part in 2**32.
    """
    high, low = source.words(shape, stream), source.words(shape, stream + 1)
    if span.dtype is dtypes.uint32:
        return _scaled(high, low, span, 16)
    first = pair(high, low)
    second = pair(source.words(shape, stream + 2), source.words(shape, stream + 3))
    return _scaled(first, tl.where(span >> 32 > 0, second, second & 0), span, 32)


def pair(high: Array, low: Array) -> Array:
    return (tl.astype(high, dtypes.uint64) << 32) | tl.astype(low, dtypes.uint64)
