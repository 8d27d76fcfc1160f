"""A physics-informed network solves `u'' = -pi^2 sin(pi x)`, `u(-1) = u(1) = 0` from the equation alone."""

from __future__ import annotations

from typing import Any

import gallery
import numpy as np

import trellis as tl


def main(short: bool = False) -> tuple[gallery.Numbers, gallery.Draw]:
    tl.seed(0)
    model = tl.Sequential(tl.Linear(1, 24), tl.Tanh(), tl.Linear(24, 24), tl.Tanh(), tl.Linear(24, 1))
    optimizer = tl.Adam(5e-3)
    places = tl.asarray(np.linspace(-1, 1, 40), dtype="float32")
    source = -(np.pi**2) * tl.sin(np.pi * places)

    def solution(v: Any, x: Any) -> Any:
        """(1 - x^2) times the network: both boundary conditions hold by construction."""
        return (1 - x**2) * model(x[:, None], v=v)[:, 0]

    def second_derivative(v: Any, x: Any) -> Any:
        """The points are independent of each other, so the gradient of the sum holds the derivative at each."""
        first = tl.grad(lambda x: tl.sum(solution(v, x)))
        return tl.grad(lambda x: tl.sum(first(x)))(x)

    def loss(v: Any) -> Any:
        return tl.mean((second_derivative(v, places) - source) ** 2)

    @tl.compile
    def step(v: Any, state: Any) -> Any:
        value, gradients = tl.value_and_grad(loss)(v)
        return *optimizer.update(v, gradients, state), value

    v, losses = model.v, []
    state = optimizer.init(v)
    for _ in range(5 if short else 600):
        v, state, value = step(v, state)
        losses.append(float(value))
    found = tl.to_numpy(solution(v, places))
    x = tl.to_numpy(places)

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        left.semilogy(losses)
        left.set(title="residual of the equation", xlabel="step")
        right.plot(x, np.sin(np.pi * x), label="sin(pi x)")
        right.plot(x, found, ".", label="network")
        right.legend()

    return {
        "loss before": losses[0],
        "loss after": losses[-1],
        "largest error": float(np.max(np.abs(found - np.sin(np.pi * x)))),
    }, draw


if __name__ == "__main__":
    gallery.run(main)
