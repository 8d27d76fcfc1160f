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
from posixpath import commonpath
from typing import Any, NamedTuple

import numpy as np

from trellis.convert.common import Foreign, nested
from trellis.convert.layouts import Row, Value, Values, row, same
from trellis.core.array import Array
from trellis.core.files import atomic
from trellis.nn import building, torch_names
from trellis.nn.module import Module
from trellis.nn.recurrent import RecurrentNetwork
from trellis.nn.structure import ARRAY, KINDS, as_array, gather, key_of, modules
from trellis.ops.arguments import choice
from trellis.ops.conversion import to_numpy

FRAMEWORKS = ("torch", "keras", "flax", "haiku", "trellis")  # trellis: the paths of v, as its converters write them
Keys = tuple[str, ...]  # where an array of a source is: the keys of its nested dicts
_COLLECTIONS = ("params", "batch_stats", "state")  # levels of a source that are not in the paths of layers
Taken = list[tuple[Array, Value]]  # arrays of the model, and their new values
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
    """What `load_weights` matched: `matched` pairs of arrays, `unmatched` paths of the model, `unused` names of the source.

    `kept` are buffers of the model that the source does not have. `save` writes the mapping as JSON.

    >>> import numpy as np
    >>> import trellis as tl
    >>> model = tl.Sequential(tl.Linear(3, 2))
    >>> state = {"dense/kernel": np.ones((3, 2)), "dense/bias": np.zeros(2), "other/bias": np.zeros(1)}
    >>> report = tl.convert.load_weights(model, state, strict=False)
    >>> report.complete, report.unused
    (False, ['other/bias'])
    """

    framework: str
    matched: list[Match] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether nothing is left over on either side."""
        return not (self.unmatched or self.unused or self.problems)

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
        rest = {"in the model only: ": self.unmatched, "in the source only: ": self.unused}
        rest |= {"kept: ": self.kept, "": self.problems}
        return "\n".join([*lines, *(f"  {words}{name}" for words, names in rest.items() for name in names)])

    def save(self, path: Any) -> None:
        """Write the mapping as JSON, for `export_weights`; beside a file of weights, `model.mapping.json` is a good name."""
        text = {"format": "trellis mapping", **vars(self), "matched": [match._asdict() for match in self.matched]}
        with atomic(path) as file:
            file.write(json.dumps(text, indent=1, ensure_ascii=False).encode())


def load_weights(
    target: Module, source_state: Any, *, framework: str | None = None, rename: Any = None, strict: bool = True
) -> Report:
    """Put weights of another framework in a model on any backend, and report which arrays belong together.

    source_state: a `state_dict`, {path: array} of Keras, nested params of Flax or Haiku, or a native module; of several (params
        and state) a tuple.
    framework: "torch", "keras", "flax", "haiku", or "trellis" for the paths of `v`; by default it is told from the class of a
        native module, else from the names. It must be given if the names fit two of them that give other numbers.
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
    if isinstance(source_state, Foreign):  # the names of its arrays are those of its native module
        held = source_state.v.to_flat_dict(), source_state.buffers.to_flat_dict()
        source_state = held if source_state.framework == "jax" else source_state.native
    flat = _flatten(source_state)
    readings = _readings(source_state, flat, framework)
    in_order = _framework_of(source_state) in ("torch", "keras")  # of creation or of calls; that of dicts may be any
    report, values = _only_reading([_matched(target, _named(flat, one, rename), one, in_order) for one in readings])
    if framework is None and not report.matched and not report.problems:
        names = building._listed(["/".join(keys) for keys in flat])
        raise ValueError(f"load_weights: no framework is told by the names {names}; give framework=, one of {FRAMEWORKS}")
    if strict and not report.complete:
        raise ValueError(f"load_weights: the weights do not fit; strict=False takes what fits.\n{report}")
    replaced = {id(own): building.array_like(own, np.ascontiguousarray(x).reshape(own.shape), own.dtype) for own, x in values}
    building.replace(target, replaced, set())
    return report


def _readings(source: Any, flat: Mapping[Keys, Value], framework: str | None) -> Sequence[str]:
    """The frameworks whose names and layouts the source may have; names may be those of Trellis, whatever holds them."""
    if framework is not None:
        return [choice("load_weights", "framework", framework, FRAMEWORKS)]
    if (known := _framework_of(source)) is not None:
        return list(dict.fromkeys((known, "trellis")))
    if any("~" in "/".join(keys).split("/") for keys in flat):  # what Haiku calls parts that `__init__` makes
        return ["haiku"]
    return FRAMEWORKS if all(len(keys) == 1 for keys in flat) else ("flax", "haiku", "trellis", "torch", "keras")


