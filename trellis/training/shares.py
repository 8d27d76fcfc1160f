"""Shares of a batch: which rows are whose, and their random numbers, which are those of these rows in the whole batch."""

from __future__ import annotations

import itertools
import math
from typing import Any

from trellis.core.array import Array
from trellis.nn.building import Stream
from trellis.random.keys import Key
from trellis.random.sources import Seeded

Share = tuple[int, int, int]  # the first row, how many, of how many


def share_of(rows: int, rank: int, size: int) -> Share:
    """The rows of a batch that belong to a process: as many for each as can be, one more for the first ones.

    A batch with fewer rows than processes belongs to every process whole.

    >>> [share_of(5, rank, 2) for rank in range(2)], share_of(1, 1, 2)
    ([(0, 3, 5), (3, 2, 5)], (0, 1, 1))
    """
    if rows < size:
        return 0, rows, rows
    each, more = divmod(rows, size)
    return rank * each + min(rank, more), each + (rank < more), rows


def shares_of(rows: int, parts: int, rank: int = 0, size: int = 1) -> tuple[Share, ...]:
    """The rows of each of so many parts of a batch that belong to a process.

    >>> shares_of(8, 2, rank=1, size=2)
    ((2, 2, 4), (6, 2, 4))
    """
    parts, found = max(1, min(parts, rows)), []
    for begin, end in itertools.pairwise([rows * i // parts for i in range(parts + 1)]):
        first, count, of = share_of(end - begin, rank, size)
        found.append((begin + first, count, of))
    return tuple(found)


class RowKey(Key):
    """A key for some rows of a batch: draws of `count` rows, or a multiple, are those of the whole batch from row `first` on."""

    __slots__ = ("count", "first")

    def __init__(self, key: Key, first: int, count: int) -> None:
        self._data, self.first, self.count = key._data, first, count

    def source(self, *place: Any) -> Seeded:
        return SeededRows(self, *place)


class SeededRows(Seeded):
    """The stream of a `RowKey`: element i of an array is made of the counter i alone, so some rows begin at a later one."""

    def __init__(self, key: RowKey, *place: Any) -> None:
        super().__init__(*place)
        self.first, self.count = key.first, key.count

    def _begin(self, shape: Any, offset: int) -> int:
        of_rows = bool(shape) and all(type(n) is int for n in shape) and shape[0] % self.count == 0
        return offset + (self.first * math.prod(shape) // self.count if of_rows else 0)

    def words(self, shape: Any, stream: int = 0, offset: int = 0) -> Array:
        return super().words(shape, stream, self._begin(shape, offset))

    def unit(self, shape: Any, dtype: Any, stream: int = 0, offset: int = 0) -> Array:
        return super().unit(shape, dtype, stream, self._begin(shape, offset))


class RowStream(Stream):
    """The stream of a run on some rows of a batch: the layers draw what they would for these rows in a run on all."""

    __slots__ = ("first", "rows")

    def __init__(self, key: Key, first: int, rows: int) -> None:
        super().__init__(key)
        self.first, self.rows = first, rows

    def next(self) -> Key:
        return RowKey(super().next(), self.first, self.rows)
