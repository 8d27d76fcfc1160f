"""Record the results of the layers in one call of a Module, and compare them with expected ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from trellis.core import tree
from trellis.nn.border import run_copy
from trellis.nn.structure import modules, owner
from trellis.ops.conversion import is_array, to_numpy

TRACKING = frozenset(("track_submod_rets", "track_submod_call_order", "submod_depth", "submods_to_track", "expected_submod_rets"))


class Tracker:
    """Records the calls of one run: the results by path (`rets`), and the calls in their order, nested (`order`)."""

    def __init__(self, chosen: Iterable[tuple[str, Any]], above: Iterable[tuple[str, Any]] = ()) -> None:
        self.paths = {id(owner(module)): path for path, module in chosen}  # other Modules are not recorded
        self.above = {id(owner(module)): path for path, module in above}  # nodes of the order, whose results are not kept
        self.rets: dict[str, list[Any]] = {}
        self.order: dict[str, Any] = {}
        self.counts: dict[str, int] = {}
        self.open: list[tuple[str, dict[str, Any]]] = [("", self.order)]

    def begin(self, module: Any) -> None:
        key = id(owner(module))
        path = self.paths.get(key) or self.above.get(key)
        if path is not None:
            number = self.counts.get(path, 0)
            self.counts[path] = number + 1
            calls: dict[str, Any] = {}
            self.open[-1][1][f"{path}_{number}"] = calls  # now, so that calls stand in the order in which they began
            self.open.append((f"{path}_{number}", calls))

    def end(self, module: Any, result: Any) -> None:
        key = id(owner(module))
        if key not in self.paths and key not in self.above:
            return
        name, calls = self.open.pop()
        if key in self.paths:
            if not calls:
                self.open[-1][1][name] = result
            self.rets.setdefault(self.paths[key], []).append(result)
        elif not calls:
            del self.open[-1][1][name]


def run_tracked(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], v: Any = None, *, track_submod_rets: bool = False,
    track_submod_call_order: bool = False, submod_depth: int | None = None, submods_to_track: Any = None,
    expected_submod_rets: Any = None,
) -> Any:  # fmt: skip
    """A call of a Module that keeps the results of its layers in `submod_rets` and `submod_call_order`."""
    if not (track_submod_rets or track_submod_call_order) and expected_submod_rets is None:
        return module(*args, v=v, **kwargs)
    chosen = _chosen(module, submod_depth, submods_to_track)
    paths = {path for path, _ in chosen}
    rest = [(path, one) for path, one, level in modules(module) if level and path not in paths]
    tracker = Tracker(chosen, [(path, one) for path, one in rest if any(p.startswith(f"{path}/") for p in paths)])
    result, _ = run_copy(module, args, kwargs, v, tracker=tracker, keep_buffers=True)
    module._meta.rets, module._meta.order = tracker.rets, tracker.order
    if expected_submod_rets is not None:
        compare(tracker.rets, expected_submod_rets)
    return result


def _chosen(module: Any, depth: int | None, chosen: Any) -> list[tuple[str, Any]]:
    """(path, Module) for the Modules below that are to be recorded."""
    below = [(path, one) for path, one, level in modules(module) if level and (depth is None or level <= depth)]
    if chosen is None:
        return below
    found = []
    for name in chosen if isinstance(chosen, (list, tuple, set)) else [chosen]:
        match = [(path, one) for path, one in below if path == name or one is name]
        if not match:
            raise ValueError(
                f"submods_to_track: {name if isinstance(name, str) else type(name).__name__!r} is not below "
                f"{type(module).__name__}; it has {', '.join(repr(path) for path, _ in below)}"
            )
        found += match
    return found


def compare(rets: dict[str, list[Any]], expected: Any) -> None:
    """Raise a ValueError for the first result that is not as expected: which layer, which call, how far off."""
    for path, entry in expected.items():
        entries = entry if isinstance(entry, list) else [entry]
        found = rets.get(path)
        if found is None:
            raise ValueError(f"expected_submod_rets: {path!r} was not called; called were {', '.join(map(repr, rets)) or 'none'}")
        if len(found) != len(entries):
            raise ValueError(f"expected_submod_rets: {path!r} was called {len(found)} times, expected {len(entries)}")
        for call, (result, one) in enumerate(zip(found, entries)):
            given: Any = one if isinstance(one, dict) and "value" in one else {"value": one}
            _compare_one(path, call, result, given["value"], given.get("atol", 0.0), given.get("rtol", 0.0))


def _compare_one(path: str, call: int, result: Any, value: Any, atol: float, rtol: float) -> None:
    where = f"expected_submod_rets: {path!r}, call {call}"
    found, treedef = tree.flatten(result)
    wanted, structure = tree.flatten(value)
    if treedef != structure and not (len(found) == 1 and not is_array(value)):
        raise ValueError(f"{where}: the structure of the result differs from what is expected")
    if len(found) == 1 and len(wanted) != 1:
        wanted = [np.asarray(value)]  # a nested list of numbers
    for x, y in zip(found, wanted):
        x, y = np.asarray(to_numpy(x)), np.asarray(to_numpy(y))
        if x.shape != y.shape:
            raise ValueError(f"{where}: the result has shape {x.shape}, expected {y.shape}")
        if not np.allclose(x, y, rtol=rtol, atol=atol, equal_nan=True):
            off = np.abs(x.astype(np.complex128) - y.astype(np.complex128))
            largest = float(np.max(off)) if np.isfinite(off).all() else float("nan")
            raise ValueError(f"{where}: the largest difference is {largest:.6g} (atol={atol}, rtol={rtol})")
