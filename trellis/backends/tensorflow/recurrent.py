"""Recurrences as while loops of a graph, also when called eagerly: a step is a dozen kernels, and Python would pay for each.

BlockLSTMV2, TensorFlow's own, has no kernel for float64, and its gradient differed from this one's, which agrees with torch's.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from trellis.backends.tensorflow.meta import tensor
from trellis.composites.recurrent import recurrence_by_hand


def recurrence(inputs: Any, recurrent: Any, bias: Any, *state: Any, cell: str) -> tuple[Any, ...]:
    operands = inputs, recurrent, bias, *state
    if not tf.executing_eagerly():
        return recurrence_by_hand(*operands, cell=cell)
    tensors = [tensor(x) for x in operands if x is not None]
    fixed = 2 if bias is None else 3
    key = tuple([(tuple(x.shape) if 0 < i < fixed else _open(tuple(x.shape)), x.dtype) for i, x in enumerate(tensors)])
    return tuple(_graph(key, bias is not None, cell)(*tensors))


def _open(shape: tuple[int, ...]) -> tuple[int | None, ...]:
    """Any number of steps and any batch; but none that is empty, which TensorFlow must know to stack nothing."""
    return shape if 0 in shape else (*(None for _ in shape[:-1]), shape[-1])


@functools.lru_cache(maxsize=256)
def _graph(key: Any, has_bias: bool, cell: str) -> Any:
    """Traced at once for one signature: TensorFlow warns of functions that are traced again and again."""

    def run(inputs: Any, recurrent: Any, *rest: Any) -> Any:
        bias, state = (rest[0], rest[1:]) if has_bias else (None, rest)
        return recurrence_by_hand(inputs, recurrent, bias, *state, cell=cell)

    return tf.function(run, autograph=False).get_concrete_function(*(tf.TensorSpec(*spec) for spec in key))
