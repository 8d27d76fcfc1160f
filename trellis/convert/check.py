"""The check of a conversion: both modules run on the same random inputs, and what they compute is compared.

Results and gradients of the parameters, in evaluation and in training. Nothing of either module changes. Where the original draws
random numbers in training, which two runs of it show, only shapes are compared there.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from trellis import tree
from trellis.array import Array
from trellis.convert.common import ConversionError
from trellis.dispatch import interpreters, load
from trellis.nn.functional import functional_call
from trellis.nn.module import Module
from trellis.nn.structure import modules
from trellis.ops.conversion import astype, is_array, to_numpy
from trellis.ops.reduction import sum as sum_
from trellis.transforms import value_and_grad

Inputs = tuple[Any, ...]  # the arguments of a call: nests of NumPy arrays
Values = list[np.ndarray[Any, Any]]
_LIMITS = {"float64": 1e-8, "complex128": 1e-8, "float32": 1e-4, "complex64": 1e-4}  # the others are short


class Outcome(NamedTuple):
    """What one run gave: outputs in a row, gradients of `score` by path, and (asked for on a mismatch) results of the parts."""

    outputs: Values
    gradients: dict[str, np.ndarray[Any, Any]]
    parts: Callable[[], dict[str, list[Values]]] = dict


Runner = Callable[[Inputs, bool], Outcome]  # inputs, training


def verify(owner: str, expected: Runner, found: Runner, inputs: Any, guesses: Sequence[Inputs]) -> None:
    """Compare two modules on `inputs`, or on the first guess that the original takes; raise ConversionError if they differ."""
    if inputs is None:
        inputs = next((guess for guess in guesses if _runs(expected, guess)), None)
    else:
        inputs = tree.map(_as_numpy, inputs if isinstance(inputs, tuple) else (inputs,))
    if inputs is None:
        warnings.warn(
            f"{owner}: the check did not run, as no inputs could be guessed; give inputs=(...), or check=False", stacklevel=4
        )
        return
    for training in (False, True):
        want, got = expected(inputs, training), found(inputs, training)
        alike = _difference(want.outputs, expected(inputs, True).outputs) == 0 if training else True
        _compare(f"{owner}, in {'training' if training else 'evaluation'}", want, got, not alike)


def _runs(run: Runner, inputs: Inputs) -> bool:
    try:
        run(inputs, False)
        return True
    except Exception:  # whatever a model says to inputs that it was not made for
        return False


def _as_numpy(x: Any) -> Any:
    return np.asarray(to_numpy(x)) if is_array(x) else x


# ---- comparing -----------------------------------------------------------------------------------------------------------------
def _compare(where: str, want: Outcome, got: Outcome, shapes_only: bool) -> None:
    shapes = [[x.shape for x in outcome.outputs] for outcome in (want, got)]
    if shapes[0] != shapes[1]:
        raise ConversionError(f"{where}: the outputs have shapes {shapes[1]}, those of the original {shapes[0]}")
    if shapes_only:
        return
    off = _difference(want.outputs, got.outputs)
    if not off <= 1:
        raise ConversionError(f"{where}: the outputs differ by {_largest(want.outputs, got.outputs):.3g}{_first_part(want, got)}")
    missing = want.gradients.keys() ^ got.gradients.keys()
    if missing:
        raise ConversionError(f"{where}: only one of the two has a gradient of {', '.join(sorted(map(repr, missing)))}")
    names = list(want.gradients)
    scale = _scale(list(want.gradients.values()))
    for name in names:
        pair = [want.gradients[name]], [got.gradients[name]]
        if not _difference(*pair, scale) <= 1:
            raise ConversionError(
                f"{where}: the outputs agree, but the gradient of {name!r} differs by {_largest(*pair):.3g}; the largest "
                f"gradient is {scale:.3g}"
            )


def _scale(values: Values) -> float:
    """The size that differences are measured by: sums in another order differ by parts of the largest summand."""
    return max([1e-3, *(float(np.max(np.abs(x), initial=0.0)) for x in values if np.isfinite(x).all())])


def _largest(want: Values, got: Values) -> float:
    return max(
        (float(np.max(np.abs(np.subtract(a, b, dtype=np.complex128)), initial=0.0)) for a, b in zip(want, got)), default=0.0
    )


def _difference(want: Values, got: Values, scale: float | None = None) -> float:
    """How far off, in units of what rounding explains; NaN equals NaN."""
    worst = 0.0
    for a, b in zip(want, got):
        limit = max(_LIMITS.get(x.dtype.name, 0.0 if x.dtype.kind in "biu" else 3e-2) for x in (a, b))
        wide = [np.nan_to_num(x.astype(np.complex128), nan=0.5, posinf=1e30, neginf=-1e30) for x in (a, b)]
        off = float(np.max(np.abs(wide[0] - wide[1]), initial=0.0))
        worst = max(worst, off and off / ((limit or 1e-30) * (_scale([a]) if scale is None else scale)))
    return worst


def _first_part(want: Outcome, got: Outcome) -> str:
    """Words for the first part whose results differ, of those that both name."""
    theirs, ours = want.parts(), got.parts()
    for path, calls in theirs.items():
        for number, (a, b) in enumerate(zip(calls, ours.get(path, []))):
            if [x.shape for x in a] != [x.shape for x in b] or not _difference(a, b) <= 1:
                return f"; the first submodule that differs is {path!r}, call {number}, by {_largest(a, b):.3g}"
    return ""


# ---- one run -------------------------------------------------------------------------------------------------------------------
def weights(outputs: Sequence[Any]) -> Values:
    """Fixed random numbers for each floating-point output (None for another): gradients are those of sum(output * weight)."""
    generator = np.random.default_rng(0)
    return [generator.normal(size=tuple(x.shape)) for x in outputs]


def is_smooth(x: np.ndarray[Any, Any]) -> bool:
    """Whether a gradient can start at this output: real and floating, bfloat16 too."""
    return x.dtype.kind == "f" or x.dtype.name == "bfloat16"


def outputs_of(result: Any) -> Values:
    return [np.asarray(to_numpy(x)) for x in tree.leaves(result) if is_array(x)]


def module_runner(model: Module) -> Runner:
    """Runs of a copy of a Module, on its backend."""

    def run(inputs: Inputs, training: bool) -> Outcome:
        one = copy.deepcopy(model).train(training)
        for _, part, _ in modules(one):  # from no seed of its own, so that two runs of one that draws differ
            part._meta.options.pop("draws", None)
        native = on_backend(inputs, one)
        return Outcome(*scored(one, native), parts=lambda: _parts(copy.deepcopy(model).train(training), native))

    return run


def scored(model: Module, native: Inputs, kwargs: Any = None) -> tuple[Values, dict[str, np.ndarray[Any, Any]]]:
    """Outputs and gradients of a Module, which stays as it is."""
    v = model.v

    def score(v: Any) -> Any:
        result, _ = functional_call(model, v, None, *native, **(kwargs or {}))
        outputs = [x for x in tree.leaves(result) if is_array(x)]
        total: Any = 0.0
        for x, weight in zip(outputs, weights(outputs)):
            if x.dtype.kind == "f":
                constant = Array(interpreters[type(x._data)].constant(weight, like=x._data))
                total = total + sum_(x * astype(constant, x.dtype))
        return total, result

    if not len(v):
        return outputs_of(functional_call(model, v, None, *native, **(kwargs or {}))[0]), {}
    (_, result), grads = value_and_grad(score, has_aux=True)(v)
    return outputs_of(result), {path: np.asarray(to_numpy(x)) for path, x in grads.to_flat_dict().items()}


def on_backend(inputs: Inputs, model: Module) -> Inputs:
    """NumPy inputs as Arrays on the backend of a model, floating-point ones in the dtype of its parameters."""
    held = next(iter([*model.v.to_flat_dict().values(), *model.buffers.to_flat_dict().values()]), None)
    goal = load("numpy") if held is None else interpreters[type(held._data)]
    dtype = held.dtype if held is not None and held.dtype.kind == "f" else None

    def bring(x: Any) -> Any:
        if not isinstance(x, np.ndarray):
            return x
        return Array(goal.from_numpy(x, dtype=dtype if x.dtype.kind == "f" else None, device=None, copy=True))

    return tree.map(bring, inputs)


def _parts(model: Module, native: Inputs) -> dict[str, list[Values]]:
    """What the layers of a Module return."""
    model(*native, track_submod_rets=True)
    order: dict[str, list[Values]] = {}
    for path in _in_order(model.submod_call_order):
        order.setdefault(path, [])
    return {path: [outputs_of(one) for one in model.submod_rets[path]] for path in order}


def _in_order(calls: dict[str, Any]) -> Iterator[str]:
    """Paths in the order in which the calls end: what is inside comes first, so that the innermost difference is named."""
    for name, below in calls.items():
        if isinstance(below, dict):
            yield from _in_order(below)
        yield name.rpartition("_")[0]


# ---- inputs --------------------------------------------------------------------------------------------------------------------
def arrays(kind: str, size: int, channel_last: bool = True) -> Iterator[np.ndarray[Any, Any]]:
    """Random arrays for a layer of a kind that takes `size` channels (of indices: for a table of that size)."""
    generator = np.random.default_rng(1)
    if kind == "indices":
        yield generator.integers(0, size, (3, 5))
        return
    if kind in ("vector", "sequence"):
        for shape in ((3, size), (3, 5, size))[:: 1 if kind == "vector" else -1]:
            yield generator.normal(size=shape).astype(np.float32)
        return
    dims = {"line": 1, "image": 2, "volume": 3}[kind]
    for side in (8, 6, 7, 5, 10, 12, 14, 16, 20, 24, 28, 32, 48, 64)[: 14 if dims < 3 else 4]:
        shape = (3, *[side] * dims, size) if channel_last else (3, size, *[side] * dims)
        yield generator.normal(size=shape).astype(np.float32)


def repeated(function: Callable[..., Any], found: Iterator[np.ndarray[Any, Any]]) -> Iterator[Inputs]:
    """Each array as often as the function has arguments that it needs."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty]
    for x in found:
        yield (x,) * max(1, len(positional))


