"""Wrappers of an optimizer: gradients added up over several steps, and an average of the weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from trellis import ops as tl
from trellis.core import dtypes, tree
from trellis.core.array import Array
from trellis.core.container import Container
from trellis.core.dispatch import interpreters, load
from trellis.core.leaves import MixedNest, backend_of, device_of, unwrap
from trellis.optim.engine import Optimizer, check_keys, fitted
from trellis.optim.gradients import dtype_of, wide
from trellis.optim.schedules import whole_number

__all__ = ["EMA", "accumulate"]


class Stateful:
    """A wrapper with a pure `init`, and a state that it keeps between steps."""

    keys: ClassVar[tuple[str, ...]] = ()
    _state: Container | None = None
    _fits: tree.TreeDef | None = None  # the structure of the weights that the state has been fitted to

    def init(self, v: Any) -> Container:
        raise NotImplementedError

    @property
    def state(self) -> Container:
        """The state, a Container; empty before the first step."""
        return Container() if self._state is None else self._state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a state that `state` or `init` gave, or that was loaded; on whichever framework it is."""
        self._state, self._fits = check_keys(type(self).__name__, state, self.keys), None

    def _begin(self, v: Any) -> Container:
        structure = tree.structure(v)
        if self._state is None:
            self._state = self.init(v)
        elif self._fits != structure:
            self._state = fitted(type(self).__name__, self._state, self.init(v))
        self._fits = structure
        return self._state


def zero_count(v: Any) -> Any:
    """The number 0 as an array on the framework of a nest, native if the arrays of the nest are."""
    nest = MixedNest(v)
    zero = backend_of(nest.arrays).full(shape=(), fill_value=0, dtype=dtypes.int32, device=device_of(nest.arrays))
    return Array(zero) if any(nest.wrapped) else zero


def _next(count: Any) -> tuple[Any, int | None]:
    """count + 1 as an array, and as a Python number if its value is known."""
    native = unwrap(count)
    backend = interpreters[type(native)]
    return tl.add(count, 1), None if backend.is_traced(native) else int(load(backend.name).item(native)) + 1


def accumulate(optimizer: Optimizer, steps: int, /) -> Accumulated:
    """An optimizer that updates the weights at every `steps`-th call only, with the mean of the gradients of these calls.

    >>> import trellis as tl
    >>> opt = tl.accumulate(tl.SGD(0.5), 2)
    >>> v = opt.step(tl.asarray([1.0]), tl.asarray([1.0]))
    >>> float(v[0]), float(opt.step(v, tl.asarray([3.0]))[0])
    (1.0, 0.0)
    """
    whole_number("accumulate", "steps", steps)
    return Accumulated(optimizer, steps)


class Accumulated(Stateful):
    """See `tl.accumulate`. `update` is pure; a traced one computes both outcomes and chooses one."""

    keys: ClassVar[tuple[str, ...]] = ("count", "total", "optimizer")

    def __init__(self, optimizer: Optimizer, steps: int) -> None:
        self.optimizer, self.steps = optimizer, steps

    def init(self, v: Any) -> Container:
        """The state before the first step."""
        return Container(count=zero_count(v), total=tree.map(_zeros, v), optimizer=self.optimizer.init(v))

    def update(self, v: Any, grads: Any, state: Any) -> tuple[Any, Container]:
        """New weights and new state."""
        share = 1.0 / self.steps
        parts = tree.map(lambda w, g: tl.multiply(tl.astype(g, wide(dtype_of(g)), copy=False), share), v, grads)
        total = tree.unflatten(tree.structure(v), [tl.add(t, g) for t, g in zip(tree.leaves(state["total"]), tree.leaves(parts))])
        count, number = _next(state["count"])
        if number is not None and number < self.steps:
            return v, Container(count=count, total=total, optimizer=state["optimizer"])
        new_v, inner = self.optimizer.update(v, total, state["optimizer"])
        done = Container(count=tl.multiply(count, 0), total=tree.map(_zeros, v), optimizer=inner)
        if number is not None:
            return new_v, done
        due = count == self.steps
        waiting = Container(count=count, total=total, optimizer=state["optimizer"])
        return tree.map(lambda a, b: tl.where(due, a, b), (new_v, done), (v, waiting))

    def step(self, v: Any, grads: Any) -> Any:
        """The new weights; `v` itself at a call that only adds up gradients."""
        state = self._begin(v)
        v, self._state = self.update(constant(v), constant(grads), state)
        return v


def constant(nest: Any) -> Any:
    return tree.map(lambda x: tl.stop_gradient(x, preserve_type=False), nest)


def _zeros(w: Any) -> Any:
    return tl.multiply(tl.astype(w, wide(dtype_of(w))), 0.0)


class EMA(Stateful):
    """The exponential moving average of the weights: average = decay * average + (1 - decay) * v, from the first `v` on.

    With `warmup` the decay is min(decay, (1 + steps) / (10 + steps)). Half precision is averaged in float32.

    >>> import trellis as tl
    >>> ema = tl.EMA(0.5)
    >>> _ = ema.step(tl.asarray([1.0]))
    >>> ema.step(tl.asarray([2.0]))
    Array([1.5], dtype=float32, backend='numpy', device='cpu')
    >>> model = tl.Linear(2, 1)
    >>> ema = tl.EMA(0.999)
    >>> y = model(tl.ones(2), v=ema.step(model.v))
    """

    keys: ClassVar[tuple[str, ...]] = ("step", "average")

    def __init__(self, decay: float = 0.999, *, warmup: bool = False) -> None:
        if not isinstance(decay, (int, float)) or not 0 <= decay < 1:
            raise ValueError(f"EMA: decay={decay!r} must be a number from 0 to below 1")
        self.decay, self.warmup = decay, warmup

    def init(self, v: Any) -> Container:
        """The state before the first step: the average is `v`."""
        return Container(step=zero_count(v), average=tree.map(lambda w: tl.astype(w, wide(dtype_of(w))), v))

    def update(self, v: Any, state: Any) -> Container:
        """The state with `v` in its average; pure."""
        step, number = _next(state["step"])
        share: Any = 1.0 - self.decay
        if self.warmup and number is not None:
            share = max(share, 9.0 / (9.0 + number))
        elif self.warmup:
            early = 9.0 / (9.0 + tl.astype(step, dtypes.float32))
            share = tl.where(early > share, early, share)
        leaves, treedef = tree.flatten(v)
        average = [_toward(a, w, share) for a, w in zip(tree.leaves(state["average"]), leaves)]
        return Container(step=step, average=tree.unflatten(treedef, average))

    def step(self, v: Any) -> Any:
        """The average, `v` included."""
        first, v = self._state is None, constant(v)
        state = self._begin(v)
        if not first:
            state = self._state = self.update(v, state)
        return state["average"]


def _toward(average: Any, w: Any, share: Any) -> Any:
    dtype = dtype_of(average)
    share = share if isinstance(share, float) else tl.astype(share, dtype, copy=False)
    return tl.add(average, tl.multiply(tl.subtract(tl.astype(w, dtype, copy=False), average), share))
