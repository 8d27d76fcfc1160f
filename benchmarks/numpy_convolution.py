"""NumPy convolution beside torch's own (channels_last) and beside the naive way: CPU time, forward and backward, and memory.

    python benchmarks/numpy_convolution.py                 one thread each
    python benchmarks/numpy_convolution.py --threads 2     CPU time of threads that wait for each other counts too
    python benchmarks/numpy_convolution.py --all           more shapes

A figure is the median of the process's CPU time over rounds in which all take turns, and its ratio to torch. Backward is the
gradient by x and by the filters, on NumPy by the tape. Naive: a product of matrices for each place of the window, added up.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

CASES: dict[str, tuple[Any, ...]] = {  # sizes of x, filters, stride, padding, groups
    "8x32x32x32 -> 64, 3x3": ((8, 32, 32, 32), (3, 3, 32, 64), 1, 1, 1),
    "1x224x224x3 -> 64, 7x7 stride 2": ((1, 224, 224, 3), (7, 7, 3, 64), 2, 3, 1),
    "2x16x16x16x8 -> 16, 3x3x3": ((2, 16, 16, 16, 8), (3, 3, 3, 8, 16), 1, 1, 1),
}
MORE: dict[str, tuple[Any, ...]] = {
    "8x56x56x64 -> 64, 3x3": ((8, 56, 56, 64), (3, 3, 64, 64), 1, 1, 1),
    "8x56x56x64 -> 128, 3x3 stride 2": ((8, 56, 56, 64), (3, 3, 64, 128), 2, 1, 1),
    "8x14x14x256 -> 256, 3x3": ((8, 14, 14, 256), (3, 3, 256, 256), 1, 1, 1),
    "8x56x56x64 -> 256, 1x1": ((8, 56, 56, 64), (1, 1, 64, 256), 1, 0, 1),
    "8x28x28x1 -> 32, 5x5": ((8, 28, 28, 1), (5, 5, 1, 32), 1, 2, 1),
    "8x28x28x16 -> 32, 3x3 stride 2": ((8, 28, 28, 16), (3, 3, 16, 32), 2, 1, 1),
    "8x32x32x64 -> 3, 3x3": ((8, 32, 32, 64), (3, 3, 64, 3), 1, 1, 1),
    "16x1000x32 -> 64, 5": ((16, 1000, 32), (5, 32, 64), 1, 2, 1),
    "8x28x28x128 -> 128, 3x3, 4 groups": ((8, 28, 28, 128), (3, 3, 32, 128), 1, 1, 4),
    "8x28x28x128, 3x3 depthwise": ((8, 28, 28, 128), (3, 3, 1, 128), 1, 1, 128),
    "8x28x28x128, 3x3 depthwise stride 2": ((8, 28, 28, 128), (3, 3, 1, 128), 2, 1, 128),
    "2x24x24x24x32 -> 32, 3x3x3": ((2, 24, 24, 24, 32), (3, 3, 3, 32, 32), 1, 1, 1),
}
LARGE = (8, 112, 112, 64), (3, 3, 64, 128), 1, 1, 1


# ---- the three ways: each gives a forward and a backward call ----------------------------------------------------------------
def options_of(filters: Any, stride: int, padding: int, groups: int) -> dict[str, Any]:
    dims = filters.ndim - 2
    ones = (1,) * dims
    return {
        "strides": (stride,) * dims, "padding": ((padding, padding),) * dims, "x_dilations": ones, "dilations": ones,
        "groups": groups, "channel_last": True, "filter_channel_last": True,
    }  # fmt: skip


def ours(x: Any, filters: Any, g: Any, *shape: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    import trellis as tl
    from trellis.core.dispatch import call

    options = options_of(filters, *shape)
    _, pullback = tl.vjp(lambda x, w: call("convolution", x, w, None, **options), x, filters)
    return lambda: call("convolution", x, filters, None, **options), lambda: pullback(g)


def torchs(x: Any, filters: Any, g: Any, stride: int, padding: int, groups: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    import torch

    dims = filters.ndim - 2
    order = {1: torch.contiguous_format, 2: torch.channels_last, 3: torch.channels_last_3d}[dims]
    function = getattr(torch.nn.functional, f"conv{dims}d")
    image = torch.tensor(x).movedim(-1, 1).contiguous(memory_format=order).requires_grad_()
    weight = torch.tensor(filters).permute(dims + 1, dims, *range(dims)).contiguous(memory_format=order).requires_grad_()
    upstream = torch.tensor(g).movedim(-1, 1)
    y = function(image, weight, None, stride, padding, 1, groups)

    def forward() -> Any:
        with torch.no_grad():
            return function(image, weight, None, stride, padding, 1, groups).movedim(1, -1).numpy()

    def backward() -> Any:
        by_x, by_filters = torch.autograd.grad(y, (image, weight), upstream, retain_graph=True)
        return by_x.movedim(1, -1).numpy(), by_filters.permute(*range(2, dims + 2), 1, 0).numpy()

    return forward, backward


def naive(x: Any, filters: Any, g: Any, stride: int, padding: int, groups: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    import numpy as np

    dims, sizes, axes = filters.ndim - 2, g.shape[1:-1], list(range(filters.ndim - 1))
    inner = (slice(None), *(slice(padding, padding + n) for n in x.shape[1:-1]))
    parts = [slice(i * x.shape[-1] // groups, (i + 1) * x.shape[-1] // groups) for i in range(groups)]
    outs = [slice(i * g.shape[-1] // groups, (i + 1) * g.shape[-1] // groups) for i in range(groups)]

    def padded() -> Any:
        return np.pad(x, ((0, 0), *((padding, padding),) * dims, (0, 0)))

    def seen(place: tuple[int, ...], part: slice) -> Any:
        return (slice(None), *(slice(k, k + (n - 1) * stride + 1, stride) for k, n in zip(place, sizes)), part)

    def forward() -> Any:
        wide, y = padded(), np.zeros_like(g)
        for place in np.ndindex(*filters.shape[:dims]):
            for part, out in zip(parts, outs):
                y[..., out] += wide[seen(place, part)] @ filters[place][:, out]
        return y

    def backward() -> Any:
        wide, by_filters = padded(), np.empty_like(filters)
        by_x = np.zeros_like(wide)
        for place in np.ndindex(*filters.shape[:dims]):
            for part, out in zip(parts, outs):
                by_x[seen(place, part)] += g[..., out] @ filters[place][:, out].T
                by_filters[place][:, out] = np.tensordot(wide[seen(place, part)], g[..., out], (axes, axes))
        return by_x[inner], by_filters

    return forward, backward


# ---- measuring ---------------------------------------------------------------------------------------------------------------
def data(x_shape: Any, filter_shape: Any, stride: int, padding: int) -> tuple[Any, Any, Any]:
    import numpy as np

    rng = np.random.default_rng(0)
    sizes = [(n + 2 * padding - k) // stride + 1 for n, k in zip(x_shape[1:-1], filter_shape)]
    shapes = x_shape, filter_shape, (x_shape[0], *sizes, filter_shape[-1])
    x, filters, g = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    return x, filters, g


def medians(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for run in calls.values():
        run()
    gc.collect()
    order = list(calls.items())
    for _ in range(rounds):
        order = order[1:] + order[:1]
        for name, run in order:
            start = time.process_time()
            run()
            times[name].append(time.process_time() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def check(results: dict[str, Any]) -> None:
    """All ways must agree, or the figures mean nothing."""
    import numpy as np

    for found in results.values():
        for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, results["torch"]))):
            assert np.allclose(a, b, rtol=1e-3, atol=1e-4 * np.abs(b).max())


def measure(name: str, shape: Any, rounds: int) -> None:
    x, filters, g = data(*shape[:4])
    ways = {"torch": torchs, "trellis": ours}
    if shape[-1] < 8:  # a loop over many groups takes for ever
        ways["naive"] = naive
    both = {way: make(x, filters, g, *shape[2:]) for way, make in ways.items()}
    print(name)
    for i, direction in enumerate(("forward", "backward")):
        calls = {way: pair[i] for way, pair in both.items()}
        check({way: run() for way, run in calls.items()})
        found = medians(calls, rounds)
        figures = "   ".join(f"{way} {seconds * 1e3:8.2f} ms {seconds / found['torch']:5.2f}x" for way, seconds in found.items())
        print(f"  {direction:9s} {figures}", flush=True)


def memory() -> None:
    """Forward and backward of a large convolution, in a process of its own: what it takes at most, NumPy itself included."""
    import resource

    x, filters, g = data(*LARGE[:4])
    forward, backward = ours(x, filters, g, *LARGE[2:])
    forward()
    backward()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"8x112x112x64 -> 128, 3x3, forward and backward: {most:.2f} GB at most")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--all", action="store_true")
    options.add_argument("--memory", action="store_true", help="only the memory")
    chosen = options.parse_args()
    if chosen.memory:
        memory()
        return
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # before NumPy and torch are imported
        os.environ[name] = str(chosen.threads)
    for name, shape in (CASES | MORE if chosen.all else CASES).items():
        measure(name, shape, chosen.rounds)
    subprocess.run([sys.executable, __file__, "--memory"], check=True)


if __name__ == "__main__":
    main()
