"""Gaussian-process regression. SciPy's L-BFGS maximizes the marginal likelihood with gradients from Trellis."""

from __future__ import annotations

from typing import Any

import gallery
import numpy as np
import scipy.optimize

import trellis as tl


def kernel(parameters: Any, a: Any, b: Any) -> Any:
    """scale^2 exp(-(a - b)^2 / (2 length^2))"""
    length, scale, _ = tl.unstack(tl.exp(parameters))
    return scale**2 * tl.exp(-((a[:, None] - b[None, :]) ** 2) / (2 * length**2))


def factor(parameters: Any, x: Any) -> Any:
    noise = tl.exp(parameters[2])
    return tl.linalg.cholesky(kernel(parameters, x, x) + (noise**2 + 1e-8) * tl.eye(x.shape[0], dtype=x.dtype))


def negative_log_likelihood(parameters: Any, x: Any, y: Any) -> Any:
    lower = factor(parameters, x)
    whitened = tl.linalg.solve_triangular(lower, y[:, None], lower=True)
    determinant = tl.sum(tl.log(tl.linalg.diagonal(lower)))
    return 0.5 * tl.sum(whitened**2) + determinant + 0.5 * x.shape[0] * float(np.log(2 * np.pi))


def predict(parameters: Any, x: Any, y: Any, new: Any) -> tuple[Any, Any]:
    """Mean and standard deviation at new places."""
    lower = factor(parameters, x)
    across = kernel(parameters, x, new)
    mean = tl.matrix_transpose(across) @ tl.cholesky_solve(lower, y[:, None])
    part = tl.linalg.solve_triangular(lower, across, lower=True)
    variance = tl.exp(parameters[1]) ** 2 - tl.sum(part**2, axis=0)
    return mean[:, 0], tl.sqrt(tl.clip(variance, 0.0))


def main(short: bool = False) -> tuple[gallery.Numbers, gallery.Draw]:
    random = np.random.default_rng(0)
    places = np.sort(random.uniform(-4, 4, 40))
    values = np.sin(2 * places) + 0.2 * random.normal(size=40)
    x, y = tl.asarray(places, dtype="float64"), tl.asarray(values, dtype="float64")
    value_and_grad = tl.value_and_grad(negative_log_likelihood)

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = value_and_grad(tl.asarray(flat, dtype="float64"), x, y)
        return float(value), tl.to_numpy(gradient)

    start = np.log([1.0, 1.0, 0.5])
    found = scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 5 if short else 100})
    new = np.linspace(-5, 5, 200)
    mean, deviation = map(tl.to_numpy, predict(tl.asarray(found.x, dtype="float64"), x, y, tl.asarray(new, dtype="float64")))
    inside = np.abs(new) < 4
    numbers = {
        "negative log likelihood before": objective(start)[0],
        "negative log likelihood after": float(found.fun),
        "largest error inside the data": float(np.max(np.abs(mean - np.sin(2 * new))[inside])),
    }

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.fill_between(new, mean - 2 * deviation, mean + 2 * deviation, alpha=0.25, label="two standard deviations")
        axes.plot(new, mean, label="mean")
        axes.plot(places, values, ".", label="data")
        axes.legend(loc="upper right")

    return numbers, draw


if __name__ == "__main__":
    gallery.run(main)
