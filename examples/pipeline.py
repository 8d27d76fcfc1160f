"""SciPy filters a signal and scikit-learn scales, projects and clusters its spectra, on arrays of any framework.

Nothing here is a wrapper: SciPy and scikit-learn compute with `tl.Array`s on the backend of the command line.
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # SciPy reads it when it is imported

import gallery
import numpy as np
import scipy.signal
import sklearn
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler

import trellis as tl

sklearn.set_config(array_api_dispatch=True)


def recordings(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy tones of three heights, and which height each has."""
    random = np.random.default_rng(0)
    kinds = random.integers(0, 3, count)
    height = np.array([0.05, 0.11, 0.19])[kinds] * (1 + 0.03 * random.normal(size=count))
    time = np.arange(256)
    phase = random.uniform(0, 2 * np.pi, (count, 1))
    return np.sin(2 * np.pi * height[:, None] * time + phase) + 0.5 * random.normal(size=(count, 256)), kinds


def main(short: bool = False) -> tuple[gallery.Numbers, gallery.Draw]:
    signals, kinds = recordings(60 if short else 300)
    x = tl.asarray(signals, dtype="float64")
    window = tl.asarray(np.hanning(9) / np.hanning(9).sum(), dtype="float64")
    smooth = scipy.signal.fftconvolve(x, window[None, :], mode="same", axes=1)
    spectra = tl.abs(tl.fft.rfft(smooth))
    scaled = StandardScaler(with_std=False).fit_transform(spectra)
    plane = PCA(n_components=2, svd_solver="full").fit_transform(scaled)
    mixture = GaussianMixture(3, init_params="random_from_data", random_state=0, max_iter=200, n_init=5).fit(plane)
    found, flat = tl.to_numpy(mixture.predict(plane)), tl.to_numpy(plane)
    alike = sum(np.bincount(kinds[found == i]).max() for i in range(3) if (found == i).any()) / len(kinds)
    assert isinstance(plane, tl.Array)
    assert plane.backend == x.backend

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        left.plot(signals[0], color="gray")
        left.plot(tl.to_numpy(smooth)[0])
        right.scatter(*flat.T, c=found, s=8)
        right.set_title("spectra, projected and clustered")

    return {"purity of the clusters": float(alike), "variance of the plane": float(flat.var(0).sum())}, draw


if __name__ == "__main__":
    gallery.run(main)