def guesses(model: Module) -> Iterator[Inputs]:
    """Inputs that a Module may take, by its first layer that has parameters of its own."""
    found: Iterator[np.ndarray[Any, Any]] = iter(())
    for _, one, _ in modules(model):
        hint = _hint(one)
        if hint is not None:
            found = arrays(*hint)
            break
    return itertools.islice(repeated(type(model).forward.__get__(model), found), 14)


def _hint(layer: Any) -> tuple[str, int, bool] | None:
    """The kind of input of a layer, the number of channels, and whether they are last."""
    from trellis import nn
    from trellis.nn.convolution import Convolution
    from trellis.nn.normalization import ChannelNormalization
    from trellis.nn.recurrent import Cell, RecurrentNetwork

    last = getattr(layer, "data_format", "channel_last") in ("channel_last", "NWC", "NHWC", "NDHWC")
    if isinstance(layer, Convolution):
        return ("line", "image", "volume")[layer.dims - 1], layer.input_channels, last
    if isinstance(layer, (nn.Linear, Cell)):
        return "vector", layer.input_channels, True
    if isinstance(layer, RecurrentNetwork):
        return "sequence", layer.input_channels, True
    if isinstance(layer, nn.Embedding):
        return "indices", layer.num_embeddings, True
    if isinstance(layer, (nn.MultiHeadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
        return "sequence", layer.embed_dim, True
    if isinstance(layer, ChannelNormalization):
        dims = getattr(layer, "axes", (4,))[-1] - 2
        return ("line", "image", "volume")[dims - 1], layer.num_features, last
    if isinstance(layer, (nn.LayerNorm, nn.RMSNorm)):
        return "vector", layer.normalized_shape[-1], True
    return None
