"""The update of all weights as one graph, also inside another. What changes from step to step is a tensor: it is traced once.

XLA makes one pass over the memory of it where TensorFlow's kernels make a dozen, and halves its time; but it compiles for a
tenth of a second an array. So it gets models of few arrays that are large enough to notice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

__all__ = ["compiled_update"]

_MOST_ARRAYS, _LEAST_ELEMENTS = 32, 2**16


def compiled_update(function: Callable[..., Any]) -> Callable[..., Any]:
    made: dict[bool, Any] = {}

    def run(weights: Any, grads: Any, columns: Any, count: Any, lr: Any) -> Any:
        weights = [tf.convert_to_tensor(w) for w in weights]
        elements = sum(w.shape.num_elements() or 0 for w in weights)
        fused = len(weights) <= _MOST_ARRAYS and elements >= _LEAST_ELEMENTS
        if fused not in made:
            made[fused] = tf.function(function, autograph=False, jit_compile=fused or None)
        return made[fused](weights, grads, columns, count, lr if lr is None else tf.convert_to_tensor(lr, tf.float64))

    return run
