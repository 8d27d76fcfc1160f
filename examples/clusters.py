"""k-means and principal components of the framework's own arrays, without a `tl.Array`."""

from __future__ import annotations

from typing import Any

import gallery
import numpy as np

import trellis as tl


def principal_components(x: Any, count: int) -> Any:
    """The rows of `x` in the directions in which they differ most."""
    x = x - tl.mean(x, axis=0)
    _, _, directions = tl.linalg.svd(x, full_matrices=False)
    return x @ tl.matrix_transpose(directions[:count, :])


def k_means(x: Any, count: int, steps: int) -> tuple[Any, Any]:
    """Labels and centres. The first centre is a random row, each further one the row farthest from those there are."""
    centres = tl.take(x, tl.permutation(x.shape[0], seed=0)[:1], axis=0)
    for _ in range(count - 1):
        distance = tl.min(tl.sum((x[:, None, :] - centres[None, :, :]) ** 2, axis=-1), axis=1)
        centres = tl.concat([centres, tl.take(x, tl.reshape(tl.argmax(distance), (1,)), axis=0)])
    labels = None
    for _ in range(steps):
        labels = tl.argmin(tl.sum((x[:, None, :] - centres[None, :, :]) ** 2, axis=-1), axis=1)
        sizes = tl.segment_sum(tl.ones_like(x[:, 0]), labels, num_segments=count)
        centres = tl.segment_sum(x, labels, num_segments=count) / tl.clip(sizes, 1.0)[:, None]
    return labels, centres


def main(short: bool = False) -> tuple[gallery.Numbers, gallery.Draw]:
    random = np.random.default_rng(0)
    groups = random.integers(0, 4, 100 if short else 600)
    values = 4 * random.normal(size=(4, 10))[groups] + random.normal(size=(len(groups), 10))
    native = tl.to_native(tl.asarray(values, dtype="float64"))
    plane = principal_components(native, 2)
    labels, centres = k_means(plane, 4, 10)
    assert type(plane) is type(labels) is type(centres) is type(native)  # native arrays in, native arrays out
    flat, found = tl.to_numpy(plane), tl.to_numpy(labels)
    alike = np.mean([np.bincount(groups[found == i]).max() / max((found == i).sum(), 1) for i in range(4) if (found == i).any()])
    kept = flat.var(0).sum() / values.var(0).sum()

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.scatter(*flat.T, c=found, s=6, cmap="viridis")
        axes.plot(*tl.to_numpy(centres).T, "r+", markersize=14)

    return {"variance kept": float(kept), "purity of the clusters": float(alike)}, draw


if __name__ == "__main__":
    gallery.run(main)
