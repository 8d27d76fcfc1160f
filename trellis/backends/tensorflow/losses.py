"""The loss of classes by TensorFlow's fused kernel."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trellis.backends.tensorflow.meta import tensor

__all__ = ["log_likelihood"]


def log_likelihood(x: Any, target: Any, *, axis: int) -> Any:
    x = tensor(x)
    rank = x.shape.rank
    if axis != rank - 1:
        x = tf.transpose(x, [*(a for a in range(rank) if a != axis), axis])
    return -tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(target, tf.int64), x)
