"""Batches that something else makes: an iterable, an iterator, or a function from the epoch to one; read ahead in a thread."""

from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from trellis.ops.conversion import native_array
from trellis.optim.schedules import whole_number

_END = object()


def prefetch(
    data: Iterable[Any] | Callable[[int], Iterable[Any]], ahead: int = 2, *, per_process: bool = False
) -> Prefetched:  # fmt: skip
    """Batches of `data`, which a background thread reads `ahead` batches in advance.

    `data` is a torch DataLoader, a tf.data.Dataset, any iterable or iterator, or a function from the epoch to one.

    `Trainer.fit` takes it as it takes `data` itself: a resumed training goes on with the next batch. The thread takes batches of
    an iterator before they are asked for; a training that stops inside an epoch leaves these out.

    With `per_process` each process of a mesh has its own part of the data: a DataLoader with a DistributedSampler (its
    `set_epoch` is called), `dataset.shard(size, rank)`, or grain. A step takes a batch of every process; together, by rank, they
    are the batch. All processes give equally many batches of equally many rows. If the order of an epoch follows from its
    number, a resumed training sees each row once.

    >>> import trellis as tl
    >>> list(tl.data.prefetch(range(5), ahead=3))
    [0, 1, 2, 3, 4]
    """
    whole_number("prefetch", "ahead", ahead)
    if not (isinstance(data, Iterable) or callable(data)):
        raise TypeError(f"prefetch: data is a {type(data).__name__}; expected an iterable of batches, or a function of the epoch")
    return Prefetched(data, ahead, per_process)


class Prefetched:
    """Batches that are read ahead, made by `tl.data.prefetch`.

    >>> import trellis as tl
    >>> batches = tl.data.prefetch([1, 2, 3], ahead=2)
    >>> isinstance(batches, tl.data.Prefetched), list(batches)
    (True, [1, 2, 3])
    """

    def __init__(self, data: Any, ahead: int, per_process: bool) -> None:
        self.data, self.ahead, self.per_process = data, ahead, per_process

    def __iter__(self) -> Iterator[Any]:
        return read_ahead(iter(self.data), self.ahead)


def read_ahead(batches: Iterator[Any], ahead: int) -> Iterator[Any]:
    with ThreadPoolExecutor(1, "trellis-prefetch") as reader:
        waiting = deque(reader.submit(next, batches, _END) for _ in range(ahead))
        while (batch := waiting.popleft().result()) is not _END:
            waiting.append(reader.submit(next, batches, _END))
            yield batch


class Iterables:
    """Batches that something else makes: an iterable, an iterator, or a function from the epoch to one."""

    def __init__(self, data: Any, steps: int | None, ahead: int = 0, per_process: bool = False) -> None:
        self.data, self.steps, self.ahead, self.taken, self.per_process = data, steps, ahead, 0, per_process
        self.once: Any = data if isinstance(data, Iterator) else None
        self.settings = {"steps_per_epoch": steps}

    def __len__(self) -> int:
        """The number of batches of an epoch; 0 if that is not known."""
        try:
            size = len(self.data) if self.once is None else 0
        except TypeError:  # also what a DataLoader or tf.data raises that does not know
            size = 0
        return min(size or self.steps, self.steps) if self.steps else size

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        batches = self._epoch(number, start)
        return read_ahead(batches, self.ahead) if self.ahead else batches

    def _epoch(self, number: int, start: int) -> Iterator[Any]:
        if self.once is None:
            sampler: Any = getattr(self.data, "sampler", None)
            if self.per_process and hasattr(sampler, "set_epoch"):
                sampler.set_epoch(number)
            made = self.data if isinstance(self.data, Iterable) else self.data(number)
            return itertools.islice(made, start, self.steps)
        before = 0 if self.taken or self.steps is None else number * self.steps  # of a training that goes on: passed over
        self.taken += 1
        return itertools.islice(self.once, before + start, None if self.steps is None else before + self.steps)

    def check_epochs(self, name: str, epochs: int) -> None:
        """Raise, before the first step, if there are batches for one epoch only and several epochs."""
        if self.once is not None and self.steps is None and epochs > 1:
            other = ", or say steps_per_epoch" if name == "data" else ""
            raise ValueError(
                f"fit: {name} is a {type(self.data).__name__}, which can be iterated once only, but there are {epochs} epochs; "
                f"give something that can be iterated again: a list, or a function of the epoch{other}"
            )

    def first(self) -> Any:
        """A batch, to look at: of an iterator it is given out again."""
        batch = next(iter(self.data if isinstance(self.data, Iterable) else self.data(0)), None)
        if self.once is not None:
            self.once = itertools.chain([batch], self.once)
        return batch

    def generators(self) -> list[Any]:
        """The random generators of a torch DataLoader: their state when an epoch begins decides about its order."""
        if not any(base.__module__.startswith("torch.utils.data") for base in type(self.data).__mro__):
            return []
        own = [getattr(self.data, "generator", None), getattr(self.data.sampler, "generator", None)]
        return [*[g for g in own if g is not None], sys.modules["torch"].default_generator]

    def state(self) -> dict[str, Any]:
        """The random state, as arrays of bytes."""
        return {str(i): g.get_state().numpy().copy() for i, g in enumerate(self.generators())}

    def set_state(self, state: Mapping[str, Any]) -> None:
        for i, generator in enumerate(self.generators()):
            generator.set_state(native_array(state[str(i)], None, None, True, "torch"))
