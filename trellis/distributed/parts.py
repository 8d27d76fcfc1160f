"""Steps that compute a batch in parts one after the other, and a model in half precision on float32 parameters.

`tl.Trainer` loads this for `accumulate=`, `precision=` and `mesh=`. The steps of several processes and devices build on it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from trellis import ops as tl
from trellis.core import dtypes, tree
from trellis.core.array import Array
from trellis.distributed.scaling import Scaled, scale_in
from trellis.metrics import Metric
from trellis.optim.schedules import whole_number
from trellis.random.keys import Key
from trellis.training.data import Batch
from trellis.training.shares import RowStream, shares_of
from trellis.training.steps import Moment, Steps, inner

_PRECISIONS = {None: None, "bf16": dtypes.bfloat16, "float16": dtypes.float16}


class Parts(NamedTuple):
    """How a batch is computed: in `accumulate` parts one after the other, in a dtype of half precision, with a scaled loss."""

    accumulate: int = 1
    dtype: dtypes.DType | None = None
    scales: bool = False


def kind_of_steps(mesh: Any, accumulate: int, precision: str | None, seed: int) -> Callable[..., Steps]:
    """What makes the steps of a training, in place of `Steps.kept`."""
    whole_number("Trainer", "accumulate", accumulate)
    if precision not in _PRECISIONS:
        raise ValueError(f"Trainer: precision={precision!r} is unknown; there are 'bf16', 'float16' and None")
    make = PartSteps.kept if mesh is None else functools.partial(mesh.steps, seed)
    return functools.partial(_make, make, Parts(accumulate, _PRECISIONS[precision], precision == "float16"))


def _make(make: Any, parts: Parts, model: Any, loss: Any, optimizer: Any, metrics: Any, place: Any, compile: Any) -> Steps:
    if parts.scales and optimizer is not None:
        optimizer = getattr(inner(optimizer), "_compiled", {}).setdefault(("scaled", optimizer), Scaled(optimizer))
        optimizer.begin()
    return make(model, loss, optimizer, metrics, place, compile, parts)


class PartSteps(Steps):
    """Steps by parts of a batch."""

    used = False  # whether they have been those of a training
    copies = 1  # how many processes compute rows that are not shared

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
        batch, key, end, total = moment.batch, moment.key, 0, None
        shares = batch.share or shares_of(tree.leaves((batch.args, batch.kwargs))[0].shape[0], self.parts.accumulate)
        for first, count, of in shares:
            begin, end, copies = end, end + count, self.copies if count == of else 1
            if len(shares) > 1:
                arrays = tree.map(lambda x, rows=slice(begin, end): x[rows] if x.shape else x, batch[:3])
                moment = moment._replace(batch=Batch(*arrays))
            draws = self.stream(key, first, count, of) if batch.share or len(shares) > 1 else key
            weight = count / copies / sum([of for *_, of in shares])
            factor = scale if weight == 1 else weight if scale is None else scale * weight
            (loss, (outputs, buffers)), grads = self.gradients(moment, draws, factor)
            found = loss, self.weighted(self.measure(outputs, moment.batch.targets), weight, copies), grads
            total = found if total is None else tree.map(tl.add, total, found)
            moment = moment._replace(buffers=buffers)
        return total[0], total[1], moment.buffers, total[2]  # type: ignore[index]

    def stream(self, key: Key, first: int, count: int, of: int) -> Any:
        """Where the layers draw from, in a run on some of the rows of a part of a batch."""
        return RowStream(key, first, count)

    def weighted(self, measured: dict[str, Any], weight: float, copies: int) -> dict[str, Any]:
        """The part of means, and of the states of metrics that stream, which are sums."""
        factors = {name: 1 / copies if isinstance(self.metrics[name], Metric) else weight for name in measured}
        return {n: x if factors[n] == 1 else tree.map(lambda x, n=n: x * factors[n], x) for n, x in measured.items()}

    def call(self, v: Any, buffers: Any, args: Any, kwargs: Any, key: Any = None) -> tuple[Any, Any]:
        """The model in half precision, if it is asked for, on float32 parameters; the outputs are float32 again."""
        dtype = self.parts.dtype
        if dtype is None:
            return super().call(v, buffers, args, kwargs, key)
        outputs, after = super().call(_cast(v, dtype), buffers, _cast(args, dtype), _cast(kwargs, dtype), key)
        return _cast(outputs, self.place.dtype), after


def _cast(nest: Any, dtype: dtypes.DType) -> Any:
    return tree.map(lambda x: tl.astype(x, dtype) if isinstance(x, Array) and x.dtype.kind == "f" else x, nest)
