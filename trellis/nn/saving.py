"""Files of arrays in the safetensors format: 8 bytes with the length of a JSON header, the header, the data.

Written here, since the format is that small and the core needs NumPy only. Rules:
- Nothing is run to read a file. The header is checked against the size of the file before any array is made.
- A file is written aside, brought to the disk and then renamed, so that there is the old file or the new one, whatever happens.
- Names are the paths of `module.v`. A hash over names, shapes and data, in the metadata, tells a changed file; files of other
  programs have none, and load if their names fit.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from trellis.core import dtypes
from trellis.core.array import Array
from trellis.core.container import Container, leaf_above_others
from trellis.core.dispatch import target
from trellis.core.files import atomic
from trellis.nn import building, navigation
from trellis.nn.structure import as_array
from trellis.ops.conversion import to_numpy

__all__ = ["load", "save"]

_CODES = {
    "bool": "BOOL", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "uint8": "U8", "uint16": "U16", "uint32": "U32",
    "uint64": "U64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64", "complex64": "C64",
}  # fmt: skip
_NAMES = {code: name for name, code in _CODES.items()}
_LARGEST_HEADER = 100_000_000  # as the safetensors library has it
_PARTS = ("v", "buffers", "random")
_OWN_METADATA = ("format", "parts", "class", "sha256")


class FileError(ValueError):
    """A file that cannot be read as what it should be. A ValueError."""


# ---- writing -------------------------------------------------------------------------------------------------------------------
def save(path: Any, arrays: Any, /, *, metadata: Mapping[str, str] | None = None) -> None:
    """Write a Container (or a nested dict) of arrays to a safetensors file: all of it, or nothing of it.

    >>> import tempfile, trellis as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tl.save(f"{folder}/state.safetensors", {"step": tl.asarray(3), "mean": {"w": tl.zeros(2)}})
    ...     tl.load(f"{folder}/state.safetensors")["mean/w"]
    Array([0., 0.], dtype=float32, backend='numpy', device='cpu')
    """
    flat = {name: x for name, x in Container(arrays).to_flat_dict().items() if x is not None}
    given = dict(metadata or {})
    for key, value in given.items():
        if key in _OWN_METADATA:
            raise ValueError(f"save: metadata={{{key!r}: ...}} is taken: Trellis writes that entry itself; use another key")
        if not (isinstance(key, str) and isinstance(value, str)):
            raise TypeError(f"save: metadata holds {key!r}: {value!r}; safetensors takes strings only, so write str(value)")
    _write(path, flat, {**given, "format": "trellis"})


def save_module(module: Any, path: Any) -> None:
    """Write parameters, buffers and random state to a safetensors file: all of it, or nothing of it."""
    state = {part: values.to_flat_dict() for part, values in module.state().items()}
    flat = {name: x for values in state.values() for name, x in values.items()}
    parts = json.dumps({part: list(values) for part, values in state.items()})
    _write(path, flat, {"format": "trellis", "parts": parts, "class": type(module).__name__})


def _write(path: Any, flat: dict[str, Any], metadata: dict[str, str]) -> None:
    header: dict[str, Any] = {}
    blocks: list[np.ndarray[Any, Any]] = []
    offset = 0
    for name, x in flat.items():
        array = as_array(x)
        if name == "__metadata__":
            raise ValueError("save: '__metadata__' is the name of the header's own entry; give the array another name")
        if array is None:
            raise TypeError(f"save: {name!r} is a {type(x).__name__}; expected an array")
        code = _CODES.get(array.dtype.name)
        if code is None:
            raise TypeError(f"save: {name!r} is {array.dtype}, which safetensors lacks; save its real and imaginary parts")
        value = np.ascontiguousarray(to_numpy(array._data)).reshape(tuple(array.shape))
        value = value.astype(value.dtype.newbyteorder("<"), copy=False)
        header[name] = {"dtype": code, "shape": list(value.shape), "data_offsets": [offset, offset + value.nbytes]}
        offset += value.nbytes
        blocks.append(value.reshape(-1).view(np.uint8))
    digest = hashlib.sha256(_canonical(header))
    for block in blocks:
        digest.update(block.data)
    text = json.dumps({"__metadata__": {**metadata, "sha256": digest.hexdigest()}, **header}, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # so that the data are aligned
    with atomic(path) as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for block in blocks:
            file.write(block.data)


def _canonical(header: dict[str, Any]) -> bytes:
    return json.dumps(header, sort_keys=True).encode()


# ---- reading -------------------------------------------------------------------------------------------------------------------
def load(path: Any, model: Any = None, /, *, backend: str | None = None, device: Any = None) -> Any:
    """Read a file of `model.save` or `tl.save`, on any backend: a Container of `tl.Array`s, or the model with these.

    A file of a model gives a Container of its `v`, `buffers` and `random` state.

    >>> import tempfile, trellis as tl
    >>> model = tl.Linear(3, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model.safetensors")
    ...     other = tl.load(f"{folder}/model.safetensors", tl.Linear(3, 2))
    >>> other.v.all_equal(model.v)
    True
    """
    if model is not None:
        return load_module(model, path)
    flat, metadata = _read(path)
    goal = target(backend)
    arrays = {name: Array(goal.from_numpy(x, dtype=None, device=device, copy=True)) for name, x in flat.items()}
    parts = _parts(path, flat, metadata)
    if parts is None:
        return Container.from_flat_dict(arrays)
    return Container({part: Container.from_flat_dict({n: arrays[n] for n in names}) for part, names in parts.items()})


def load_module(module: Any, path: Any, *, with_partial_v: bool = False) -> Any:
    """Take parameters, buffers and random state from a file; names and shapes must fit, else nothing changes."""
    flat, metadata = _read(path)
    if not module.built:
        module.build()
    before = module.state()
    own = {part: before[part].to_flat_dict() for part in _PARTS}
    parts = _parts(path, flat, metadata)
    if parts is None:  # a file of another program: the names tell buffers from parameters
        buffers = [name for name in flat if name in own["buffers"]]
        parts = {"v": [name for name in flat if name not in own["buffers"]], "buffers": buffers, "random": []}
    given = {part: {n: _array_in_place_of(own[part].get(n), flat[n]) for n in names} for part, names in parts.items()}
    for part in ("v", "buffers"):
        building.compare(f"load: {os.fspath(path)}", part, own[part], given[part], with_partial_v)
    try:
        for part in ("v", "buffers"):
            values = Container.from_flat_dict(given[part])
            building.assign_arrays(module, values, partial=with_partial_v, buffers=part == "buffers", name="the file")
    except BaseException:
        building.assign_arrays(module, before["v"])
        building.assign_arrays(module, before["buffers"], buffers=True)
        raise
    navigation.set_random_state(module, Container.from_flat_dict(given["random"]))
    return module


def _array_in_place_of(own: Array | None, value: np.ndarray[Any, Any]) -> Array:
    return Array(value.copy()) if own is None else building.array_like(own, value)


def _parts(path: Any, flat: dict[str, Any], metadata: dict[str, str]) -> dict[str, list[str]] | None:
    if "parts" not in metadata:
        return None
    try:
        parts = json.loads(metadata["parts"])
        names = sorted(name for part in _PARTS for name in parts[part])
    except (ValueError, KeyError, TypeError):
        names, parts = [], {}
    if names != sorted(flat):
        raise FileError(f"load: {os.fspath(path)} is damaged: its list of parameters and buffers does not match its arrays")
    return {part: parts[part] for part in _PARTS}


def _read(path: Any) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, str]]:
    name = os.fspath(path)
    with open(path, "rb") as file:
        data = file.read()
    header, start = _header(name, data)
    metadata = header.pop("__metadata__", {})
    _check_layout(name, header, len(data) - start)
    if "sha256" in metadata:
        digest = hashlib.sha256(_canonical(header))
        digest.update(memoryview(data)[start:])
        if digest.hexdigest() != metadata["sha256"]:
            raise FileError(f"load: {name} was changed after it was written: its hash does not fit its contents")
    if (above := leaf_above_others(header)) is not None:
        raise FileError(f"load: {name} holds {above!r} and arrays below that name, which no Container holds; rename one of them")
    kinds = {key: _numpy_dtype(_NAMES[entry["dtype"]]) for key, entry in header.items()}
    flat = {k: np.ndarray(e["shape"], kinds[k], data, start + e["data_offsets"][0]) for k, e in header.items()}
    return {**flat, **_joined(name, json.loads(metadata["divided"]))} if "divided" in metadata else flat, metadata


def _joined(name: str, index: dict[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays that several processes wrote, each its pieces to a file beside the index: `{path}@{first indices}`."""
    flat: dict[str, np.ndarray[Any, Any]] = {}
    left = {key: math.prod(shape) for key, shape in index["shapes"].items()}
    for file in index["files"]:
        try:
            pieces, metadata = _read(os.path.join(os.path.dirname(name), file))
        except FileNotFoundError as error:
            raise FileError(f"load: {name} is an index, and its part {file} is missing beside it") from error
        if metadata.get("checkpoint") != index["checkpoint"]:
            raise FileError(f"load: the part {file} of {name} belongs to another checkpoint")
        for place, x in pieces.items():
            key, _, first = place.rpartition("@")
            whole = flat.setdefault(key, np.empty(index["shapes"][key], x.dtype))
            whole[tuple(slice(int(i), int(i) + n) for i, n in zip(first.split(","), x.shape))] = x
            left[key] -= x.size
    if any(left.values()):
        raise FileError(f"load: the parts of {name} do not hold all of {next(key for key in left if left[key])!r}")
    return flat


def _numpy_dtype(name: str) -> np.dtype[Any]:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name).newbyteorder("<")


