"""Keys of the portable generator, and the random state of a context.

The generator is Threefry-2x32 with 20 rounds (Salmon and others, 2011), laid out as JAX lays it out: element i of an array is
made of the counter i alone, so any framework and any device computes the same numbers, in any order. A key is two 32-bit words.

Rules this file obeys:
- A key that no framework made is two Python ints: it costs nothing, and compilers see constants. It becomes an array when it is
  an argument of a compiled function, because it is a node of trees.
- The state of a context belongs to one thread and one asyncio task. Who inherits it with a copied context gets a child of it,
  with other numbers, so that nothing is shared and nothing repeats.
"""

from __future__ import annotations

import itertools
import operator
import os
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np

from trellis import dtypes, tree
from trellis.array import Array
from trellis.dispatch import SCALARS, UnknownOperand, call, find_all, interpreters, load
from trellis.ops.arguments import integer
from trellis.typing import AnyArray

__all__ = ["Key", "fold_in", "seed", "split"]

Words = tuple[int, int]

_MASK = 0xFFFFFFFF
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
# High counter words that no user's array, split or fold_in reaches, for keys that are derived inside one call or from the state.
STREAM, DRAW, CHILD, GENERATOR = 0xFFFFFFF0, 0xFFFFFFF1, 0xFFFFFFF2, 0xFFFFFFF3