def _only_reading(readings: list[tuple[Report, Taken]]) -> tuple[Report, Taken]:
    """The reading that fits best. Two that fit as well and give other numbers are an error."""

    def rank(report: Report) -> tuple[bool, int, int]:
        return report.complete, sum(len(match.own) for match in report.matched), len(report.problems)

    best = max(rank(report) for report, _ in readings)
    (report, values), *others = [one for one in readings if rank(one[0]) == best]
    for other, found in others:
        numbers = {id(own): value for own, value in found}
        if any(id(own) not in numbers or not np.array_equal(numbers[id(own)], value) for own, value in values):
            raise ValueError(
                f"load_weights: the source fits as weights of {report.framework} and as those of {other.framework}, with other "
                f"numbers; give framework={report.framework!r} or {other.framework!r} ('trellis': the paths of v of a model)"
            )
    return report, values


def export_weights(target: Module, mapping: Any) -> dict[str, Any]:
    """The weights of a model as NumPy arrays under the names and in the layouts of a source: nested as it was.

    mapping: the Report of `load_weights`, or the file that its `save` wrote. Arrays that did not match are left out.

    >>> import numpy as np
    >>> import trellis as tl
    >>> model = tl.Sequential(tl.Linear(3, 2))
    >>> state = {"dense/kernel": np.ones((3, 2)), "dense/bias": np.zeros(2)}
    >>> report = tl.convert.load_weights(model, state)
    >>> tl.convert.export_weights(model, report)["dense/kernel"].shape
    (3, 2)
    """
    report = mapping if isinstance(mapping, Report) else _read(mapping)
    rows = {(unit.paths(one), one.native): (unit, one) for unit in _units(target, report.framework) for one in unit.rows}
    made: dict[Keys, Value] = {}
    for match in report.matched:
        if (match.own, match.names) not in rows:
            own = " and ".join(map(repr, match.own))
            raise ValueError(f"export_weights: the model has nothing at {own}, but the mapping has")
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
        choice("export_weights", "framework", text["framework"], FRAMEWORKS)
        text["matched"] = [
            Match(m["layer"], tuple(m["own"]), tuple(map(tuple, m["native"])), tuple(m["names"]), bool(m["reshaped"]))
            for m in text["matched"]
        ]
        return Report(**{name: value for name, value in text.items() if name != "format"})
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"export_weights: {os.fspath(path)} is not a mapping that Report.save wrote: {error}") from error


# ---- the source ----------------------------------------------------------------------------------------------------------------
def _flatten(source: Any) -> dict[Keys, Value]:
    """Keys -> array, of whatever holds weights."""
    room, known = type(source).__module__, _framework_of(source)
    if room.startswith("trellis.convert") and not isinstance(source, Module):  # a model of ours in another framework
        source = getattr(Module, f"from_{room.rpartition('.')[2]}_module")(source)
    if isinstance(source, Module):
        source = {**gather(source).to_flat_dict(), **gather(source, buffers=True).to_flat_dict()}
    if isinstance(source, Mapping):
        return _unique(_leaves(source, ()))
    if isinstance(source, (tuple, list)):
        return _unique(item for part in source for item in _flatten(part).items())
    if known == "torch":
        return _flatten(source.state_dict())
    if known == "keras":
        return _unique(((getattr(x, "path", x.name),), np.asarray(x)) for x in source.weights)
    if any(kind.__module__.startswith("flax.nnx") for kind in type(source).__mro__):
        nnx = sys.modules["flax"].nnx
        if any(getattr(part, "transpose_kernel", False) for _, part in nnx.iter_graph(source)):
            advice = "give a dict of the arrays, with np.flip(kernel, window_axes).swapaxes(-1, -2)"
            raise ValueError(f"load_weights: a ConvTranspose with transpose_kernel=True has its kernel in reverse; {advice}")
        return _flatten(nnx.to_pure_dict(nnx.state(source, nnx.Any(nnx.Param, nnx.BatchStat))))
    raise TypeError(f"load_weights: source_state is a {type(source).__name__}; expected a dict of arrays, or a native module")


def _unique(found: Iterable[tuple[Keys, Value]]) -> dict[Keys, Value]:
    made: dict[str, tuple[Keys, Value]] = {}
    for keys, value in found:
        if made.setdefault(name := "/".join(keys), (keys, value))[1] is not value:
            raise ValueError(f"load_weights: two arrays of source_state are named {name!r}; put them under names of their own")
    return dict(made.values())


def _leaves(node: Mapping[Any, Any], above: Keys) -> Iterator[tuple[Keys, Value]]:
    for key, value in node.items():
        keys = (*above, str(key))
        if isinstance(value, Mapping):
            yield from _leaves(value, keys)
            continue
        if as_array(value) is None:  # a variable of nnx or Keras
            value = value.get_value() if hasattr(value, "get_value") else getattr(value, "value", value)
        array = None if isinstance(value, np.ndarray) and value.dtype.kind in "OSU" else as_array(value)
        if array is None and not isinstance(value, (int, float, np.generic)):
            raise TypeError(f"load_weights: {'/'.join(keys)!r} is a {type(value).__name__}; expected an array")
        yield keys, np.asarray(value if array is None else to_numpy(array._data))


