"""Steps that compute a batch in parts one after the other, and a model in half precision on float32 parameters.

`tl.Trainer` loads this for `accumulate=`, `precision=` and `mesh=`. The steps of several processes and devices build on it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from trellis.core import dtypes, tree
from trellis.core.array import Array
from trellis.distributed.scaling import Scaled, scale_in
from trellis.metrics import Metric
from trellis.ops.conversion import astype
from trellis.ops.elementwise import add
from trellis.optim.schedules import whole_number
from trellis.random.keys import Key
from trellis.training.data import Batch
from trellis.training.shares import RowStream
from trellis.training.steps import Moment, Steps, inner

_PRECISIONS = {None: None, "bf16": dtypes.bfloat16, "float16": dtypes.float16}


class Parts(NamedTuple):
    """How a batch is computed: in `accumulate` parts one after the other, in a dtype of half precision, with a scaled loss."""

    accumulate: int = 1
    dtype: dtypes.DType | None = None
    scales: bool = False


def kind_of_steps(mesh: Any, accumulate: int, precision: str | None) -> Callable[..., Steps]:
    """What makes the steps of a training, in place of `Steps.kept`."""
    whole_number("Trainer", "accumulate", accumulate)
    if precision not in _PRECISIONS:
        raise ValueError(f"Trainer: precision={precision!r} is unknown; there are 'bf16', 'float16' and None")
    return functools.partial(_make, mesh, Parts(accumulate, _PRECISIONS[precision], precision == "float16"))


def _make(mesh: Any, parts: Parts, model: Any, loss: Any, optimizer: Any, metrics: Any, place: Any, compile: Any) -> Steps:
    if parts.scales and optimizer is not None:
        optimizer = getattr(inner(optimizer), "_compiled", {}).setdefault(("scaled", optimizer), Scaled(optimizer))
        optimizer.begin()
    make = PartSteps.kept if mesh is None else mesh.steps
    return make(model, loss, optimizer, metrics, place, compile, parts)


class PartSteps(Steps):
    """Steps by parts of a batch."""

    used = False  # whether they have been those of a training

    def __init__(self, model: Any, loss: Any, optimizer: Any, metrics: Any, place: Any, compile: Any, parts: Parts) -> None:
        self.parts = parts
        super().__init__(model, loss, optimizer, metrics, place, compile)

    def advance(self, moment: Moment, state: Any) -> tuple[Any, Any, Any, Any]:
        if not self.parts.scales:
            return self.sums(moment)
        scale = scale_in(self.optimizer.state if state is None else state, self.place)
        loss, *rest = self.sums(moment, scale)
        return loss / scale, *rest

    def sums(self, moment: Moment, scale: Any = None) -> tuple[Any, Any, Any, Any]:
        """The loss, the metrics, the buffers and the gradients: sums over the parts, each weighted by its rows."""
        batch, key, total = moment.batch, moment.key, None
        count = tree.leaves((batch.args, batch.kwargs))[0].shape[0]
        start = batch.share[0] if batch.share else 0
        parts = min(self.parts.accumulate, count)
        for i in range(parts):
            first, last = count * i // parts, count * (i + 1) // parts
            if parts > 1:
                arrays = tree.map(lambda x, rows=slice(first, last): x[rows] if x.shape else x, batch[:3])
                moment = moment._replace(batch=Batch(*arrays))
            draws = self.stream(key, start + first, last - first) if parts > 1 or batch.share else key
            weight = (last - first) / count
            factor = scale if parts == 1 else weight if scale is None else scale * weight
            (loss, (outputs, buffers)), grads = self.gradients(moment, draws, factor)
            found = loss, self.weighted(self.measure(outputs, moment.batch.targets), weight), grads
            total = found if total is None else tree.map(add, total, found)
            moment = moment._replace(buffers=buffers)
        loss, measured, grads = total  # type: ignore[misc]
        return loss, measured, moment.buffers, grads

    def stream(self, key: Key, first: int, rows: int) -> Any:
        """Where the layers draw from, in a run on some rows of a batch."""
        return RowStream(key, first, rows)

    def weighted(self, measured: dict[str, Any], weight: float) -> dict[str, Any]:
        """The part of means; states of metrics that stream are sums as they are."""
        return {n: x if weight == 1 or isinstance(self.metrics[n], Metric) else x * weight for n, x in measured.items()}

    def call(self, v: Any, buffers: Any, args: Any, kwargs: Any, key: Any = None) -> tuple[Any, Any]:
        """The model in half precision, if it is asked for, on float32 parameters; the outputs are float32 again."""
        dtype = self.parts.dtype
        if dtype is None:
            return super().call(v, buffers, args, kwargs, key)
        outputs, after = super().call(_cast(v, dtype), buffers, _cast(args, dtype), _cast(kwargs, dtype), key)
        return _cast(outputs, self.place.dtype), after


def _cast(nest: Any, dtype: dtypes.DType) -> Any:
    return tree.map(lambda x: astype(x, dtype) if isinstance(x, Array) and x.dtype.kind == "f" else x, nest)
