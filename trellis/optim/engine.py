"""What every optimizer shares: nests, state, filters by path, clipping, schedules, and the choice of the fastest way.

- An optimizer is a row in `rules.py`: its options, the names of its slots (arrays that it keeps for each weight), and a rule for
  one weight, written with `tl.Array`s. The rule runs as it is on whatever is being traced or differentiated.
- `update` is pure: state in, state out, the number of steps an array in it, so that a compiled loop changes its learning rate
  without being compiled again. `step` keeps the state itself, and may write into it where nobody else has seen it.
- Where nothing is traced a backend may do better: `fused_adam` and `fused_sgd` on lists of arrays (NumPy, torch), and
  `compiled_update`, the whole update compiled once for a structure (JAX, TensorFlow).
- Half-precision weights are updated in float32, and so are their slots.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, dataclass_transform

from trellis import dtypes, tree
from trellis.array import Array
from trellis.container import Container
from trellis.dispatch import find_all, interpreters, load
from trellis.nests import same_shape
from trellis.ops.conversion import astype, native_array
from trellis.optim.gradients import clip_by_global_norm, clip_by_value, wide
from trellis.schedules import Rate

Flat = list[Any]
Slots = tuple[Array, ...]
IN_GRADIENT, IN_WEIGHTS, IN_RULE = "gradient", "weights", "rule"  # where an optimizer has its weight decay
_BELOW_ONE = ("beta1", "beta2", "rho", "alpha")


class Group(NamedTuple):
    """The positions of weights that share a factor of the learning rate and a weight decay."""

    positions: list[int]
    factor: float
    decay: float


class Given:
    """Weights and gradients as lists of native arrays. A weight whose gradient is None stays as it is."""

    def __init__(self, name: str, v: Any, grads: Any) -> None:
        leaves, self.treedef = tree.flatten(v)
        found, structure = tree.flatten(grads)
        if structure != self.treedef:
            found = list(_with_holes(self.treedef, structure, iter(found), f"{name}: weights and gradients"))
        self.wrapped = [isinstance(x, Array) for x in leaves]
        self.weights = [x._data if isinstance(x, Array) else x for x in leaves]
        self.grads = [x._data if isinstance(x, Array) else x for x in found]
        self.chosen = tuple([i for i, g in enumerate(self.grads) if g is not None])
        self.interpreter = find_all(*self.weights, *self.grads)
        self._check_shapes(name)
        of, first = self.interpreter, [*self.weights[:1], *(self.grads[i] for i in self.chosen[:1])]
        self.traced = of.level > 1 or any(of.is_traced(x) for x in first)  # a value is missing that an eager step needs
        self.compiles = of.level == 0 and hasattr(of, "compiled_update")

    def _check_shapes(self, name: str) -> None:
        shape_of = self.interpreter.shape_of
        for i in self.chosen:
            own, given = shape_of(self.weights[i]), shape_of(self.grads[i])
            if own != given and not same_shape(own, given):
                path = tree.paths(self.treedef)[i]
                raise ValueError(f"{name}: the gradient{f' at {path!r}' if path else ''} has shape {given}, its weight {own}")

    def nest(self, leaves: Flat) -> Any:
        return tree.unflatten(self.treedef, [Array(x) if wrapped else x for x, wrapped in zip(leaves, self.wrapped)])


def _with_holes(own: tree.TreeDef, given: tree.TreeDef, leaves: Iterator[Any], what: str) -> Iterator[Any]:
    """The leaves of `given`, with None for those of `own` where it has None; else both must have one structure."""

    def walk(own: tree.TreeDef, given: tree.TreeDef) -> Iterator[Any]:
        if given.type is type(None):
            yield from [None] * own.num_leaves
        elif own.type is None and given.type is None:
            yield next(leaves)
        elif own.type is not given.type or own.keys != given.keys:
            raise tree.structure_error(what, top, whole)
        else:
            for a, b in zip(own.children, given.children):
                yield from walk(a, b)

    top, whole = own, given
    return walk(own, given)


class Plan:
    """What follows from the structure of the weights, made once: the groups, and the compiled updates."""

    def __init__(self, given: Given, groups: list[Group]) -> None:
        self.treedef, self.chosen, self.groups = given.treedef, given.chosen, groups
        self.compiled: dict[Any, Callable[..., Any]] = {}

    def fits(self, given: Given) -> bool:
        return self.chosen == given.chosen and self.treedef == given.treedef


class Kept:
    """The state between two calls of `step`: native arrays. `private` as long as nobody else has seen them."""

    def __init__(self, given: Given, columns: list[Flat], count: Any, private: bool) -> None:
        self.backend, self.treedef, self.wrapped = given.interpreter.name, given.treedef, given.wrapped
        self.device = given.interpreter.device_of(given.weights[0])
        self.columns, self.count, self.private = columns, count, private

    def fits(self, given: Given) -> bool:
        return self.backend == given.interpreter.name and self.treedef == given.treedef

    def container(self, names: tuple[str, ...]) -> Container:
        self.private = False
        count = _step_array(load(self.backend), self.count, self.device)
        return _container(self.treedef, self.wrapped, names, self.columns, count)


def _container(treedef: tree.TreeDef, wrapped: list[bool], names: tuple[str, ...], columns: list[Flat], count: Any) -> Container:
    slots = {
        name: tree.unflatten(treedef, [Array(x) if is_array else x for x, is_array in zip(column, wrapped)])
        for name, column in zip(names, columns)
    }
    return Container({"step": Array(count) if any(wrapped) else count, **slots})


def _step_array(backend: Any, count: Any, device: Any) -> Any:
    return backend.full(shape=(), fill_value=count, dtype=dtypes.int32, device=device) if isinstance(count, int) else count


@dataclass_transform(eq_default=False)
class Optimizer:
    """An optimizer over a nest of arrays: `new_v = opt.step(v, grads)`, or pure: `new_v, state = opt.update(v, grads, state)`.

    Options of every optimizer, all but `lr` by keyword:
    - `lr`: a number, or a schedule: a function of the number of steps taken. `opt.lr = 0.01` changes it between steps.
    - `weight_decay`, and `decay`, a function of a weight's path that says whether it is decayed.
    - `lr_factors`: a factor of `lr` for paths: a function, or a dict from the beginning of paths, {"encoder": 0.1}.
    - `clip_norm`, `clip_value`: clip the gradients, by their common norm or element by element.

    The state is a Container of `step` and the optimizer's slots, each like `v`. `opt.state` gives it, `opt.set_state(state)`
    takes it back, also from a file (`tl.save`, `tl.load`) or another framework. A weight whose gradient is None stays as it is.

    >>> import trellis as tl
    >>> v = tl.Container(w=tl.asarray([1.0, 2.0]))
    >>> opt = tl.SGD(0.1, momentum=0.9)
    >>> for _ in range(2):
    ...     v = opt.step(v, tl.Container(w=tl.asarray([1.0, 0.0])))
    >>> v.w
    Array([0.71, 2.  ], dtype=float32, backend='numpy', device='cpu')
    >>> opt.state.velocity.w
    Array([1.9, 0. ], dtype=float32, backend='numpy', device='cpu')
    """

    lr: Rate = 1e-3
    weight_decay: float = 0.0
    decay: Callable[[str], bool] | None = None
    lr_factors: Callable[[str], float] | Mapping[str, float] | None = None
    clip_norm: float | None = None
    clip_value: float | None = None

    _defaults: ClassVar[dict[str, Any]] = {}
    names: ClassVar[tuple[str, ...]] = ()
    kernel: ClassVar[str] = ""
    decays: ClassVar[str] = IN_GRADIENT

    def __init_subclass__(cls) -> None:
        bases = [vars(base) for base in reversed(cls.__mro__) if issubclass(base, Optimizer)]
        names = [n for base in bases for n, kind in base.get("__annotations__", {}).items() if "ClassVar" not in str(kind)]
        cls._defaults = {name: getattr(cls, name) for name in dict.fromkeys(names)}
        parameters = [
            inspect.Parameter(
                n, inspect.Parameter.POSITIONAL_OR_KEYWORD if n == "lr" else inspect.Parameter.KEYWORD_ONLY, default=d
            )
            for n, d in cls._defaults.items()
        ]
        cls.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]

    def __init__(self, *args: Any, **options: Any) -> None:
        if len(args) > 1 or (args and "lr" in options):
            raise TypeError(f"{self._name}: only lr may stand without its name; give the other options by keyword")
        self._plans: list[Plan] = []
        self._kept: Kept | None = None
        self._given_state: Container | None = None
        options = {**dict(zip(("lr",), args)), **options}
        for name in options:
            if name not in self._defaults:
                raise TypeError(f"{self._name}: unknown option {name!r}; it has {', '.join(self._defaults)}")
        for name, default in self._defaults.items():
            setattr(self, name, options.get(name, default))

    @property
    def _name(self) -> str:
        return type(self).__name__

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._defaults:
            self._check_option(name, value)
            if name != "lr" or callable(value) or callable(self.__dict__.get("lr")):
                object.__setattr__(self, "_plans", [])  # compiled with the option as it was
        object.__setattr__(self, name, value)

    def _check_option(self, name: str, value: Any) -> None:
        if isinstance(value, (int, float)) and not value >= 0:
            raise ValueError(f"{self._name}: {name}={value} must be 0 or more")
        if name in _BELOW_ONE and not value < 1:
            raise ValueError(f"{self._name}: {name}={value} must be less than 1")
        if isinstance(value, str) or (value is None and name in ("lr", "weight_decay")):
            raise TypeError(f"{self._name}: {name}={value!r} must be a number{' or a schedule' if name == 'lr' else ''}")

    def __repr__(self) -> str:
        changed = [f"{n}={getattr(self, n)!r}" for n, d in self._defaults.items() if n == "lr" or getattr(self, n) is not d]
        return f"{self._name}({', '.join(changed)})"

    # ---- what a row defines ----------------------------------------------------------------------------------------------------
    @property
    def slots(self) -> tuple[str, ...]:
        """The names of the arrays that are kept for each weight, with these options."""
        return self.names

    def starts(self, shape: tuple[int, ...]) -> list[tuple[tuple[int, ...], float]]:
        """Shape and first value of each slot of a weight."""
        return [(shape, 0.0)] * len(self.slots)

    def rule(self, w: Array, g: Array, slots: Slots, lr: Any, step: Any, decay: float) -> tuple[Array, Slots]:
        """What to take from a weight, and its new slots. `step` counts from 1; numbers are Python's or 0-d arrays like `w`."""
        raise NotImplementedError

    def kernel_options(self) -> dict[str, Any] | None:
        """The options for the backend's kernel; None where that cannot do what is asked for."""
        return None

    # ---- pure ------------------------------------------------------------------------------------------------------------------
    def init(self, v: Any) -> Container:
        """The state before the first step."""
        given = Given(self._name, v, v)
        if not given.weights:
            return Container()
        return Kept(given, self._first_columns(given), 0, False).container(self.slots)

    def update(self, v: Any, grads: Any, state: Any) -> tuple[Any, Container]:
        """New weights and new state; works inside jax.jit, tf.function and torch.compile, and lets gradients through."""
        given = Given(self._name, v, grads)
        if not given.weights:
            return v, state
        names = self.slots
        columns = [self._column(given, state, name) for name in names]
        array = _native(state["step"])
        backend = given.interpreter
        eager = not (given.traced or given.compiles or backend.is_traced(array))
        count = int(load(backend.name).item(array)) if eager else array
        weights, columns, count = self._run(given, columns, count, stop=False, in_place=False)
        if eager:
            count = _step_array(load(backend.name), count, backend.device_of(given.weights[0]))
        return given.nest(weights), _container(given.treedef, given.wrapped, names, columns, count)

    def _column(self, given: Given, state: Any, name: str) -> Flat:
        if name not in state or "step" not in state:
            raise ValueError(
                f"{self._name}: the state has {list(state)}; expected {['step', *self.slots]}, as opt.init(v) gives it"
            )
        leaves, treedef = tree.flatten(state[name])
        if treedef != given.treedef and tree.paths(treedef) != tree.paths(given.treedef):
            raise tree.structure_error(f"{self._name}: the weights and {name} in the state", given.treedef, treedef)
        return [_native(x) for x in leaves]

    # ---- with a state of its own -----------------------------------------------------------------------------------------------
    def step(self, v: Any, grads: Any) -> Any:
        """The new weights, as constants; `v` and `grads` stay as they are, and `opt.state` advances."""
        given = Given(self._name, v, grads)
        if not given.weights:
            return v
        if given.traced:
            raise RuntimeError(
                f"{self._name}.step was called in a traced function, where its state would be lost; use "
                "new_v, state = opt.update(v, grads, state), with state = opt.init(v) before"
            )
        kept = self._kept
        if kept is None or not kept.fits(given):
            kept = self._fitted(given, state) if len(state := self.state) else self._first(given)
        weights, columns, count = self._run(given, kept.columns, kept.count, stop=True, in_place=kept.private)
        kept.columns, kept.count, kept.private = columns, count, True
        self._kept, self._given_state = kept, None
        return given.nest(weights)

    @property
    def state(self) -> Container:
        """The state: a Container of `step` and the slots; empty before the first step."""
        if self._given_state is not None:
            return self._given_state
        return Container() if self._kept is None else self._kept.container(self.slots)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a state that `opt.state` or `opt.init` gave, or that was loaded; on whichever framework it is."""
        given = Container(state)
        expected = {"step", *self.slots}
        if len(given) and set(given) != expected:
            raise ValueError(f"{self._name}.set_state: expected {sorted(expected)}, got {sorted(given)}")
        self._kept, self._given_state = None, given if len(given) else None

    def _first(self, given: Given) -> Kept:
        kept = Kept(given, self._first_columns(given), 0, True)
        if given.compiles:
            kept.count = _step_array(given.interpreter, 0, kept.device)
        return kept

    def _first_columns(self, given: Given) -> list[Flat]:
        backend = load(given.interpreter.name)
        rows = []
        for i, w in enumerate(given.weights):
            dtype = given.interpreter.dtype_of(w)
            if dtype.kind != "f":
                place = f" at {path!r}" if (path := tree.paths(given.treedef)[i]) else ""
                raise TypeError(f"{self._name}: the weight{place} is {dtype}; optimizers work on real floating-point arrays")
            device = given.interpreter.device_of(w)
            starts = self.starts(given.interpreter.shape_of(w))
            rows.append([backend.full(shape=s, fill_value=x, dtype=wide(dtype), device=device) for s, x in starts])
        return [list(column) for column in zip(*rows)]

    def _fitted(self, given: Given, state: Container) -> Kept:
        kept = self._first(given)
        found = fitted(self._name, state, kept.container(self.slots))
        kept.columns = [self._column(given, found, name) for name in self.slots]
        count = _native(found["step"])
        kept.count = count if given.compiles else int(load(kept.backend).item(count))
        return kept

    # ---- the update on lists of native arrays ----------------------------------------------------------------------------------
    def _run(self, given: Given, columns: list[Flat], count: Any, *, stop: bool, in_place: bool) -> Any:
        plan = next((plan for plan in self._plans if plan.fits(given)), None)
        if plan is None:
            plan = Plan(given, self._groups(given))
            if given.compiles or not given.traced:  # torch.compile would compile again, for a list that has grown
                self._plans.append(plan)
        function = plan.compiled.get(stop)
        if not given.compiles or function is None:
            function = functools.partial(self._advance, given.interpreter, plan.groups, stop, in_place)
            if given.compiles:
                function = plan.compiled[stop] = given.interpreter.compiled_update(function)
        return function(given.weights, given.grads, columns, count, None if callable(self.lr) else self.lr)

    def _groups(self, given: Given) -> list[Group]:
        """The weights by what the filters say of their paths."""
        found: dict[tuple[float, float], list[int]] = {}
        paths = tree.paths(given.treedef) if self.decay or self.lr_factors else [""] * len(given.weights)
        for i in given.chosen:
            decay = self.weight_decay if self.decay is None or self.decay(paths[i]) else 0.0
            found.setdefault((_factor(self.lr_factors, paths[i]), decay), []).append(i)
        return [Group(positions, *key) for key, positions in found.items()]

    def _advance(
        self, backend: Any, groups: list[Group], stop: bool, in_place: bool,
        weights: Flat, grads: Flat, columns: list[Flat], count: Any, lr: Any,
    ) -> tuple[Flat, list[Flat], Any]:  # fmt: skip
        if stop:
            backend = load(backend.name)  # values on the tape are NumPy's
            fresh = iter(backend.constants([*weights, *(g for g in grads if g is not None)]))
            weights, grads = [next(fresh) for _ in weights], [None if g is None else next(fresh) for g in grads]
        if self.clip_value is not None:
            grads = clip_by_value(grads, self.clip_value)
        if self.clip_norm is not None:
            grads = clip_by_global_norm(grads, self.clip_norm)
        before: Any = count
        if not isinstance(count, int):
            widest = dtypes.float64 if any(backend.dtype_of(w) is dtypes.float64 for w in weights) else dtypes.float32
            before = astype(Array(count), widest)
        rate = self._rate(before, lr)
        new = [list(weights), *(list(column) for column in columns)]
        for positions, factor, decay in groups:
            chosen = [[x[i] for i in positions] for x in (weights, grads, *columns)]
            scaled = rate if factor == 1 else rate * factor
            found = self._group(backend, chosen, scaled, before + 1, decay, in_place)
            if len(positions) == len(weights):
                new = found
                continue
            for column, values in zip(new, found):
                for i, value in zip(positions, values):
                    column[i] = value
        return new[0], list(new[1:]), count + 1

    def _rate(self, before: Any, lr: Any) -> Any:
        rate = self.lr(before) if lr is None else lr  # type: ignore[operator]
        if isinstance(rate, (int, float)):
            return rate
        return float(rate) if isinstance(before, int) else rate if isinstance(rate, Array) else Array(rate)

    def _group(self, backend: Any, chosen: list[Flat], rate: Any, step: Any, decay: float, in_place: bool) -> Any:
        """New weights and columns of one group: by the backend's kernel if there is one, else weight by weight."""
        options = self.kernel_options() if isinstance(step, int) and backend.level == 0 else None
        kernel = None if options is None else getattr(backend, self.kernel, None)
        if kernel and options is not None:
            found = kernel(*chosen, lr=rate, step=step, decay=decay, in_place=in_place, **options)
            if found is not None:
                return found
        rows = [self._leaf(rate, step, decay, *map(Array, row)) for row in zip(*chosen)]
        return [list(column) for column in zip(*rows)]

    def _leaf(self, lr: Any, step: Any, decay: float, w: Array, g: Array, *slots: Array) -> list[Any]:
        own = w.dtype
        dtype = wide(own)
        w, g, lr, step = (astype(x, dtype, copy=False) if isinstance(x, Array) else x for x in (w, g, lr, step))
        if decay and self.decays == IN_GRADIENT:
            g = g + decay * w
        change, slots = self.rule(w, g, slots, lr, step, decay)
        if decay and self.decays == IN_WEIGHTS:
            w = w * (1.0 - lr * decay)
        return [astype(w - change, own, copy=False)._data, *(x._data for x in slots)]


