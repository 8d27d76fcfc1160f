"""Gradients on TensorFlow: GradientTape on flat lists. Tapes nest, so a user's own sees everything.

Forward mode is two tapes, not tf.autodiff.ForwardAccumulator: that compiles a graph for each kind of op, and fails where a
gradient is IndexedSlices.

Each leaf enters as a tensor of its own (tf.identity): a tape knows tensors by identity, and the same one may be given twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import record
from tensorflow.python.framework import op_callbacks

from trellis.backends.loops import jacobian, pushforward
from trellis.backends.tensorflow.meta import tensors

__all__ = ["checkpoint", "constants", "custom_gradient", "jacobian", "jvp", "stop_gradient", "value_and_grad", "vjp"]

Flat = list[Any]
_ZERO = tf.UnconnectedGradients.ZERO


def _recorded(function: Callable[[Flat], Any], leaves: Flat, persistent: bool) -> tuple[tf.GradientTape, Flat, Any]:
    """The tape, the inputs that it watches, and what the function returned."""
    inputs = [tf.identity(x) for x in leaves]
    with tf.GradientTape(persistent, watch_accessed_variables=False) as tape:
        tape.watch(inputs)
        return tape, inputs, function(inputs)


def value_and_grad(function: Callable[[Flat], tuple[Any, Any]], leaves: Flat) -> tuple[Any, Any, Flat]:
    tape, inputs, (value, aux) = _recorded(function, leaves, False)
    return value, aux, tensors(tape.gradient(value, inputs, unconnected_gradients=_ZERO))


def vjp(
    function: Callable[[Flat], tuple[Flat, Any]], leaves: Flat, keep_graph: bool = False
) -> tuple[Flat, Any, Callable[[Flat], Flat]]:
    tape, inputs, (outputs, aux) = _recorded(function, leaves, True)
    return outputs, aux, lambda cotangents: tensors(tape.gradient(outputs, inputs, cotangents, _ZERO))


def jvp(function: Callable[[Flat], Flat], leaves: Flat, tangents: Flat) -> tuple[Flat, Flat]:
    outputs, _, pullback = vjp(lambda inputs: (function(inputs), None), leaves)
    return outputs, pushforward(vjp, outputs, pullback)(tangents)


def checkpoint(function: Callable[[Flat], Flat], leaves: Flat) -> Flat:
    """tf.recompute_grad, with gradients for tensors that the function closes over: callbacks of ops see which it reads."""
    if tf.executing_eagerly() and not record.could_possibly_record():
        return function(leaves)
    read: dict[int, Any] = {}
    made: dict[int, Any] = {}  # held, so that their ids are not given again

    def look(op_type: Any, inputs: Any, attrs: Any, outputs: Any, op_name: Any, graph: Any = None) -> None:
        read.update((id(x), x) for x in inputs or () if id(x) not in made)
        made.update((id(y), y) for y in outputs or ())

    with record.VariableWatcher() as variables, record.stop_recording():
        op_callbacks.add_op_callback(look)
        try:
            outputs = tensors(function(leaves))
        finally:
            op_callbacks.remove_op_callback(look)
    made.clear()
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    outside = [x for x in read.values() if (x.dtype.is_floating or x.dtype.is_complex) and _counts(x, graph)]

    @tf.custom_gradient
    def run(*inputs: Any) -> Any:
        for x in variables.watched_variables():
            record.variable_accessed(x)
        return outputs, lambda *g, variables=(): _again(function, leaves, outside, list(variables or ()), g)

    return list(run(*leaves, *outside))


def _counts(x: Any, graph: Any) -> bool:
    """Whether a gradient may flow to what a function has read."""
    return record.should_record_backprop([x]) if graph is None else getattr(x, "graph", graph) is graph


def _again(function: Callable[[Flat], Flat], leaves: Flat, outside: Flat, variables: Flat, g: Sequence[Any]) -> Any:
    with tf.control_dependencies(None if tf.executing_eagerly() else list(g)):  # else the two runs would become one
        inputs = [tf.identity(x) for x in leaves]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([*inputs, *outside, *variables])
            outputs = tensors(function(inputs))
    found = tape.gradient(outputs, [*inputs, *outside, *variables], list(g))
    return (found[: -len(variables)], found[-len(variables) :]) if variables else found


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
