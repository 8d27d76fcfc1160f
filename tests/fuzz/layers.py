"""Every layer fed every dtype and layout, on the four: the outcome of a layer is that of the same layer on NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from helpers import compiled
from layer_cases import CASES, FIRST, IMAGE, LINE, SEQUENCE, Case as LayerCase

import trellis as tl
from fuzz import drawing
from fuzz.calls import Case
from fuzz.drawing import Rng, chance, pick
from fuzz.forms import Outcome, _leaf, _native, _plain, _strict, flat

FORMS = ("array", "native", "compiled", "gradient")


def _layer(make: Any, *args: Any, **given: Any) -> Any:
    return lambda **options: make(*args, **(given | options))


# Layers that torch has not.
OTHERS: dict[str, tuple[Any, Any]] = {
    "Dropout": (_layer(tl.Dropout, 0.4), SEQUENCE),
    "GlobalAvgPool": (_layer(tl.GlobalAvgPool, **FIRST), IMAGE),
    "GlobalMaxPool": (_layer(tl.GlobalMaxPool, keepdims=True, **FIRST), IMAGE),
    "Residual": (lambda **o: tl.Residual(tl.Linear(8, 8, **o), tl.GELU()), SEQUENCE),
    "SeparableConv1D": (_layer(tl.SeparableConv1D, 4, 3, 2, multiplier=2, **FIRST), LINE),
    "SeparableConv2D": (_layer(tl.SeparableConv2D, 4, 3, 2, 2, "SAME", **FIRST), IMAGE),
    "Sequential": (
        lambda **o: tl.Sequential(tl.Linear(8, 4, **o), tl.LayerNorm(4, **o), tl.Dropout(0.3, **o), tl.tanh),
        SEQUENCE,
    ),
    "SwiGLU": (_layer(tl.SwiGLU), SEQUENCE),
}
LAYERS = CASES | {name: LayerCase(ours, None, (x,)) for name, (ours, x) in OTHERS.items()}


def draw(rng: Rng) -> Case:
    """A Case whose function is `layer:<name>`: its keyword `dtype` is that of the parameters."""
    name = pick(rng, sorted(LAYERS))
    kwargs: dict[str, Any] = {
        "dtype": pick(rng, ["float32", "float32", "float64", "float16", "bfloat16"]),
        "train": chance(rng, 0.3),
    }
    inputs = LAYERS[name].inputs
    if _has_layout(name) and chance(rng, 0.5):
        kwargs["data_format"] = "channel_last"
        inputs = tuple(np.moveaxis(x, 1, -1) for x in inputs)
    kind, mixed = drawing.dtype(rng, floats=0.5), chance(rng, 0.2)
    empty = chance(rng, 0.04)
    return Case(f"layer:{name}", tuple(_drawn(rng, x, drawing.dtype(rng) if mixed else kind, empty) for x in inputs), kwargs)


def _has_layout(name: str) -> bool:
    """Whether the layer is made with channels first, and so has the other layout too."""
    closed = LAYERS[name].ours.__closure__ or ()
    return any(isinstance(cell.cell_contents, dict) and "data_format" in cell.cell_contents for cell in closed)


def _drawn(rng: Rng, x: Any, kind: str, empty: bool) -> Any:
    if not isinstance(x, np.ndarray) or x.dtype != np.float64:
        return x
    x = np.abs(x) if kind.startswith("u") else x  # a negative number would become one that overflows in every norm
    x = (np.round(2 * x) if kind in drawing.INTEGERS else x).astype(drawing.np_dtype(kind))
    if x.size and chance(rng, 0.03) and x.dtype.kind == "f":
        x.flat[0] = pick(rng, [np.nan, np.inf, 0.0, 1e4])
    return drawing.arranged(rng, x[:0] if empty else x)


def run(case: Case, backend: str, form: str) -> Outcome:
    layer_case = LAYERS[case.function.partition(":")[2]]
    options = {k: v for k, v in case.kwargs.items() if k == "data_format"}
    try:
        with tl.using(backend), _strict():
            layer: Any = layer_case.ours(backend=backend, seed=3, dtype=case.kwargs.get("dtype", "float32"), **options)
            layer = layer.train() if case.kwargs.get("train") else layer.eval()
            inputs = [_native(backend, x) if isinstance(x, np.ndarray) else x for x in case.args]
            if form == "compiled":
                result = compiled(backend, lambda *xs: layer_case.call(layer, *map(tl.asarray, xs)))(*inputs)
            elif form == "gradient":
                result = _with_gradients(layer, layer_case, [tl.asarray(x) for x in inputs])
            else:
                asks = "backend" in layer_case.call.__code__.co_names  # the call asks an Array for its backend
                result = layer_case.call(layer, *(inputs if form == "native" and not asks else map(tl.asarray, inputs)))
            return Outcome([_leaf(x) for x in flat(result)])
    except Exception as error:
        return Outcome(None, type(error).__name__, _plain(str(error)))


def _with_gradients(layer: Any, layer_case: LayerCase, inputs: list[Any]) -> Any:
    """A weighted sum of the results, and its gradient by the parameters."""

    def loss(v: Any) -> Any:
        results = flat(layer_case.call(lambda *args, **kwargs: layer(*args, v=v, **kwargs), *inputs))
        return sum(tl.sum(tl.astype(x, tl.float64) * weights(x.shape)) for x in results)

    def weights(sizes: tuple[int, ...]) -> Any:
        return tl.reshape(tl.cos(tl.arange(math.prod(sizes), dtype="float64")), sizes)

    value, gradients = tl.value_and_grad(loss)(layer.v)
    return [value, *gradients.to_flat_dict().values()]
