"""The update of all weights as one graph. What changes from step to step is a tensor, so that it is traced once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

__all__ = ["compiled_update"]


def compiled_update(function: Callable[..., Any]) -> Callable[..., Any]:
    traced = tf.function(function, autograph=False)

    def run(weights: Any, grads: Any, columns: Any, count: Any, lr: Any) -> Any:
        weights = [tf.convert_to_tensor(w) for w in weights]
        return traced(weights, grads, columns, count, lr if lr is None else tf.convert_to_tensor(lr, tf.float64))

    return run
