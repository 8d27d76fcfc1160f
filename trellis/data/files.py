"""Batches from the rows of many files: npz, safetensors and Parquet.

A file of plain arrays is mapped into memory, so a batch reads its own rows and nothing else. A compressed npz file and a Parquet
file are read whole when their turn comes; two of them are held at a time.
"""

from __future__ import annotations

import functools
import glob
import hashlib
import importlib
import json
import math
import os
import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from trellis.core.array import unwrap
from trellis.optim.schedules import whole_number
from trellis.random.keys import Key, fold_in
from trellis.random.samplers import permutation

ORDER = 0x66696C6573  # keeps the keys of these orders apart from others of the same seed
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1",
           "U16": "<u2", "U32": "<u4", "U64": "<u8", "BOOL": "?"}  # fmt: skip
Table = dict[str, Any]  # column -> array


def files(
    pattern: str | Sequence[str], batch_size: int = 32, *, columns: Sequence[str] | None = None, shuffle: bool = True,
    seed: int = 0, drop_last: bool = False, ahead: int = 2,
) -> Files:  # fmt: skip
    """Batches from the rows of the files that fit `pattern`, or of a list of paths: npz, safetensors or Parquet.

    `columns` names the arrays of a batch in order, by default ("x", "y") if the files hold these, else all of a file. The order
    follows from `seed` and the epoch: of all rows where the files are mapped into memory, else of the files and of the rows of
    each. `ahead` batches are read in a background thread. Give it to `Trainer.fit`, `evaluate` or `predict` as data.

    >>> import tempfile, numpy as np, trellis as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for i in range(3):
    ...         np.savez(f"{folder}/train-{i}.npz", x=np.arange(4) + 4 * i)
    ...     batches = tl.data.files(f"{folder}/train-*.npz", 5, shuffle=False)
    ...     len(batches), [x.tolist() for (x,) in batches]
    (3, [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]])
    """
    paths = sorted(glob.glob(pattern)) if isinstance(pattern, str) else [os.fspath(path) for path in pattern]
    if not paths:
        raise FileNotFoundError(2, f"files: no file fits {pattern!r}")
    return Files(paths, batch_size, columns, shuffle, seed, drop_last, ahead)


class Ordered:
    """Batches of some rows, in an order that follows from a seed and the number of the epoch."""

    epoch: Callable[..., Iterator[Any]]

    def __init__(self, op: str, rows: int, batch_size: int, shuffle: bool, key: Key, drop_last: bool) -> None:
        self.rows, self.batch_size, self.shuffle, self.drop_last = rows, batch_size, shuffle, drop_last
        self.key, self.started = key, 0
        if not len(self):
            raise ValueError(f"{op}: {rows} rows make no batch of {batch_size}")

    def __len__(self) -> int:
        return self.rows // self.batch_size if self.drop_last else math.ceil(self.rows / self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        self.started += 1
        return self.epoch(self.started - 1)

    def state(self) -> dict[str, Any]:
        return {}  # all that is random follows from the seed

    def set_state(self, state: Any) -> None: ...

    def check_epochs(self, name: str, epochs: int) -> None: ...


