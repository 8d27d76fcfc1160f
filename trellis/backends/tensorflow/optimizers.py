"""The update of all weights as one graph, also inside another. Values that change from step to step are tensors.

XLA makes one pass over the memory where TensorFlow's kernels make a dozen, and halves the time; but it compiles for a tenth of a
second per array. So it gets the models of few arrays that are large enough to notice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trellis.backends.tensorflow.control import compile
from trellis.core import tree

_MOST_ARRAYS, _LEAST_ELEMENTS = 32, 2**16


def compiled_update(function: Callable[..., Any], donate_argnums: tuple[int, ...]) -> Callable[..., Any]:
    eager: dict[Any, Callable[[list[Any]], Any]] = {}
    in_graph: dict[bool, Any] = {}

    def run(weights: Any, grads: Any, columns: Any, count: Any, lr: Any) -> Any:
        elements = sum([w.shape.num_elements() or 0 for w in weights])
        fused = len(weights) <= _MOST_ARRAYS and elements >= _LEAST_ELEMENTS
        arguments = (weights, grads, columns, _as_tensor(count, tf.int32), _as_tensor(lr, tf.float64))
        if not tf.executing_eagerly():
            if fused not in in_graph:
                in_graph[fused] = tf.function(function, autograph=False, jit_compile=fused or None)
            return in_graph[fused]([tf.convert_to_tensor(w) for w in weights], *arguments[1:])
        leaves, treedef = tree.flatten(arguments)
        if (treedef, fused) not in eager:
            eager[treedef, fused] = compile(lambda flat: function(*tree.unflatten(treedef, flat)), fused or None)
        return eager[treedef, fused](leaves)

    return run


def _as_tensor(x: Any, dtype: tf.DType) -> Any:
    """A number as a tensor, so that another value does not need another graph."""
    return tf.convert_to_tensor(x, dtype) if isinstance(x, (int, float)) else x
