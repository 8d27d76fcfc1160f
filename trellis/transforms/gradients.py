"""Gradients: `grad`, `value_and_grad`, `jac`, `vjp`, `jvp`, `hessian`, `execute_with_gradients`, custom gradients, `with_grads`.

A backend differentiates a function of a flat list of its own arrays (`backends/<name>/grad.py`). The type of the leaves tells
which backend; the tape differentiates a NumPy value that is already being differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from trellis.core import tree
from trellis.core.array import Array
from trellis.core.container import Container
from trellis.core.dispatch import SCALARS, call, find_all, interpreters
from trellis.core.free import Free, as_it_is, class_of, settled
from trellis.core.leaves import ARRAY, NUMBER, Nest, kind_of, unwrap
from trellis.core.typing import AnyArray, Arguments, Result
from trellis.ops.conversion import asarray
from trellis.transforms.arguments import check_callable, once_more

__all__ = [
    "bind_custom_gradient_function", "execute_with_gradients", "grad", "hessian", "jac", "jvp", "set_with_grads",
    "unset_with_grads", "value_and_grad", "vjp", "with_grads",
]  # fmt: skip


class Inputs(Nest):
    """The arguments that a function is differentiated by, as a tuple or the one that `argnums` names, and their call."""

    __slots__ = ("args", "func", "interpreter", "kwargs", "name", "output", "positions", "single")

    def __init__(
        self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], argnums: int | Sequence[int],
        like: Any = None,
    ) -> None:  # fmt: skip
        self.name, self.func, self.args, self.kwargs = name, func, args, kwargs
        self.single = isinstance(argnums, int)
        self.positions = [self._position(p) for p in ([argnums] if isinstance(argnums, int) else argnums)]
        super().__init__(args[self.positions[0]] if self.single else tuple([args[p] for p in self.positions]), like)
        for i, leaf in enumerate(self.leaves):
            if type(leaf) in (float, complex):
                (made,) = settled([asarray(leaf)], self.like if like is None else like)
                self.leaves[i], self.wrapped[i] = unwrap(made), class_of(made)
            elif floating(leaf) is None:
                raise self._leaf_error(i)
        if not self.leaves:
            raise TypeError(f"{name}: the arguments {self.positions} hold no array to differentiate by")
        self.interpreter = find_all(*self.leaves)

    @property
    def like(self) -> Any:
        """The first array, as it was given; None if there is none that belongs to a framework."""
        for x, kind in zip(self.leaves, self.wrapped):
            if kind is Array or (kind is None and kind_of(x) == ARRAY):
                return (kind or as_it_is)(x)
        return None

    def _position(self, position: int) -> int:
        count = len(self.args)
        if not -count <= position < count:
            raise ValueError(f"{self.name}: argnums names argument {position}, but the function was called with {count}")
        return position % count

    def _leaf_error(self, i: int) -> TypeError:
        leaf = self.leaves[i]
        first, _, rest = f"{'0/' if self.single else ''}{tree.paths(self.treedef)[i]}".partition("/")
        place = f"{self.name}: argument {self.positions[int(first)]}" + (f" at {rest!r}" if rest else "")
        kind = kind_of(leaf)
        if kind not in (ARRAY, NUMBER):
            return TypeError(f"{place} is a {type(leaf).__name__}, not an array; leave it out with argnums, or make it an array")
        given = f"the Python number {leaf!r}" if kind == NUMBER else f"dtype {interpreters[type(leaf)].dtype_of(leaf)}"
        return TypeError(
            f"{place} has {given}; gradients need a floating-point dtype: cast it with tl.astype, or leave it out with argnums"
        )

    def arguments(self, leaves: Sequence[AnyArray]) -> tuple[Any, ...]:
        """All arguments of the call, with other leaves in the places that are differentiated."""
        args, given = list(self.args), self.rebuild(leaves)
        for position, value in zip(self.positions, (given,) if self.single else given):
            args[position] = value
        return tuple(args)

    def run(self, leaves: Sequence[AnyArray]) -> list[AnyArray]:
        """The leaves of what the function returns for other leaves; `output` remembers its structure."""
        self.output = Output(self.name, self.func(*self.arguments(leaves), **self.kwargs), self.like, scalar=False)
        return self.output.leaves

    def rebuild(self, leaves: Sequence[AnyArray]) -> Any:
        """The arguments with other leaves. Free ones are as the result, if that is not free: the function met other arrays."""
        if Free in self.wrapped and (output := getattr(self, "output", None)) is not None and Free not in output.wrapped:
            kind = Array if Array in output.wrapped else None
            self.wrapped = [kind if own is Free else own for own in self.wrapped]
        return super().rebuild(leaves)


def floating(x: Any) -> Any:
    """The interpreter of a floating-point array; None of anything else."""
    found = interpreters[type(x)] if kind_of(x) == ARRAY else None
    return None if found is None or found.dtype_of(x).kind not in "fc" else found


class Output(Nest):
    """What the function returned. Its leaves must be floating-point arrays, and real scalars if `scalar`."""

    __slots__ = ()

    def __init__(self, name: str, result: Any, like: Any, *, scalar: bool) -> None:
        super().__init__(result, like)
        for i, leaf in enumerate(self.leaves):
            if not scalar or (found := floating(leaf)) is None or found.shape_of(leaf) != () or found.dtype_of(leaf).kind == "c":
                self._check(name, leaf, i, scalar)
        if not self.leaves:
            raise TypeError(f"{name}: the function returned {result!r}; it must return an array")

    def _check(self, name: str, leaf: Any, i: int, scalar: bool) -> None:
        if kind_of(leaf) != ARRAY:
            raise TypeError(
                f"{name}: the function returned a {type(leaf).__name__}{self.place(i)}, not an array; "
                "compute with tl functions, and return the result itself"
            )
        interpreter = interpreters[type(leaf)]
        shape, dtype = interpreter.shape_of(leaf), interpreter.dtype_of(leaf)
        if scalar and shape != ():
            raise ValueError(
                f"{name}: the function must return a scalar, got shape {shape}{self.place(i)}; "
                "reduce it, e.g. with tl.sum, or use tl.jac"
            )
        if dtype.kind not in ("f" if scalar else "fc"):
            needed = f"{'real ' if scalar else ''}floating-point array"
            raise TypeError(f"{name}: the function returned {dtype}{self.place(i)}; it must return a {needed}")


def value_and_grad(
    func: Callable[Arguments, Result], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[Arguments, tuple[Result, Any]]:
    """A function that returns (value, gradient) of `func`. `func` returns a scalar, or (scalar, anything) with `has_aux`.

    The gradient is by the arguments in `argnums`, arrays or nests of arrays, and has their structure.

    >>> import trellis as tl
    >>> value, grads = tl.value_and_grad(lambda p: tl.sum(p["w"] ** 2))({"w": tl.asarray([1.0, 2.0])})
    >>> float(value), grads["w"]
    (5.0, Array([2., 4.], dtype=float32, backend='numpy', device='cpu'))
    """
    return _value_and_grad("value_and_grad", func, argnums, has_aux)


def _value_and_grad(name: str, func: Callable[..., Any], argnums: Any, has_aux: bool) -> Callable[..., tuple[Any, Any]]:
    _check_function(name, func)

    def transformed(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        return once_more(lambda like: run(Inputs(name, func, args, kwargs, argnums, like)))

    def run(inputs: Inputs) -> tuple[Any, Any]:

        def function(leaves: list[AnyArray]) -> tuple[AnyArray, Any]:
            result = func(*inputs.arguments(leaves), **inputs.kwargs)
            value, aux = _split_aux(name, result) if has_aux else (result, None)
            inputs.output = Output(name, value, inputs.like, scalar=True)
            if len(inputs.output.leaves) != 1:
                count = len(inputs.output.leaves)
                raise ValueError(f"{name}: the function returned {count} arrays; return one scalar, and the rest as has_aux=True")
            return inputs.output.leaves[0], aux

        value, aux, grads = inputs.interpreter.value_and_grad(function, inputs.leaves)
        value = inputs.output.rebuild([value])
        return (value, aux) if has_aux else value, inputs.rebuild(grads)

    return transformed


def _split_aux(name: str, result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(f"{name}: with has_aux=True the function must return (value, aux), got {type(result).__name__}")
    return result


def _check_function(name: str, func: Any) -> None:
    check_callable(name, "func", func, f"; write tl.{name}(f)(x), not tl.{name}(f(x))")


def grad(func: Callable[Arguments, Any], argnums: int | Sequence[int] = 0) -> Callable[Arguments, Any]:
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
    _check_function("vjp", func)
    return once_more(lambda like: _vjp(Inputs("vjp", func, primals, {}, tuple(range(len(primals))), like)))


def _vjp(inputs: Inputs) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    outputs, _, pull = inputs.interpreter.vjp(lambda leaves: (inputs.run(leaves), None), inputs.leaves)
    output = inputs.output

    def pullback(cotangent: Any) -> tuple[Any, ...]:
        return inputs.rebuild(pull(_tangents("vjp", cotangent, output.treedef, outputs)))

    return output.rebuild(outputs), pullback


def _tangents(name: str, given: Any, treedef: tree.TreeDef, likes: Sequence[AnyArray]) -> list[AnyArray]:
    """Tangents or cotangents as native arrays, with the shapes and dtypes of the arrays that they belong to."""
    nest = Nest(given, likes[0])
    if nest.treedef != treedef:
        raise tree.structure_error(name, treedef, nest.treedef)
    return [_as_tangent(name, x, like) for x, like in zip(nest.leaves, likes, strict=True)]


def _as_tangent(name: str, x: Any, like: AnyArray) -> AnyArray:
    interpreter = interpreters[type(like)]
    if interpreters[type(x)] is SCALARS:
        return interpreter.full_like(like, fill_value=x, dtype=None, device=None)
    shape, expected = interpreters[type(x)].shape_of(x), interpreter.shape_of(like)
    if shape != expected:
        raise ValueError(f"{name}: a tangent or cotangent of shape {shape} was given for an array of shape {expected}")
    return call("astype", x, dtype=interpreter.dtype_of(like), copy=False, device=None)


def jvp(func: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """The value of `func(*primals)` and its derivative in the direction of `tangents`.

    >>> import trellis as tl
    >>> tl.jvp(lambda x: x**2, (tl.asarray([1.0, 2.0]),), (tl.asarray([1.0, 0.0]),))[1]
    Array([2., 0.], dtype=float32, backend='numpy', device='cpu')
    """
    _check_function("jvp", func)
    positions = tuple(range(len(primals)))
    return once_more(lambda like: _jvp(Inputs("jvp", func, tuple(primals), {}, positions, like), tangents))


def _jvp(inputs: Inputs, tangents: Sequence[Any]) -> tuple[Any, Any]:
    directions = _tangents("jvp", tuple(tangents), inputs.treedef, inputs.leaves)
    outputs, changes = inputs.interpreter.jvp(inputs.run, inputs.leaves, directions)
    return inputs.output.rebuild(outputs), inputs.output.rebuild(changes)


def jac(func: Callable[Arguments, Any], argnums: int | Sequence[int] = 0) -> Callable[Arguments, Any]:
    """A function that returns the Jacobian of `func`: for each output and each input an array of output shape + input shape.

    It runs forward (one column per step) if the inputs are smaller than the outputs, else backward (one row per step).

    >>> import trellis as tl
    >>> tl.jac(lambda x: x**2)(tl.asarray([1.0, 2.0]))
    Array([[2., 0.],
           [0., 4.]], dtype=float32, backend='numpy', device='cpu')
    """
    _check_function("jac", func)

    def transformed(*args: Any, **kwargs: Any) -> Any:
        return once_more(lambda like: run(Inputs("jac", func, args, kwargs, argnums, like)))

    def run(inputs: Inputs) -> Any:
        blocks = inputs.interpreter.jacobian(inputs.run, inputs.leaves)  # blocks[output][input]
        return tree.unflatten(inputs.output.treedef, [inputs.rebuild(row) for row in blocks])

    return transformed


def hessian(func: Callable[Arguments, Any], argnums: int = 0) -> Callable[Arguments, Any]:
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
    are left out have None. With `retain_grads` the gradients can be differentiated again.

    >>> import trellis as tl
    >>> tl.execute_with_gradients(lambda x: tl.mean(x**2), tl.asarray([1.0, 3.0]))[1]
    Array([1., 3.], dtype=float32, backend='numpy', device='cpu')
    """
    name = "execute_with_gradients"
    _check_function(name, func)
    part = _part(name, xs, xs_grad_idxs, "xs_grad_idxs")
    choice = None if part is xs else xs
    return once_more(lambda like: _execute(Inputs(name, func, (part,), {}, 0, like), choice, retain_grads, ret_grad_idxs))


