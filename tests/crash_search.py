"""Every layer over layouts of memory, dtypes and gradients: does a process die, and does the layout change a result?

    python tests/crash_search.py torch [--only '*Norm*']

A child process runs the cases of one backend and says before each which one it is. If it dies, by a signal or by the time limit,
the case is a failure, and another child goes on behind it. So one import serves thousands of cases, and a crash is named.

A case is (layer, layout, dtype, what is differentiated, mode). Its result and its gradients are compared with those of an input
of the same numbers in plain order.
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import itertools
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("JAX_ENABLE_X64", "1")

import numpy as np
import zoo

import trellis as tl
from trellis.core import tree

# How the elements of an input lie in memory; "torch" and NumPy alone have a choice.
LAYOUTS = ("plain", "reversed axes", "other channels", "every second", "broadcast", "offset", "flipped", "one row", "no rows")
WITHOUT_MEMORY = ("plain", "one row", "no rows")
DTYPES = ("float32", "bfloat16", "float64")
# Which gradients are asked for: none, those of the parameters (a first layer), of the input (a frozen layer), or of both.
GRADIENTS = ("none", "parameters", "input", "both")
# Seconds for one case, and for the imports before the first.
LIMIT, START = 120.0, 120.0


class Case(NamedTuple):
    layer: str
    layout: str
    dtype: str
    gradients: str
    training: bool

    def __str__(self) -> str:
        return " | ".join((self.layer, self.layout, self.dtype, self.gradients, "training" if self.training else "evaluation"))


@functools.cache
def rows() -> dict[str, zoo.Row]:
    """The layers of the zoo, and those with a `data_format` once more with their channels first."""
    found = dict(zoo.LAYERS)
    for name, row in zoo.LAYERS.items():
        kind = getattr(row.build(), "data_format", None)
        if kind is not None:
            assert isinstance(row.build, functools.partial), f"{name} of the zoo: make its row a functools.partial"
            first = {"NWC": "NCW", "NHWC": "NCHW", "NDHWC": "NCDHW"}.get(kind, "channel_first")
            inputs = tuple(np.ascontiguousarray(np.moveaxis(x, -1, 1)) for x in row.inputs)
            found[f"{name}, channels first"] = row._replace(build=functools.partial(row.build, data_format=first), inputs=inputs)
    return found


def cases(backend: str, only: str) -> list[Case]:
    layouts = LAYOUTS if backend in ("torch", "numpy") else WITHOUT_MEMORY
    made = [Case(*one) for one in itertools.product(rows(), layouts, DTYPES, GRADIENTS, (True, False))]
    made = [one for one in made if one.dtype == "float32" or one.layout in ("plain", "other channels")]
    return [one for one in made if fnmatch.fnmatch(str(one), only)]


# ---- one case ------------------------------------------------------------------------------------------------------------------
def laid(x: np.ndarray[Any, Any], layout: str) -> np.ndarray[Any, Any]:
    """The numbers of an input in another layout of memory; "no rows" and "one row" are fewer."""
    if layout == "reversed axes":
        return np.asfortranarray(x)
    if layout == "other channels":  # first in memory if they are last, and the other way round
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, -1, 1)), 1, -1) if x.ndim > 2 else np.asfortranarray(x)
    if layout == "every second":
        return np.repeat(x, 2, axis=-1)[..., ::2]
    if layout == "broadcast":
        return np.broadcast_to(x[:1], x.shape)
    if layout == "offset":
        buffer = np.empty(x.size + 1, x.dtype)
        buffer[1:] = x.ravel()
        return buffer[1:].reshape(x.shape)
    if layout == "flipped":
        return x[::-1, ..., ::-1]
    return x[: {"one row": 1, "no rows": 0}.get(layout, len(x))]


def native(x: np.ndarray[Any, Any], backend: str, dtype: str) -> Any:
    """An array of a framework that keeps the strides, where the framework has any."""
    if backend == "torch":
        import torch

        if x.size and min(x.strides, default=0) >= 0:
            base = torch.from_numpy(x.base if isinstance(x.base, np.ndarray) and x.base.dtype == x.dtype else x)
            offset = (x.__array_interface__["data"][0] - base.data_ptr()) // x.itemsize
            kind = getattr(torch, dtype) if x.dtype.kind == "f" else base.dtype
            flat = torch.empty(0, dtype=base.dtype).set_(base.untyped_storage()).to(kind)
            return flat.as_strided(x.shape, [n // x.itemsize for n in x.strides], offset)
        x = x.copy()
    made = tl.asarray(x, backend=backend, dtype=dtype if x.dtype.kind == "f" else None)
    return x if backend == "numpy" and str(made.dtype) == x.dtype.name else made._data


def outcome(model: tl.Module, inputs: list[Any], case: Case) -> list[np.ndarray[Any, Any]]:
    """The results and the gradients that the case asks for."""
    model.train(case.training)
    arrays = [tl.asarray(x) for x in inputs]

    def run(v: Any, given: list[Any]) -> Any:
        result, _ = tl.functional_call(model, v, None, *given, seed=3)
        return zoo.loss(result), result

    floating = [i for i, x in enumerate(arrays) if x.dtype.kind == "f"]
    asked: dict[str, Any] = {}
    if case.gradients in ("parameters", "both") and len(model.v):
        asked["v"] = model.v
    if case.gradients in ("input", "both") and floating:
        asked["x"] = {str(i): arrays[i] for i in floating}
    if not asked:
        return [_plain(x) for x in tree.leaves(run(model.v, arrays)[1])]

    def score(asked: Any) -> Any:
        given = [asked["x"][str(i)] if "x" in asked and i in floating else x for i, x in enumerate(arrays)]
        return run(asked.get("v", model.v), given)

    (_, result), gradients = tl.value_and_grad(score, has_aux=True)(asked)
    return [_plain(x) for x in tree.leaves((result, gradients))]


def _outcome_or_refusal(model: tl.Module, inputs: list[Any], case: Case) -> list[np.ndarray[Any, Any]] | str:
    """The outcome, or the text of the error of fewer rows than the layer needs."""
    try:
        return outcome(model, inputs, case)
    except ValueError as error:
        if case.layout not in ("one row", "no rows"):
            raise
        return str(error)


def _plain(x: Any) -> np.ndarray[Any, Any]:
    return np.asarray(tl.to_numpy(tl.stop_gradient(x))).astype(np.float64)


@functools.cache
def _model(layer: str, backend: str, dtype: str, frozen: bool) -> tl.Module:
    with tl.using("numpy"):
        tl.seed(7)
        row = rows()[layer]
        model = row.build()
        if not all(one.built for one in (model, *model.sub_mods().values())):
            model.eval()(*row.inputs)
    if frozen:
        model.freeze()
    return model.astype(dtype).to_backend(backend)


def check(case: Case, backend: str) -> None:
    row = rows()[case.layer]
    model = _model(case.layer, backend, case.dtype, case.gradients == "input")
    numbers = [laid(x, case.layout) if x.dtype.kind == "f" else x[: len(laid(x, case.layout))] for x in row.inputs]
    expected, found = (
        _outcome_or_refusal(model, [native(one, backend, case.dtype) for one in group], case)
        for group in ([np.array(x, order="C") for x in numbers], numbers)
    )
    if isinstance(expected, str) or isinstance(found, str):
        assert str(expected) == str(found)
        return
    tolerance = 5e-2 if case.dtype == "bfloat16" else 1e-3 if case.layout == "broadcast" else 1e-5  # equal rows: variances of 0
    for want, got in zip(expected, found, strict=True):
        assert want.shape == got.shape, (want.shape, got.shape)
        size = np.abs(want[np.isfinite(want)]).max(initial=1.0)
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * size)


# ---- the children --------------------------------------------------------------------------------------------------------------
def child(backend: str, only: str, first: int) -> None:
    """Run the cases from number `first` on: a line before each, and one behind it with the failure, if any."""
    for number, case in enumerate(cases(backend, only)[first:], first):
        print(f"begin {number}", flush=True)
        try:
            check(case, backend)
        except Exception as error:
            print(f"failed {number} {error!r}"[:600].replace("\n", " "), flush=True)
    print("done", flush=True)


def search(backend: str, only: str = "*", command: tuple[str, ...] | None = None) -> Iterator[tuple[str, str | None]]:
    """(case, how it failed or None); `command` stands in place of the child's, for the tests of this search."""
    listed = cases(backend, only)
    number = 0
    while number < len(listed):
        arguments = command or (sys.executable, "-X", "faulthandler", __file__, backend, "--only", only)
        failures, running, ended = {}, None, False
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen([*arguments, "--child", str(number)], stdout=subprocess.PIPE, stderr=errors, text=True) as process,
        ):
            assert process.stdout is not None
            timer = threading.Timer(LIMIT + START, process.kill)
            timer.start()
            for line in process.stdout:
                timer.cancel()
                timer = threading.Timer(LIMIT, process.kill)
                timer.start()
                word, _, rest = line.strip().partition(" ")
                if word == "begin":
                    if running is not None:
                        yield str(listed[running]), failures.get(running)
                    running = int(rest)
                elif word == "failed":
                    failures[int(rest.partition(" ")[0])] = rest.partition(" ")[2]
                ended = ended or word == "done"
            timer.cancel()
            code = process.wait()
            errors.seek(0)
            said = errors.read()[-1500:]
        if running is None:
            raise RuntimeError(f"no case of {backend} ran; exit code {code}:\n{said}")
        yield str(listed[running]), failures.get(running) if ended else f"the process died: exit code {code}\n{said}"
        number = running + 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("backend", choices=("numpy", "jax", "torch", "tensorflow"))
    parser.add_argument("--only", default="*", help="a pattern of 'layer | layout | dtype | gradients | mode'")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        child(given.backend, given.only, given.child)
        return 0
    done, failed = 0, 0
    for case, failure in search(given.backend, given.only):
        done += 1
        if failure:
            failed += 1
            print(f"== {given.backend}: {case}\n   {failure}", flush=True)
    print(f"{given.backend}: {done - failed} of {done} cases")
    return bool(failed or not done)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    sys.exit(main())
