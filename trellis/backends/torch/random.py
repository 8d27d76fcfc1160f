"""Random numbers: the portable generator in int32, whose sums wrap as those of uint32, which torch has no kernels for; and
torch.Generators of our own for draws without a seed."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from trellis.backends.torch.meta import native_device
from trellis.backends.torch.operands import DTYPE, NATIVE
from trellis.core import dtypes
from trellis.core.dispatch import load
from trellis.core.dtypes import DType
from trellis.ops.conversion import to_numpy
from trellis.random.keys import key_data
from trellis.random.sources import NativeKey
from trellis.random.state import current_state

__all__ = ["Generator", "GraphGenerator", "draws_in_graph", "draws_on_host", "random_unit", "random_words", "threefry"]

# Inductor expands expressions of constants alone, which doubles them in each round; those that read a tensor it stores.
_ZERO = torch.zeros((), dtype=torch.int32)
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def _signed(value: Any) -> Any:
    """32 bits as int32: of a Python int an int, of integer tensors a tensor."""
    if isinstance(value, int):
        return value - 2**32 if value >= 2**31 else value
    return value.view(torch.int32) if value.dtype is torch.uint32 else value.to(torch.int64).to(torch.int32)


def _key_words(key: Any) -> tuple[Any, Any, Any]:
    """The key schedule."""
    first, second = map(_signed, key) if type(key) is tuple else _signed(key)
    if type(key) is tuple and torch.compiler.is_compiling():
        first, second = _ZERO + first, _ZERO + second
    return first, second, first ^ second ^ 0x1BD11BDA


def _mix(schedule: Any, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """20 rounds of Threefry on int32 counters; in place on what is new here."""
    x, y = x + schedule[0], y + schedule[1]
    for i in range(5):
        for rotation in _ROTATIONS[i % 2]:
            x.add_(y)
            left = y << rotation
            # the shift copies the sign, which is masked off
            y.bitwise_right_shift_(32 - rotation).bitwise_and_((1 << rotation) - 1).bitwise_or_(left).bitwise_xor_(x)
        x.add_(schedule[(i + 1) % 3])
        y.add_(schedule[(i + 2) % 3]).add_(i + 1)
    return x, y


def threefry(key: Any, high: Any, low: Any) -> torch.Tensor:
    tensor = next((v for v in (key, high, low) if isinstance(v, torch.Tensor)), None)
    device = None if tensor is None else tensor.device
    zero = torch.zeros((), dtype=torch.int32, device=device)
    high, low = torch.broadcast_tensors(zero + _signed(high), zero + _signed(low))
    return torch.stack(_mix(_key_words(key), high, low), -1).view(torch.uint32)


def _counted(schedule: Any, size: int, offset: int, device: Any) -> tuple[torch.Tensor, torch.Tensor]:
    place = torch.arange(offset, offset + size, dtype=torch.int64, device=device)
    if offset + size <= 2**31:
        low = place.to(torch.int32)
        return _mix(schedule, torch.zeros_like(low), low)
    return _mix(schedule, (place >> 32).to(torch.int32), place.to(torch.int32))


def _filled(key: Any, shape: tuple[int, ...], offset: int, device: Any, finish: Any) -> torch.Tensor:
    """`finish(high words, low words)` of each element."""
    return finish(*_counted(_key_words(key), math.prod(shape), offset, native_device(device))).reshape(shape)


def draws_on_host(device: Any) -> bool:
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return False
    return (torch.get_default_device() if device is None else native_device(device)).type == "cpu"  # type: ignore[union-attr]


def random_words(key: Any, *, shape: tuple[int, ...], offset: int, device: Any) -> torch.Tensor:
    return _filled(key, shape, offset, device, lambda x, y: x.bitwise_xor_(y)).view(torch.uint32)


def random_unit(key: Any, *, shape: tuple[int, ...], dtype: DType, offset: int, device: Any) -> torch.Tensor:
    return _filled(key, shape, offset, device, _UNIT[dtype])


def _unit32(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.bitwise_xor_(y).bitwise_right_shift_(9).bitwise_and_(0x7FFFFF).bitwise_or_(0x3F800000).view(torch.float32) - 1


def _unit64(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    high = (x.to(torch.int64) & 0xFFFFFFFF) << 20
    return (high | ((y.to(torch.int64) & 0xFFFFFFFF) >> 12) | 0x3FF0000000000000).view(torch.float64) - 1


def _unit16(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (((x ^ y) & 0xFFFF) >> 6).to(torch.float32).mul(2.0**-10).to(torch.float16)


def _unit_brain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (((x ^ y) & 0xFF) >> 1).to(torch.float32).mul(2.0**-7).to(torch.bfloat16)


_UNIT = {dtypes.float32: _unit32, dtypes.float64: _unit64, dtypes.float16: _unit16, dtypes.bfloat16: _unit_brain}


def draws_in_graph() -> bool:
    return torch.compiler.is_compiling()


class Generator:
    """A torch.Generator for each device, so that the global ones are never touched."""

    outlives_seed = False

    def __init__(self, words: tuple[int, int]) -> None:
        self._seed = (words[0] << 32 | words[1]) - 2**63
        self._natives: dict[str, torch.Generator] = {}

    def _place(self, device: Any) -> dict[str, Any]:
        place = torch.get_default_device() if device is None else native_device(device)
        if place.type == "meta":
            return {"device": place}
        found = self._natives.get(str(place))
        if found is None:
            found = self._natives[str(place)] = torch.Generator(place)
            found.manual_seed(self._seed)
        return {"device": place, "generator": found}

    def words(self, *, shape: tuple[int, ...], device: Any) -> torch.Tensor:
        return torch.randint(-(2**31), 2**31, shape, dtype=torch.int32, **self._place(device)).view(torch.uint32)

    def unit(self, *, shape: tuple[int, ...], dtype: DType, device: Any) -> torch.Tensor:
        return torch.rand(shape, dtype=NATIVE[dtype], **self._place(device))

    def normal(self, *, shape: tuple[int, ...], dtype: DType, device: Any) -> torch.Tensor:
        return torch.randn(shape, dtype=NATIVE[dtype], **self._place(device))


# A draw in a graph of torch.compile. It is one op, which asks for the generator of the context when it runs: Dynamo cannot read
# context variables. The tag keeps compilers from taking two draws for one, and from computing it when they compile.
torch.library.define(
    "trellis::draw",
    "(str method, SymInt[] shape, ScalarType dtype, Device? device) -> Tensor",
    tags=(torch.Tag.nondeterministic_seeded,),
)


@torch.library.impl("trellis::draw", "CompositeExplicitAutograd")
def _draw(method: str, shape: list[int], dtype: torch.dtype, device: Any) -> torch.Tensor:
    options = {} if method == "words" else {"dtype": DTYPE[dtype]}
    return getattr(current_state().generator(load("torch")), method)(shape=tuple(shape), device=device, **options)


@torch.library.register_fake("trellis::draw")
def _drawn(method: str, shape: list[int], dtype: torch.dtype, device: Any) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=device)


class GraphGenerator:
    """The generator that a graph draws from, whichever context runs it."""

    @staticmethod
    def words(*, shape: tuple[int, ...], device: Any) -> torch.Tensor:
        return torch.ops.trellis.draw("words", shape, torch.uint32, native_device(device))

    @staticmethod
    def unit(*, shape: tuple[int, ...], dtype: DType, device: Any) -> torch.Tensor:
        return torch.ops.trellis.draw("unit", shape, NATIVE[dtype], native_device(device))

    @staticmethod
    def normal(*, shape: tuple[int, ...], dtype: DType, device: Any) -> torch.Tensor:
        return torch.ops.trellis.draw("normal", shape, NATIVE[dtype], native_device(device))

    @staticmethod
    def graph_key() -> torch.Tensor:
        return GraphGenerator.words(shape=(2,), device=None)


class _Global(Generator):
    """torch's own generators, which torch.manual_seed seeds, and the stream that takes every draw of a run from them."""

    def __init__(self) -> None:
        super().__init__((0, 0))
        self.key = NativeKey(self)

    def next(self) -> NativeKey:
        return self.key

    def _place(self, device: Any) -> dict[str, Any]:
        return {"device": torch.get_default_device() if device is None else native_device(device)}

    def dropout(self, x: torch.Tensor, prob: float) -> torch.Tensor:
        return torch.dropout(x, prob, True)


GLOBAL = _Global()


@contextlib.contextmanager
def seeded(key: Any) -> Iterator[None]:
    """Draws of torch's own generators by a key, if one is given, and the generators as they were behind it."""
    if key is None or isinstance(key, NativeKey):
        yield
        return
    words = key_data("seed", key)
    high, low = words if isinstance(words, tuple) else map(int, np.asarray(to_numpy(words)))
    with torch.random.fork_rng():
        torch.manual_seed((high << 32 | low) - 2**63)
        yield
