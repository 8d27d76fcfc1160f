"""The sources of batches: arrays, any iterable of batches, or a function from the epoch to an iterable.

A batch is the input of the model, or a tuple of the input and the other arguments of the loss: `(x, y)`. A tuple as input holds
several arguments of the model, a dict holds keywords.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from trellis.core import dtypes, tree
from trellis.core.array import Array
from trellis.core.container import Container
from trellis.core.dispatch import interpreters, load
from trellis.core.leaves import unwrap
from trellis.data.files import Column, Files
from trellis.data.iterables import Iterables, Prefetched
from trellis.ops.conversion import is_array, native_array
from trellis.ops.indexing import take
from trellis.optim.schedules import whole_number
from trellis.random.keys import Key, fold_in
from trellis.random.samplers import permutation

ORDER = 0x6F72646572  # keeps the keys of orders apart from those of steps


class Batches:
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
        self.arrays, self.batch_size, self.shuffle, self.drop_last = arrays, batch_size, shuffle, drop_last
        self.rows = next(iter(rows.values()), 0)
        self.key = fold_in(seed, ORDER)
        self.started = 0
        if not len(self):
            raise ValueError(f"Batches: {self.rows} rows make no batch of {batch_size}")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that decide the batches of an epoch, beside the arrays themselves."""
        return {"rows": self.rows, "batch_size": self.batch_size, "shuffle": self.shuffle, "drop_last": self.drop_last}

    def __len__(self) -> int:
        return self.rows // self.batch_size if self.drop_last else math.ceil(self.rows / self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        self.started += 1
        return self.epoch(self.started - 1)

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        """The batches of an epoch, counted from 0; from batch `start` on."""
        order = unwrap(permutation(self.rows, seed=fold_in(self.key, number), backend="numpy")) if self.shuffle else None
        for first in range(start * self.batch_size, len(self) * self.batch_size, self.batch_size):
            rows = slice(first, first + self.batch_size)
            yield tree.map(lambda x, rows=rows: _rows(x, rows, order), self.arrays)

    def first(self) -> Any:
        """A batch, to look at."""
        return next(self.epoch(0))

    def state(self) -> dict[str, Any]:
        return {}  # all that is random follows from the seed

    def set_state(self, state: Any) -> None: ...

    def check_epochs(self, name: str, epochs: int) -> None: ...


def _rows(x: Any, rows: slice, order: Any) -> Any:
    if order is None:
        return x[rows] if isinstance(x, (Array, np.ndarray)) else unwrap(Array(x)[rows])
    data = unwrap(x)
    if isinstance(data, np.ndarray):
        chosen = data[order[rows]]
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
        return Iterables(data.data, steps, data.ahead)
    if isinstance(data, (Batches, Files)):
        return data
    if is_array(data) or isinstance(data, (tuple, Container)):
        return Batches(data, **options)
    if isinstance(data, list) and data and is_array(data[0]):
        raise TypeError("data is a list of arrays; give arrays that belong together as a tuple, (x, y), or a list of batches")
    if isinstance(data, (str, bytes, Mapping)) or not (isinstance(data, Iterable) or callable(data)):
        raise TypeError(
            f"data is a {type(data).__name__}; expected a tuple of arrays such as (x, y), an iterable of batches, or a function "
            "of the epoch that returns one"
        )
    if steps is not None:
        whole_number("fit", "steps_per_epoch", steps)
    return Iterables(data, steps)


class Batch(NamedTuple):
    """A batch where the model is: arguments of the model, what else the loss gets, and the number of rows.

    `share` is empty, or says which of the rows these arrays hold: the first, how many, and of how many.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    targets: tuple[Any, ...]
    share: tuple[int, ...] = ()
    rows: int = 0


def call_arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments and keywords that a model is called with: a tuple or a list holds several arguments, a dict keywords."""
    if isinstance(inputs, dict):
        return (), dict(inputs)
    return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,), {}


class Place:
    """The framework, the device and the dtype of a model: floating-point data are cast to it."""

    def __init__(self, v: Container) -> None:
        first: Any = unwrap(next(iter(tree.leaves(v))))
        self.backend = load(interpreters[type(first)].name)
        self.device, self.dtype = self.backend.device_of(first), self.backend.dtype_of(first)

    def to_batch(self, batch: Any) -> Batch:
        """The arrays of a batch as Arrays on the model's framework and device."""
        if isinstance(batch, Mapping) and not isinstance(batch, Container):
            raise TypeError(
                f"a batch is a dict of {list(batch)}; expected (inputs, targets). Map it first: "
                "((batch['x'], batch['y']) for batch in data)"
            )
        inputs, *targets = batch if isinstance(batch, (tuple, list)) else (batch,)
        inputs, targets = tree.map(self._array, (inputs, tuple(targets)))
        leaves = tree.leaves(inputs)
        if not leaves or not leaves[0].shape:
            raise ValueError(f"a batch holds no array with rows for the model; it is a {type(batch).__name__}")
        return Batch(*call_arguments(inputs), targets, rows=leaves[0].shape[0])

    def _array(self, x: Any) -> Array:
        data = x[:] if isinstance(x, Column) else unwrap(x)
        own = interpreters[type(data)].dtype_of(data) if is_array(data) else None
        dtype = self.dtype if own is not None and own.kind == "f" else self._whole(data, own)
        return Array(native_array(data, dtype, self.device, None, self.backend.name))

    def _whole(self, data: Any, own: dtypes.DType | None) -> dtypes.DType | None:
        """int32 for the int64 of NumPy where the framework has it only and the numbers fit: labels need no warning."""
        narrow = own is dtypes.int64 and self.backend.default_int() is dtypes.int32
        if narrow and isinstance(data, np.ndarray):
            narrow = data.size and data.min() >= -(2**31) and data.max() < 2**31
        return dtypes.int32 if narrow and isinstance(data, (np.ndarray, Column)) else None  # a Column looks when it is read