def _framework_of(source: Any) -> str | None:
    """The framework that a source comes from, by its class; None for plain dicts."""
    if isinstance(source, (tuple, list)):
        return next(filter(None, map(_framework_of, source)), None)
    if isinstance(source, Mapping) and hasattr(source, "_metadata"):  # of a state_dict
        return "torch"
    rooms = [kind.__module__.partition(".")[0] for kind in type(source).__mro__]
    return next((room for room in rooms if room in FRAMEWORKS), None)


class Entry(NamedTuple):
    keys: Keys
    value: Value
    is_renamed: bool


def _named(flat: Mapping[Keys, Value], framework: str, rename: Any) -> dict[str, Entry]:
    """Path -> array: one way to write paths, in the order of creation."""
    change = _renaming(rename)
    named: dict[str, Entry] = {}
    for keys, value in flat.items():
        name = "/".join(keys[framework == "flax" and len(keys) > 1 and keys[0] in _COLLECTIONS :])
        is_dotted = framework == "torch" or (framework == "trellis" and "/" not in name)
        name = name.replace(".", "/") if is_dotted else name.removesuffix(":0")
        name = "/".join(part for part in name.split("/") if part != "~")
        new = change(name)
        if new in named:
            raise ValueError(f"load_weights: two arrays of the source are named {new!r}: {named[new].keys} and {keys}")
        named[new] = Entry(keys, value, new != name)
    return named


def _renaming(rename: Any) -> Callable[[str], str]:
    if rename is None:
        return lambda name: name
    if not isinstance(rename, Mapping):
        if callable(rename):
            return lambda name: str(rename(name))
        raise TypeError(f"load_weights: rename is a {type(rename).__name__}; expected a dict or a function")
    table = {f"{str(old).replace('.', '/').strip('/')}/": f"{str(new).strip('/')}/" for old, new in rename.items()}

    def change(name: str) -> str:
        old = max((old for old in table if f"{name}/".startswith(old)), key=len, default="")
        return f"{table[old]}{f'{name}/'[len(old) :]}".rstrip("/") if old else name

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
        rows = None if framework == "trellis" else _rows(framework, layer, own)
        below = f"{path}/" if path else ""
        if isinstance(layer, RecurrentNetwork) and rows is not None:
            for name in dict.fromkeys(key.partition("/")[0] for key in arrays):
                part = {key.partition("/")[2]: x for key, x in arrays.items() if key.partition("/")[0] == name}
                units.append(Unit(f"{below}{name}", layer, part, _present(_layer_rows(framework, rows, name), part)))
            continue
        if rows is None:
            written = str if framework == "trellis" else _plain
            rows = [same(name, written(name)) for name in arrays if name in own or not _of_module(layer, name)]
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
def _matched(model: Module, source: dict[str, Entry], framework: str, in_order: bool) -> tuple[Report, Taken]:
    report, units = Report(framework), _units(model, framework)
    tops = commonpath([u.path for u in units] or [""]), commonpath([name.rpartition("/")[0] for name in source] or [""])
    places = {unit.path: next((p for p in _forms(unit.path) if _chosen(unit, p, source)), None) for unit in units}
    taken = {name for unit in units for name in _names(unit, places[unit.path], source)}
    places |= {unit.path: _by_path(unit, source, *tops, taken) for unit in units if places[unit.path] is None}
    _place_rest(units, places, source, report, in_order)
    values: dict[int, tuple[Array, Value]] = {}
    for unit in units:
        place = places[unit.path]
        for one in _chosen(unit, place, source):
            for own, value in _taken(unit, one, place or "", source, report):
                if not np.array_equal(values.setdefault(id(own), (own, value))[1], value):
                    report.problems.append(f"{unit.path!r} shares an array with another layer, but the source has two for them")
    _add_rest(report, model, units, source, set(values))
    return report, list(values.values())


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


def _forms(path: str) -> tuple[str, str, str]:
    """The ways to write a path: ours, with plain numbers, and as torch names the parts of its transformers."""
    plain = _plain(path)
    return path, plain, "/".join([_RENAMED.get(part, part) for part in plain.split("/")])


