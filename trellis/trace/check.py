"""The proof of a transpiled model: outputs, gradients and another batch size against the original, which stays as it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from trellis import ops as tl
from trellis.core.array import Array
from trellis.core.dispatch import load, using
from trellis.trace.errors import TranspileError
from trellis.trace.graph import Graph
from trellis.trace.module import Mode, Program
from trellis.trace.rows import RANDOM
from trellis.trace.rows.support import DRAW, no_draws
from trellis.transforms.compile import compile
from trellis.transforms.gradients import value_and_grad

OUTPUTS, GRADIENTS = 1e-5, 1e-4  # of the largest number of the array; float32 through a deep model keeps about this
_MOST = 4_000_000  # numbers whose gradients are compared


class Original(Protocol):
    """The source as functions of a list of tensors, without draws of dropout."""

    sizes: dict[str, int]  # of the parameters that have a gradient, by name
    buffers: list[str]  # names of the buffers that are saved

    def outputs(self, tensors: Sequence[Any], training: bool) -> list[Any]:
        """The results of a call, and then the buffers as they are after it."""
        ...

    def gradients(self, tensors: Sequence[Any], cotangents: Sequence[Any], names: Sequence[str], training: bool) -> Any:
        """The gradient by each parameter of `names`; None if an op of the source has no derivative."""

    def nudged(self, tensors: Sequence[Any]) -> list[Any]:
        """The tensors with each float changed by about 1e-6 of it."""
        ...

    def parts(self, tensors: Sequence[Any], training: bool) -> dict[str, Any]:
        """The first result of each submodule, by path, in the order of the calls."""
        ...


class DifferenceError(TranspileError):
    """Outputs or gradients that are not those of the original."""


class GradientError(DifferenceError):
    """Outputs that are equal, and gradients that are not."""


class Difference(NamedTuple):
    """The largest differences from the original, relative to the largest number of each array; None for what was not compared."""

    outputs: float | None
    training: float | None
    gradients: float | None
    batch: float | None


def relative(found: Any, expected: Any) -> float:
    """max|found - expected| / max|expected| of the finite numbers; infinity if shapes, or the places of others, differ."""
    found, expected = np.asarray(found), np.asarray(expected)
    steps = coarseness(expected.dtype)
    if found.shape != expected.shape:
        return float("inf")
    if expected.size == 0:
        return 0.0
    if expected.dtype.kind in "biu":
        return float(np.any(found != expected))
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    found, expected = found.astype(wide), expected.astype(wide)
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(found)) or not np.array_equal(found[~finite], expected[~finite], equal_nan=True):
        return float("inf")
    scale = np.abs(expected[finite]).max(initial=0) * steps
    return float(np.abs(found[finite] - expected[finite]).max(initial=0) / (scale if scale > 1e-6 else 1.0))


def coarseness(dtype: Any) -> float:
    """How many times coarser than float32 a dtype is; its differences are divided by that."""
    return {"float16": 2.0**9, "bfloat16": 2.0**12}.get(str(dtype), 1.0)  # a model has fewer of their steps


def _gradients_apart(found: Sequence[Any], expected: Sequence[Any]) -> list[float]:
    """For each array the largest difference, relative to its own numbers unless they are small beside those of the others."""
    arrays = [np.asarray(tl.to_numpy(x)) for x in expected]
    largest = max(float(np.abs(x).max(initial=0)) for x in arrays)
    differences = []
    for mine, its in zip(found, arrays):
        scale = max(float(np.abs(its).max(initial=0)), 1e-3 * largest, 1e-6) * coarseness(its.dtype)
        apart = np.abs(np.asarray(tl.to_numpy(mine), np.float64) - np.asarray(its, np.float64)).max(initial=0) / scale
        differences.append(float(np.nan_to_num(apart, nan=np.inf)))
    return differences


class Checker:
    """Compares a program on a backend with its original. `state` gives the array of a name.

    If `rounds`, the program is known to agree in float64, and the limits are those of a model that amplifies rounding: 1000 times
    wider, or 10 times what the original itself differs by when its arguments change by 1e-6.
    """

    def __init__(self, program: Program, state: Callable[[str], Array], original: Original, backend: str) -> None:
        self.program, self.state, self.original, self.backend, self.rounds = program, state, original, backend, False

    def verify(self, tensors: Sequence[Any], other: Sequence[Any] | None, say: Callable[[str], None]) -> Difference:
        """TranspileError if the program differs from the original; it names the first submodule that does."""
        found: dict[str, float | None] = dict.fromkeys(Difference._fields)
        token = DRAW.set(no_draws)
        try:
            with using(self.backend):
                for name, inputs, training in (("outputs", tensors, False), ("training", tensors, True), ("batch", other, False)):
                    mode = self.program.modes.get(training)
                    same = training and self.program.modes.get(True) is self.program.modes.get(False)
                    if inputs is None or mode is None or same or _is_random(mode):
                        continue
                    say(f"comparing {name}")
                    found[name] = self._outputs(name, mode, inputs, training)
                for training in (True, False) if self.original.sizes else ():  # in evaluation if training draws random numbers
                    mode = self.program.modes.get(training)
                    if found["gradients"] is None and mode is not None and not _is_random(mode):
                        say("comparing gradients")
                        found["gradients"] = self._gradients(mode, tensors, training)
        finally:
            DRAW.reset(token)
        return Difference(**found)

    def _moved(self, tensors: Sequence[Any]) -> list[Any]:
        return [tl.to_backend(Array(x), self.backend) for x in tensors]

    def _compiled(self, graph: Graph, function: Callable[..., Any]) -> Callable[..., Any]:
        """For JAX, which op by op compiles each op for each shape. It compiles no size that depends on numbers: torch's `u0`."""
        sizes = [str(size) for node in graph.nodes for x in node.results for size in x.shape or ()]
        return compile(function) if self.backend == "jax" and not any("u" in size for size in sizes) else function

    def _outputs(self, name: str, mode: Mode, tensors: Sequence[Any], training: bool) -> float:
        expected = self.original.outputs(tensors, training)
        state = [self.state(key) for key in mode.state]
        try:
            run = self._compiled(mode.graph, lambda state, leaves: mode.graph.run([*state, *leaves]))
            made = run(state, self._moved(tensors))
        except Exception as error:
            if name != "batch":
                raise
            raise TranspileError(_fixed_text(tensors, f"fail ({error})")) from error
        changed = dict(zip(mode.changed, made[mode.results :]))
        found = [*made[: mode.results], *[changed[n] if n in changed else self.state(n) for n in self.original.buffers]]
        if name == "batch" and any(np.shape(a) != np.shape(b) for a, b in zip(found, expected)):
            raise TranspileError(_fixed_text(tensors, "give results of other shapes"))
        each = [relative(tl.to_numpy(a), tl.to_numpy(b)) for a, b in zip(found, expected, strict=True)]
        apart = max(each, default=0.0)
        if not apart <= OUTPUTS and not apart <= self._widened(OUTPUTS, expected, self.original.outputs, tensors, training):
            kind = {"outputs": "in evaluation", "training": "in training", "batch": "with another batch size"}[name]
            buffer = ([""] * mode.results + self.original.buffers)[each.index(apart)]
            where = f"; the buffer {buffer!r} is another after the call" if buffer else self._blame(mode, tensors, training)
            raise DifferenceError(
                f"transpile: the model differs from the original {kind} by {apart:.1e} of the largest number{where}; if the "
                "source keeps numbers or tensors in attributes between calls, make these buffers (register_buffer)"
            )
        return apart

    def _gradients(self, mode: Mode, tensors: Sequence[Any], training: bool) -> float | None:
        rng = np.random.default_rng(0)
        shapes = [(x.shape, tl.to_numpy(x).dtype.kind in "fV") for x in self.original.outputs(tensors, training)[: mode.results]]
        cotangents = [rng.standard_normal(tuple(s)).astype(np.float32) if floating else None for s, floating in shapes]
        names = self._chosen()
        expected = self.original.gradients(tensors, cotangents, names, training)
        if expected is None:
            return None
        arrays = [self.state(key) for key in mode.state]
        tied = [[i for i, x in enumerate(arrays) if x is self.state(name)] for name in names]

        def loss(chosen: list[Any], state: list[Any], leaves: list[Any], weights: list[Any]) -> Any:
            state = list(state)
            for x, indices in zip(chosen, tied):
                for i in indices:
                    state[i] = x
            results = mode.graph.run([*state, *leaves])[: mode.results]
            return sum([tl.sum(y * w) for y, w in zip(results, weights) if w is not None], start=tl.sum(chosen[0]) * 0)

        backend = load(self.backend)
        weights = [None if c is None else Array(backend.from_numpy(c, dtype=None, device=None, copy=None)) for c in cotangents]
        if not any(tied) or all(c is None for c in cotangents):
            return 0.0
        chosen = [self.state(name) for name in names]
        _, grads = self._compiled(mode.graph, value_and_grad(loss))(chosen, arrays, self._moved(tensors), weights)
        differences = _gradients_apart(grads, expected)
        worst = max(differences)
        where = names[differences.index(worst)]
        again = lambda nudged, training: self.original.gradients(nudged, cotangents, names, training)  # noqa: E731
        if not worst <= GRADIENTS and not worst <= self._widened(GRADIENTS, expected, again, tensors, training):
            raise GradientError(
                f"transpile: the gradient of {where!r} differs from the original's by {worst:.1e} of its largest number; "
                "hooks on tensors and backwards of one's own are not in a graph"
            )
        return worst

    def _widened(self, limit: float, expected: list[Any], run: Callable[..., list[Any]], tensors: Any, training: bool) -> float:
        """The limit of a model that amplifies rounding."""
        if not self.rounds:
            return limit
        found = run(self.original.nudged(tensors), training)
        return max(1000 * limit, 10 * max(_gradients_apart(found, expected)))

    def _chosen(self) -> list[str]:
        """All parameters, or of a large model the small ones, which stand in every layer: memory stays small."""
        chosen, total = [], 0
        for name, size in sorted(self.original.sizes.items(), key=lambda item: item[1]):
            total += size
            if total <= _MOST or not chosen:
                chosen.append(name)
        return chosen

    def _blame(self, mode: Mode, tensors: Sequence[Any], training: bool) -> str:
        """The first submodule whose result differs, and by how much."""
        graph = mode.graph
        last = {node.place: node for node in graph.nodes if not node.many}
        probe = Graph(
            graph.inputs, graph.nodes, [n.results[0] for n in last.values()], constants=graph.constants, dialect=graph.dialect
        )
        values = dict(zip(last, probe.run([*map(self.state, mode.state), *self._moved(tensors)])))
        for path, expected in self.original.parts(tensors, training).items():
            if path in values and tuple(getattr(values[path], "shape", ())) == tuple(expected.shape):
                apart = relative(tl.to_numpy(values[path]), tl.to_numpy(expected))
                if not apart <= OUTPUTS:
                    line = last[path].source or "an unknown line"
                    return f"; the first submodule that differs is {path!r}, by {apart:.1e}, at {line}"
        return ""


def _fixed_text(tensors: Sequence[Any], what: str) -> str:
    return (
        f"transpile: the model is fixed to the sizes of the example; arrays of shapes {[tuple(x.shape) for x in tensors]}, which "
        f"the original takes, {what}; give an example with 2 or more elements along each axis, and replace loops over a size; "
        "or, for calls of these sizes only, pass check=False"
    )


def _is_random(mode: Mode) -> bool:
    """Whether the graph draws numbers other than those of dropout; rrelu draws none in evaluation."""
    return any(node.op in RANDOM and (node.op != "rrelu.default" or node.operands[3]) for node in mode.graph.nodes)
