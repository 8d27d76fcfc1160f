"""Keys of the portable generator.

The generator is Threefry-2x32 with 20 rounds (Salmon and others, 2011), laid out as JAX lays it out: element i of an array is
made of the counter i alone, so any framework and any device computes the same numbers, in any order. A key is two 32-bit words.

A key that no framework made is two Python ints: it costs nothing, and compilers see constants. It becomes an array when it is an
argument of a compiled function, because it is a node of trees.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from trellis.core import dtypes, tree
from trellis.core.array import Array
from trellis.core.dispatch import find_all, interpreters, load
from trellis.core.free import Free
from trellis.core.indexing import index_of
from trellis.core.leaves import ARRAY, kind_of, unwrap
from trellis.core.lifting import PER_LEAF
from trellis.core.pytrees import Node, register as register_node
from trellis.core.typing import AnyArray
from trellis.ops.arguments import integer
from trellis.ops.conversion import astype
from trellis.ops.manipulation import KEYS

__all__ = ["Key", "fold_in", "split_key"]

Words = tuple[int, int]

MASK = 0xFFFFFFFF
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
# High counter words that no user's array or fold_in reaches: for the keys of a split, of one call, and of the state.
STREAM, DRAW, CHILD, GENERATOR, SPLIT = range(0xFFFFFFF0, 0xFFFFFFF5)


def threefry(key: Words, counter: Words) -> Words:
    """One block of the generator, in Python ints."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA)
    x, y = (counter[0] + schedule[0]) & MASK, (counter[1] + schedule[1]) & MASK
    for i in range(5):
        for rotation in _ROTATIONS[i % 2]:
            x = (x + y) & MASK
            y = (((y << rotation) | (y >> (32 - rotation))) & MASK) ^ x
        x = (x + schedule[(i + 1) % 3]) & MASK
        y = (y + schedule[(i + 2) % 3] + i + 1) & MASK
    return x, y


