"""Gradients on TensorFlow: GradientTape on flat lists. Tapes nest, so a user's own sees everything.

Forward mode is two tapes, not tf.autodiff.ForwardAccumulator: that compiles a graph for each kind of op, and fails where a
gradient is IndexedSlices.

Each leaf enters as a tensor of its own (tf.identity): a tape knows tensors by identity, and the same one may be given twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

__all__ = ["constants", "custom_gradient", "jacobian", "jvp", "stop_gradient", "value_and_grad", "vjp"]

Flat = list[Any]
_ZERO = tf.UnconnectedGradients.ZERO


def value_and_grad(function: Callable[[Flat], tuple[Any, Any]], leaves: Flat) -> tuple[Any, Any, Flat]:
    inputs = [tf.identity(x) for x in leaves]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(inputs)
        value, aux = function(inputs)
    return value, aux, _dense(tape.gradient(value, inputs, unconnected_gradients=_ZERO))


def vjp(
    function: Callable[[Flat], tuple[Flat, Any]], leaves: Flat, keep_graph: bool = False
) -> tuple[Flat, Any, Callable[[Flat], Flat]]:
    inputs = [tf.identity(x) for x in leaves]
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(inputs)
        outputs, aux = function(inputs)
    return outputs, aux, lambda cotangents: _dense(tape.gradient(outputs, inputs, cotangents, _ZERO))


def jvp(function: Callable[[Flat], Flat], leaves: Flat, tangents: Flat) -> tuple[Flat, Flat]:
    outputs, _, pullback = vjp(lambda inputs: (function(inputs), None), leaves)
    return outputs, _pushforward(outputs, pullback)(tangents)


def _pushforward(outputs: Flat, pullback: Callable[[Flat], Flat]) -> Callable[[Flat], Flat]:
    """The pullback is linear in the cotangents, so its own pullback, at any of them, is the derivative along the tangents."""
    return vjp(lambda cotangents: (pullback(cotangents), None), [tf.zeros_like(y) for y in outputs])[2]


def jacobian(function: Callable[[Flat], Flat], leaves: Flat) -> list[Flat]:
    """Backward, a row a step: TensorFlow's own vectorised tape.jacobian has no rule for many kernels."""
    inputs = [tf.identity(x) for x in leaves]
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(inputs)
        outputs = function(inputs)
    if _size(outputs) > _size(inputs) and not any(x.dtype.is_complex for x in inputs):
        return _by_columns(inputs, outputs, lambda cotangents: _dense(tape.gradient(outputs, inputs, cotangents, _ZERO)))
    blocks: list[Flat] = []
    for y in outputs:
        count = math.prod(y.shape)
        units = tf.reshape(tf.eye(count, dtype=y.dtype), (count, *y.shape))
        rows = [_dense(tape.gradient(y, inputs, units[k], _ZERO)) for k in range(count)]
        blocks.append([_stacked([row[j] for row in rows], (*y.shape, *x.shape), x) for j, x in enumerate(inputs)])
    return blocks


def _by_columns(inputs: Flat, outputs: Flat, pullback: Callable[[Flat], Flat]) -> list[Flat]:
    push = _pushforward(outputs, pullback)
    columns: list[list[Flat]] = []  # [input][element] -> tangents of the outputs
    for j, x in enumerate(inputs):
        count = math.prod(x.shape)
        units = tf.reshape(tf.eye(count, dtype=x.dtype), (count, *x.shape))
        zeros = [tf.zeros_like(z) for z in inputs]
        columns.append([push([*zeros[:j], units[k], *zeros[j + 1 :]]) for k in range(count)])
    return [
        [
            tf.reshape(tf.stack([c[i] for c in columns[j]], -1), (*y.shape, *x.shape))
            if columns[j]
            else tf.zeros((*y.shape, *x.shape), y.dtype)
            for j, x in enumerate(inputs)
        ]
        for i, y in enumerate(outputs)
    ]


def _size(tensors: Flat) -> int:
    return sum(math.prod(x.shape) for x in tensors)


def _stacked(rows: Flat, shape: tuple[int, ...], like: Any) -> Any:
    return tf.reshape(tf.stack(rows), shape) if rows else tf.zeros(shape, like.dtype)


def constants(arrays: Flat) -> Flat:
    return [tf.stop_gradient(x) for x in arrays]


def stop_gradient(x: Any, *, preserve_type: bool) -> Any:
    constant = tf.stop_gradient(x)
    return tf.Variable(constant, trainable=False) if preserve_type and isinstance(x, tf.Variable) else constant


def custom_gradient(function: Callable[[Flat], Any], rule: Callable[[Flat, Any, Any], Flat], leaves: Flat) -> Any:
    @tf.custom_gradient
    def run(*inputs: Any) -> Any:
        output = function(list(inputs))
        return output, lambda *g: rule(list(inputs), output, g if isinstance(output, tuple) else g[0])

    return run(*(tf.identity(x) for x in leaves))


def _dense(grads: Flat) -> Flat:
    """Gradients of lookups come as IndexedSlices."""
    return [tf.convert_to_tensor(g) for g in grads]
