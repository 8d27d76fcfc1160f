"""One step of an optimizer, as published: on an array, or on all arrays of a Container or another nest at once.

Every function is pure: new weights and moments are returned. Norms (LARS, LAMB) are per array. What a backend can do for all
arrays in one go (torch's foreach kernels, one compiled call on JAX) it does.
"""

from __future__ import annotations

import math
from typing import Any

from trellis import tree
from trellis.array import Array
from trellis.dispatch import find_all, load
from trellis.ops.elementwise import expm1, multiply, negative
from trellis.typing import AnyArray, Operand

__all__ = ["adam_step", "adam_update", "gradient_descent_update", "lamb_update", "lars_update", "optimizer_update"]


class _Nests:
    """Nests of one structure as lists of native arrays, and the way back."""

    def __init__(self, op: str, **nests: Any) -> None:
        self.columns: list[list[Any]] = []
        self.treedef: Any = None
        for name, nest in nests.items():
            leaves, treedef = tree.flatten(nest)
            if self.treedef is None:
                self.treedef = treedef
                self.is_array = [isinstance(x, Array) for x in leaves]
            elif treedef != self.treedef:
                raise tree.structure_error(f"{op}: {name}", self.treedef, treedef)
            self.columns.append([x._data if isinstance(x, Array) else x for x in leaves])
        self._check_shapes(op, list(nests))

    def _check_shapes(self, op: str, names: list[str]) -> None:
        paths = tree.paths(self.treedef)
        for i, row in enumerate(zip(*self.columns)):
            shapes = [find_all(x).shape_of(x) for x in row]
            if any(s != shapes[0] for s in shapes):
                place = f" at {paths[i]!r}" if paths[i] else ""
                given = ", ".join(f"{n} {s}" for n, s in zip(names, shapes))
                raise ValueError(f"{op}: the shapes{place} differ: {given}")

    def run(self, kernel: str, *args: Any, **params: Any) -> Any:
        """A kernel on the lists: the backend's own, or ours on values that are being traced."""
        from trellis.composites import updates  # here, so that `import trellis` stays quick

        self.interpreter = find_all(*(x for column in self.columns for x in column))
        found = getattr(self.interpreter if self.interpreter.level == 0 else updates, kernel)
        return found(*self.columns, *args, **params)

    def wrap(self, leaves: list[Any], stop: bool = False) -> Any:
        if stop:
            leaves = load(self.interpreter.name).constants(leaves)  # by name: values on the tape are NumPy's
        return tree.unflatten(self.treedef, [Array(x) if is_array else x for x, is_array in zip(leaves, self.is_array)])


def optimizer_update(w: AnyArray, effective_grad: AnyArray, lr: Operand, /, *, stop_gradients: bool = True) -> AnyArray:
    """w - lr * effective_grad, where the effective gradient is what an optimizer made of the gradient.

    >>> import trellis as tl
    >>> tl.optimizer_update(tl.asarray([1.0, 2.0]), tl.asarray([1.0, 0.0]), 0.5)
    Array([0.5, 2. ], dtype=float32, backend='numpy', device='cpu')
    """
    nests = _Nests("optimizer_update", w=w, effective_grad=effective_grad)
    return nests.wrap(nests.run("descend", _native(lr)), stop_gradients)


def gradient_descent_update(w: AnyArray, dcdw: AnyArray, lr: Operand, /, *, stop_gradients: bool = True) -> AnyArray:
    """One step down the gradient: w - lr * dcdw.

    >>> import trellis as tl
    >>> tl.gradient_descent_update(tl.asarray([1.0, 2.0, 3.0]), tl.asarray([0.5, 0.2, 0.1]), 0.1)
    Array([0.95, 1.98, 2.99], dtype=float32, backend='numpy', device='cpu')
    """
    nests = _Nests("gradient_descent_update", w=w, dcdw=dcdw)
    return nests.wrap(nests.run("descend", _native(lr)), stop_gradients)


def adam_step(
    dcdw: AnyArray, mw: AnyArray, vw: AnyArray, step: Operand, /, *,
    beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-7,
) -> tuple[AnyArray, AnyArray, AnyArray]:  # fmt: skip
    """The Adam direction and the new moments, from the gradient and the moments before; `step` counts from 1.

    >>> import trellis as tl
    >>> zero = tl.zeros(2)
    >>> tl.adam_step(tl.asarray([2.0, -2.0]), zero, zero, 1)[0]
    Array([ 1., -1.], dtype=float32, backend='numpy', device='cpu')
    """
    nests = _Nests("adam_step", dcdw=dcdw, mw=mw, vw=vw)
    corrections = _corrections("adam_step", step, beta1, beta2)
    results = nests.run("adam_direction", *corrections, beta1=beta1, beta2=beta2, epsilon=epsilon)
    delta, mean, square = (nests.wrap(r) for r in results)
    return delta, mean, square


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
    nests = _Nests("adam_update", w=w, dcdw=dcdw, mw_tm1=mw_tm1, vw_tm1=vw_tm1)
    corrections = _corrections("adam_update", step, beta1, beta2)
    results = nests.run("adam", _native(lr), *corrections, beta1=beta1, beta2=beta2, epsilon=epsilon)
    weights, mean, square = (nests.wrap(r, stop_gradients) for r in results)
    return weights, mean, square


def lars_update(
    w: AnyArray, dcdw: AnyArray, lr: Operand, /, *, decay_lambda: float = 0.0, stop_gradients: bool = True
) -> AnyArray:
    """One step of LARS: the gradient, with weight decay added, scaled for each array to the norm of its weights.

    >>> import trellis as tl
    >>> tl.lars_update(tl.asarray([3.0, 4.0]), tl.asarray([0.0, 10.0]), 0.1)
    Array([3. , 3.5], dtype=float32, backend='numpy', device='cpu')
    """
    nests = _Nests("lars_update", w=w, dcdw=dcdw)
    return nests.wrap(nests.run("lars", _native(lr), decay_lambda=decay_lambda), stop_gradients)


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
    nests = _Nests("lamb_update", w=w, dcdw=dcdw, mw_tm1=mw_tm1, vw_tm1=vw_tm1)
    results = nests.run(
        "lamb", _native(lr), *_corrections("lamb_update", step, beta1, beta2),
        beta1=beta1, beta2=beta2, epsilon=epsilon, max_trust_ratio=max_trust_ratio, decay_lambda=decay_lambda,
    )  # fmt: skip
    weights, mean, square = (nests.wrap(r, stop_gradients) for r in results)
    return weights, mean, square


def _native(x: Operand) -> Any:
    return x._data if isinstance(x, Array) else x


def _corrections(op: str, step: Operand, beta1: float, beta2: float) -> tuple[Any, Any]:
    """1 - beta ** step for both moments: Python numbers for a Python step, 0-d arrays, exact in float32 too, for an array."""
    step = _native(step)
    if isinstance(step, (int, float)):
        if step < 1:
            raise ValueError(f"{op}: step={step} must be 1 or more: it counts the steps, this one included")
        return 1 - beta1**step, 1 - beta2**step
    return tuple(negative(expm1(multiply(step, math.log(beta)))) if beta else 1.0 for beta in (beta1, beta2))  # type: ignore[return-value]
