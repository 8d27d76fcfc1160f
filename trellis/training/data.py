"""The sources of batches: arrays, any iterable of batches, or a function from the epoch to an iterable.

A batch is the input of the model, or a tuple of the input and the other arguments of the loss: `(x, y)`. A tuple as input holds
several arguments of the model, a dict holds keywords.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from trellis.core import dtypes, tree
from trellis.core.array import Array
from trellis.core.container import Container
from trellis.core.dispatch import interpreters, load
from trellis.core.leaves import unwrap
from trellis.data.batches import Batches, Source
from trellis.data.files import Column
from trellis.ops.conversion import as_arrays, is_array, native_array


class Batch(NamedTuple):
    """A batch where the model is: arguments of the model, what else the loss gets, and the number of rows.

    `share` is empty, or says for each part of the batch which rows these arrays hold: the first, how many, and of how many.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    targets: tuple[Any, ...]
    share: tuple[tuple[int, int, int], ...] = ()
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
            raise TypeError(f"a batch is a dict of {list(batch)}; give (inputs, targets): ((b['x'], b['y']) for b in data)")
        inputs, *targets = map(as_arrays, batch if isinstance(batch, (tuple, list)) else (batch,))
        inputs, targets = tree.map(self._array, (inputs, tuple(targets)))
        leaves = tree.leaves(inputs)
        if not leaves or not leaves[0].shape:
            raise ValueError(f"a batch holds no array with rows for the model; it is a {type(batch).__name__}")
        return Batch(*call_arguments(inputs), targets, rows=leaves[0].shape[0])

    def batches(self, data: Source, epoch: int, start: int) -> Iterator[Any]:
        """The batches of an epoch, for `to_batch`."""
        return data.epoch(epoch, start, self._cast) if isinstance(data, Batches) else data.epoch(epoch, start)

    def _cast(self, x: Any) -> Any:
        """The rows of many batches as a batch has them. Those of NumPy stay there for JAX and TensorFlow, which slice slowly."""
        if type(x) is not np.ndarray or self.backend.changes_in_place:
            return self._array(x)._data
        own = interpreters[np.ndarray].dtype_of(x)
        dtype = self.dtype if own.kind == "f" else self._whole(x, own)
        if dtype is None and own.bits == 64 and self.backend.default_int().bits < 64:  # it is narrowed, with a warning
            return self._array(x)._data
        return x if dtype is None else x.astype(dtype.dtype, copy=False)

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
