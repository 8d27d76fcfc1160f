"""Some rows of a batch: which rows are whose, their random numbers, and statistics over the rows of all processes."""

from __future__ import annotations

import math
from typing import Any

from trellis.core.array import Array
from trellis.distributed.collectives import Group, reduce_arrays
from trellis.nn.building import Stream
from trellis.ops.conversion import astype, stop_gradient
from trellis.ops.creation import full_like
from trellis.ops.elementwise import sqrt, square
from trellis.ops.manipulation import concat, reshape
from trellis.ops.normalization import batch_norm
from trellis.ops.reduction import sum as sum_of
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


class Rows(RowStream):
    """The stream of a run on some rows of a batch, whose other rows are those of other processes: it normalizes by all."""

    __slots__ = ("group",)

    def __init__(self, group: Group, *rest: Any) -> None:
        super().__init__(*rest)
        self.group = group

    def batch_norm(
        self, x: Any, mean: Any, variance: Any, *, scale: Any, offset: Any, training: bool, eps: float, momentum: float,
        data_format: str,
    ) -> tuple[Any, Any, Any]:  # fmt: skip
        """`tl.batch_norm` by the mean and the variance of the rows of all processes."""
        if not training:
            return batch_norm(
                x, mean, variance, scale=scale, offset=offset, training=False, eps=eps, momentum=momentum, data_format=data_format
            )
        last = data_format == "channel_last" or (not data_format.startswith("NC") and data_format.endswith("C"))
        axes = tuple(range(x.ndim - 1)) if last else (0, *range(2, x.ndim))
        wide = x if x.dtype.bits >= 32 else astype(x, mean.dtype)

        def along(one: Any) -> Any:
            return one if one is None or last else reshape(one, (-1, *(1,) * (x.ndim - 2)))

        mine = sum_of(wide, axis=axes)
        own = float(wide.size // mine.size)  # values per channel
        everything = self._sum(concat([mine, full_like(mine[:1], own)]))
        number = everything[-1]
        centre = everything[:-1] / number
        centred = wide - along(centre)
        spread = self._sum(sum_of(square(centred), axis=axes)) / number
        y = centred / sqrt(along(spread) + eps)
        y = y if scale is None else y * along(scale)
        y = y if offset is None else y + along(offset)
        unbiased = spread * (number / (number - 1))
        new = [
            astype(stop_gradient(old * (1 - momentum) + now * momentum), old.dtype, copy=False)
            for old, now in ((mean, centre), (variance, unbiased))
        ]
        return astype(y, x.dtype, copy=False), new[0], new[1]

    def _sum(self, x: Any) -> Any:
        return Array(reduce_arrays(self.group, [x._data], "sum")[0])
