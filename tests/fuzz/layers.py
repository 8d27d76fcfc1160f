"""Every layer fed every dtype, on the four: the outcome of a layer is that of the same layer on NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from helpers import make
from layer_cases import CASES

import trellis as tl
from fuzz import drawing
from fuzz.calls import Case
from fuzz.drawing import Rng, chance, pick
from fuzz.forms import Outcome, _plain, flat


def draw(rng: Rng) -> Case:
    """A Case whose function is `layer:<name>`: its keyword `dtype` is that of the parameters."""
    name = pick(rng, sorted(CASES))
    kind = drawing.dtype(rng, floats=0.5)
    inputs = tuple(
        x.astype(drawing.np_dtype(kind)) if isinstance(x, np.ndarray) and x.dtype == np.float64 else x for x in CASES[name].inputs
    )
    return Case(
        f"layer:{name}",
        inputs,
        {"dtype": pick(rng, ["float32", "float32", "float64", "float16", "bfloat16"]), "train": chance(rng, 0.3)},
    )


def run(case: Case, backend: str, form: str) -> Outcome:
    layer_case = CASES[case.function.partition(":")[2]]
    try:
        with tl.using(backend):
            layer = layer_case.ours(backend=backend, seed=3, dtype=case.kwargs.get("dtype", "float32"))
            layer = layer.train() if case.kwargs.get("train") else layer.eval()
            inputs = [_input(x, backend, form) for x in case.args]
            layer = layer.eval() if _draws(layer) else layer
            result = layer_case.call(layer, *inputs)
            return Outcome([np.asarray(tl.to_numpy(x)) for x in flat(result)])
    except Exception as error:
        return Outcome(None, type(error).__name__, _plain(str(error)))


def _input(x: Any, backend: str, form: str) -> Any:
    if not isinstance(x, np.ndarray):
        return x
    return make(backend, x) if form == "native" else tl.asarray(make(backend, x))


def _draws(layer: Any) -> bool:
    """Whether training draws random numbers, which differ without a seed."""
    return any(type(part).__name__.startswith("Dropout") for part in (layer, *layer.sub_mods().values()))