class Files(Ordered):
    """Batches of the rows of files, made by `tl.data.files`. Iteration gives NumPy arrays, in a new order each time.

    `epoch(n)` gives the batches of epoch n as Columns, whose rows are read when they are asked for.

    >>> import tempfile, numpy as np, trellis as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/rows.npz", x=np.arange(4))
    ...     files = tl.data.files(f"{folder}/rows.npz", 2)
    ...     files.rows, len(files), sorted(np.concatenate([x for (x,) in files]).tolist())
    (4, 2, [0, 1, 2, 3])
    """

    def __init__(
        self, paths: list[str], batch_size: int, columns: Sequence[str] | None, shuffle: bool, seed: int, drop_last: bool,
        ahead: int,
    ) -> None:  # fmt: skip
        whole_number("files", "batch_size", batch_size)
        whole_number("files", "ahead", ahead, 0)
        self.shards = [Shard(path) for path in paths]
        first = self.shards[0]
        usual = ["x", "y"] if {"x", "y"} <= set(first.forms) else list(first.forms)
        self.columns = tuple(usual if columns is None else columns)
        self.forms = {name: first.form(name) for name in self.columns}
        for shard in self.shards:
            shard.check(first, self.columns)
        self.ends = np.cumsum([shard.rows for shard in self.shards])
        self.seed, self.ahead = seed, ahead
        self.parts: dict[int, tuple[int, int]] = {}  # number of rows -> which of them were taken of the last such batch
        super().__init__("files", int(self.ends[-1]), batch_size, shuffle, fold_in(seed, ORDER), drop_last)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that decide the batches of an epoch; a digest stands for the files."""
        named = [(os.path.basename(shard.path), shard.rows, os.path.getsize(shard.path)) for shard in self.shards]
        digest = hashlib.sha256(json.dumps(named).encode()).hexdigest()[:16]
        order = {"files_seed": self.seed, "shuffle": self.shuffle}
        return {"files": digest, "batch_size": self.batch_size, "drop_last": self.drop_last, **order}

    def __iter__(self) -> Iterator[Any]:
        return (tuple(column[:] for column in batch) for batch in super().__iter__())

    def epoch(self, number: int, start: int = 0) -> Iterator[tuple[Column, ...]]:
        """The batches of an epoch, counted from 0, from batch `start` on; a column is read when a part of it is asked for."""
        order = self.order(number)
        firsts = range(start * self.batch_size, len(self) * self.batch_size, self.batch_size)
        made = (Rows(self, order[first : first + self.batch_size]) for first in firsts)
        if not self.ahead:
            yield from (rows.batch() for rows in made)
            return
        waiting: list[Rows] = []
        with ThreadPoolExecutor(1, "trellis-files") as reader:
            for rows in made:
                rows.begin(reader)
                waiting.append(rows)
                if len(waiting) > self.ahead:
                    yield waiting.pop(0).batch()
            yield from (rows.batch() for rows in waiting)

    def order(self, number: int) -> Any:
        """The rows of all files in the order of an epoch."""
        if not self.shuffle:
            return np.arange(self.rows)
        key = fold_in(self.key, number)
        if all(shard.is_mapped for shard in self.shards):
            return _permutation(self.rows, key)
        begins = self.ends - [shard.rows for shard in self.shards]
        turns = _permutation(len(self.shards), key)
        return np.concatenate([begins[i] + _permutation(self.shards[i].rows, fold_in(key, int(i) + 1)) for i in turns])

    def read(self, name: str, rows: Any) -> Any:
        """These rows of a column, in order."""
        shape, dtype = self.forms[name]
        result = np.empty((len(rows), *shape), dtype)
        which = np.searchsorted(self.ends, rows, "right")
        for i in np.unique(which):
            here, shard = which == i, self.shards[i]
            result[here] = shard.table()[name][rows[here] - (self.ends[i] - shard.rows)]
        return result

    def first(self) -> Any:
        return tuple(column[:] for column in Rows(self, self.order(0)[: self.batch_size]).batch())


def _permutation(rows: int, key: Any) -> Any:
    return unwrap(permutation(rows, seed=key, backend="numpy"))


class Rows:
    """Some rows of the files. A background thread reads those that were taken of the last batch of this size.

    Of several processes each takes its own part of every batch, so each reads that part.
    """

    def __init__(self, source: Files, rows: Any) -> None:
        self.source, self.rows = source, rows
        self.first, self.last = 0, 0  # the rows that the thread reads
        self.taken = len(rows), 0  # the first and the last of those that were asked for
        self.begun: dict[str, Future[Any]] = {}

    def begin(self, reader: ThreadPoolExecutor) -> None:
        self.first, self.last = self.source.parts.get(len(self.rows), (0, len(self.rows)))
        rows = self.rows[self.first : self.last]
        self.begun = {name: reader.submit(self.source.read, name, rows) for name in self.source.columns}

    def batch(self) -> tuple[Column, ...]:
        return tuple(Column(self, name) for name in self.source.columns)

    def read(self, name: str, part: slice) -> Any:
        first, last, _ = part.indices(len(self.rows))
        self.taken = self.source.parts[len(self.rows)] = min(first, self.taken[0]), max(last, self.taken[1])
        if name in self.begun and self.first <= first and last <= self.last:
            return self.begun[name].result()[first - self.first : last - self.first]
        return self.source.read(name, self.rows[first:last])


class Column:
    """A column of a batch whose rows are read when they are asked for: `column[first:last]`.

    >>> import tempfile, numpy as np, trellis as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/rows.npz", x=np.arange(4))
    ...     files = tl.data.files(f"{folder}/rows.npz", 2, shuffle=False)
    ...     [column] = next(files.epoch(0))
    ...     len(column), column[1:].tolist()
    (2, [1])
    """

    def __init__(self, rows: Rows, name: str, dtype: Any = None) -> None:
        shape, own = rows.source.forms[name]
        self._rows, self._name, self.shape = rows, name, (len(rows.rows), *shape)
        self.dtype = own if dtype is None else np.dtype(dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def astype(self, dtype: Any) -> Column:
        return Column(self._rows, self._name, dtype)

    def __getitem__(self, key: slice | tuple[slice, ...]) -> Any:
        part, *others = key if isinstance(key, tuple) else (key,)
        found = self._rows.read(self._name, part)[(slice(None), *others)]
        result = found.astype(self.dtype, copy=False)
        if found.dtype.kind in "iu" and result is not found and (result != found).any():
            raise OverflowError(f"files: {self._name!r} holds integers outside of the range of {self.dtype}; write smaller ones")
        return result


# ---- one file ------------------------------------------------------------------------------------------------------------------
class Shard:
    """A file of columns with equally many rows. Its arrays are opened when they are needed."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.stamp = _stamp(path)
        kind = os.path.splitext(path)[1]
        if kind not in _READERS:
            raise ValueError(f"files: {path} ends in {kind!r}; expected one of {', '.join(_READERS)}")
        self.reader = _READERS[kind]
        table, self.is_mapped = self.reader(path)
        self.forms = {name: (x.shape[1:], x.dtype) for name, x in table.items() if x.ndim}
        sizes = {name: len(table[name]) for name in self.forms}
        if len(set(sizes.values())) != 1:
            raise ValueError(f"files: the columns of {path} have different numbers of rows: {sizes}")
        self.rows = next(iter(sizes.values()))

    def form(self, name: str) -> Any:
        if name not in self.forms:
            raise KeyError(f"files: {self.path} has no column {name!r}; it has {', '.join(self.forms)}")
        return self.forms[name]

    def check(self, first: Shard, columns: Sequence[str]) -> None:
        for name in columns:
            if self.form(name) != first.form(name):
                one, other = (f"{dtype} of shape {list(shape)}" for shape, dtype in (first.form(name), self.form(name)))
                raise ValueError(f"files: a row of {name!r} is {one} in {first.path} and {other} in {self.path}; make them equal")

    def table(self) -> Table:
        if _stamp(self.path) != self.stamp:
            raise ValueError(f"files: {self.path} changed after it was opened; make the batches again with tl.data.files")
        return (_open_mapped if self.is_mapped else _open_whole)(self.reader, self.path, self.stamp)