def _execute(inputs: Inputs, whole: Any, retain_grads: bool, ret_grad_idxs: Any) -> tuple[Any, Any]:
    name, func = inputs.name, inputs.func

    def function(leaves: list[AnyArray]) -> tuple[list[AnyArray], Any]:
        (given,) = inputs.arguments(leaves)
        result = func(given if whole is None else _merge(given, whole))
        inputs.output = Output(name, _part(name, result, ret_grad_idxs, "ret_grad_idxs"), inputs.like, scalar=True)
        return inputs.output.leaves, result

    outputs, result, pull = inputs.interpreter.vjp(function, inputs.leaves, keep_graph=retain_grads)
    output = inputs.output.treedef
    gradients = []
    for i in range(len(outputs)):
        seeds = [
            interpreters[type(y)].full_like(y, fill_value=1.0 if i == k else 0.0, dtype=None, device=None)
            for k, y in enumerate(outputs)
        ]
        gradients.append(inputs.rebuild(pull(seeds)))
    if output == tree.LEAF:
        return result, gradients[0]
    return result, Container.from_flat_dict(dict(zip(tree.paths(output), gradients, strict=True)))


def _part(name: str, nest: Any, indices: Any, argument: str) -> Any:
    """The nest with None in place of the leaves that `indices` does not name; the nest itself without indices."""
    if indices is None:
        return nest
    given = [indices] if isinstance(indices, (str, int)) else indices
    wanted = {str(i) if isinstance(i, (str, int)) else tree.join_path(i) for i in given}
    leaves, treedef = tree.flatten(nest)
    paths = tree.paths(treedef)
    named = [{w for w in wanted if f"{path}/".startswith(f"{w}/")} for path in paths]  # the indices that name each leaf
    missing = wanted.difference(*named)
    if missing:
        raise ValueError(f"{name}: {argument} names {min(missing)!r}, which is not among {', '.join(map(repr, paths))}")
    return tree.unflatten(treedef, [x if names else None for x, names in zip(leaves, named, strict=True)])


