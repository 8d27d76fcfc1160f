"""Hamiltonian Monte Carlo draws from a posterior by its gradient. `tl.vmap` runs the chains side by side."""

from __future__ import annotations

from typing import Any

import gallery
import numpy as np

import trellis as tl
from trellis.distributions import Normal

CHAINS, LEAPS, SIZE = 8, 12, 0.08


def main(short: bool = False) -> tuple[gallery.Numbers, gallery.Draw]:
    random = np.random.default_rng(0)
    inputs = random.normal(size=60)
    x = tl.asarray(inputs, dtype="float64")
    y = tl.asarray(1.5 * inputs - 0.7 + 0.5 * random.normal(size=60), dtype="float64")

    def log_density(position: Any) -> Any:
        """Of the slope and the intercept of a line, given the data and a normal prior."""
        likelihood = Normal(position[0] * x + position[1], 0.5).log_prob(y)
        return tl.sum(likelihood) + tl.sum(Normal(0.0, 2.0).log_prob(position))

    density, slope = tl.vmap(log_density), tl.vmap(tl.grad(log_density))

    @tl.compile
    def move(position: Any, momentum: Any, chance: Any) -> tuple[Any, Any]:
        """One trajectory per chain, accepted or not: Metropolis' rule."""
        start, energy = position, tl.sum(momentum**2, axis=-1) / 2 - density(position)
        for _ in range(LEAPS):
            momentum = momentum + SIZE / 2 * slope(position)
            position = position + SIZE * momentum
            momentum = momentum + SIZE / 2 * slope(position)
        change = energy - (tl.sum(momentum**2, axis=-1) / 2 - density(position))
        accepted = tl.log(chance) < change
        return tl.where(accepted[:, None], position, start), accepted

    position = tl.random_normal(shape=(CHAINS, 2), dtype="float64", seed=0)
    draws, rate = [], []
    for step in range(20 if short else 400):
        key = tl.fold_in(1, step)
        momentum = tl.random_normal(shape=(CHAINS, 2), dtype="float64", seed=tl.fold_in(key, 0))
        position, accepted = move(
            position, momentum, tl.random_uniform(shape=(CHAINS,), dtype="float64", seed=tl.fold_in(key, 1))
        )
        draws.append(tl.to_numpy(position))
        rate.append(tl.to_numpy(accepted).mean())
    kept = np.stack(draws)[len(draws) // 4 :].reshape(-1, 2)
    design = np.stack([inputs, np.ones(60)], axis=1)
    exact = np.linalg.solve(design.T @ design / 0.25 + np.eye(2) / 4, design.T @ tl.to_numpy(y) / 0.25)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.plot(*kept.T, ".", markersize=2, alpha=0.4, label="draws")
        axes.plot(*exact, "k+", markersize=14, label="exact mean")
        axes.set(xlabel="slope", ylabel="intercept")
        axes.legend()

    numbers = {"accepted": float(np.mean(rate)), "error of the slope": float(abs(kept.mean(0)[0] - exact[0]))}
    return numbers | {"error of the intercept": float(abs(kept.mean(0)[1] - exact[1]))}, draw


if __name__ == "__main__":
    gallery.run(main)
