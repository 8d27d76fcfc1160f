"""One numerical program, written once, on every framework that is installed: `make demo`, or `python examples/demo.py`.

The program reduces points to their two principal components and groups them with k-means. It names no framework: `tl` functions
and operators run on whatever holds the data, so the same lines are NumPy, JAX, PyTorch and TensorFlow code.
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow greets on import otherwise

import trellis as tl

CLUSTERS = 5


# ---- the program: no framework is named from here ... -----------------------------------------------------------------------
def principal_components(points: tl.Array, count: int) -> tuple[tl.Array, tl.Array]:
    """Points (n, features) projected on the `count` directions of largest variance, and the share of it they explain."""
    centred = points - tl.mean(points, axis=0)
    _, singular_values, directions = tl.linalg.svd(centred, full_matrices=False)
    variances = singular_values**2
    return centred @ directions[:count, :].T, tl.sum(variances[:count]) / tl.sum(variances)


def squared_distances(points: tl.Array, centres: tl.Array) -> tl.Array:
    """Squared distance of each of (n, features) points to each of (k, features) centres: (n, k)."""
    return tl.sum((points[:, None, :] - centres[None, :, :]) ** 2, axis=-1)


def spread_out(points: tl.Array, count: int) -> tl.Array:
    """Starting centres for k-means: the first point, then again and again the point farthest from those chosen so far."""
    centres = points[:1, :]
    while centres.shape[0] < count:
        to_nearest = tl.min(squared_distances(points, centres), axis=1)
        farthest = tl.argmax(to_nearest, keepdims=True)
        centres = tl.concat([centres, tl.take(points, farthest, axis=0)])
    return centres


def k_means(points: tl.Array, count: int) -> tuple[tl.Array, int]:
    """Squared distance of each point to the centre of its cluster, and the number of rounds until none changed its cluster."""
    centres = spread_out(points, count)
    labels = tl.argmin(squared_distances(points, centres), axis=1)
    for iteration in range(1, 101):  # noqa: B007
        members = tl.maximum(tl.bincount(labels, length=count), 1)  # at least 1: a cluster may be empty
        centres = tl.segment_sum(points, labels, num_segments=count) / members[:, None]
        distances = squared_distances(points, centres)
        previous, labels = labels, tl.argmin(distances, axis=1)
        if tl.all(labels == previous):
            break
    return tl.min(distances, axis=1), iteration


# ---- ... to here --------------------------------------------------------------------------------------------------------------
def generate_points() -> np.ndarray:
    """Five clouds of 120 points in 8 dimensions."""
    random = np.random.default_rng(0)
    centres = random.normal(scale=4.0, size=(CLUSTERS, 8))
    return (centres[:, None, :] + random.normal(size=(CLUSTERS, 120, 8))).reshape(-1, 8).astype(np.float32)


def run(data: np.ndarray, backend: str) -> tuple[list[str], np.ndarray]:
    """The program on one framework: its row of the table, and the distances it found."""
    points = tl.asarray(data, backend=backend)  # the only line that names a framework
    for _ in range(2):  # the first time, frameworks load and compile their kernels
        start = time.perf_counter()
        projected, explained = principal_components(points, 2)
        distances, iterations = k_means(projected, CLUSTERS)
        inertia = float(tl.sum(distances))
        seconds = time.perf_counter() - start
    return [f"{float(explained):.6f}", f"{inertia:.3f}", f"{iterations}", f"{seconds:.4f}"], tl.to_numpy(distances)


def main() -> None:
    data = generate_points()
    print(f"PCA and k-means of {data.shape[0]} points in {data.shape[1]} dimensions: one program, every framework here\n")
    table = [["backend", "version", "explained variance", "inertia", "iterations", "seconds"]]
    found, missing = [], []
    for backend in tl.backends():
        if backend.installed:
            row, distances = run(data, backend.name)
            table.append([backend.name, str(backend.version), *row])
            found.append(distances)
        else:
            missing.append(backend.name)
    widths = [max(map(len, column)) for column in zip(*table)]
    for name, version, *numbers in table:
        cells = [name.ljust(widths[0]), version.ljust(widths[1]), *(n.rjust(w) for n, w in zip(numbers, widths[2:]))]
        print("  ".join(cells))
    if len(found) > 1:
        largest = max(float(np.max(np.abs(distances - found[0]))) for distances in found)
        print(f"\nlargest difference between backends in any of the {data.shape[0]} distances: {largest:.1e}")
    if missing:
        python = os.path.relpath(sys.executable)
        print("\nnot installed here; add one with")
        for name in missing:
            print(f"  {python} -m pip install 'trellis[{name}]'")


if __name__ == "__main__":
    main()
