"""The steps of a training on torch whose parameters and slots are divided over the axes of a mesh.

Each process keeps its piece of a parameter and of the slots of the optimizer. The model sees whole parameters: DTensor gathers
them before the forward pass, and its gradient adds up the gradients of all processes and leaves each its piece. The rows of
a batch are shared by all processes, whichever axis of the mesh they lie on.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from trellis.core import tree
from trellis.core.container import Container
from trellis.distributed.collectives import reduce_arrays
from trellis.distributed.files import Piece, change_each, save_pieces
from trellis.distributed.steps import ProcessSteps
from trellis.ops.elementwise import multiply
from trellis.optim.gradients import clip_by_value
from trellis.training.steps import Moment, inner


class DividedSteps(ProcessSteps):
    """Steps on pieces of parameters. `v` and the state of the optimizer hold the pieces of this process."""

    def __init__(self, model: Any, loss: Any, optimizer: Any, *rest: Any) -> None:
        super().__init__(model, loss, optimizer, *rest)
        if self.compiles:
            raise ValueError("fit: compile=True does not go with parameters that are divided on torch; leave it out")
        if optimizer is not None:
            _check_elementwise(optimizer)
        self.rules, self.buckets = rest[-1].rules.read(model.v), None
        self.mesh = init_device_mesh("cpu", tuple(self.rules.sizes.values()), mesh_dim_names=tuple(self.rules.sizes))
        self.at = dict(zip(self.rules.sizes, self.mesh.get_coordinate() or ()))

    # ---- pieces and whole arrays -----------------------------------------------------------------------------------------------
    def _spec(self, path: str, x: Any) -> tuple[str | None, ...]:
        """The axes that divide this array; none for an array that is whole."""
        spec, shape = self.rules.find(path)
        return spec if spec and tuple(x.shape) == tuple(n // self._parts(axis) for n, axis in zip(shape, spec)) else ()

    def _parts(self, axis: str | None) -> int:
        return 1 if axis is None else self.rules.sizes[axis]

    def _piece(self, path: str, x: Any) -> Any:
        spec, shape = self.rules.find(path)
        if tuple(x.shape) != shape:
            return x
        for i, (n, axis) in enumerate(zip(shape, spec)):
            if axis is not None:
                size = n // self._parts(axis)
                x = x.narrow(i, size * self.at[axis], size)
        return x.clone() if spec else x  # a view would keep the whole array

    def _whole(self, path: str, x: Any) -> Any:
        spec = self._spec(path, x)
        if not spec:
            return x
        places = [Shard(spec.index(axis)) if axis in spec else Replicate() for axis in self.rules.sizes]
        made = DTensor.from_local(x, self.mesh, places, run_check=False).redistribute(placements=[Replicate()] * len(places))
        return made.to_local(grad_placements=[Partial()] * len(places))

    def _is_first_with(self, spec: tuple[str | None, ...]) -> bool:
        """Whether this process is the one that counts among those with the same piece."""
        return not any(self.at[axis] for axis in self.at if axis not in spec)

    def take(self, v: Any, buffers: Any, state: Any) -> tuple[Any, Any, Any]:
        """Those of rank 0, in pieces."""
        if state is None and self.optimizer is not None:
            state = self.optimizer.state if len(self.optimizer.state) else self.optimizer.init(v)
        return change_each(super().take(v, buffers, state), self._piece)

    def give(self, nest: Any) -> Any:
        with torch.no_grad():
            return change_each(nest, self._whole)

    def call(self, v: Any, buffers: Any, args: Any, kwargs: Any, key: Any = None) -> tuple[Any, Any]:
        return super().call(change_each(v, self._whole), buffers, args, kwargs, key)

    # ---- steps -----------------------------------------------------------------------------------------------------------------
    def reduce(self, *nests: Any) -> Any:
        """Gradients of pieces are sums over all processes already. Norms are those of the whole gradients."""
        loss, measured, grads = nests
        flat = grads.to_flat_dict()
        summed = {path: x for path, x in flat.items() if x is not None and not self._spec(path, x)}
        loss, measured, summed = super().reduce(loss, measured, summed)
        grads = Container.from_flat_dict({**flat, **summed})
        clips = getattr(self.optimizer, "clip_norm", None)
        if clips is None and not self.parts.scales:
            return loss, measured, grads
        if (limit := getattr(self.optimizer, "clip_value", None)) is not None:
            grads = clip_by_value(grads, limit)
        norm = self._norm(grads)
        # The optimizer clips once more, by the norm of the pieces, which is not above the limit any more. A gradient that
        # overflows on one process must be seen by all.
        factor = math.nan if not math.isfinite(norm) else 1.0 if clips is None else min(1.0, clips / max(norm, 1e-30))
        return loss, measured, grads if factor == 1.0 else tree.map(lambda g: multiply(g, factor), grads)

    def _norm(self, grads: Container) -> float:
        flat = grads.to_flat_dict().items()
        own = [x._data.double().square().sum() for path, x in flat if self._is_first_with(self._spec(path, x))]
        total = sum(own, torch.zeros((), dtype=torch.float64))
        return math.sqrt(float(reduce_arrays(self.group, [total], "sum")[0]))

    def total(self, v: Any) -> Any:
        return float(reduce_arrays(self.group, [super().total(v)._data], "sum")[0])

    def explain_loss(self, moment: Moment) -> str:
        return super().explain_loss(moment._replace(v=self.give(moment.v)))

    def evaluate(self, v: Any, buffers: Any, batches: Iterable[Any]) -> dict[str, float]:
        return super().evaluate(self.give(v), buffers, batches)  # not all processes measure each batch

    def predict(self, v: Any, buffers: Any, batches: Iterable[Any]) -> Any:
        return super().predict(self.give(v), buffers, batches)

    # ---- checkpoints -----------------------------------------------------------------------------------------------------------
    def save(self, path: Any, run: Any, more: dict[str, Any]) -> None:
        save_pieces(self.group, path, run, more, self._pieces)

    def _pieces(self, path: str, x: Any) -> Piece | None:
        """What this process writes of an array: None for one that is whole."""
        if not (spec := self._spec(path, x)):
            return None
        first = [n * self.at[axis] if axis else 0 for n, axis in zip(tuple(x.shape), spec)]
        return Piece(self.rules.find(path)[1], [(first, x)] if self._is_first_with(spec) else [])


def _check_elementwise(optimizer: Any) -> None:
    """Raise if an optimizer updates halves of a weight otherwise than the whole: it would need the norms of whole weights."""
    plain = copy.copy(optimizer)
    if inner(plain) is plain and hasattr(plain, "clip_norm"):
        plain.clip_norm = None  # the steps clip
    w, g = (np.random.default_rng(seed).normal(size=(4, 4)) for seed in (0, 1))

    def after(rows: slice) -> Any:
        v, state = {"w": w[rows]}, plain.init({"w": w[rows]})
        for _ in range(2):
            v, state = plain.update(v, {"w": g[rows]}, state)
        return v["w"]

    if not np.allclose(np.concatenate([after(slice(0, 2)), after(slice(2, 4))]), after(slice(0, 4))):
        raise NotImplementedError(
            f"fit: {type(inner(optimizer)).__name__} needs whole weights, and on torch each process has a piece; take an "
            "optimizer that works element by element, such as tl.AdamW, or mesh(data=-1), or JAX"
        )