def _merge(given: Any, whole: Any) -> Any:
    """The whole nest, with the leaves of `given`, a part of it, in their places."""
    new = dict(tree.leaves_with_paths(given))
    merged = [new.get(path, x) for path, x in tree.leaves_with_paths(whole)]
    return tree.unflatten(tree.structure(whole), merged)


def bind_custom_gradient_function(func: Callable[..., Any], custom_grad_func: Callable[..., Any]) -> Callable[..., Any]:
    """`func` with a gradient of your own: `custom_grad_func((input, output), upstream)` returns the gradient by the input.

    With several array arguments `input` is a tuple of them and so is what it returns.

    >>> import trellis as tl
    >>> square = tl.bind_custom_gradient_function(lambda x: x**2, lambda saved, upstream: upstream * saved[0])
    >>> tl.grad(lambda x: tl.sum(square(x)))(tl.asarray([1.0, 2.0]))
    Array([1., 2.], dtype=float32, backend='numpy', device='cpu')
    """
    name = "bind_custom_gradient_function"
    check_callable(name, "func", func)
    check_callable(name, "custom_grad_func", custom_grad_func)

    def bound(*args: AnyArray) -> AnyArray:
        return once_more(lambda like: run(Inputs(name, func, args, {}, tuple(range(len(args))), like)))

    def run(inputs: Inputs) -> AnyArray:
        wrap = Array if Array in inputs.wrapped else inputs.wrapped[0] or as_it_is

        def function(leaves: list[AnyArray]) -> AnyArray:
            return unwrap(settled([func(*map(wrap, leaves))], inputs.like)[0])

        def rule(leaves: list[AnyArray], output: AnyArray, upstream: AnyArray) -> list[AnyArray]:
            first, *more = map(wrap, leaves)
            found = custom_grad_func(((first, *more) if more else first, wrap(output)), wrap(upstream))
            grads = found if isinstance(found, (tuple, list)) else (found,)
            if len(grads) != len(leaves):
                raise ValueError(f"{name}: custom_grad_func returned {len(grads)} gradients for {len(leaves)} arrays")
            return [_as_tangent(name, unwrap(settled([g], x)[0]), x) for g, x in zip(grads, leaves, strict=True)]

        return wrap(inputs.interpreter.custom_gradient(function, rule, inputs.leaves))

    return bound


# ---- whether a Module's parameters take part: a stack in a context variable ----------------------------------------------------
_WITH_GRADS: ContextVar[tuple[bool, ...]] = ContextVar("trellis_with_grads", default=())


def with_grads(*, with_grads: bool | None = None) -> bool:
    """`with_grads` itself if it is given, else the value that `set_with_grads` set last in this context, else True.

    >>> import trellis as tl
    >>> tl.with_grads()
    True
    """
    if with_grads is not None:
        return _as_flag("with_grads", with_grads)
    stack = _WITH_GRADS.get()
    return stack[-1] if stack else True


def grads_enter() -> bool:
    """The value of `with_grads()` for the call of a Module; without arguments, so that torch.compile asks once."""
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
