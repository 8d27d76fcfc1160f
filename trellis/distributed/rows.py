"""Some rows of a batch, whose other rows other processes have: statistics over the rows of all."""

from __future__ import annotations

from typing import Any

from trellis import ops as tl
from trellis.core.array import Array
from trellis.distributed.collectives import Group, reduce_arrays
from trellis.training.shares import RowStream


class Rows(RowStream):
    """The stream of a run on some rows of a batch, whose other rows are those of other processes: it normalizes by all."""

    __slots__ = ("group",)

    def __init__(self, group: Group, *rest: Any) -> None:
        super().__init__(*rest)
        self.group = group

    def batch_norm(self, x: Any, mean: Any, variance: Any, *, training: bool, **options: Any) -> tuple[Any, Any, Any]:
        """`tl.batch_norm` by the mean and the variance of the rows of all processes."""
        if not training:
            return tl.batch_norm(x, mean, variance, training=False, **options)
        scale, offset, eps, momentum, data_format = (options[n] for n in ("scale", "offset", "eps", "momentum", "data_format"))
        last = data_format == "channel_last" or (not data_format.startswith("NC") and data_format.endswith("C"))
        axes = tuple(range(x.ndim - 1)) if last else (0, *range(2, x.ndim))
        wide = x if x.dtype.bits >= 32 else tl.astype(x, mean.dtype)

        def along(one: Any) -> Any:
            return one if one is None or last else tl.reshape(one, (-1, *(1,) * (x.ndim - 2)))

        mine = tl.sum(wide, axis=axes)
        own = float(wide.size // mine.size)  # values per channel
        everything = self._sum(tl.concat([mine, tl.full_like(mine[:1], own)]))
        number = everything[-1]
        centre = everything[:-1] / number
        centred = wide - along(centre)
        spread = self._sum(tl.sum(tl.square(centred), axis=axes)) / number
        y = centred / tl.sqrt(along(spread) + eps)
        y = y if scale is None else y * along(scale)
        y = y if offset is None else y + along(offset)
        unbiased = spread * (number / (number - 1))
        new = [
            tl.astype(tl.stop_gradient(old * (1 - momentum) + now * momentum), old.dtype, copy=False)
            for old, now in ((mean, centre), (variance, unbiased))
        ]
        return tl.astype(y, x.dtype, copy=False), new[0], new[1]

    def _sum(self, x: Any) -> Any:
        return Array(reduce_arrays(self.group, [x._data], "sum")[0])
