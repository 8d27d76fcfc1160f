"""The sources of batches: arrays, any iterable of batches, or a function from the epoch to an iterable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from trellis.core import tree
from trellis.core.array import Array
from trellis.core.container import Container
from trellis.core.dispatch import interpreters
from trellis.core.leaves import unwrap
from trellis.data.files import Files, Ordered
from trellis.data.iterables import Iterables, Prefetched
from trellis.ops.conversion import as_arrays, is_array
from trellis.ops.indexing import take
from trellis.optim.schedules import whole_number
from trellis.random.keys import Key, fold_in
from trellis.random.samplers import permutation

ORDER = 0x6F72646572  # keeps the keys of orders apart from those of steps
_BLOCK = 2**20  # bytes of NumPy arrays whose rows are taken at once


class Batches(Ordered):
    """Batches of arrays that belong together, row by row, in a new order each time they are iterated.

    `arrays` is an array or a nest of them: `(x, y)`. The order follows from `seed` and the epoch alone, so it is the same for
    every framework; `epoch(n)` gives the batches of one epoch. What you pass is what you get, in pieces.

    >>> import numpy as np, trellis as tl
    >>> batches = tl.Batches((np.arange(5), np.arange(5) ** 2), batch_size=2, seed=0)
    >>> len(batches), [x.tolist() for x, y in batches]
    (3, [[2, 1], [0, 3], [4]])
    """

    def __init__(
        self, arrays: Any, batch_size: int = 32, *, shuffle: bool = True, seed: int | Key = 0, drop_last: bool = False
    ) -> None:
        whole_number("Batches", "batch_size", batch_size)
        found = tree.leaves_with_paths(arrays)
        for path, x in found:
            if not is_array(x):
                raise TypeError(f"Batches: arrays holds a {type(x).__name__} at {path!r}; make it an array, e.g. with np.asarray")
            if not x.shape:
                raise ValueError(f"Batches: the array at {path!r} has no axis to take batches from")
        rows = {path: x.shape[0] for path, x in found}
        if len(set(rows.values())) > 1:
            raise ValueError(f"Batches: the arrays have different numbers of rows: {rows}")
        self.arrays = arrays
        super().__init__("Batches", next(iter(rows.values()), 0), batch_size, shuffle, fold_in(seed, ORDER), drop_last)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that decide the batches of an epoch, beside the arrays themselves."""
        return {"rows": self.rows, "batch_size": self.batch_size, "shuffle": self.shuffle, "drop_last": self.drop_last}

    def epoch(self, number: int, start: int = 0, change: Callable[[Any], Any] | None = None) -> Iterator[Any]:
        """The batches of an epoch, counted from 0; from batch `start` on. `change` is applied to their arrays.

        The rows of NumPy arrays are taken for many batches at once, and each batch is a view.
        """
        order = unwrap(permutation(self.rows, seed=fold_in(self.key, number), backend="numpy")) if self.shuffle else None
        leaves, treedef = tree.flatten(self.arrays)
        step = block = self.batch_size
        if all(type(x) is np.ndarray for x in leaves):
            block *= max(1, _BLOCK // (1 + step * sum([x[:1].nbytes for x in leaves])))
        stop = len(self) * step
        for first in range(start * step, stop, block):
            last = min(first + block, stop)
            parts = [_rows(x, slice(first, last), order) for x in leaves]
            if change is not None:
                parts = [change(x) for x in parts]
            starts = range(0, last - first, step)
            batches = zip(*[[x] if block == step else [x[i : i + step] for i in starts] for x in parts])
            yield from (
                batches
                if type(self.arrays) is tuple and len(leaves) == len(self.arrays)
                else [tree.unflatten(treedef, batch) for batch in batches]
            )

    def first(self) -> Any:
        """A batch, to look at."""
        return next(self.epoch(0))


def _rows(x: Any, rows: slice, order: Any) -> Any:
    if order is None:
        return x[rows] if isinstance(x, (Array, np.ndarray)) else unwrap(Array(x)[rows])
    data = unwrap(x)
    if isinstance(data, np.ndarray):
        chosen = data.take(order[rows], 0)
    else:
        chosen = take(data, interpreters[type(data)].constant(order[rows], like=data), axis=0)
    return Array(chosen) if isinstance(x, Array) else chosen


Source = Batches | Iterables | Files


def source(data: Any, steps: int | None = None, **options: Any) -> Source:
    """Where the batches come from. A tuple, an array or a Container are arrays; anything that can be iterated gives batches."""
    if isinstance(data, Prefetched):
        found = source(data.data, steps)
        if not isinstance(found, Iterables):
            raise TypeError(
                f"prefetch: data is a {type(data.data).__name__}, which needs no thread; give it to the Trainer itself"
            )
        return Iterables(data.data, steps, data.ahead, data.per_process)
    if isinstance(data, (Batches, Files)):
        return data
    data = as_arrays(data)
    if is_array(data) or isinstance(data, (tuple, Container)):
        return Batches(data, **options)
    if isinstance(data, list) and not data:
        raise ValueError("data is an empty list; give a list of batches, or rows of numbers")
    if isinstance(data, list) and is_array(data[0]):
        raise TypeError("data is a list of arrays; give arrays that belong together as a tuple, (x, y), or a list of batches")
    if isinstance(data, (str, bytes, Mapping)) or not (isinstance(data, Iterable) or callable(data)):
        raise TypeError(
            f"data is a {type(data).__name__}; expected a tuple of arrays such as (x, y), an iterable of batches, or a function "
            "of the epoch that returns one"
        )
    if steps is not None:
        whole_number("fit", "steps_per_epoch", steps)
    return Iterables(data, steps)
