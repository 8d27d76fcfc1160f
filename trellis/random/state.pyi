# Written by tests/stubs.py from the sources: change those, then run `make stubs`.
# pyright: reportIncompatibleMethodOverride=false
from typing import Any, Generic, NamedTuple, Unpack, overload

from trellis.core.array import Array
from trellis.core.container import Container
from trellis.core.typing import AnyArray, ArrayT, Axis, DeviceLike, DTypeLike, HasShape, NestT, NumPyArray, Operand, Shape
import itertools
import os
import sys
import threading
from contextvars import ContextVar
from typing import Any
from trellis.core import dispatch
from trellis.core.dispatch import interpreters
from trellis.core.typing import SeedLike
from trellis.random.keys import CHILD, DRAW, GENERATOR, MASK, Words, one_key, plain_words, threefry
__all__ = ['seed']

class State:
    taken: Any
    children: Any
    generators: Any
    words: Words
    owner: Any
    process: int | None
    def __init__(self, words: Words, before: State | None=None, process: int | None=None) -> None: ...
    def next_words(self) -> Words: ...
    def generator(self, interpreter: Any) -> Any: ...
    def _words_of(self, name: str) -> Words: ...
_STATE: ContextVar[State | None]
def _owner() -> tuple[int, Any]: ...
def current_state() -> State: ...
def _unseeded(before: State | None) -> State: ...
_process: Any
def _in_child() -> None: ...
def seed(value: SeedLike=None, /, *, seed_value: SeedLike=None) -> None: ...
def next_key(op: str, interpreter: Any) -> Any: ...
def generator(interpreter: Any) -> Any: ...