def _by_path(unit: Unit, source: Mapping[str, Entry], top: str, source_top: str, taken: set[str]) -> str | None:
    """The path of a unit in the source, if it is the same below the parts that all layers have in common, `top` and `source_top`.

    Else the one place below the path of the unit that fits. Neither has an array that another unit has `taken` by its path.
    """
    forms = [_join(source_top, form).strip("/") for form in _forms(unit.path[len(top) :].strip("/"))]
    above = unit.path.rpartition("/")[0] if isinstance(unit.layer, RecurrentNetwork) else unit.path
    inside = [place for place in _candidates(unit, source) if above and place.startswith(f"{above}/")]
    for path in (*forms, *(inside if len(inside) == 1 else ())):
        if _chosen(unit, path, source) and not taken & _names(unit, path, source):
            return path
    return None


def _candidates(unit: Unit, source: Mapping[str, Entry]) -> list[str]:
    """Places of the source that have all arrays of a unit, in shapes that fit."""
    rows = [(one.native[0].removeprefix("~/").removeprefix("../"), "/." * one.native[0].startswith("../")) for one in unit.rows]
    ends = ((name[: -len(end)].rstrip("/") + up) for end, up in rows for name in source if f"/{name}".endswith(f"/{end}"))
    return [place for place in dict.fromkeys(ends) if _fits(unit, place, source)]


def _fits(unit: Unit, place: str, source: Mapping[str, Entry]) -> bool:
    """Whether a place has all arrays of a unit, in shapes that fit, and no others."""
    chosen, names = _chosen(unit, place, source), _names(unit, place, source)
    if {name for one in chosen for name in one.own} != {name for one in unit.rows for name in one.own}:
        return False
    if any(name.rpartition("/")[0] == place and name not in names for name in source):
        return False
    with contextlib.suppress(ValueError):
        return all(_converted(unit, one, place, source) for one in chosen)
    return False


# ---- layers whose paths differ -------------------------------------------------------------------------------------------------
def _place_rest(units: list[Unit], places: dict[str, Any], source: Mapping[str, Entry], report: Report, in_order: bool) -> None:
    """Find the places of units that the source has under other paths, by shapes; of equal ones by numbers in their paths.

    A unit that fits a place that another one has by its name is in doubt: the source may count from another number. So are those
    whose numbers contradict the order of a source that is `in_order`.
    """
    used = {name for unit in units for name in _names(unit, places[unit.path], source) if not source[name].is_renamed}
    trusted = {name for name, entry in source.items() if entry.is_renamed}
    groups: dict[tuple[str, ...], list[Unit]] = {}
    for unit in units:
        if places[unit.path] is None and unit.rows:
            found = [place for place in _candidates(unit, source) if not trusted & _names(unit, place, source)]
            groups.setdefault(tuple(found), []).append(unit)
    for fitting, group in groups.items():
        doubt = any(used & _names(group[0], place, source) for place in fitting)
        shared = any(set(fitting) & set(others) for others in groups if others is not fitting)
        recurrent = isinstance(group[0].layer, RecurrentNetwork)
        pairs = None if doubt or shared else _paired([unit.path for unit in group], list(fitting), recurrent, in_order)
        places.update(pairs or {})
        if pairs is None and fitting:
            shown, path = " and ".join(map(repr, fitting[:4])), group[0].path
            report.problems.append(f"{path!r} could be {shown}; say so with rename={{{fitting[0]!r}: {path!r}}} or the other")


def _paired(own: list[str], places: list[str], recurrent: bool, in_order: bool) -> dict[str, str] | None:
    """Paths of equal layers, each with its place; None if names and numbers do not say which."""
    keys = (lambda path: bool(re.search("reverse|backward", path)), lambda path: _plain(path).rpartition("/")[2])
    for key in keys[not recurrent :]:
        mine, theirs = ({k: [path for path in paths if key(path) == k] for k in set(map(key, paths))} for paths in (own, places))
        if len(mine) > 1 and {k: len(mine[k]) for k in mine} == {k: len(theirs[k]) for k in theirs}:
            parts = [_paired(mine[k], theirs[k], recurrent, in_order) for k in mine]
            return None if None in parts else {path: place for part in parts if part for path, place in part.items()}
    first, second = _numbered(own), _numbered(places)
    if not first or not second or len(first) != len(second) or (in_order and second != places):
        return None
    return dict(zip(first, second))


def _numbered(paths: list[str]) -> list[str] | None:
    """Paths that differ in one number, in its order; None if they differ otherwise. A name without a number is the first."""
    parts = [[re.split(r"_?(\d+)", part) for part in path.split("/")] for path in paths]
    words = {tuple("".join(part[::2]) for part in path) for path in parts}
    numbers = [[int(n) for part in path for n in part[1::2] or (-1,)] for path in parts]
    varying = [len(set(column)) > 1 for column in zip(*numbers)]
    if len(paths) > 1 and (len(words) > 1 or len(set(map(len, numbers))) > 1 or sum(varying) != 1):
        return None
    return [path for _, path in sorted(zip(numbers, paths))]


def _taken(unit: Unit, one: Row, place: str, source: Mapping[str, Entry], report: Report) -> Taken:
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
