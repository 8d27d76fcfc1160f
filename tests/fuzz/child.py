"""The process that draws cases, runs them in every form and prints what differs."""

from __future__ import annotations

import collections
import faulthandler
import fnmatch
import itertools
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np

from fuzz import calls, forms, layers, operators, programs
from fuzz.__main__ import HANGS_AFTER, Finding
from fuzz.drawing import pick
from fuzz.reduction import reduced

# The part of the time that each kind of case gets. Each kind draws from its own stream, so that a seed repeats its cases.
SHARES = {"calls": 0.4, "compiled": 0.15, "gradients": 0.1, "vmap": 0.05, "operators": 0.1, "programs": 0.12, "layers": 0.08}


class Child:
    """Runs cases in every form and prints one JSON line per finding; writes the case under way to `journal`."""

    def __init__(self, seed: int, backends: list[str], only: str, journal: Path) -> None:
        self.backends, self.journal = backends, journal
        self.functions = {k: f for k, f in calls.functions().items() if fnmatch.fnmatch(k, only)}
        self.rngs = {kind: np.random.default_rng([seed, i]) for i, kind in enumerate(SHARES)}
        self.orders: dict[str, list[str]] = {kind: [] for kind in SHARES}
        self.counts: collections.Counter[str] = collections.Counter()
        self.seen: set[tuple[str, str, str]] = set()

    def work(self, seconds: float, kinds: list[str]) -> None:
        end, spent = time.monotonic() + seconds, dict.fromkeys(kinds, 0.0)
        while time.monotonic() < end:
            kind = min(kinds, key=lambda kind: spent[kind] / SHARES[kind])
            began = time.monotonic()
            getattr(self, kind)(self.rngs[kind])
            spent[kind] += time.monotonic() - began
            self.counts[kind] += 1
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps({"counts": self.counts}), flush=True)

    # ---- the kinds ----
    def calls(self, rng: Any) -> None:
        form = pick(rng, ["array", "array", "array", "mixed", "mixed", "container", "container", "ragged"])
        used, base = (["ragged"], "ragged") if form == "ragged" else (["native", form], "native")
        self.compare(self.call(rng, "calls"), forms.run, used, base)

    def compiled(self, rng: Any) -> None:
        self.compare(self.call(rng, "compiled"), forms.run, [pick(rng, ["compiled", "compiled", "compiled_array"])])

    def gradients(self, rng: Any) -> None:
        case = self.call(rng, "gradients")
        value = forms.run(case, "numpy", "native")
        if forms.can_differentiate(case) and not value.error and forms.is_finite(value):
            self.compare(case, forms.run, ["gradient"], "gradient")

    def vmap(self, rng: Any) -> None:
        case = self.call(rng, "vmap")
        of_one_array = case.function == "where" and len(case.args) + len(case.kwargs) == 1  # its size depends on values
        if "seed" not in case.kwargs and not of_one_array and not forms.run(case, "numpy", "native").error:
            self.compare(case, forms.run, ["vmap"], "vmap")

    def operators(self, rng: Any) -> None:
        self.compare(operators.draw(rng), forms.run, ["array", "mixed"] if rng.random() < 0.3 else ["array"], "array")

    def layers(self, rng: Any) -> None:
        form = pick(rng, layers.FORMS)
        used, base = (["gradient"], "gradient") if form == "gradient" else ([form], "array")
        self.compare(layers.draw(rng), layers.run, used, base)

    def programs(self, rng: Any) -> None:
        program, given = programs.draw(rng), programs.operands(rng)
        self.start(str(program))
        compile_it = rng.random() < 0.15
        for where, text in programs.differences(program, given, self.backends, compile_it):
            backend = where.partition(":")[0]
            small = programs.reduced(
                program,
                lambda p: any(w == where for w, _ in programs.differences(p, given, [backend], compile_it)),  # noqa: B023
            )
            self.report("program", where, text, f"{small}; f(*np.array({np.array(given).tolist()}))")

    # ---- what they share ----
    def call(self, rng: Any, kind: str) -> calls.Case:
        """A call of the next function: each comes once before one comes twice."""
        order = self.orders[kind]
        if not order:
            order.extend(rng.permutation(list(self.functions)).tolist())
        name = order.pop()
        return calls.draw(rng, name, self.functions[name])

    def start(self, text: str) -> None:
        self.journal.write_text(text)
        faulthandler.dump_traceback_later(HANGS_AFTER, exit=True)

    def report(self, function: str, where: str, difference: str, text: str) -> None:
        key = (function, where, re.sub(r"[-\d.e+]+", "#", difference)[:60])
        if key not in self.seen:
            self.seen.add(key)
            print(json.dumps(Finding(function, where, difference, text)._asdict()), flush=True)

    def compare(self, case: calls.Case, run: Any, used: list[str], base: str = "native") -> None:
        self.start(str(case))
        expected = run(case, "numpy", base)
        self.counts["error" if expected.error else "value"] += 1
        if "compiled" in used[0] and any(x.dtype.kind == "U" for x in expected.leaves or []):
            return  # no arrays come out: a dtype, or facts about one

        def differs(case: calls.Case, where: tuple[str, str], expected: forms.Outcome) -> str:
            return forms.difference(case, expected, run(case, *where), where[1])

        found: dict[str, list[tuple[str, str]]] = {}  # what differs -> where
        for where in itertools.product(self.backends, dict.fromkeys(used)):
            if where == ("numpy", base) or (where[1] in forms.NEED_ARRAYS and not forms.has_arrays(case)):
                continue
            if text := differs(case, where, expected):
                found.setdefault(text, []).append(where)
        for text, places in found.items():
            place = places[0]
            small = reduced(case, lambda c: differs(c, place, run(c, "numpy", base))[:12] == text[:12])  # noqa: B023
            shown = differs(small, place, run(small, "numpy", base)) or text
            self.report(case.function, " ".join(map(":".join, places)), shown, str(small))


def work(seed: int, seconds: float, backends: list[str], only: str, journal: Path) -> None:
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    kinds = list(SHARES) if only == "*" else ["calls", "compiled", "gradients", "vmap"]
    Child(seed, backends, only, journal).work(seconds, kinds)
