"""vmap, control flow and tf.function on TensorFlow.

Eagerly control flow is Python's, so that any tape sees each step; in a graph it is tf.cond and tf.while_loop, which have
gradients of their own.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.ops import EagerTensor

from trellis.backends import loops
from trellis.backends.tensorflow.arrangement import transposed
from trellis.backends.tensorflow.meta import constant, is_traced, tensors
from trellis.core import errors, leaves as nests, tree
from trellis.core.leaves import MixedNest

__all__ = ["compile", "compile_over", "compiled_update", "compiles", "cond", "copies", "scan", "take_apart", "vmap", "while_loop"]

Flat = list[Any]
_EAGER = frozenset((EagerTensor,))

# TensorFlow logs hundreds of lines of an op that it cannot batch, which we run one by one then.
_trying = contextvars.ContextVar("whether vmap tries to batch", default=False)
tf.get_logger().addFilter(lambda record: not (_trying.get() and record.pathname.endswith("pfor.py")))


# ---- vmap ----------------------------------------------------------------------------------------------------------------------
def vmap(function: Callable[[Flat], tuple[Flat, Flat]], arrays: Flat, axes: Sequence[int], size: int | None) -> tuple[Flat, Flat]:
    moved = [transposed(x, [a, *(i for i in range(x.shape.rank) if i != a)]) for x, a in zip(tensors(arrays), axes)]
    mapped = 0  # how many of the results are stacked

    def run(elements: Flat) -> Flat:
        nonlocal mapped
        stacked, fixed = function(list(elements))
        mapped = len(stacked)
        return tensors([*stacked, *fixed])

    results = _each(run, moved)
    return results[:mapped], [_only(y) for y in results[mapped:]]


def _each(run: Callable[[Flat], Flat], moved: Flat) -> Flat:
    """All elements at once; where an op cannot be batched, one after the other."""
    token = _trying.set(True)
    try:
        return _batched(run, moved)
    except Exception:  # of many kinds: no converter for an op, a converter that fails, a function that needs its values
        pass
    finally:
        _trying.reset(token)
    if tf.executing_eagerly():
        rows = [run(list(elements)) for elements in zip(*map(tf.unstack, moved))]
        return [tf.stack(column) for column in zip(*rows)]
    specs = _specs(run, [tf.TensorSpec(x.shape[1:], x.dtype) for x in moved])
    return list(tf.map_fn(run, moved, fn_output_signature=specs)) if specs else []


def _batched(run: Callable[[Flat], Flat], moved: Flat) -> Flat:
    def all_at_once(inputs: Flat) -> Flat:
        return list(tf.vectorized_map(run, inputs, fallback_to_while_loop=False, warn=False))

    if not tf.executing_eagerly():
        return all_at_once(moved)
    # Traced here and not by vectorized_map, which has TensorFlow warn of a function that is traced at each call.
    concrete = tf.function(all_at_once, autograph=False).get_concrete_function([tf.TensorSpec(x.shape, x.dtype) for x in moved])
    return list(concrete(*moved))


def _specs(function: Callable[[Flat], Flat], inputs: list[tf.TensorSpec]) -> list[tf.TensorSpec]:
    """Shapes and dtypes of what a function returns, from tracing it."""
    outputs = tf.function(function, autograph=False).get_concrete_function(inputs).outputs
    return [tf.TensorSpec(y.shape, y.dtype) for y in outputs]


def _only(y: Any) -> Any:
    if tf.executing_eagerly() and not is_traced(y):
        first = tf.gather(y, [0])
        if not bool(tf.reduce_all((y == first) | ((y != y) & (first != first)))):
            raise errors.vmap_differs()
    return tf.gather(y, 0)


# ---- control flow --------------------------------------------------------------------------------------------------------------
def cond(pred: Any, true_function: Callable[[Flat], Flat], false_function: Callable[[Flat], Flat], operands: Flat) -> Flat:
    if tf.executing_eagerly():
        return (true_function if pred else false_function)(operands)
    return list(tf.cond(pred, lambda: tensors(true_function(operands)), lambda: tensors(false_function(operands))))


def while_loop(condition: Callable[[Flat], Any], body: Callable[[Flat], Flat], carry: Flat) -> Flat:
    if tf.executing_eagerly():
        return loops.while_loop(condition, body, carry)
    return list(tf.while_loop(lambda *c: condition(list(c)), lambda *c: tensors(body(list(c))), tensors(carry)))


def scan(
    step: Callable[[Flat, Flat], tuple[Flat, Flat]], carry: Flat, xs: Flat, length: int | None, reverse: bool
) -> tuple[Flat, Flat]:
    if tf.executing_eagerly():
        return loops.scan(step, carry, tensors(xs), length, reverse)  # type: ignore[arg-type]
    return _scan_in_graph(step, tensors(carry), tensors(xs), length, reverse)


def _scan_in_graph(step: Any, carry: Flat, xs: Flat, length: int | None, reverse: bool) -> tuple[Flat, Flat]:
    width = len(carry)

    def flat_step(inputs: Flat) -> Flat:
        after, ys = step(list(inputs[:width]), list(inputs[width:]))
        return tensors([*after, *ys])

    inputs = [tf.TensorSpec(x.shape, x.dtype) for x in carry] + [tf.TensorSpec(x.shape[1:], x.dtype) for x in xs]
    specs = _specs(flat_step, inputs)[width:]
    count = tf.shape(xs[0])[0] if length is None else tf.constant(length)
    stores = [tf.TensorArray(s.dtype, size=count, element_shape=s.shape) for s in specs]

    def body(i: Any, carry: Flat, stores: Flat) -> Any:
        at = count - 1 - i if reverse else i
        results = flat_step([*carry, *(tf.gather(x, at) for x in xs)])
        return i + 1, results[:width], [store.write(at, y) for store, y in zip(stores, results[width:])]

    _, final, stores = tf.while_loop(lambda i, *_: i < count, body, (tf.constant(0), carry, stores), maximum_iterations=length)
    stacked = [tf.ensure_shape(store.stack(), (length, *s.shape)) for store, s in zip(stores, specs)]
    return list(final), stacked


# ---- compile -------------------------------------------------------------------------------------------------------------------
def compiles(arrays: Flat) -> bool:
    return tf.executing_eagerly() and not any(is_traced(x) for x in arrays)


def take_apart(nest: Any) -> tuple[Flat, Any] | None:
    return nests.take_apart(nest, _EAGER) if tf.executing_eagerly() else None


def compile(function: Callable[[Flat], Any], jit_compile: bool | None = None) -> Callable[[Flat], Any]:
    """One tf.function per signature, by XLA if `jit_compile`. Each knows which other values it returns beside tensors."""
    made: dict[Any, Callable[[Flat], Any]] = {}

    def run(leaves: Flat) -> Any:
        leaves = [x if type(x) is EagerTensor else tf.convert_to_tensor(x) if tf.is_tensor(x) else x for x in leaves]
        key = tuple([(x._shape_tuple(), x.dtype) if type(x) is EagerTensor else (type(x), x) for x in leaves])
        entry = made.get(key)
        if entry is None:
            entry = made[key] = _compile_one(function, leaves, jit_compile)
        return entry(leaves)

    return run


def _compile_one(function: Callable[[Flat], Any], leaves: Flat, jit_compile: bool | None) -> Callable[[Flat], Any]:
    numbers = [None if tf.is_tensor(x) else x for x in leaves]
    returned: list[tuple[Any, ...]] = []

    def traced(given: Flat) -> Flat:
        remaining = iter(given)
        nest = MixedNest(function([next(remaining) if number is None else number for number in numbers]))
        returned.append(nest.structure())  # symbolic tensors do not outlive their graph
        return tensors(nest.arrays)

    call = _flat(traced, [x for x in leaves if tf.is_tensor(x)], jit_compile)
    nest = MixedNest.from_structure(returned[-1])
    return lambda leaves: nest.fill(call([x for x in leaves if type(x) is EagerTensor]))


def _flat(function: Callable[[Flat], Flat], given: Flat, jit_compile: bool | None = None) -> Callable[[Flat], Flat]:
    """A function of a list of tensors, for such shapes and dtypes. It is traced at once: TensorFlow warns of functions that are
    made and called one after the other."""
    specs = [tf.TensorSpec(x.shape, x.dtype) for x in given]
    concrete = tf.function(function, autograph=False, jit_compile=jit_compile).get_concrete_function(specs)
    # The signature is known to fit: the public call would compare each tensor with it once more, half a millisecond for a model.
    # It takes tensors one by one, too, but after a TypeError that prints them all.
    call_flat = getattr(concrete, "_call_flat", None)
    return concrete if call_flat is None else lambda given: call_flat(given, concrete.captured_inputs)


def copies(arrays: Flat) -> Flat:
    return [tf.convert_to_tensor(x) for x in arrays]  # tensors never change, variables do


def compile_over(function: Callable[[Flat, Flat], tuple[Flat, Flat]]) -> Callable[[Flat, Flat], tuple[Flat, Flat]]:
    """`function` compiled, of two lists of tensors; those of the second may be NumPy arrays."""
    made: dict[Any, Callable[[Flat], Flat]] = {}

    def run(own: Flat, others: Flat) -> tuple[Flat, Flat]:
        count, given = len(own), [x if type(x) is EagerTensor else constant(x, like=own[0]) for x in others]
        key = tuple([(x._shape_tuple(), x.dtype) for x in given])
        if key not in made:
            made[key] = _flat(lambda leaves: [*chain(*function(leaves[:count], leaves[count:]))], [*own, *given])
        found = made[key]([*own, *given])
        return found[:count], found[count:]

    return run


# ---- the update of all weights as one graph, also inside another; values that change from step to step are tensors -----------
# XLA makes one pass over the memory where TensorFlow's kernels make a dozen, and halves the time; but it compiles for a tenth of
# a second per array. So it gets the models of few arrays that are large enough to notice.
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
