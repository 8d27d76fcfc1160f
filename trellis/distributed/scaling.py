"""Gradients of a loss that is scaled, so that float16 holds them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, ClassVar

from trellis import ops as tl
from trellis.core import dtypes, tree
from trellis.core.array import Array
from trellis.core.container import Container
from trellis.optim.gradients import dtype_of
from trellis.optim.wrappers import Stateful, constant, zero_count

_FIRST_SCALE, _PATIENCE = 2.0**15, 2000


class Scaled(Stateful):
    """An optimizer for gradients of a scaled loss. The scale follows the gradients.

    A step whose gradients overflow changes nothing but the scale, which is halved; it doubles after `_PATIENCE` good steps.
    """

    keys: ClassVar[tuple[str, ...]] = ("scale", "good", "optimizer")

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def begin(self) -> None:
        """Begin a training with the first scale, and with the state of the optimizer."""
        known = self.optimizer.state
        self._state = self._begun(known, known) if len(known) else None

    def init(self, v: Any) -> Container:
        return self._begun(v, self.optimizer.init(v))

    def _begun(self, arrays: Any, state: Container) -> Container:
        count = zero_count(arrays)
        return Container(scale=tl.astype(count, dtypes.float32) * 0.0 + _FIRST_SCALE, good=count, optimizer=state)

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self.optimizer.set_state({} if self._state is None else self._state["optimizer"])

    def update(self, v: Any, grads: Any, state: Any) -> tuple[Any, Container]:
        scale = state["scale"]
        grads = tree.map(lambda g: g / tl.astype(scale, dtype_of(g), copy=False), grads)
        finite = functools.reduce(tl.logical_and, [tl.all(tl.isfinite(g)) for g in tree.leaves(grads)])
        new_v, inner = self.optimizer.update(v, grads, state["optimizer"])
        new_v, inner = tree.map(lambda a, b: tl.where(finite, a, b), (new_v, inner), (v, state["optimizer"]))
        good = tl.where(finite, state["good"] + 1, state["good"] * 0)
        grows = good >= _PATIENCE
        scale = tl.where(finite, tl.where(grows, scale * 2.0, scale), tl.maximum(scale * 0.5, 1.0))
        return new_v, Container(scale=scale, good=tl.where(grows, good * 0, good), optimizer=inner)

    def step(self, v: Any, grads: Any) -> Any:
        v, self._state = self.update(constant(v), constant(grads), self._begin(v))
        self.optimizer.set_state(self._state["optimizer"])
        return v


def scale_in(state: Any, place: Any) -> Array:
    """The scale of a loss: that of a state of `Scaled`, or the first one."""
    if len(state):
        return state["scale"]
    return Array(place.backend.full(shape=(), fill_value=_FIRST_SCALE, dtype=dtypes.float32, device=place.device))
