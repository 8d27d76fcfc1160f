"""`tl.vmap` beside the framework's own vmap, and beside a loop over the elements: 64 elements, on each backend.

    python benchmarks/vmap.py [numpy] [torch] [jax] [tensorflow]

Microseconds of process CPU time per call, medians of rounds in turn, eager. Native is `jax.vmap`, `torch.func.vmap` and
`tf.vectorized_map`; NumPy has none: there it is the function as one writes it for a whole batch by hand. The loop is ours over
the rows, with the results stacked: what vmap saves.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from compiled_calls import microseconds

import trellis as tl

SIZE, WIDTH = 64, 1024
LIMIT = 10.0  # of einsum, for the dot product on NumPy
Function = Callable[..., Any]
_rng = np.random.default_rng(0)
VECTORS = [_rng.normal(size=(SIZE, WIDTH)).astype(np.float32) for _ in range(2)]
ROWS = _rng.normal(size=(SIZE, 32)).astype(np.float32)
LAYER = (_rng.normal(size=(32, 32)) / 6).astype(np.float32)
MATRICES = (_rng.normal(size=(SIZE, 8, 8)) + 4 * np.eye(8)).astype(np.float32)
TABLE, PLACES = _rng.normal(size=(100, 16)).astype(np.float32), _rng.integers(0, 100, (SIZE, 5))


def dot(a: Any, b: Any) -> Any:
    return tl.sum(a * b)


def layer(x: Any, w: Any) -> Any:
    return tl.tanh(tl.matmul(w, x))


def loss(x: Any, w: Any) -> Any:
    return tl.sum(layer(x, w) ** 2)


def gradient_by_hand(x: Any, w: Any) -> Any:
    y = np.tanh(x @ w.T)
    return (2 * y * (1 - y * y)) @ w


# name -> the function of one element in Trellis, its arrays, their axes, and the whole batch by hand on NumPy
CASES: dict[str, tuple[Function, list[Any], tuple[int | None, ...], Function]] = {
    "dot product": (dot, VECTORS, (0, 0), lambda a, b: np.einsum("ij,ij->i", a, b)),
    "softmax": (tl.softmax, [ROWS], (0,), lambda x: (e := np.exp(x - x.max(1, keepdims=True))) / e.sum(1, keepdims=True)),
    "layer": (layer, [ROWS, LAYER], (0, None), lambda x, w: np.tanh(x @ w.T)),
    "gradient of a layer": (tl.grad(loss), [ROWS, LAYER], (0, None), gradient_by_hand),
    "inverse": (tl.linalg.inv, [MATRICES], (0,), np.linalg.inv),
    "rows of a table": (lambda i, t: tl.sum(tl.take(t, i, axis=0), axis=0), [PLACES, TABLE], (0, None), lambda i, t: t[i].sum(1)),
}


def native_vmap(backend: str, name: str, function: Function, arrays: list[Any], axes: tuple[int | None, ...]) -> Function:
    """The framework's own vmap of our function: it runs our ops, so what is compared is the batching alone."""
    if backend == "numpy":
        return CASES[name][3]
    if backend == "jax":
        import jax

        return jax.vmap(function, in_axes=axes)
    if backend == "torch":
        import torch

        torch.set_num_threads(1)
        return torch.func.vmap(function, in_dims=axes)
    import tensorflow as tf

    mapped = [i for i, axis in enumerate(axes) if axis is not None]

    def run(*arrays: Any) -> Any:
        def one(elements: Any) -> Any:
            given = list(arrays)
            for i, x in zip(mapped, elements):
                given[i] = x
            return function(*given)

        return tf.vectorized_map(one, [arrays[i] for i in mapped], warn=False)

    return run


def loop(function: Function, axes: tuple[int | None, ...]) -> Function:
    def run(*arrays: Any) -> Any:
        return tl.stack([function(*(x if axis is None else x[i] for x, axis in zip(arrays, axes))) for i in range(SIZE)])

    return run


def main() -> None:
    missed = []
    for backend in sys.argv[1:] or [info.name for info in tl.backends() if info.installed]:
        for name, (function, given, axes, _) in CASES.items():
            arrays = [tl.asarray(x, backend=backend).native for x in given]
            ours, native, one_by_one = (
                tl.vmap(function, in_axes=axes), native_vmap(backend, name, function, arrays, axes), loop(function, axes)
            )  # fmt: skip
            np.testing.assert_allclose(tl.to_numpy(ours(*arrays)), tl.to_numpy(native(*arrays)), rtol=2e-3, atol=1e-4)
            calls = {"native": lambda: native(*arrays), "trellis": lambda: ours(*arrays), "loop": lambda: one_by_one(*arrays)}  # noqa: B023
            found = microseconds(calls, rounds=15, repeats=20 if backend == "numpy" else 3)
            ratio = found["trellis"] / found["native"]
            print(
                f"{backend:11} {name:20} native {found['native']:9.1f} us   tl.vmap {found['trellis']:9.1f} us   {ratio:6.2f}x"
                f"   loop {found['loop'] / found['native']:7.1f}x",
                flush=True,
            )
            if (backend, name) == ("numpy", "dot product") and ratio > LIMIT:
                missed.append(f"{name} on NumPy takes {ratio:.1f} times einsum, more than {LIMIT:.0f}")
    if missed:
        raise SystemExit("; ".join(missed))


if __name__ == "__main__":
    main()
