"""The check of a conversion: the original and the converted module run on the same random inputs, and their results are compared.

Compared are the outputs and the gradients of the parameters, in evaluation and in training. Neither module changes.
Where the original differs from itself as much, because it draws random numbers or because its inputs differ by a rounding error,
only the shapes are compared.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from trellis.convert.common import ConversionError, Foreign
from trellis.core import tree
from trellis.core.array import Array
from trellis.core.container import Container
from trellis.core.dispatch import interpreters, target
from trellis.nn.attention import MultiHeadAttention, TransformerDecoderLayer, TransformerEncoderLayer
from trellis.nn.convolution import Convolution
from trellis.nn.functional import functional_call
from trellis.nn.linear import Embedding, Linear
from trellis.nn.module import Module
from trellis.nn.normalization import ChannelNormalization, LayerNorm, RMSNorm
from trellis.nn.recurrent import Cell, RecurrentNetwork
from trellis.nn.structure import as_array, modules
from trellis.ops.conversion import astype, is_array, to_numpy
from trellis.ops.creation import zeros
from trellis.ops.reduction import sum as sum_
from trellis.transforms.gradients import value_and_grad

Inputs = tuple[Any, ...]  # the arguments of a call: nests of NumPy arrays
Value = np.ndarray[Any, Any]
Values = list[Value]
# Arguments that say whether a function trains, and their values when it does.
MODES = {"is_training": True, "training": True, "train": True, "deterministic": False, "use_running_average": False}
# The distance from 1 to the next number; that of other dtypes is the one of bfloat16.
_EPS = {"float64": 2.0**-52, "complex128": 2.0**-52, "float32": 2.0**-23, "complex64": 2.0**-23, "float16": 2.0**-10}
_REPEATS = 8  # runs of the original that show whether it differs from itself


class Outcome(NamedTuple):
    """The result of one run: its outputs in a row, and the gradients of `score` by path."""

    outputs: Values
    gradients: dict[str, Value]


Runner = Callable[[Inputs, bool], Outcome]  # inputs, training


def verify_module(owner: str, model: Module, found: Runner, inputs: Any, back: Callable[[], Module]) -> None:
    """Compare a Module with the native module made of it. `back` makes that one a Module again: its parts name a difference."""

    def first_part(inputs: Inputs, training: bool, eps: float) -> str:
        theirs, ours = (_parts(copy.deepcopy(one).train(training), inputs) for one in (model, back()))
        return _first_part(theirs, ours, eps)

    verify(owner, module_runner(model), found, inputs, guesses(model), first_part, draws=True)


def verify(
    owner: str, expected: Runner, found: Runner, inputs: Any, guesses: Iterable[Inputs],
    first_part: Callable[[Inputs, bool, float], str] = lambda inputs, training, eps: "", *, draws: bool = False,
) -> None:  # fmt: skip
    """Raise ConversionError if two modules differ on numbers like `inputs`, or on the first guess that the original takes."""
    if inputs is None:
        start = _first_run(expected, guesses)
    else:
        given = inputs if isinstance(inputs, tuple) else (inputs,)
        inputs = tree.map(lambda x: np.asarray(to_numpy(x)) if is_array(x) else x, given)
        start = _first_run(expected, [tree.map(_drawn, inputs)])
        if start is None or not all(np.isfinite(x).all() for x in start[1].outputs):  # outside of its domain
            start = inputs, expected(inputs, False)
    if start is None:
        advice = "give inputs=, or check=False"
        warnings.warn(f"{owner}: the check did not run, as no inputs could be guessed; {advice}", stacklevel=5)
        return
    inputs, want = start
    for training in (False, True):
        try:
            want = expected(inputs, True) if training else want
        except Exception as error:  # as batch normalization of one row does
            warnings.warn(f"{owner}: the check ran in evaluation only, as training raises {error!r}", stacklevel=5)
            return
        got = found(inputs, training)
        where = f"{owner}, in {'training' if training else 'evaluation'}"
        if _shapes(want) != _shapes(got):
            raise ConversionError(f"{where}: the outputs have shapes {_shapes(got)}, those of the original {_shapes(want)}")
        eps = _eps(want, got)
        outputs = _output_difference(want, got, eps)
        problem = outputs or _gradient_difference(want, got, eps)
        if problem and not _differs_from_itself(expected, inputs, training, want, eps, draws or training):
            raise ConversionError(f"{where}: {problem}{first_part(inputs, training, eps) if outputs else ''}")


def _first_run(run: Runner, candidates: Iterable[Inputs]) -> tuple[Inputs, Outcome] | None:
    """The first inputs that a module takes, and its outcome in evaluation."""
    for inputs in candidates:
        try:
            return inputs, run(inputs, False)
        except Exception:  # code of the user's may raise anything for inputs that it was not written for
            continue
    return None


def _drawn(x: Any) -> Any:
    """Random numbers in place of floating-point ones, between the smallest, the largest and 0. Others may be indices, and stay.

    Examples are often constant, as `jnp.ones`: a normalization divides them by 0, and dropout may give one result twice.
    """
    if not isinstance(x, np.ndarray) or x.dtype.kind != "f" or not np.isfinite(x).all():
        return x
    low, high = float(np.min(x, initial=0.0)), float(np.max(x, initial=0.0))
    if low == high:
        low, high = -1.0, 1.0
    return np.random.default_rng(0).uniform(low, high, x.shape).astype(x.dtype)


# ---- comparing -----------------------------------------------------------------------------------------------------------------
def _shapes(outcome: Outcome) -> list[tuple[int, ...]]:
    return [x.shape for x in outcome.outputs]


def _differs_from_itself(run: Runner, inputs: Inputs, training: bool, before: Outcome, eps: float, draws: bool) -> bool:
    """Whether repeated runs of a module differ because it draws, or because its inputs differ by a rounding error.

    If it does not draw and the same inputs differ, it has a state that no conversion can know of: that is no excuse.
    """
    generator = np.random.default_rng(2)

    def nudged(x: Any) -> Any:
        is_floating = isinstance(x, np.ndarray) and x.dtype.kind == "f"
        return (x * (1 + eps * generator.uniform(-1, 1, x.shape))).astype(x.dtype) if is_floating else x

    for i in range(_REPEATS):
        now = run(tree.map(nudged, inputs) if draws or i else inputs, training)
        if _shapes(before) != _shapes(now) or _output_difference(before, now, eps) or _gradient_difference(before, now, eps):
            return draws or i > 0
    return False


def _output_difference(want: Outcome, got: Outcome, eps: float) -> str:
    """How outputs of the same shapes differ, in words; empty if rounding explains it."""
    off = [_gap(a, b) for a, b in zip(want.outputs, got.outputs) if not _is_near(a, b, eps)]
    return f"the outputs differ by {_number(max(off))}" if off else ""


def _gradient_difference(want: Outcome, got: Outcome, eps: float) -> str:
    """How gradients differ, in words. They are sums that may cancel, so the largest of all is the measure."""
    missing = want.gradients.keys() ^ got.gradients.keys()
    if missing:
        return f"only one of the two has a gradient of {', '.join(sorted(map(repr, missing)))}"
    size = max(map(_size, want.gradients.values()), default=0.0)
    for name, a in want.gradients.items():
        if not _is_near(a, got.gradients[name], eps, size):
            off = _number(_gap(a, got.gradients[name]))
            return f"the outputs agree, but the gradient of {name!r} differs by {off}; the largest gradient is {size:.3g}"
    return ""


def _is_near(want: Value, got: Value, eps: float, size: float | None = None) -> bool:
    """Whether rounding explains the difference: half of the digits agree. Whole numbers are equal."""
    exact = want.dtype.kind in "biu" and got.dtype.kind in "biu"
    limit = 0.0 if exact else math.sqrt(eps) * ((_size(want) if size is None else size) or 1.0)
    return _gap(want, got) <= limit


def _eps(*outcomes: Outcome) -> float:
    """The distance from 1 to the next number, in the shortest dtype of the outputs and the parameters."""
    values = [x for one in outcomes for x in (*one.outputs, *one.gradients.values())]
    return max((_EPS.get(x.dtype.name, 2.0**-7) for x in values if x.dtype.kind not in "biu"), default=0.0)


def _size(x: Value) -> float:
    sizes = np.abs(x.astype(np.complex128))
    return float(np.max(sizes, initial=0.0, where=np.isfinite(sizes)))


def _gap(want: Value, got: Value) -> float:
    """The largest difference. NaN equals NaN, and is infinitely far from a number."""
    a, b = want.astype(np.complex128), got.astype(np.complex128)
    with np.errstate(invalid="ignore"):
        gaps = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    return float(np.max(np.nan_to_num(gaps, nan=np.inf, posinf=np.inf), initial=0.0))


def _number(gap: float) -> str:
    return f"{gap:.3g}" if math.isfinite(gap) else "a NaN or an infinity that only one of them has"


def _first_part(theirs: Mapping[str, list[Values]], ours: Mapping[str, list[Values]], eps: float) -> str:
    """Words for the first part whose results differ, of those that both name."""
    for path, calls in theirs.items():
        for number, pair in enumerate(zip(calls, ours.get(path, []))):
            want, got = (Outcome(values, {}) for values in pair)
            if _shapes(want) != _shapes(got) or _output_difference(want, got, eps):
                off = max(map(_gap, *pair)) if _shapes(want) == _shapes(got) else math.inf
                return f"; the first submodule that differs is {path!r}, call {number}, by {_number(off)}"
    return ""


# ---- one run -------------------------------------------------------------------------------------------------------------------
def score(result: Any) -> Any:
    """sum(output * weight) over the real outputs, with fixed random weights: the number whose gradients are compared.

    `result` is a nest of arrays of any framework; the score is a `tl.Array`.
    """
    outputs = [x for x in map(as_array, tree.leaves(result)) if x is not None]
    generator, total = np.random.default_rng(0), zeros((), backend=outputs[0].backend if outputs else None)
    for x in outputs:
        weight = generator.normal(size=tuple(x.shape))
        if x.dtype.kind == "f":
            constant = Array(interpreters[type(x._data)].constant(weight, like=x._data))
            total = total + sum_(x * astype(constant, x.dtype))
    return total


def outcome(result: Any, gradients: Mapping[str, Any]) -> Outcome:
    """The outcome of a run whose result and gradients are arrays of any framework."""
    return Outcome(_outputs(result), {path: np.asarray(to_numpy(x)) for path, x in gradients.items()})


def _outputs(result: Any) -> Values:
    return [np.asarray(to_numpy(x)) for x in tree.leaves(result) if is_array(x)]


def module_runner(model: Module) -> Runner:
    """Runs of a copy of a Module, on its backend."""

    def run(inputs: Inputs, training: bool) -> Outcome:
        one = copy.deepcopy(model).train(training)
        for _, part, _ in modules(one):  # from no seed of its own, so that two runs of one that draws differ
            part._meta.options.pop("draws", None)
        return scored(one, inputs)

    return run


def foreign_runner(model: Foreign, kwargs: Mapping[str, Any] | None, as_it_was: Any = contextlib.nullcontext) -> Runner:
    """Runs of a native module as a Module; behind each its mode is as before, and what `as_it_was(native)` keeps."""

    def run(inputs: Inputs, training: bool) -> Outcome:
        before = model.training
        with as_it_was(model.native):
            try:
                return scored(model.train(training), inputs, kwargs)
            finally:
                model.train(before)

    return run


def scored(model: Module, inputs: Inputs, kwargs: Mapping[str, Any] | None = None) -> Outcome:
    """One run of a Module, which stays as it is."""
    arguments = _beside(model, inputs)

    def call(v: dict[str, Any]) -> Any:
        return functional_call(model, Container.from_flat_dict(v), None, *arguments, **(kwargs or {}))[0]

    return differentiated(call, model.v.to_flat_dict())


def differentiated(call: Callable[[dict[str, Any]], Any], v: dict[str, Any]) -> Outcome:
    """The outcome of `call(v)`, where `v` is path -> array, with gradients by Trellis."""

    def run(v: dict[str, Any]) -> tuple[Any, Any]:
        result = call(v)
        return score(result), result

    if not v:
        return outcome(call(v), {})
    (_, result), gradients = value_and_grad(run, has_aux=True)(v)
    return outcome(result, gradients)


def _beside(model: Module, inputs: Inputs) -> Inputs:
    held = [*model.v.to_flat_dict().values(), *model.buffers.to_flat_dict().values()]
    homes = [one.home for _, one, _ in modules(model) if isinstance(one, Foreign)]  # of native modules without arrays
    return placed(inputs, held[0].backend if held else [*homes, "numpy"][0], held)


def placed(inputs: Any, backend: str, beside: Sequence[Array]) -> Any:
    """NumPy inputs as Arrays on a backend; floating-point ones have the dtype and the device of the first of `beside`."""
    goal, like = target(backend), next((x for x in beside if x.dtype.kind == "f"), None)

    def bring(x: Any) -> Any:
        if not isinstance(x, np.ndarray):
            return x
        dtype = like.dtype if like is not None and x.dtype.kind == "f" else None
        return Array(goal.from_numpy(x, dtype=dtype, device=None if like is None else like.device, copy=True))

    return tree.map(bring, inputs)


def _parts(model: Module, inputs: Inputs) -> dict[str, list[Values]]:
    """Path -> the results of a layer, one per call."""
    model(*_beside(model, inputs), track_submod_rets=True)
    return {path: [_outputs(one) for one in model.submod_rets[path]] for path in _in_order(model.submod_call_order)}


def _in_order(calls: dict[str, Any]) -> Iterator[str]:
    """Paths in the order in which the calls end: inner ones come first, so that the innermost difference is named."""
    for name, below in calls.items():
        if isinstance(below, dict):
            yield from _in_order(below)
        yield name.rpartition("_")[0]


# ---- guessed inputs ------------------------------------------------------------------------------------------------------------
Hints = Mapping[type, tuple[str, str]]  # class of a layer -> the kind of its input, and the attribute that holds its channels
_WINDOWS = ("line", "image", "volume")
_HINTS: Hints = {
    Convolution: ("window", "input_channels"),
    **dict.fromkeys((Linear, Cell), ("vector", "input_channels")),
    RecurrentNetwork: ("sequence", "input_channels"),
    Embedding: ("indices", "num_embeddings"),
    **dict.fromkeys((MultiHeadAttention, TransformerEncoderLayer, TransformerDecoderLayer), ("sequence", "embed_dim")),
    ChannelNormalization: ("window", "num_features"),
    **dict.fromkeys((LayerNorm, RMSNorm), ("vector", "normalized_shape")),
}


def guesses(model: Module) -> Iterator[Inputs]:
    """Inputs that a Module may take, by its first layer that has parameters of its own."""
    for _, layer, _ in modules(model):
        if hint := hinted(layer, _HINTS):
            kind, size = hint
            if kind == "window":
                kind = _WINDOWS[(getattr(layer, "dims", None) or getattr(layer, "axes", (4,))[-1] - 2) - 1]
            last = getattr(layer, "data_format", "channel_last") in ("channel_last", "NWC", "NHWC", "NDHWC")
            return itertools.islice(repeated(type(model).forward.__get__(model), arrays(kind, size, last)), 14)
    return iter(())


def hinted(layer: Any, hints: Hints) -> tuple[str, int] | None:
    """The kind of input of a layer and its channels, by the first class that it is an instance of."""
    for kind, (name, attribute) in hints.items():
        if isinstance(layer, kind):
            size = getattr(layer, attribute)
            return name, size[-1] if isinstance(size, tuple) else size
    return None


def arrays(kind: str, size: int, channel_last: bool = True) -> Iterable[Value]:
    """Random arrays for a layer that takes `size` channels; for a table of that size, indices."""
    generator = np.random.default_rng(1)
    if kind == "indices":
        return [generator.integers(0, size, (3, 5))]
    if kind in ("vector", "sequence"):
        shapes: list[tuple[int, ...]] = [(3, size), (3, 5, size)][:: 1 if kind == "vector" else -1]
    else:
        dims = 1 + _WINDOWS.index(kind)
        windows = [(side,) * dims for side in (8, 6, 7, 5, 10, 12, 14, 16, 20, 24, 28, 32, 48, 64)[: 14 if dims < 3 else 4]]
        shapes = [(3, *window, size) if channel_last else (3, size, *window) for window in windows]
    return (generator.normal(size=shape).astype(np.float32) for shape in shapes)


def repeated(function: Callable[..., Any] | inspect.Signature, found: Iterable[Value]) -> Iterator[Inputs]:
    """Each array as often as a function has arguments that it needs."""
    count = max(1, required(function))
    return ((x,) * count for x in found)


def required(function: Callable[..., Any] | inspect.Signature) -> int:
    """How many positional arguments a function cannot do without, but for its mode."""
    try:
        signature = function if isinstance(function, inspect.Signature) else inspect.signature(function)
    except (TypeError, ValueError):  # not written in Python
        return 0
    takes = [p for p in signature.parameters.values() if p.default is p.empty and p.name not in MODES]
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in takes)