def threefry(key: Words, counter: Words) -> Words:
    """One block of the generator, in Python ints."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA)
    x, y = (counter[0] + schedule[0]) & _MASK, (counter[1] + schedule[1]) & _MASK
    for i in range(5):
        for rotation in _ROTATIONS[i % 2]:
            x = (x + y) & _MASK
            y = (((y << rotation) | (y >> (32 - rotation))) & _MASK) ^ x
        x = (x + schedule[(i + 1) % 3]) & _MASK
        y = (y + schedule[(i + 2) % 3] + i + 1) & _MASK
    return x, y


class Key:
    """A key of the portable generator: `seed=key` gives the same numbers on every backend. 0 is a seed as any other.

    `tl.split` makes keys of a key and `tl.fold_in` mixes a number into it; use each key for one draw. A Key is a node of trees,
    so it can be an argument of `jax.jit`. `tl.Key(words)` takes an array of two uint32, such as `jax.random.key_data(key)`.

    >>> import trellis as tl
    >>> first, second = tl.split(tl.Key(0))
    >>> tl.random_uniform(shape=2, seed=first)
    Array([0.8423141 , 0.18237865], dtype=float32, backend='numpy', device='cpu')
    """

    __slots__ = ("_data",)

    _data: Any  # two ints, a tuple of such pairs, or a native uint32 array whose last axis has size 2

    def __init__(self, seed: int | Key | AnyArray, /) -> None:
        self._data = key_data("Key", seed)

    @property
    def shape(self) -> tuple[int, ...]:
        """() for one key, (n,) for `n` of them."""
        if type(self._data) is tuple:
            return () if _is_pair(self._data) else (len(self._data),)
        return tuple(interpreters[type(self._data)].shape_of(self._data))[:-1]

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len(key): this is one key; tl.split(key, n) makes n of it")
        return self.shape[0]

    def __getitem__(self, index: int) -> Key:
        size = len(self)
        index = integer("key[i]", "i", index)
        if not -size <= index < size:
            raise IndexError(f"key[i]: i={index} is out of range for {size} keys")
        index %= size
        return make_key(self._data[index] if type(self._data) is tuple else self._data[index, ...])

    def __iter__(self) -> Iterator[Key]:
        return iter([self[i] for i in range(len(self))])

    def __repr__(self) -> str:
        return f"Key({list(self._data)})" if type(self._data) is tuple else f"Key({self._data!r})"

    def leaf(self) -> AnyArray:
        """The words as an array: a NumPy one if no framework holds them."""
        return np.array(self._data, np.uint32) if type(self._data) is tuple else self._data


def make_key(data: Any) -> Key:
    """A Key of words that are known to be right. Trees put anything in the place of a leaf."""
    made = object.__new__(Key)
    made._data = data
    return made


tree.register(Key, lambda key: (("words",), (key.leaf(),), None), lambda type, keys, extra, members: make_key(members[0]))


def _is_pair(data: tuple[Any, ...]) -> bool:
    return len(data) == 2 and isinstance(data[0], int)


def key_data(op: str, seed: Any) -> Any:
    """The words of a seed: an int, a Key, or an array of words."""
    if isinstance(seed, Key):
        return seed._data
    if isinstance(seed, Array):
        seed = seed._data
    if not isinstance(seed, (bool, str, float, np.generic)) and _is_words(seed):
        return _plain(seed)
    try:
        if isinstance(seed, (bool, np.bool_)):
            raise TypeError
        number = operator.index(seed)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{op}: seed must be an integer or a tl.Key, got {_described(seed)}") from None
    if not -(2**63) <= number < 2**64:
        raise ValueError(f"{op}: seed={number} does not fit in 64 bits")
    return (number >> 32) & _MASK, number & _MASK


def _described(seed: Any) -> str:
    return repr(seed) if isinstance(seed, (str, bool, float, complex, bytes)) else type(seed).__name__


def _is_words(x: Any) -> bool:
    try:
        found = interpreters[type(x)]
    except UnknownOperand:
        return False
    if found is SCALARS or found.level > 0:
        return False
    shape = found.shape_of(x)
    return len(shape) in (1, 2) and shape[-1] == 2 and found.dtype_of(x) is dtypes.uint32


def _plain(data: Any) -> Any:
    """NumPy words as Python ints: no framework, no copy to a device."""
    if isinstance(data, np.ndarray):
        return tuple(data.tolist()) if data.ndim == 1 else tuple(map(tuple, data.tolist()))
    return data


def one_key(op: str, seed: Any) -> Any:
    """The words of a seed for one draw."""
    data = key_data(op, seed)
    if type(data) is tuple:
        single = _is_pair(data)
    else:
        single = interpreters[type(data)].rank_of(data) == 1
    if not single:
        raise ValueError(f"{op}: seed holds {make_key(data).shape[0]} keys; take one: key[0], or loop over them")
    return data


def holder(data: Any) -> Any:
    """The interpreter of the framework that holds the words; None if none does."""
    return None if type(data) is tuple else interpreters[type(data)]


def derived(data: Any, high: int, low: int) -> Any:
    """Words that depend on these and on a counter."""
    return threefry(data, (high, low)) if type(data) is tuple else interpreters[type(data)].threefry(data, high, low)


def split(key: int | Key, n: int = 2, /) -> Key:
    """`n` independent keys, as one Key of shape (n,) that can be unpacked, indexed and looped over.

    >>> import trellis as tl
    >>> first, second = tl.split(tl.Key(0))
    >>> len(tl.split(first, 5))
    5
    """
    data = one_key("split", key)
    if integer("split", "n", n) < 1:
        raise ValueError(f"split: n={n} must be 1 or more")
    if type(data) is not tuple:
        interpreter = interpreters[type(data)]
        device = interpreter.device_of(data)
        counters = interpreter.arange(start=0, stop=n, step=1, dtype=dtypes.uint32, device=device)
        return make_key(interpreter.threefry(data, 0, counters))
    if n <= 64:
        return make_key(tuple([threefry(data, (0, i)) for i in range(n)]))
    return make_key(_plain(load("numpy").threefry(data, 0, np.arange(n, dtype=np.uint32))))


def fold_in(key: int | Key, data: int | AnyArray, /) -> Key:
    """The key that depends on `key` and on a number, such as the step of a loop; `data` may be a traced integer.

    >>> import trellis as tl
    >>> tl.fold_in(tl.Key(0), 3)
    Key([2467461003, 3840466878])
    """
    words = one_key("fold_in", key)
    data = data._data if isinstance(data, Array) else data
    try:
        known = isinstance(data, (bool, int, np.generic)) or interpreters[type(data)] is SCALARS
    except UnknownOperand:
        known = True
    if known:
        number = integer("fold_in", "data", data)
        if not -(2**63) <= number < 2**64:
            raise ValueError(f"fold_in: data={number} does not fit in 64 bits")
        return make_key(derived(words, (number >> 32) & _MASK, number & _MASK))
    interpreter = find_all(data) if type(words) is tuple else find_all(data, words)
    dtype = interpreter.dtype_of(data)
    if dtype.kind not in "iu":
        raise TypeError(f"fold_in: data must be an integer, got an array of {dtype}")
    return make_key(interpreter.threefry(words, *_number_words(Array(data), dtype)))


def _number_words(number: Array, dtype: dtypes.DType) -> tuple[Any, Any]:
    """The high and low 32 bits of integers, negative ones with their sign: as for a Python int."""
    low: Any = call("astype", number, dtype=dtypes.uint32, copy=False, device=None)
    if dtype.kind == "u" and dtype.bits < 64:
        return 0, low._data
    shifted = call("bitwise_right_shift", number, 32 if dtype.bits == 64 else dtype.bits - 1)
    high = call("astype", shifted, dtype=dtypes.uint32, copy=False, device=None)
    return high._data, low._data


# ---- the state of a context ----------------------------------------------------------------------------------------------------
class State:
    """What draws without a seed come from: a key, how many keys were taken of it, and the frameworks' generators seeded by it."""

    def __init__(self, words: Words, before: State | None = None) -> None:
        self.words, self.owner = words, _owner()
        self.taken = itertools.count()
        self.children = itertools.count()
        self.generators: dict[str, Any] = {}
        if before is not None and before.owner == self.owner:
            for name, generator in before.generators.items():
                if generator.outlives_seed:  # a compiled function holds on to it
                    generator.reset(self._words_of(name))
                    self.generators[name] = generator

    def next_words(self) -> Words:
        return threefry(self.words, (DRAW, next(self.taken)))

    def generator(self, interpreter: Any) -> Any:
        found = self.generators.get(interpreter.name)
        if found is None:
            found = self.generators[interpreter.name] = interpreter.Generator(self._words_of(interpreter.name))
        return found

    def _words_of(self, name: str) -> Words:
        return threefry(self.words, (GENERATOR, int.from_bytes(name.encode()[:4], "big")))


