"""`rnn`: any step function over whole sequences, in a loop that the framework runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trellis.core import tree
from trellis.core.dispatch import interpreters
from trellis.core.typing import AnyArray, Nest
from trellis.ops.conversion import astype
from trellis.ops.manipulation import expand_dims, moveaxis
from trellis.ops.searching import where
from trellis.transforms.arguments import check_callable
from trellis.transforms.control import scan

__all__ = ["rnn"]


def rnn(
    step: Callable[[Nest, Nest], tuple[Nest, Nest]], x: Nest, init_state: Nest, /, *, mask: AnyArray | None = None,
    reverse: bool = False, time_major: bool = False,
) -> tuple[Nest, Nest]:  # fmt: skip
    """(all outputs, last state) of `new_state, output = step(state, x_t)`, for each time of the arrays in `x` [batch, time, ...].

    `x`, state and output are arrays or nests of them. Where `mask` [batch, time] is False, the state stays and the output is 0.
    `reverse` runs from the last time to the first. With `time_major` the time axis of the arrays and of the mask is the first.

    >>> import trellis as tl
    >>> def step(total, x):
    ...     return total + x, total + x
    >>> tl.rnn(step, tl.asarray([[1.0, 2.0, 3.0]]), tl.zeros(1))[0]
    Array([[1., 3., 6.]], dtype=float32, backend='numpy', device='cpu')
    """
    check_callable("rnn", "step", step, "; give a function of the state and the input at a time")
    turn = (lambda a: a) if time_major else (lambda a: moveaxis(a, 0, 1))

    def masked(state: Any, row: Any) -> tuple[Any, Any]:
        new_state, output = step(state, row[0])
        if mask is None:
            return new_state, output

        def kept(new: Any, old: Any) -> Any:
            seen = row[1]
            missing = interpreters[type(new)].rank_of(new) - interpreters[type(seen)].rank_of(seen)
            return where(expand_dims(seen, tuple(range(-missing, 0))) if missing > 0 else seen, new, old)

        return tree.map(kept, new_state, state), tree.map(lambda y: kept(y, 0), output)

    rows = (tree.map(turn, x),) if mask is None else (tree.map(turn, x), turn(astype(mask, bool)))
    last, outputs = scan(masked, init_state, rows, reverse=reverse)
    return tree.map(turn, outputs), last