def _factor(factors: Callable[[str], float] | Mapping[str, float] | None, path: str) -> float:
    if factors is None:
        return 1.0
    if not isinstance(factors, Mapping):
        return float(factors(path))
    fitting = [start for start in factors if path == start or path.startswith(f"{start}/")]
    return float(factors[max(fitting, key=len)]) if fitting else 1.0


def _native(x: Any) -> Any:
    return x._data if isinstance(x, Array) else x


def fitted(name: str, state: Container, own: Container) -> Container:
    """A state of any framework and kind of nest as `own` is, in nest, framework, devices and dtypes; by paths."""
    leaves, treedef = tree.flatten(own)
    paths = tree.paths(treedef)
    found = dict(tree.leaves_with_paths(state))
    if set(found) != set(paths):
        odd = sorted(set(found) ^ set(paths))[0]
        only = "state" if odd in found else "weights"
        raise ValueError(f"{name}: the state does not fit the weights: {odd!r} is only in the {only}")
    return tree.unflatten(treedef, [_like(f"{name}: {path!r} in the state", found[path], x) for path, x in zip(paths, leaves)])


def _like(what: str, x: Any, own: Any) -> Any:
    like = _native(own)
    backend = interpreters[type(like)]
    made = native_array(x, backend.dtype_of(like), backend.device_of(like), None, backend.name)
    shape, expected = backend.shape_of(made), backend.shape_of(like)
    if shape != expected:
        raise ValueError(f"{what} has shape {shape}; for these weights it must have {expected}")
    return Array(made) if isinstance(own, Array) else made
