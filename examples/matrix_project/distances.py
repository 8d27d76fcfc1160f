"""A small library on top of Trellis: distances between the rows of two arrays, on any framework."""

from __future__ import annotations

from typing import Any

import trellis as tl


def euclidean(x: Any, y: Any) -> Any:
    """Distances (n, m) between the rows of x (n, k) and of y (m, k)."""
    return tl.linalg.vector_norm(tl.expand_dims(x, axis=1) - tl.expand_dims(y, axis=0), axis=-1)


def cosine(x: Any, y: Any) -> Any:
    """1 - cosine of the angle between the rows of x (n, k) and of y (m, k)."""
    x = x / tl.linalg.vector_norm(x, axis=-1, keepdims=True)
    y = y / tl.linalg.vector_norm(y, axis=-1, keepdims=True)
    return 1 - tl.matmul(x, tl.matrix_transpose(y))
