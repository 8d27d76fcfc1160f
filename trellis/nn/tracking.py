"""What the layers of a Module return in one call: recorded, and compared with what is expected."""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis import tree
from trellis.nn.structure import Binding, modules
from trellis.ops.conversion import is_array, to_numpy

TRACKING = frozenset(("track_submod_rets", "submod_depth", "submods_to_track", "expected_submod_rets"))


class Tracker:
    """Records the calls of one run."""

    def __init__(self, paths: dict[int, str]) -> None:
        self.paths = paths  # id of a copy -> the path of its Module; what is not here is not recorded
        self.rets: dict[str, list[Any]] = {}
        self.order: dict[str, Any] = {}
        self.counts: dict[str, int] = {}
        self.open: list[tuple[str, dict[str, Any]]] = [("", self.order)]

    def begin(self, module: Any) -> None:
        path = self.paths.get(id(module))
        if path is not None:
            number = self.counts.get(path, 0)
            self.counts[path] = number + 1
            calls: dict[str, Any] = {}
            self.open[-1][1][f"{path}_{number}"] = calls  # now, so that calls stand in the order in which they began
            self.open.append((f"{path}_{number}", calls))

    def end(self, module: Any, result: Any) -> None:
        path = self.paths.get(id(module))
        if path is not None:
            name, calls = self.open.pop()
            if not calls:
                self.open[-1][1][name] = result
            self.rets.setdefault(path, []).append(result)


def run_tracked(module: Any, args: tuple[Any, ...], v: Any, kwargs: dict[str, Any]) -> Any:
    from trellis.nn.module import _run
    from trellis.transforms import grads_enter

    options = {name: kwargs.pop(name) for name in TRACKING if name in kwargs}
    expected = options.get("expected_submod_rets")
    if not options.get("track_submod_rets") and expected is None:
        return module(*args, v=v, **kwargs)
    wanted = _wanted(module, options.get("submod_depth"), options.get("submods_to_track"))
    binding = Binding(constant=not grads_enter())
    try:
        copy = module._copy(binding, v, None)
        binding.tracker = tracker = Tracker({id(made): wanted[id(own)] for own, made in binding.pairs if id(own) in wanted})
        result = module._finish(binding, _run(copy, args, kwargs))
    finally:
        binding.release()
    module._meta.rets, module._meta.order = tracker.rets, tracker.order
    if expected is not None:
        compare(tracker.rets, expected)
    return result


def _wanted(module: Any, depth: int | None, chosen: Any) -> dict[int, str]:
    """id of a Module below -> its path, for those that are to be recorded."""
    below = [(path, one) for path, one, level in modules(module) if level and (depth is None or level <= depth)]
    if chosen is None:
        return {id(one): path for path, one in below}
    names = [chosen] if isinstance(chosen, str) or not isinstance(chosen, (list, tuple, set)) else list(chosen)
    found: dict[int, str] = {}
    for name in names:
        match = [(path, one) for path, one in below if path == name or one is name]
        if not match:
            raise ValueError(
                f"submods_to_track: {name if isinstance(name, str) else type(name).__name__!r} is not below "
                f"{type(module).__name__}; it has {', '.join(repr(path) for path, _ in below)}"
            )
        found.update({id(one): path for path, one in match})
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
            value, atol, rtol = one, 0.0, 0.0
            if isinstance(one, dict) and "value" in one:
                value, atol, rtol = one["value"], one.get("atol", 0.0), one.get("rtol", 0.0)
            _compare_one(path, call, result, value, atol, rtol)


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
