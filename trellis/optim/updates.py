"""One step of an optimizer, as published: on an array, or on all arrays of a Container or another nest at once.

Every function is pure: it returns new weights and moments. Norms (LARS, LAMB) are per array. The rules and the kernels are those
of the optimizers. `lr`, `step` and `decay_lambda` are one value for all arrays, or a nest like the weights with one value each.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from trellis.composites.support import constant
from trellis.core import dispatch, dtypes, tree
from trellis.core.container import Container
from trellis.core.dispatch import call, find_all, interpreters
from trellis.core.leaves import Nest, unwrap
from trellis.core.typing import AnyArray, Operand
from trellis.ops.elementwise import subtract
from trellis.optim.engine import Flat, Group, Optimizer, check_option, check_shapes, column
from trellis.optim.rules import LAMB, LARS, SGD, Adam

__all__ = ["adam_step", "adam_update", "gradient_descent_update", "lamb_update", "lars_update", "optimizer_update"]


def optimizer_update(w: AnyArray, effective_grad: AnyArray, lr: Operand, /, *, stop_gradients: bool = True) -> AnyArray:
    """w - lr * effective_grad. The effective gradient is the direction that an optimizer computed from the gradient.

    >>> import trellis as tl
    >>> tl.optimizer_update(tl.asarray([1.0, 2.0]), tl.asarray([1.0, 0.0]), 0.5)
    Array([0.5, 2. ], dtype=float32, backend='numpy', device='cpu')
    """
    return _update("optimizer_update", SGD, {}, {"w": w, "effective_grad": effective_grad}, lr, stop=stop_gradients)[0]


def gradient_descent_update(w: AnyArray, dcdw: AnyArray, lr: Operand, /, *, stop_gradients: bool = True) -> AnyArray:
    """One step down the gradient: w - lr * dcdw.

    >>> import trellis as tl
    >>> tl.gradient_descent_update(tl.asarray([1.0, 2.0, 3.0]), tl.asarray([0.5, 0.2, 0.1]), 0.1)
    Array([0.95, 1.98, 2.99], dtype=float32, backend='numpy', device='cpu')
    """
    return _update("gradient_descent_update", SGD, {}, {"w": w, "dcdw": dcdw}, lr, stop=stop_gradients)[0]


def adam_step(
    dcdw: AnyArray, mw: AnyArray, vw: AnyArray, step: Operand, /, *,
    beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-7,
) -> tuple[AnyArray, AnyArray, AnyArray]:  # fmt: skip
    """The Adam direction and the new moments, from the gradient and the moments before; `step` counts from 1.

    >>> import trellis as tl
    >>> zero = tl.zeros(2)
    >>> tl.round(tl.adam_step(tl.asarray([2.0, -2.0]), zero, zero, 1)[0])
    Array([ 1., -1.], dtype=float32, backend='numpy', device='cpu')
    """
    options = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon}
    return _update("adam_step", _AdamDirection, options, {"dcdw": dcdw, "mw": mw, "vw": vw}, -1.0, step, stop=False)


class _AdamDirection(Adam):
    """Adam on weights of 0: with a learning rate of -1 the new weights are the direction."""

    def _group(self, backend: Any, chosen: list[Flat], rate: Any, step: Any, decay: float, in_place: bool | str) -> Any:
        zeros = [backend.full_like(w, fill_value=0.0, dtype=None, device=None) for w in chosen[0]]
        return super()._group(backend, [zeros, *chosen[1:]], rate, step, decay, in_place)


def adam_update(
    w: AnyArray, dcdw: AnyArray, lr: Operand, mw_tm1: AnyArray, vw_tm1: AnyArray, step: Operand, /, *,
    beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-7, stop_gradients: bool = True,
) -> tuple[AnyArray, AnyArray, AnyArray]:  # fmt: skip
    """One step of Adam: new weights and moments; `step` counts from 1.

    >>> import trellis as tl
    >>> zero = tl.zeros(3)
    >>> tl.round(tl.adam_update(tl.asarray([1.0, 2.0, 3.0]), tl.asarray([0.5, 0.2, 0.1]), 0.1, zero, zero, 1)[0] * 10)
    Array([ 9., 19., 29.], dtype=float32, backend='numpy', device='cpu')
    """
    options = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon}
    arrays = {"w": w, "dcdw": dcdw, "mw_tm1": mw_tm1, "vw_tm1": vw_tm1}
    return _update("adam_update", Adam, options, arrays, lr, step, stop=stop_gradients)


def lars_update(
    w: AnyArray, dcdw: AnyArray, lr: Operand, /, *, decay_lambda: float = 0.0, stop_gradients: bool = True
) -> AnyArray:
    """One step of LARS: the gradient, with weight decay added, scaled for each array to the norm of its weights.

    >>> import trellis as tl
    >>> tl.lars_update(tl.asarray([3.0, 4.0]), tl.asarray([0.0, 10.0]), 0.1)
    Array([3. , 3.5], dtype=float32, backend='numpy', device='cpu')
    """
    options = {"momentum": 0.0, "trust_coefficient": 1.0}
    return _update("lars_update", LARS, options, {"w": w, "dcdw": dcdw}, lr, decay=decay_lambda, stop=stop_gradients)[0]


def lamb_update(
    w: AnyArray, dcdw: AnyArray, lr: Operand, mw_tm1: AnyArray, vw_tm1: AnyArray, step: Operand, /, *,
    beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-7, max_trust_ratio: float = 10, decay_lambda: float = 0.0,
    stop_gradients: bool = True,
) -> tuple[AnyArray, AnyArray, AnyArray]:  # fmt: skip
    """One step of LAMB: the Adam direction, with weight decay added, scaled for each array to the norm of its weights.

    >>> import trellis as tl
    >>> zero = tl.zeros(2)
    >>> tl.lamb_update(tl.asarray([3.0, 4.0]), tl.asarray([1.0, 1.0]), 0.1, zero, zero, 1)[0]
    Array([2.6464467, 3.6464467], dtype=float32, backend='numpy', device='cpu')
    """
    options = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon, "max_trust_ratio": max_trust_ratio}
    arrays = {"w": w, "dcdw": dcdw, "mw_tm1": mw_tm1, "vw_tm1": vw_tm1}
    return _update("lamb_update", LAMB, options, arrays, lr, step, decay_lambda, stop_gradients)


# ---- the arguments as lists, and the rule on them ------------------------------------------------------------------------------
_OPTIMIZERS: dict[Any, Optimizer] = {}  # by class and options, because an optimizer keeps its compiled updates


def _update(
    op: str, kind: type[Optimizer], options: dict[str, Any], arrays: dict[str, AnyArray], lr: Operand,
    step: Operand = 1, decay: Operand = 0.0, stop: bool = True,
) -> Any:  # fmt: skip
    """The new weights and slots. `arrays` are the weights, the gradients and the slots, by the names of the arguments."""
    values = {"lr": lr, "step": step, "decay_lambda": decay}
    nested = [x for x in values.values() if not isinstance(x, (int, float)) and tree.children(x) is not None]
    if nested or len({isinstance(x, Container) for x in arrays.values()}) > 1:
        return _for_each_leaf(op, kind, options, arrays, values, stop)
    optimizer = _optimizer(op, kind, options)
    nest, *others = [Nest(x) for x in arrays.values()]
    columns = [nest.leaves, *(column(f"{op}: {n}", nest.treedef, x) for n, x in zip(list(arrays)[1:], others))]
    if not nest.leaves:
        return (nest.rebuild([]),) * (1 + len(optimizer.slots))
    rate, before = _native(lr), _steps_before(op, _native(step))
    placed = [x for flat in columns for x in flat if not isinstance(x, np.generic)]
    backend = find_all(*placed or columns[0], rate, before)
    for name, flat in zip(arrays, columns):
        for i, x in enumerate(flat):
            if isinstance(x, np.generic):  # a 0-d array of the framework beside which it stands
                x = flat[i] = constant(np.asarray(x), placed[0] if placed else x)
            if backend is dispatch.SCALARS or (x is not None and interpreters[type(x)].name != backend.name):
                fix = f"make it one with tl.asarray, or tl.full_like(w, {x})"
                raise TypeError(f"{op}: expected an array for {name}, got {x!r}; {fix}")
    check_shapes(op, nest, backend, dict(zip(arrays, columns)))
    if kind is _AdamDirection:
        columns = [columns[0], *columns]
    weights, grads, *slots = _promoted(backend, columns)
    group = Group(tuple(range(len(weights))), 1.0, 1.0 * decay)
    weights, slots = optimizer.advance(backend, (group,), weights, grads, slots, before, rate, stop=stop)
    return tuple([nest.rebuild(flat) for flat in (weights, *slots)])


def _for_each_leaf(
    op: str, kind: type[Optimizer], options: dict[str, Any], arrays: dict[str, AnyArray], values: dict[str, Operand], stop: bool
) -> Any:
    """The update of one leaf after the other. An argument that is no nest goes to every leaf."""
    if missing := [name for name, x in values.items() if x is None]:  # a nest without leaves: no weight would change
        raise TypeError(f"{op}: expected an array or a number for {missing[0]}, got None")
    flat = {name: tree.flatten(x) for name, x in (arrays | values).items()}
    treedef = next(structure for _, structure in flat.values() if structure != tree.LEAF)
    for name, (_, structure) in flat.items():
        if structure != treedef and structure != tree.LEAF:
            raise tree.structure_error(f"{op}: {name}", treedef, structure)
    results = []
    for i in range(treedef.num_leaves):
        row = {name: leaves[0 if structure == tree.LEAF else i] for name, (leaves, structure) in flat.items()}
        results.append(_update(op, kind, options, row, *map(row.pop, values), stop=stop))
    return tuple([tree.unflatten(treedef, part) for part in zip(*results)])


def _optimizer(op: str, kind: type[Optimizer], options: dict[str, Any]) -> Optimizer:
    key = kind, *map(_native, options.values())  # Dynamo takes a NumPy scalar in a key for an array
    found = _OPTIMIZERS.get(key)
    if found is None:
        for name, value in options.items():
            check_option(op, name, value)
        found = kind(**{name: _native(value) for name, value in options.items()})
        if not dispatch.is_compiling():
            _OPTIMIZERS[key] = found
    return found


def _native(x: Operand) -> Operand:
    """A native array, or a Python number also for a NumPy scalar, which belongs to no framework."""
    return x.item() if isinstance(x, np.generic) else unwrap(x)


def _steps_before(op: str, step: Operand) -> Operand:
    if not isinstance(step, (int, float)):
        return subtract(step, 1)
    if step < 1:
        raise ValueError(f"{op}: step={step} must be 1 or more: it counts the steps, this one included")
    return step - 1


def _promoted(backend: Any, columns: list[Flat]) -> list[Flat]:
    """The columns in floating-point dtypes: a slot in that of itself and its gradient, a weight in that of all its arrays."""
    dtype_of = backend.dtype_of
    first = dtype_of(columns[0][0])
    if first.kind in "fc" and all(dtype_of(x) is first for flat in columns for x in flat):
        return columns
    rows = []
    for w, g, *slots in zip(*columns):
        gradient, *others = [dtype_of(x) for x in (g, *slots)]
        kept = [_floating(gradient, other) for other in others]
        goals = (functools.reduce(dtypes.promote, kept, _floating(gradient, dtype_of(w))), gradient, *kept)
        rows.append([call("astype", x, dtype=goal, copy=False, device=None) for x, goal in zip((w, g, *slots), goals)])
    return [list(flat) for flat in zip(*rows)]


def _floating(first: dtypes.DType, second: dtypes.DType) -> dtypes.DType:
    found = dtypes.promote(first, second)
    return found if found.kind in "fc" else dtypes.promote(found, dtypes.float32)