def _header(name: str, data: bytes) -> tuple[dict[str, Any], int]:
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > _LARGEST_HEADER or data[8:9] != b"{":
        raise FileError(f"load: {name} is no safetensors file")
    if 8 + length > len(data):
        raise FileError(f"load: {name} is cut off: its header says {length} bytes, the file has {len(data) - 8} more")
    try:
        header = json.loads(data[8 : 8 + length].decode())
    except ValueError as error:
        raise FileError(f"load: {name} is no safetensors file, or its header is damaged: {error}") from error
    if not isinstance(header, dict) or not isinstance(header.get("__metadata__", {}), dict):
        raise FileError(f"load: {name} has a damaged header")
    return header, 8 + length


def _check_layout(name: str, header: dict[str, Any], size: int) -> None:
    """Every array has a known dtype and the bytes of its shape; together they fill the file, without holes or overlaps."""
    for key, entry in header.items():
        lists = isinstance(entry, dict) and _are_sizes(entry.get("shape")) and _are_sizes(entry.get("data_offsets"))
        if not lists or len(entry["data_offsets"]) != 2 or not isinstance(entry.get("dtype"), str):
            raise FileError(f"load: {name} has a damaged header: {key!r} is not described as an array")
        if entry["dtype"] not in _NAMES:
            raise FileError(f"load: {name} holds {key!r} of dtype {entry['dtype']}, which is unknown")
    end = 0
    for key, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        first, last = entry["data_offsets"]
        bits = dtypes.DTYPES[_NAMES[entry["dtype"]]].bits
        if first != end or last - first != math.prod(entry["shape"]) * max(bits // 8, 1):
            raise FileError(f"load: {name} has a damaged header: {key!r} does not have the bytes of its shape {entry['shape']}")
        end = last
    if end != size:
        what = "is cut off" if end > size else "has bytes that belong to no array"
        raise FileError(f"load: {name} {what}: its arrays need {end} bytes, it has {size}")


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)
