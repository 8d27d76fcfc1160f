"""Gradients: `grad`, `value_and_grad`, `jac`, `vjp`, `jvp`, `hessian`, `execute_with_gradients`, and what steers them.

Everything about nests, `tl.Array` and wrong arguments is here, once. A backend differentiates a function of a flat list of its
own arrays (`backends/<name>/grad.py`); which backend is found by the type of the leaves, so a NumPy value that is already being
differentiated is differentiated again by the tape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from trellis import tree
from trellis.array import Array
from trellis.container import Container
from trellis.dispatch import SCALARS, UnknownOperand, call, find_all, interpreters
from trellis.ops.conversion import asarray
from trellis.typing import AnyArray

__all__ = [
    "bind_custom_gradient_function", "execute_with_gradients", "grad", "hessian", "jac", "jvp", "set_with_grads", "stop_gradient",
    "unset_with_grads", "value_and_grad", "vjp", "with_grads",
]  # fmt: skip


class Inputs:
    """The arguments that a function is differentiated by: their native leaves, and how to rebuild the call."""

    def __init__(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], argnums: int | Sequence[int]) -> None:
        self.args, self.kwargs = args, kwargs
        self.single = isinstance(argnums, int)
        self.positions = [_position(name, p, len(args)) for p in ([argnums] if isinstance(argnums, int) else argnums)]
        found, self.treedef = tree.flatten(tuple(args[p] for p in self.positions))
        wrapped = [asarray(x) if type(x) in (float, complex) else x for x in found]
        self.is_array = [isinstance(x, Array) for x in wrapped]
        self.leaves = [x._data if isinstance(x, Array) else x for x in wrapped]
        for i, leaf in enumerate(self.leaves):
            if not _is_floating(leaf):
                raise _leaf_error(name, leaf, self._place(tree.paths(self.treedef)[i]))
        if not self.leaves:
            raise TypeError(f"{name}: the arguments {list(self.positions)} hold no array to differentiate by")
        self.interpreter = find_all(*self.leaves)

    def _place(self, label: str) -> str:
        first, _, rest = label.partition("/")
        return f"argument {self.positions[int(first)]}" + (f" at {rest!r}" if rest else "")

    def arguments(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """All arguments of the call, with other leaves in the places that are differentiated."""
        given = self.wrap(leaves)
        args = list(self.args)
        for position, value in zip(self.positions, given, strict=True):
            args[position] = value
        return tuple(args)

    def wrap(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """Leaves in the structure of the arguments; what came as `tl.Array` is one again."""
        return tree.unflatten(
            self.treedef, [Array(x) if is_array else x for x, is_array in zip(leaves, self.is_array, strict=True)]
        )

    def like_arguments(self, leaves: Sequence[Any]) -> Any:
        """The same, for results: without the outer tuple if `argnums` was one number."""
        given = self.wrap(leaves)
        return given[0] if self.single else given


def _position(name: str, position: int, count: int) -> int:
    if not -count <= position < count:
        raise ValueError(f"{name}: argnums names argument {position}, but the function was called with {count}")
    return position % count


def _interpreter(leaf: Any) -> Any:
    """Of an array; of anything else that of Python numbers."""
    try:
        return interpreters[type(leaf)]
    except UnknownOperand:
        return SCALARS


def _is_floating(leaf: Any) -> bool:
    interpreter = _interpreter(leaf)
    return interpreter is not SCALARS and interpreter.dtype_of(leaf).kind in "fc"


def _fits(interpreter: Any, leaf: Any, scalar: bool) -> bool:
    kind = interpreter.dtype_of(leaf).kind
    return kind == "f" and interpreter.shape_of(leaf) == () if scalar else kind in "fc"


def _leaf_error(name: str, leaf: Any, place: str) -> TypeError:
    if _interpreter(leaf) is SCALARS and not isinstance(leaf, (bool, int)):
        given = f"is a {type(leaf).__name__}, not an array; leave it out with argnums, or make it an array"
        return TypeError(f"{name}: {place} {given}")
    given = f"the Python number {leaf!r}" if isinstance(leaf, (bool, int)) else f"dtype {_interpreter(leaf).dtype_of(leaf)}"
    return TypeError(
        f"{name}: {place} has {given}; gradients need a floating-point dtype: "
        "cast it with tl.astype, or leave it out with argnums"
    )


class Output:
    """What the function returned: native leaves, and how to give them back as they came."""

    def __init__(self, name: str, result: Any, *, scalar: bool) -> None:
        found, self.treedef = tree.flatten(result)
        self.is_array = [isinstance(x, Array) for x in found]
        self.leaves = [x._data if isinstance(x, Array) else x for x in found]
        for i, leaf in enumerate(self.leaves):
            _check_output(name, leaf, i, self.treedef, scalar)
        if not self.leaves:
            raise TypeError(f"{name}: the function returned {result!r}; it must return an array")

    def wrap(self, leaves: Sequence[Any]) -> Any:
        return tree.unflatten(
            self.treedef, [Array(x) if is_array else x for x, is_array in zip(leaves, self.is_array, strict=True)]
        )


def _check_output(name: str, leaf: Any, index: int, treedef: tree.TreeDef, scalar: bool) -> None:
    interpreter = _interpreter(leaf)
    if interpreter is not SCALARS and _fits(interpreter, leaf, scalar):
        return
    path = tree.paths(treedef)[index]
    where = f" at {path!r}" if path else ""
    if interpreter is SCALARS:
        raise TypeError(
            f"{name}: the function returned a {type(leaf).__name__}{where}, not an array; "
            "compute with tl functions, and return the result itself"
        )
    shape, dtype = interpreter.shape_of(leaf), interpreter.dtype_of(leaf)
    if scalar and shape != ():
        raise ValueError(
            f"{name}: the function must return a scalar, got shape {shape}{where}; reduce it, e.g. with tl.sum, or use tl.jac"
        )
    if dtype.kind not in ("f" if scalar else "fc"):
        raise TypeError(
            f"{name}: the function returned {dtype}{where}; it must return a {'real ' if scalar else ''}floating-point array"
        )


def value_and_grad(
    func: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., tuple[Any, Any]]:
    """A function that returns (value, gradient) of `func`, which returns a scalar, or (scalar, anything) with `has_aux`.

    The gradient is by the arguments in `argnums`, arrays or nests of them, and has their structure.

    >>> import trellis as tl
    >>> value, grads = tl.value_and_grad(lambda p: tl.sum(p["w"] ** 2))({"w": tl.asarray([1.0, 2.0])})
    >>> float(value), grads["w"]
    (5.0, Array([2., 4.], dtype=float32, backend='numpy', device='cpu'))
    """
    return _value_and_grad("value_and_grad", func, argnums, has_aux)


def _value_and_grad(name: str, func: Callable[..., Any], argnums: Any, has_aux: bool) -> Callable[..., tuple[Any, Any]]:
    _check_callable(name, func)

    def transformed(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        inputs = Inputs(name, args, kwargs, argnums)
        seen: list[Output] = []

        def function(leaves: list[Any]) -> tuple[Any, Any]:
            result = func(*inputs.arguments(leaves), **kwargs)
            value, aux = _split_aux(name, result) if has_aux else (result, None)
            output = Output(name, value, scalar=True)
            if len(output.leaves) != 1:
                raise ValueError(
                    f"{name}: the function returned {len(output.leaves)} arrays; return one scalar, and the rest as has_aux=True"
                )
            seen.append(output)
            return output.leaves[0], aux

        value, aux, grads = inputs.interpreter.value_and_grad(function, inputs.leaves)
        value = seen[-1].wrap([value])
        return (value, aux) if has_aux else value, inputs.like_arguments(grads)

    return transformed


def _split_aux(name: str, result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(f"{name}: with has_aux=True the function must return (value, aux), got {type(result).__name__}")
    return result


def _check_callable(name: str, func: Any) -> None:
    if not callable(func):
        raise TypeError(f"{name}: func must be a function, got {type(func).__name__}; write tl.{name}(f)(x), not tl.{name}(f(x))")


def grad(func: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """A function that returns the gradient of `func`, which returns a scalar.

    >>> import trellis as tl
    >>> tl.grad(lambda x: tl.sum(x**3))(tl.asarray([1.0, 2.0]))
    Array([ 3., 12.], dtype=float32, backend='numpy', device='cpu')
    """
    both = _value_and_grad("grad", func, argnums, False)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        return both(*args, **kwargs)[1]

    return gradient


def vjp(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """The value of `func(*primals)`, and a function from a cotangent of it to the cotangents of the arguments, as a tuple.

    >>> import trellis as tl
    >>> y, pullback = tl.vjp(lambda x: x**2, tl.asarray([1.0, 2.0]))
    >>> pullback(tl.asarray([1.0, 10.0]))[0]
    Array([ 2., 40.], dtype=float32, backend='numpy', device='cpu')
    """
    _check_callable("vjp", func)
    inputs = Inputs("vjp", primals, {}, tuple(range(len(primals))))
    output, leaves, pull = _pullback("vjp", func, inputs)

    def pullback(cotangent: Any) -> tuple[Any, ...]:
        given, treedef = tree.flatten(cotangent)
        if treedef != output.treedef:
            raise tree.structure_error("vjp", output.treedef, treedef)
        return inputs.wrap(pull([_as_leaf("vjp", g, y) for g, y in zip(given, leaves, strict=True)]))

    return output.wrap(leaves), pullback


def _pullback(name: str, func: Callable[..., Any], inputs: Inputs) -> tuple[Output, list[Any], Callable[[list[Any]], list[Any]]]:
    seen: list[Output] = []

    def function(leaves: list[Any]) -> tuple[list[Any], Any]:
        seen.append(Output(name, func(*inputs.arguments(leaves), **inputs.kwargs), scalar=False))
        return seen[-1].leaves, None

    outputs, _, pull = inputs.interpreter.vjp(function, inputs.leaves)
    return seen[-1], outputs, pull


def _as_leaf(name: str, given: Any, like: Any) -> Any:
    """A cotangent or tangent as a native array with the shape and dtype of what it belongs to."""
    data = given._data if isinstance(given, Array) else given
    interpreter = interpreters[type(like)]
    if interpreters[type(data)] is SCALARS:
        return interpreter.full_like(like, fill_value=data, dtype=None, device=None)
    shape, expected = interpreters[type(data)].shape_of(data), interpreter.shape_of(like)
    if shape != expected:
        raise ValueError(f"{name}: a tangent or cotangent of shape {shape} was given for an array of shape {expected}")
    return call("astype", data, dtype=interpreter.dtype_of(like), copy=False, device=None)


def jvp(func: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """The value of `func(*primals)` and its derivative in the direction of `tangents`.

    >>> import trellis as tl
    >>> tl.jvp(lambda x: x**2, (tl.asarray([1.0, 2.0]),), (tl.asarray([1.0, 0.0]),))[1]
    Array([2., 0.], dtype=float32, backend='numpy', device='cpu')
    """
    _check_callable("jvp", func)
    inputs = Inputs("jvp", tuple(primals), {}, tuple(range(len(primals))))
    given, treedef = tree.flatten(tuple(tangents))
    if treedef != inputs.treedef:
        raise tree.structure_error("jvp", inputs.treedef, treedef)
    directions = [_as_leaf("jvp", t, x) for t, x in zip(given, inputs.leaves, strict=True)]
    seen: list[Output] = []

    def function(leaves: list[Any]) -> list[Any]:
        seen.append(Output("jvp", func(*inputs.arguments(leaves)), scalar=False))
        return seen[-1].leaves

    outputs, changes = inputs.interpreter.jvp(function, inputs.leaves, directions)
    return seen[-1].wrap(outputs), seen[-1].wrap(changes)


def jac(func: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """A function that returns the Jacobian of `func`: for each output and each input an array of output shape + input shape.

    Runs forward (a column a step) where the inputs are smaller than the outputs, else backward (a row a step).

    >>> import trellis as tl
    >>> tl.jac(lambda x: x**2)(tl.asarray([1.0, 2.0]))
    Array([[2., 0.],
           [0., 4.]], dtype=float32, backend='numpy', device='cpu')
    """
    _check_callable("jac", func)

    def transformed(*args: Any, **kwargs: Any) -> Any:
        inputs = Inputs("jac", args, kwargs, argnums)
        seen: list[Output] = []

        def function(leaves: list[Any]) -> list[Any]:
            seen.append(Output("jac", func(*inputs.arguments(leaves), **kwargs), scalar=False))
            return seen[-1].leaves

        blocks = inputs.interpreter.jacobian(function, inputs.leaves)  # blocks[output][input]
        output = seen[-1]
        return tree.unflatten(output.treedef, [inputs.like_arguments(row) for row in blocks])

    return transformed


def hessian(func: Callable[..., Any], argnums: int = 0) -> Callable[..., Any]:
    """A function that returns the matrix of second derivatives of `func`, of input shape + input shape.

    >>> import trellis as tl
    >>> tl.hessian(lambda x: tl.sum(x**3))(tl.asarray([1.0, 2.0]))
    Array([[ 6.,  0.],
           [ 0., 12.]], dtype=float32, backend='numpy', device='cpu')
    """
    return jac(grad(func, argnums), argnums)


def execute_with_gradients(
    func: Callable[[Any], Any], xs: Any, /, *, retain_grads: bool = False, xs_grad_idxs: Any = None, ret_grad_idxs: Any = None
) -> tuple[Any, Any]:
    """Run `func(xs)` and return (result, gradients of its scalar result by `xs`, in the structure of `xs`).

    If `func` returns several arrays, the gradients of each are in a Container, keyed by the output's path. `ret_grad_idxs`
    chooses among the outputs and `xs_grad_idxs` among the inputs, by paths such as "layer/w", ["layer", "w"] or 0; inputs that
    are left out have None. `retain_grads` keeps what differentiating the gradients again needs.

    >>> import trellis as tl
    >>> tl.execute_with_gradients(lambda x: tl.mean(x**2), tl.asarray([1.0, 3.0]))[1]
    Array([1., 3.], dtype=float32, backend='numpy', device='cpu')
    """
    name = "execute_with_gradients"
    _check_callable(name, func)
    chosen, rest = _choose(name, xs, xs_grad_idxs, "xs_grad_idxs")
    inputs = Inputs(name, (chosen,), {}, 0)
    seen: list[Any] = []

    def function(leaves: list[Any]) -> tuple[list[Any], Any]:
        (part,) = inputs.arguments(leaves)
        result = func(part if rest is None else _merge(part, rest))
        selected, _ = _choose(name, result, ret_grad_idxs, "ret_grad_idxs")
        seen.append(Output(name, selected, scalar=True))
        return seen[-1].leaves, result

    outputs, result, pull = inputs.interpreter.vjp(function, inputs.leaves, keep_graph=retain_grads)
    output: Output = seen[-1]
    gradients = []
    for i in range(len(outputs)):
        seeds = [
            interpreters[type(y)].full_like(y, fill_value=1.0 if i == k else 0.0, dtype=None, device=None)
            for k, y in enumerate(outputs)
        ]
        gradients.append(inputs.like_arguments(pull(seeds)))
    if output.treedef == tree.LEAF:
        return result, gradients[0]
    return result, Container.from_flat_dict(dict(zip(tree.paths(output.treedef), gradients, strict=True)))


def _choose(name: str, nest: Any, indices: Any, argument: str) -> tuple[Any, Any]:
    """The nest with None where `indices` does not point, and the rest; (nest, None) without indices."""
    if indices is None:
        return nest, None
    wanted = {_as_path(i) for i in ([indices] if isinstance(indices, (str, int)) else indices)}
    leaves, treedef = tree.flatten(nest)
    paths = tree.paths(treedef)
    missing = [w for w in wanted if not any(p == w or p.startswith(f"{w}/") for p in paths)]
    if missing:
        raise ValueError(f"{name}: {argument} names {missing[0]!r}, which is not among {', '.join(map(repr, paths))}")
    hit = [any(p == w or p.startswith(f"{w}/") for w in wanted) for p in paths]
    return (
        tree.unflatten(treedef, [x if h else None for x, h in zip(leaves, hit, strict=True)]),
        tree.unflatten(treedef, [None if h else x for x, h in zip(leaves, hit, strict=True)]),
    )


def _as_path(index: Any) -> str:
    return index if isinstance(index, str) else str(index) if isinstance(index, int) else "/".join(map(str, index))


def _merge(first: Any, second: Any) -> Any:
    """Two nests of one structure, each with None where the other has a leaf, as one."""
    if first is None or second is None:
        return second if first is None else first
    below, other = tree.children(first), tree.children(second)
    if below is None or other is None:
        return first
    merged = [_merge(a, b) for (_, a), (_, b) in zip(below, other, strict=True)]
    if isinstance(first, (dict, Container)):
        return type(first)({key: value for (key, _), value in zip(below, merged, strict=True)})
    return type(first)(*merged) if hasattr(first, "_fields") else type(first)(merged)


def stop_gradient(x: AnyArray, /, *, preserve_type: bool = True) -> AnyArray:
    """The array as a constant: no gradient flows through it.

    `preserve_type` keeps a torch Parameter or a tf.Variable one; without it they become plain arrays.

    >>> import trellis as tl
    >>> tl.grad(lambda x: x * tl.stop_gradient(x))(tl.asarray(3.0))
    Array(3., dtype=float32, backend='numpy', device='cpu')
    """
    return call("stop_gradient", x, preserve_type=preserve_type)


def bind_custom_gradient_function(func: Callable[..., Any], custom_grad_func: Callable[..., Any]) -> Callable[..., Any]:
    """`func` with a gradient of your own: `custom_grad_func((input, output), upstream)` returns the gradient by the input.

    With several array arguments `input` is a tuple of them and so is what it returns.

    >>> import trellis as tl
    >>> square = tl.bind_custom_gradient_function(lambda x: x**2, lambda saved, upstream: upstream * saved[0])
    >>> tl.grad(lambda x: tl.sum(square(x)))(tl.asarray([1.0, 2.0]))
    Array([1., 2.], dtype=float32, backend='numpy', device='cpu')
    """
    _check_callable("bind_custom_gradient_function", func)
    _check_callable("bind_custom_gradient_function", custom_grad_func)

    def bound(*args: AnyArray) -> AnyArray:
        inputs = Inputs("bind_custom_gradient_function", args, {}, tuple(range(len(args))))
        wraps = any(inputs.is_array)

        def wrap(leaf: Any) -> Any:
            return Array(leaf) if wraps else leaf

        def function(leaves: list[Any]) -> Any:
            return _unwrap(func(*map(wrap, leaves)))

        def rule(leaves: list[Any], output: Any, upstream: Any) -> list[Any]:
            first, *more = map(wrap, leaves)
            found = custom_grad_func(((first, *more) if more else first, wrap(output)), wrap(upstream))
            grads = found if isinstance(found, (tuple, list)) else (found,)
            if len(grads) != len(leaves):
                raise ValueError(
                    f"bind_custom_gradient_function: custom_grad_func returned {len(grads)} gradients for {len(leaves)} arrays"
                )
            return [_as_leaf("bind_custom_gradient_function", g, x) for g, x in zip(grads, leaves, strict=True)]

        return wrap(inputs.interpreter.custom_gradient(function, rule, inputs.leaves))

    return bound


def _unwrap(x: Any) -> Any:
    return x._data if isinstance(x, Array) else x


# ---- whether a Module's parameters take part: a stack in a context variable ----------------------------------------------------
_WITH_GRADS: ContextVar[tuple[bool, ...]] = ContextVar("trellis_with_grads", default=())


def with_grads(*, with_grads: bool | None = None) -> bool:
    """`with_grads` itself if it is given, else what `set_with_grads` has set last in this context, else True.

    >>> import trellis as tl
    >>> tl.with_grads()
    True
    """
    if with_grads is not None:
        return _as_flag("with_grads", with_grads)
    stack = _WITH_GRADS.get()
    return stack[-1] if stack else True


def grads_enter() -> bool:
    """What `with_grads()` gives, for the call of a Module: without arguments, so that torch.compile can ask once."""
    stack = _WITH_GRADS.get()
    return not stack or stack[-1]


def set_with_grads(with_grads: bool) -> None:
    """Say whether a Module's parameters enter as variables (True) or as constants (False), until `unset_with_grads`.

    >>> import trellis as tl
    >>> tl.set_with_grads(False)
    >>> tl.with_grads()
    False
    >>> tl.unset_with_grads()
    """
    _WITH_GRADS.set((*_WITH_GRADS.get(), _as_flag("set_with_grads", with_grads)))


def unset_with_grads() -> None:
    """Undo the last `set_with_grads` of this context; nothing happens if there is none.

    >>> import trellis as tl
    >>> tl.unset_with_grads()
    """
    _WITH_GRADS.set(_WITH_GRADS.get()[:-1])


def _as_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name}: with_grads must be True or False, got {value!r}")
    return value
