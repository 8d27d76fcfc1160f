"""Weights under the names and in the layouts of other frameworks, into a model and out of it.

A layer of the model and one of the source belong together if their paths are the same, or else by their order, where names and
shapes leave no doubt. `<framework>_names.py` (for torch `nn/torch_names.py`) has the names and layouts of the arrays of layers.
Everything is checked before anything changes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from trellis.convert.common import nested
from trellis.convert.layouts import Row, Value, Values, row, same
from trellis.core.array import Array
from trellis.core.dispatch import target as backend_of
from trellis.nn import building, torch_names
from trellis.nn.module import Module
from trellis.nn.recurrent import RecurrentNetwork
from trellis.nn.saving import _atomic
from trellis.nn.structure import ARRAY, KINDS, as_array, gather, key_of, modules
from trellis.ops.arguments import choice
from trellis.ops.conversion import to_numpy

FRAMEWORKS = ("torch", "keras", "flax", "haiku")
Keys = tuple[str, ...]  # where an array of a source is: the keys of its nested dicts
_COLLECTIONS = ("params", "batch_stats", "state")  # levels of a source that are not in the paths of layers
_RENAMED = {"attention": "self_attn", "cross_attention": "multihead_attn"}  # as torch has the parts of its transformers


class Match(NamedTuple):
    """Arrays of the model, by their paths, and those of the source that hold the same numbers."""

    layer: str
    own: tuple[str, ...]
    native: tuple[Keys, ...]
    names: tuple[str, ...]  # in the table, which may have several rows for the same arrays
    reshaped: bool


@dataclass
class Report:
    """What belongs to what. `unmatched` are paths of the model, `unused` names of the source, `kept` buffers that it has not."""

    framework: str
    matched: list[Match] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def reshaped(self) -> list[Match]:
        """The matches whose arrays have another layout in the source."""
        return [match for match in self.matched if match.reshaped]

    def __str__(self) -> str:
        lines = [f"weights of {self.framework}: {len(self.matched)} matched, {len(self.reshaped)} of them in another layout"]
        width = max([len(" + ".join(match.own)) for match in self.matched], default=0)
        for match in self.matched:
            names = " + ".join("/".join(keys) for keys in match.native)
            lines.append(f"  {' + '.join(match.own):{width}}  {'<~' if match.reshaped else '<-'}  {names}")
        for words, names in (
            ("in the model only", self.unmatched), ("in the source only", self.unused), ("kept", self.kept), ("", self.problems),
        ):  # fmt: skip
            lines += [f"  {words}: {name}" if words else f"  {name}" for name in names]
        return "\n".join(lines)

    def save(self, path: Any) -> None:
        """Write the mapping as JSON, for `export_weights`; beside a file of weights, `model.mapping.json` is a good name."""
        entries = [match._asdict() for match in self.matched]
        text = {"format": "trellis mapping", "framework": self.framework, "matched": entries, "unmatched": self.unmatched,
                "unused": self.unused, "kept": self.kept}  # fmt: skip
        with _atomic(path) as file:
            file.write(json.dumps(text, indent=1, ensure_ascii=False).encode())


def load_weights(
    target: Module, source_state: Any, *, framework: str | None = None, rename: Any = None, strict: bool = True
) -> Report:
    """Put weights of another framework in a model on any backend, and report which arrays belong together.

    source_state: a `state_dict`, {path: array} of Keras, nested params of Flax or Haiku, or a native module; of several (params
        and state) a tuple.
    framework: "torch", "keras", "flax" or "haiku"; by default it is told from the names.
    rename: {layer of the source: path of a layer of the model}, or a function of names with "/", where names do not tell.
    strict: refuse, and change nothing, if anything is left over on either side; else take the arrays that fit.

    >>> import numpy as np, trellis as tl
    >>> model = tl.Sequential(tl.Linear(3, 2))
    >>> state = {"dense/kernel": np.ones((3, 2), np.float32), "dense/bias": np.zeros(2, np.float32)}
    >>> print(tl.convert.load_weights(model, state))
    weights of keras: 2 matched, 1 of them in another layout
      v0/w  <~  dense/kernel
      v0/b  <-  dense/bias
    """
    if not isinstance(target, Module):
        raise TypeError(f"load_weights: target is a {type(target).__name__}; expected a tl.Module")
    if not target.built:
        raise RuntimeError(f"load_weights: {type(target).__name__} is not built; call it once, or model.build()")
    flat = _flatten(source_state)
    known: str = _framework(flat) if framework is None else choice("load_weights", "framework", framework, FRAMEWORKS)
    source = _named(flat, known, rename)
    report, values = _matched(target, _units(target, known), source, known)
    if strict and (report.unmatched or report.unused or report.problems):
        raise ValueError(f"load_weights: the weights do not fit; strict=False takes what fits.\n{report}")
    building.replace(target, {id(own): _like(own, value) for own, value in values}, set())
    return report


def export_weights(target: Module, mapping: Any) -> dict[str, Any]:
    """The weights of a model as NumPy arrays under the names and in the layouts of a source: nested as it was.

    mapping: the Report of `load_weights`, or the file that its `save` wrote. Arrays that did not match are left out.
    """
    report = mapping if isinstance(mapping, Report) else _read(mapping)
    rows = {(unit.paths(one), one.native): (unit, one) for unit in _units(target, report.framework) for one in unit.rows}
    made: dict[Keys, Value] = {}
    for match in report.matched:
        if (match.own, match.names) not in rows:
            raise ValueError(
                f"export_weights: the model has nothing at {' and '.join(map(repr, match.own))}, as the mapping says"
            )
        unit, one = rows[match.own, match.names]
        arrays = one.to_native(unit.layer, *[np.asarray(to_numpy(unit.arrays[name]._data)) for name in one.own])
        made |= {keys: np.array(value, order="C") for keys, value in zip(match.native, arrays, strict=True)}
    return nested(made)


def _read(path: Any) -> Report:
    try:
        with open(path, "rb") as file:
            text = json.load(file)
        if text["format"] != "trellis mapping":
            raise KeyError("format")
        entries = [
            Match(m["layer"], tuple(m["own"]), tuple(map(tuple, m["native"])), tuple(m["names"]), bool(m["reshaped"]))
            for m in text["matched"]
        ]
        framework = choice("export_weights", "framework", text["framework"], FRAMEWORKS)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"export_weights: {os.fspath(path)} is not a mapping that Report.save wrote: {error}") from error
    return Report(framework, entries, text["unmatched"], text["unused"], text["kept"])


# ---- the source ----------------------------------------------------------------------------------------------------------------
def _flatten(source: Any) -> dict[Keys, Value]:
    """Keys -> array, of whatever holds weights."""
    if isinstance(source, Mapping):
        return dict(_leaves(source, ()))
    if isinstance(source, (tuple, list)):
        return {keys: x for part in source for keys, x in _flatten(part).items()}
    if hasattr(source, "state_dict"):
        return _flatten(source.state_dict())
    if hasattr(source, "weights"):  # Keras
        return _flatten({getattr(x, "path", x.name): np.asarray(x) for x in source.weights})
    if any(kind.__module__.startswith("flax.nnx") for kind in type(source).__mro__):
        nnx = sys.modules["flax"].nnx
        return _flatten(nnx.to_pure_dict(nnx.state(source, nnx.Any(nnx.Param, nnx.BatchStat))))
    raise TypeError(
        f"load_weights: source_state is a {type(source).__name__}; expected a dict of arrays, nested or not, or a native module"
    )


def _leaves(node: Mapping[Any, Any], above: Keys) -> Iterator[tuple[Keys, Value]]:
    for key, value in node.items():
        keys = (*above, str(key))
        if isinstance(value, Mapping):
            yield from _leaves(value, keys)
            continue
        if as_array(value) is None:  # a variable of nnx or Keras
            value = value.get_value() if hasattr(value, "get_value") else getattr(value, "value", value)
        array = as_array(value)
        if array is None and not isinstance(value, (int, float, np.generic)):
            raise TypeError(f"load_weights: {'/'.join(keys)!r} is a {type(value).__name__}; expected an array")
        yield keys, np.asarray(value if array is None else to_numpy(array._data))


def _framework(flat: Mapping[Keys, Value]) -> str:
    names = {keys[-1].rpartition("/")[2].rpartition(".")[2] for keys in flat}
    depths = {len(keys) for keys in flat}
    dotted = any(len(keys) == 1 and "." in keys[0] for keys in flat)
    if dotted or (depths == {1} and names <= {"weight", "bias"}):
        return "torch"
    if depths == {1} and names & {"kernel", "gamma", "embeddings", "alpha", "scale"}:
        return "keras"
    if depths == {2} and names & {"w", "embeddings", "w_i", "w_h", "scale", "average"} and "kernel" not in names:
        return "haiku"
    if names & {"kernel", "scale", "embedding"}:
        return "flax"
    raise ValueError(
        f"load_weights: no framework is told by the names {building._listed(['/'.join(keys) for keys in flat])}; "
        f"give framework=, one of {', '.join(map(repr, FRAMEWORKS))}"
    )


class Entry(NamedTuple):
    keys: Keys
    value: Value


def _named(flat: Mapping[Keys, Value], framework: str, rename: Any) -> dict[str, Entry]:
    """Path -> array: one way to write paths, in the order of creation."""
    change = _renaming(rename)
    named: dict[str, Entry] = {}
    for keys, value in flat.items():
        kept = keys[1:] if len(keys) > 1 and keys[0] in _COLLECTIONS and framework == "flax" else keys
        name = "/".join(kept)
        name = name.replace(".", "/") if framework == "torch" else name.removesuffix(":0")
        name = change("/".join(part for part in name.split("/") if part != "~"))
        if name in named:
            raise ValueError(f"load_weights: two arrays of the source are named {name!r}: {named[name].keys} and {keys}")
        named[name] = Entry(keys, value)
    if framework in ("flax", "haiku"):  # frameworks sort the keys of nested dicts: Dense_10 stands before Dense_2
        named = dict(sorted(named.items(), key=lambda item: [_natural(part) for part in item[0].split("/")]))
    return named


def _natural(part: str) -> tuple[Any, ...]:
    return tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in re.split(r"(\d+)", part) if p)


def _renaming(rename: Any) -> Callable[[str], str]:
    if rename is None:
        return lambda name: name
    if not isinstance(rename, Mapping):
        if callable(rename):
            return lambda name: str(rename(name))
        raise TypeError(f"load_weights: rename is a {type(rename).__name__}; expected a dict or a function")
    table = {str(old).replace(".", "/").strip("/"): str(new).strip("/") for old, new in rename.items()}

    def change(name: str) -> str:
        for old in sorted(table, key=len, reverse=True):
            if name == old or name.startswith(f"{old}/"):
                return f"{table[old]}{name[len(old) :]}"
        return name

    return change


# ---- the model -----------------------------------------------------------------------------------------------------------------
class Unit(NamedTuple):
    """A layer, or one layer of a recurrent network, and its arrays by their paths below it: found in the source as one."""

    path: str
    layer: Any
    arrays: dict[str, Array]
    rows: list[Row]

    def paths(self, one: Row) -> tuple[str, ...]:
        """The paths in the model of the arrays of a row."""
        return tuple(f"{self.path}/{name}" if self.path else name for name in one.own)


def _units(model: Module, framework: str) -> list[Unit]:
    units: list[Unit] = []
    covered: set[int] = set()  # arrays that a layer above has rows for
    for path, layer, _ in modules(model):
        arrays = {**gather(layer).to_flat_dict(), **gather(layer, True).to_flat_dict()}
        own = dict.fromkeys(key_of(name) for name, x in layer.__dict__.items() if KINDS[type(x)] == ARRAY)
        rows = _rows(framework, layer, own)
        below = f"{path}/" if path else ""
        if isinstance(layer, RecurrentNetwork) and rows is not None:
            for name in dict.fromkeys(key.partition("/")[0] for key in arrays):
                part = {key.partition("/")[2]: x for key, x in arrays.items() if key.partition("/")[0] == name}
                units.append(Unit(f"{below}{name}", layer, part, _present(_layer_rows(framework, rows, name), part)))
            continue
        if rows is None:
            rows = [same(name, _plain(name)) for name in arrays if name in own or not _of_module(layer, name)]
        rows = [one for one in _present(rows, arrays) if not all(id(arrays[name]) in covered for name in one.own)]
        named = {name for one in rows for name in one.own}
        covered |= {id(arrays[name]) for name in named - own.keys()}
        units.append(Unit(path, layer, {name: x for name, x in arrays.items() if name in named or name in own}, rows))
    return [unit for unit in units if unit.arrays]


def _of_module(layer: Any, name: str) -> bool:
    """Whether a path below a layer leads into another one."""
    return any(path and name.startswith(f"{path}/") for path, _, _ in modules(layer))


def _plain(path: str) -> str:
    """Members of lists by their numbers alone."""
    return "/".join([part[1:] if re.fullmatch(r"v\d+", part) else part for part in path.split("/")])


def _present(rows: Sequence[Row], arrays: Mapping[str, Any]) -> list[Row]:
    return [one for one in rows if all(name in arrays for name in one.own)]


def _rows(framework: str, layer: Any, own: Iterable[str]) -> list[Row] | None:
    """The rows of a layer, `own` being the names of its own arrays; None if its class is in no table."""
    if framework != "torch":
        table = import_module(f"trellis.convert.{framework}_names").TABLE
        return next((list(table[kind]) for kind in type(layer).__mro__ if kind in table), None)
    if isinstance(layer, RecurrentNetwork):  # its cells hold the arrays
        return [_torch_row(name, *entry) for name, entry in layer._torch_rows.items()]
    found = {name: entry for name, entry in layer._torch_rows.items() if name in own}
    rest = [same(name, name) for name in own if name not in found]
    return [_torch_row(name, *entry) for name, entry in found.items()] + rest if found else None


def _torch_row(own: str, native: str, layout: torch_names.Layout) -> Row:
    return row(own, native.replace(".", "/"), layout.to_torch, layout.from_torch)


def _layer_rows(framework: str, rows: list[Row], name: str) -> list[Row]:
    """Rows of one layer of a recurrent network: in torch all layers stand in one place, told apart by the ends of names."""
    if framework != "torch":
        return rows
    return [one._replace(native=tuple(f"../{native}_l{name[len('layer') :]}" for native in one.native)) for one in rows]


# ---- matching ------------------------------------------------------------------------------------------------------------------
def _matched(
    model: Module, units: list[Unit], source: dict[str, Entry], framework: str
) -> tuple[Report, list[tuple[Array, Value]]]:
    report = Report(framework)
    places = {unit.path: _by_path(unit, source) for unit in units}
    used = {name for unit in units for name in _names(unit, places[unit.path], source)}
    for unit in units:
        if places[unit.path] is None and unit.rows:
            places[unit.path] = found = _by_order(unit, source, used, framework, report)
            used |= _names(unit, found, source)
    values: list[tuple[Array, Value]] = []
    for unit in units:
        place = places[unit.path]
        for one in _chosen(unit, place, source):
            values += _taken(unit, one, place or "", source, report)
    _add_rest(report, model, units, source, {id(own) for own, _ in values})
    return report, values


def _add_rest(report: Report, model: Module, units: list[Unit], source: dict[str, Entry], done: set[int]) -> None:
    """Report the arrays that are on one side only."""
    shared = {place.key.replace(".", "/") for place in torch_names.places(model)} if report.framework == "torch" else set()
    taken = {keys for match in report.matched for keys in match.native}
    report.unused = ["/".join(e.keys) for name, e in source.items() if e.keys not in taken and name not in shared]
    named = {id(unit.arrays[name]) for unit in units for one in unit.rows for name in one.own}
    for is_buffer in (False, True):
        for path, x in gather(model, is_buffer).to_flat_dict().items():
            if id(x) not in done:
                (report.kept if is_buffer and id(x) not in named else report.unmatched).append(path)


def _chosen(unit: Unit, place: str | None, source: Mapping[str, Entry]) -> list[Row]:
    """The rows whose names the source has at a place; for the same arrays the first."""
    chosen: list[Row] = []
    if place is not None:
        for one in unit.rows:
            free = not any(name in other.own for other in chosen for name in one.own)
            if free and all(_join(place, name) in source for name in one.native):
                chosen.append(one)
    return chosen


def _names(unit: Unit, place: str | None, source: Mapping[str, Entry]) -> set[str]:
    return {_join(place or "", name) for one in _chosen(unit, place, source) for name in one.native}


def _join(place: str, name: str) -> str:
    if name.startswith("../"):
        place, name = place.rpartition("/")[0], name[3:]
    name = name.removeprefix("~/")
    return f"{place}/{name}" if place else name


def _by_path(unit: Unit, source: Mapping[str, Entry]) -> str | None:
    """The path of a unit in the source, if it has the same one there, or one that leads on to one layer only."""
    plain = _plain(unit.path)
    renamed = "/".join([_RENAMED.get(part, part) for part in plain.split("/")])
    for path in dict.fromkeys((unit.path, plain, renamed)):
        if _chosen(unit, path, source):
            return path
    above = unit.path.rpartition("/")[0] if isinstance(unit.layer, RecurrentNetwork) else unit.path
    inside = [place for place in _candidates(unit, source) if above and place.startswith(f"{above}/")]
    return inside[0] if len(inside) == 1 else None


def _candidates(unit: Unit, source: Mapping[str, Entry]) -> list[str]:
    """Places of the source that have all arrays of a unit, in shapes that fit."""
    places: dict[str, None] = {}
    for one in unit.rows:
        ending = one.native[0].removeprefix("~/")
        up = ending.startswith("../")
        ending = ending.removeprefix("../")
        for name in source:
            if name == ending or name.endswith(f"/{ending}"):
                place = name[: -len(ending)].rstrip("/")
                places[f"{place}/." if up else place] = None
    order = {name: i for i, name in enumerate(source)}
    found = [place for place in places if _fits(unit, place, source)]
    return sorted(found, key=lambda place: min(order[name] for name in _names(unit, place, source)))


def _fits(unit: Unit, place: str, source: Mapping[str, Entry]) -> bool:
    chosen = _chosen(unit, place, source)
    if {name for one in chosen for name in one.own} != {name for one in unit.rows for name in one.own}:
        return False
    with contextlib.suppress(ValueError):
        return all(_converted(unit, one, place, source) for one in chosen)
    return False


def _by_order(unit: Unit, source: dict[str, Entry], used: set[str], framework: str, report: Report) -> str | None:
    """The first place that is free and fits."""
    free = [place for place in _candidates(unit, source) if not used & _names(unit, place, source)]
    stems = {re.sub(r"\d+", "#", place) for place in free}
    if framework in ("flax", "haiku") and len(stems) > 1:
        shown = " and ".join(map(repr, free[:4]))
        report.problems.append(f"{unit.path!r} could be {shown}; say so with rename={{{free[0]!r}: {unit.path!r}}} or the other")
        return None
    return free[0] if free else None


def _taken(unit: Unit, one: Row, place: str, source: Mapping[str, Entry], report: Report) -> list[tuple[Array, Value]]:
    """The arrays of one row and their new values; the report tells what became of them."""
    entries = [source[_join(place, name)] for name in one.native]
    try:
        made = _converted(unit, one, place, source)
    except ValueError as error:
        report.problems.append(str(error))
        return []
    plain = len(made) == len(entries) == 1 and np.array_equal(made[0], entries[0].value)
    report.matched.append(Match(unit.path, unit.paths(one), tuple(entry.keys for entry in entries), one.native, not plain))
    return [(unit.arrays[name], value) for name, value in zip(one.own, made)]


def _converted(unit: Unit, one: Row, place: str, source: Mapping[str, Entry]) -> Values:
    """The values of a row as the model has them; a ValueError says why they do not fit."""
    entries = [source[_join(place, name)] for name in one.native]
    names = " + ".join("/".join(entry.keys) for entry in entries)
    try:
        made = one.from_native(unit.layer, *[entry.value for entry in entries])
    except (ValueError, IndexError) as error:
        raise ValueError(f"{' + '.join(unit.paths(one))}, from {names}: {error}") from error
    for path, name, x in zip(unit.paths(one), one.own, made):
        wanted = tuple(unit.arrays[name].shape)
        if x.shape != wanted:
            shapes = " + ".join(str(entry.value.shape) for entry in entries)
            raise ValueError(f"{path} has shape {wanted}, but {names} of shape {shapes} gives {x.shape}")
    return made


def _like(own: Array, value: Value) -> Array:
    data = np.ascontiguousarray(value).reshape(tuple(own.shape))
    return Array(backend_of(own.backend).from_numpy(data, dtype=own.dtype, device=own.device, copy=True))
