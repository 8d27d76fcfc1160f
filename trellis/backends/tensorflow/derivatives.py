"""Kernels whose own gradient in TensorFlow is wrong or cannot be differentiated again, with one that is right to any order.

Of complex numbers the gradient is d/d(real) + i d/d(imag), that of a holomorphic f is g * conj(f').
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import record
from tensorflow.python.framework.ops import EagerTensor
from tensorflow.python.ops import gen_array_ops, gen_linalg_ops, gen_math_ops as gen

from trellis.backends.tensorflow.arrangement import adjoint, swapped_with_last
from trellis.backends.tensorflow.complexes import real_part
from trellis.composites import composed, on_arrays
from trellis.composites.linalg import cofactors, completed_qr, completed_svd, pinv_gradient, svd_gradient
from trellis.composites.reduction import cumulative_prod_gradient, products_of_others


def _with_gradient(forward: Callable[[Any], Any], rule: Callable[[Any, Any, Any], Any], x: Any) -> Any:
    """`forward(x)` with the gradient `rule(g, y, x)`, where y is the result that has this gradient itself."""
    if tf.executing_eagerly() and not record.could_possibly_record():
        return forward(x)
    made: list[Any] = []

    @tf.custom_gradient
    def run(given: Any) -> Any:
        y = forward(given)
        return y, lambda *g: rule(g if isinstance(y, tuple) else g[0], made[0], given)

    made.append(run(x))
    return made[0]


def with_rules(kernel: Callable[..., Any], *rules: Callable[..., Any]) -> Callable[..., Any]:
    """`kernel` with the gradient `rule(g, *operands)` by each operand."""
    return with_gradients(kernel, lambda g, *operands: [rule(g, *operands) for rule in rules])


def with_gradients(kernel: Callable[..., Any], gradients: Callable[..., Any]) -> Callable[..., Any]:
    """`kernel` with the gradients `gradients(g, *operands)`, one for each operand."""

    def run(*operands: Any) -> Any:
        if not record.could_possibly_record():
            y = kernel(*operands)
            if type(y) is EagerTensor:  # asked of the result, because tf.executing_eagerly() takes longer; a graph drops it
                return y

        @tf.custom_gradient
        def recorded(*given: Any) -> Any:
            return kernel(*given), lambda g: tuple(map(_fit, gradients(g, *given), given))

        return recorded(*operands)

    return run


def _fit(g: Any, x: Any) -> Any:
    """`g` summed over the axes along which `x` was broadcast."""
    if g.shape.is_fully_defined() and g.shape == x.shape:
        return g
    axes, _ = gen_array_ops.broadcast_gradient_args(tf.shape(x), tf.shape(g))
    return tf.reshape(gen._sum(g, axes), tf.shape(x))


def _conj(x: Any) -> Any:
    return gen.conj(x) if x.dtype.is_complex else x


# ---- products: TensorFlow divides by the elements, and forgets to conjugate ----------------------------------------------------
def cumulative_prod(x: Any, axis: int) -> Any:
    if not (x.dtype.is_floating or x.dtype.is_complex):
        return gen.cumprod(x, axis)
    return _with_gradient(lambda given: gen.cumprod(given, axis), lambda g, _, given: _cumulative_prod(g, given, axis), x)


def _cumulative_prod(g: Any, x: Any, axis: int) -> Any:
    x, g = _conj(swapped_with_last(x, axis)), swapped_with_last(g, axis)
    if x.shape[-1] is None:
        raise NotImplementedError(
            "cumulative_prod: its gradient needs the size of the axis; give the tf.function a static shape there"
        )
    return swapped_with_last(cumulative_prod_gradient(g, x), axis)


def prod(x: Any, axes: Any, keepdims: bool) -> Any:
    if not (x.dtype.is_floating or x.dtype.is_complex) or x.shape.rank is None:
        return gen.prod(x, axes, keepdims)
    return _with_gradient(lambda given: gen.prod(given, axes, keepdims), lambda g, _, given: _prod(g, given, axes), x)


def _prod(g: Any, x: Any, axes: Any) -> Any:
    rank = x.shape.rank
    along = [int(a) % rank for a in np.atleast_1d(tf.get_static_value(axes))]
    order = [a for a in range(rank) if a not in along] + along
    moved = tf.transpose(x, order)
    sizes = tf.shape(moved)
    kept = rank - len(along)
    flat = tf.reshape(moved, [tf.reduce_prod(sizes[:kept]), tf.reduce_prod(sizes[kept:])])
    others = tf.reshape(products_of_others(flat), sizes)
    others = tf.transpose(others, sorted(range(rank), key=order.__getitem__))
    kept = [1 if a in along else n for a, n in enumerate(tf.unstack(tf.shape(x), rank))]
    return tf.reshape(g, kept) * _conj(others)


# ---- determinants: TensorFlow raises for a matrix without inverse, and of complex ones forgets to conjugate, and the phase -----
def det(x: Any) -> Any:
    return _with_gradient(gen_linalg_ops.matrix_determinant, _det, x)


def _det(g: Any, y: Any, x: Any) -> Any:
    singular = gen.equal(tf.stop_gradient(y), 0)[..., None, None]
    identity = tf.eye(tf.shape(x)[-1], dtype=x.dtype)
    regular = tf.where(singular, identity, x)
    found = _conj(y)[..., None, None] * adjoint(tf.linalg.inv(regular))
    without_inverse = lambda: _conj(cofactors(x, tf.stop_gradient(x), identity))  # noqa: E731
    found = tf.where(singular, tf.cond(tf.reduce_any(singular), without_inverse, lambda: tf.zeros_like(x)), found)
    return g[..., None, None] * found


def slogdet(x: Any) -> tuple[Any, Any]:
    """Sign or phase, and the logarithm of the absolute value, which is real."""
    if not x.dtype.is_complex:
        return tuple(gen_linalg_ops.log_matrix_determinant(x))  # type: ignore[return-value]

    def forward(given: Any) -> tuple[Any, Any]:
        phase, logarithm = gen_linalg_ops.log_matrix_determinant(given)
        return phase, real_part(logarithm)

    return _with_gradient(forward, _slogdet, x)


def _slogdet(g: Any, y: Any, x: Any) -> Any:
    turned = tf.math.imag(g[0] * gen.conj(y[0]))
    return tf.complex(g[1], turned)[..., None, None] * adjoint(tf.linalg.inv(x))


# ---- singular vectors: TensorFlow's second derivative is wrong for complex matrices, and a full set may have none --------------
_svd_gradient, _pinv_gradient = on_arrays(svd_gradient), on_arrays(pinv_gradient)


def singular_vectors(x: Any, full: bool) -> tuple[Any, Any, Any]:
    """(u, s, vh). Of a full set, the vectors beyond the singular values turn no more than they must."""
    thin = _with_gradient(lambda given: _svd(given, False), lambda g, y, _: _svd_gradient(*g, *y), x)
    return completed_svd(thin, _svd(tf.stop_gradient(x), True)) if full and x.shape[-1] != x.shape[-2] else thin


def pinv(x: Any, rtol: Any) -> Any:
    return _with_gradient(lambda given: composed.pinv(given, rtol), lambda g, y, given: _pinv_gradient(g, y, given), x)


def _svd(x: Any, full: bool) -> tuple[Any, Any, Any]:
    s, u, v = gen_linalg_ops.svd(x, True, full)
    return u, real_part(s), adjoint(v)


def orthogonal_triangular(x: Any, full: bool) -> tuple[Any, Any]:
    """(q, r). TensorFlow has no gradient of a full set."""
    rows, columns = x.shape[-2:]
    if not full or None in (rows, columns) or rows <= columns or (tf.executing_eagerly() and not record.could_possibly_record()):
        return tuple(gen_linalg_ops.qr(x, full))  # type: ignore[return-value]
    return completed_qr(x, tf.linalg.qr, functools.partial(tf.linalg.qr, full_matrices=True))