def _stamp(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


def _read_npz(path: str) -> tuple[Table, bool]:
    with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
            with np.load(path, allow_pickle=False) as held:
                return {name: held[name] for name in held.files}, False
        table = {}
        for entry in archive.infolist():
            file.seek(entry.header_offset + 26)
            name, extra = struct.unpack("<HH", file.read(4))
            file.seek(entry.header_offset + 30 + name + extra)
            version = np.lib.format.read_magic(file)
            header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = header(file)
            if dtype.hasobject:
                raise ValueError(f"files: {entry.filename} in {path} holds Python objects, which are not loaded; save numbers")
            where = {"offset": file.tell(), "shape": shape, "order": "F" if fortran else "C"}
            table[entry.filename.removesuffix(".npy")] = _mapped(path, dtype, where)
    return table, True


def _mapped(path: str, dtype: Any, where: dict[str, Any]) -> Any:
    return np.memmap(path, dtype, "r", **where) if math.prod(where["shape"]) else np.empty(where["shape"], dtype)


def _read_safetensors(path: str) -> tuple[Table, bool]:
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
    table = {}
    for name, about in header.items():
        if name != "__metadata__":
            if about["dtype"] not in _DTYPES:
                raise ValueError(f"files: {name!r} in {path} is {about['dtype']}, which NumPy lacks; write it as F32")
            where = {"offset": 8 + size + about["data_offsets"][0], "shape": tuple(about["shape"])}
            table[name] = _mapped(path, np.dtype(_DTYPES[about["dtype"]]), where)
    return table, True


def _read_parquet(path: str) -> tuple[Table, bool]:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise ImportError(f"files: {path} needs pyarrow; pip install pyarrow") from error
    found = parquet.read_table(path)
    return {name: _plain(path, name, found[name]) for name in found.column_names}, False


def _plain(path: str, name: str, column: Any) -> Any:
    """A column of numbers, or of lists that are equally long."""
    values = column.combine_chunks()
    if column.null_count:
        raise ValueError(f"files: {name!r} in {path} holds {column.null_count} nulls; fill them")
    array = values.to_numpy(zero_copy_only=False)
    if array.dtype != object:
        return array
    try:
        return np.stack([np.asarray(row) for row in array])
    except ValueError as error:
        raise ValueError(f"files: the lists of {name!r} in {path} are not equally long: {error}") from error


_READERS = {".npz": _read_npz, ".safetensors": _read_safetensors, ".parquet": _read_parquet}


def _open(reader: Any, path: str, stamp: Any) -> Table:
    return reader(path)[0]


_open_mapped, _open_whole = functools.lru_cache(64)(_open), functools.lru_cache(2)(_open)