class Key:
    """A key of the portable generator: `seed=key` gives the same numbers on every backend. 0 is a seed as any other.

    `tl.split_key` makes keys of a key and `tl.fold_in` mixes a number into it; use each key for one draw. A Key is a node of
    trees, so it can be an argument of `jax.jit`. `tl.Key(words)` takes an array of two uint32, such as
    `jax.random.key_data(key)`.

    >>> import trellis as tl
    >>> first, second = tl.split_key(tl.Key(0))
    >>> tl.random_uniform(shape=2, seed=first)
    Array([0.16769588, 0.24726522], dtype=float32, backend='numpy', device='cpu')
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
            raise TypeError("len(key): this is one key; tl.split_key(key, n) makes n of it")
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


def _leaf(data: Any, torch: Any) -> AnyArray:
    if torch is None or type(data) is not tuple:
        return make_key(data).leaf()
    return torch.tensor(data, dtype=torch.int64).to(torch.uint32)  # torch.compile cannot read a NumPy array


# In our own nests the words are a free array: a key says nothing of the framework of what stands beside it.
tree.register(
    Key, lambda key: (("words",), (Free(key.leaf()),), None), lambda type, keys, extra, members: make_key(unwrap(members[0]))
)
register_node(
    Key,
    Node(lambda key: (("words",), (key._data,), None), lambda _, children: make_key(next(iter(children))), "GetAttrKey", _leaf),
)


def _is_pair(data: tuple[Any, ...]) -> bool:
    return len(data) == 2 and isinstance(data[0], int)


def key_data(op: str, seed: Any) -> Any:
    """The words of a seed: an int, a Key, or an array of words."""
    if isinstance(seed, Key):
        return seed._data
    seed = unwrap(seed)
    if _is_words(seed):
        return plain_words(seed)
    try:
        if isinstance(seed, (bool, np.bool_)):
            raise TypeError
        number = index_of(seed)
    except TypeError:
        raise TypeError(f"{op}: seed must be an integer or a tl.Key, got {_described(seed)}") from None
    return _two_words(op, "seed", number)


def _two_words(op: str, argument: str, number: int) -> Words:
    if not -(2**63) <= number < 2**64:
        raise ValueError(f"{op}: {argument}={number} does not fit in 64 bits")
    return (number >> 32) & MASK, number & MASK


def _described(seed: Any) -> str:
    return repr(seed) if isinstance(seed, (str, bool, float, complex, bytes)) else type(seed).__name__


def _is_words(x: Any) -> bool:
    if kind_of(x) != ARRAY or interpreters[type(x)].level > 0:
        return False
    shape = interpreters[type(x)].shape_of(x)
    return len(shape) in (1, 2) and shape[-1] == 2 and interpreters[type(x)].dtype_of(x) is dtypes.uint32


def plain_words(data: Any) -> Any:
    """NumPy words as Python ints: no framework, no copy to a device."""
    if isinstance(data, np.ndarray):
        return tuple(data.tolist()) if data.ndim == 1 else tuple(map(tuple, data.tolist()))
    return data


def one_key(op: str, seed: Any) -> Any:
    """The words of a seed for one draw."""
    data = key_data(op, seed)
    shape = make_key(data).shape
    if shape:
        raise ValueError(f"{op}: seed holds {shape[0]} keys; take one: key[0], or loop over them")
    return data


def holder(data: Any) -> Any:
    """The interpreter of the framework that holds the words; None if none does."""
    return None if type(data) is tuple else interpreters[type(data)]


def derived(data: Any, high: int, low: int) -> Any:
    """Words that depend on these and on a counter."""
    return threefry(data, (high, low)) if type(data) is tuple else interpreters[type(data)].threefry(data, high, low)


def split_key(key: int | Key, n: int = 2, /) -> Key:
    """`n` independent keys, as one Key of shape (n,) that can be unpacked, indexed and looped over.

    >>> import trellis as tl
    >>> first, second = tl.split_key(tl.Key(0))
    >>> len(tl.split_key(first, 5))
    5
    """
    data = one_key("split_key", key)
    n = integer("split_key", "n", n, 1)
    if type(data) is not tuple:
        interpreter = interpreters[type(data)]
        device = interpreter.device_of(data)
        counters = interpreter.arange(start=0, stop=n, step=1, dtype=dtypes.uint32, device=device)
        return make_key(interpreter.threefry(data, SPLIT, counters))
    if n <= 64:
        return make_key(tuple([threefry(data, (SPLIT, i)) for i in range(n)]))
    return make_key(plain_words(load("numpy").threefry(data, SPLIT, np.arange(n, dtype=np.uint32))))


def fold_in(key: int | Key, data: int | AnyArray, /) -> Key:
    """The key that depends on `key` and on a number, such as the step of a loop; `data` may be a traced integer.

    >>> import trellis as tl
    >>> tl.fold_in(tl.Key(0), 3)
    Key([2467461003, 3840466878])
    """
    words = one_key("fold_in", key)
    data = unwrap(data)
    if kind_of(data) != ARRAY or isinstance(data, np.generic):
        return make_key(derived(words, *_two_words("fold_in", "data", integer("fold_in", "data", data))))
    interpreter = find_all(data) if type(words) is tuple else find_all(data, words)
    dtype = interpreter.dtype_of(data)
    if dtype.kind not in "iu":
        raise TypeError(f"fold_in: data must be an integer, got an array of {dtype}")
    return make_key(interpreter.threefry(words, *_number_words(Array(data), dtype)))


def _number_words(number: Array, dtype: dtypes.DType) -> tuple[Any, Any]:
    """The high and low 32 bits of integers, negative ones with their sign: as for a Python int."""
    low = astype(number, dtypes.uint32, copy=False)._data
    if dtype.kind == "u" and dtype.bits < 64:
        return 0, low
    return astype(number >> (32 if dtype.bits == 64 else dtype.bits - 1), dtypes.uint32, copy=False)._data, low


PER_LEAF["seed"] = fold_in  # each leaf of a Container draws other numbers
KEYS.update({Key: split_key, int: split_key})
