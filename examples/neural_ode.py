"""A network is the slope of a curve. `tl.scan` integrates it, and it learns a spiral."""

from __future__ import annotations

from typing import Any

import gallery
import numpy as np

import trellis as tl

STEP, POINTS = 0.1, 30


def integrate(slope: Any, start: Any, points: int) -> Any:
    """The states at `points` times, by the classical Runge-Kutta method."""

    def advance(y: Any, _: Any) -> tuple[Any, Any]:
        first = slope(y)
        second = slope(y + 0.5 * STEP * first)
        third = slope(y + 0.5 * STEP * second)
        fourth = slope(y + STEP * third)
        y = y + STEP / 6 * (first + 2 * second + 2 * third + fourth)
        return y, y

    return tl.scan(advance, start, length=points)[1]


def main(short: bool = False) -> tuple[gallery.Numbers, gallery.Draw]:
    matrix = tl.asarray([[-0.1, -1.0], [1.0, -0.1]], dtype="float32")
    start = tl.asarray([[2.0, 0.0], [0.0, 1.5], [-1.0, -1.0]], dtype="float32")
    truth = integrate(lambda y: y**3 @ matrix, start * 0.6, POINTS)
    tl.seed(0)
    model = tl.Sequential(tl.Linear(2, 32), tl.Tanh(), tl.Linear(32, 2))
    optimizer = tl.Adam(1e-2)

    def loss(v: Any) -> Any:
        return tl.mean((integrate(lambda y: model(y**3, v=v), start * 0.6, POINTS) - truth) ** 2)

    @tl.compile
    def step(v: Any, state: Any) -> Any:
        value, gradients = tl.value_and_grad(loss)(v)
        return *optimizer.update(v, gradients, state), value

    v, losses = model.v, []
    state = optimizer.init(v)
    for _ in range(5 if short else 300):
        v, state, value = step(v, state)
        losses.append(float(value))
    paths = tl.to_numpy(integrate(lambda y: model(y**3, v=v), start * 0.6, POINTS)), tl.to_numpy(truth)

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        left.semilogy(losses)
        left.set(title="loss", xlabel="step")
        for i in range(3):
            right.plot(*paths[1][:, i].T, color="gray")
            right.plot(*paths[0][:, i].T, ".", markersize=3)

    return {"loss before": losses[0], "loss after": losses[-1], "largest error": float(np.max(np.abs(paths[0] - paths[1])))}, draw


if __name__ == "__main__":
    gallery.run(main)
