"""Notice that a user's array changed in place between the forward pass and the backward pass that needs its values.

The tape keeps the user's arrays and copies none of them. It takes a fingerprint of each when it is recorded and compares before
the backward pass. So nothing of the user's is touched: other threads may write to their arrays at any time.

The fingerprint of a small array is its bytes. That of a large one is read at the speed of memory: the array as rows of `_COLUMNS`
words of 64 bits, summed column by column. Every change of one element shows; so does every usual change of order, because the
number of columns is prime and a moved element lands in another column.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np

from trellis.core import errors

NumPyArray: TypeAlias = np.ndarray[Any, Any]
Fingerprint = tuple[bytes, bytes]
# id of an array -> what was in it, and the array, weakly: no rule needs one that is gone
Watched = dict[int, tuple["weakref.ref[NumPyArray]", Fingerprint]]

_SMALL = 16384  # bytes
_COLUMNS = 509
_running: dict[int, Watched] = {}  # depth of each transform whose function runs now -> the arrays that its rules will look at


@contextlib.contextmanager
def watching(depth: int) -> Iterator[Watched]:
    """While the function of the transform `depth` runs, collect the arrays that `watch` is called with."""
    _running[depth] = watched = {}
    try:
        yield watched
    finally:
        del _running[depth]


def watch(x: NumPyArray, depth: int) -> None:
    """Remember what is in `x`, whose values a rule of the transform `depth` needs."""
    watched = _running.get(depth)
    if watched is not None and ((known := watched.get(id(x))) is None or known[0]() is not x):
        watched[id(x)] = weakref.ref(x), _fingerprint(x)


def is_watched(x: NumPyArray) -> bool:
    """Whether a rule of a transform whose function runs now needs values in the memory of `x`."""
    held = [known() for watched in list(_running.values()) for known, _ in list(watched.values())]
    return any(np.may_share_memory(x, other) for other in held if other is not None)


def watch_shared(arrays: Iterable[Any], nodes: Iterable[Any], depth: int) -> None:
    """Watch each of `arrays` whose memory the rules of `nodes`, or of the nodes behind them, look at."""
    kept, seen, rest = set(), set(), list(nodes)
    while rest:
        node = rest.pop()
        if node.id not in seen:
            seen.add(node.id)
            output = node.output if type(node.output) is tuple else (node.output,)
            kept.update(id(_owner(x)) for x in (*node.inputs, *output) if type(x) is np.ndarray)
            rest += [parent for _, parent, _ in node.parents]
    for x in arrays:
        if type(x) is np.ndarray and id(_owner(x)) in kept:
            watch(x, depth)


def _owner(x: NumPyArray) -> NumPyArray:
    """The array whose memory `x` is a view of, or `x` itself."""
    while isinstance(x.base, np.ndarray):
        x = x.base
    return x


def check_unchanged(watched: Watched) -> None:
    for known, before in watched.values():
        if (x := known()) is not None and _fingerprint(x) != before:
            raise errors.changed_in_place()


def _fingerprint(x: NumPyArray) -> Fingerprint:
    if x.nbytes <= _SMALL:
        return x.tobytes(), b""
    if 0 in x.strides:  # broadcast: one element stands for all along the axis
        x = x[tuple(slice(1) if step == 0 else slice(None) for step in x.strides)]
    flat = np.ascontiguousarray(x if x.flags.c_contiguous else x.T).reshape(-1).view(np.uint8)
    end = flat.size // (8 * _COLUMNS) * 8 * _COLUMNS
    sums = np.add.reduce(flat[:end].view(np.uint64).reshape(-1, _COLUMNS), axis=0)
    return sums.tobytes(), flat[end:].tobytes()