_STATE: ContextVar[State | None] = ContextVar("trellis_random", default=None)


def _owner() -> tuple[int, Any]:
    """The thread and the asyncio task that run now."""
    asyncio = sys.modules.get("asyncio")
    loop = asyncio._get_running_loop() if asyncio else None  # type: ignore[attr-defined]
    return threading.get_ident(), None if loop is None else asyncio.current_task(loop)  # type: ignore[union-attr]


def current_state() -> State:
    state = _STATE.get()
    if state is None:
        state = State(_entropy())
    elif state.owner == _owner():
        return state
    else:
        state = State(threefry(state.words, (CHILD, next(state.children))))
    _STATE.set(state)
    return state


def _entropy() -> Words:
    number = int.from_bytes(os.urandom(8), "big")
    return number >> 32, number & _MASK


def seed(value: int | Key | None, /) -> None:
    """Seed every draw without `seed=` in this context (thread or task); None takes a seed from the operating system.

    The frameworks' own generators are left alone: each context has generators of its own. The numbers of such draws differ
    between backends; those of shuffles and initial weights do not.

    >>> import trellis as tl
    >>> tl.seed(0)
    >>> x = tl.random_normal(shape=3)
    >>> tl.seed(0)
    >>> bool(tl.all(x == tl.random_normal(shape=3)))
    True
    """
    words = _entropy() if value is None else one_key("seed", value)
    if type(words) is not tuple:
        found = interpreters[type(words)]
        if found.is_traced(words):
            raise TypeError(
                "seed: the key is traced, and the state of a context outlives the trace; pass seed=key to the draws instead"
            )
        words = _plain(found.to_numpy(words))
    _STATE.set(State(words, _STATE.get()))


def next_key(op: str, interpreter: Any) -> Any:
    """The words of a new key from the state of the context: equal on every backend after `tl.seed`. For all that is not hot."""
    interpreter.check_draw(op)
    state = current_state()
    in_graph = state.generator(interpreter).graph_key() if interpreter.draws_in_graph() else None
    return state.next_words() if in_graph is None else in_graph
