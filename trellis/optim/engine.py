"""The engine of every optimizer: nests, state, filters by path, clipping, schedules, and the choice of the fastest way.

- An optimizer is a row in `rules.py`: its options, the names of its slots (arrays that it keeps for each weight), and a rule for
  one weight, written with `tl.Array`s. The rule runs as it is on values that are traced or differentiated.
- `update` is pure: it takes a state and returns one. The number of steps is an array in the state, so that a compiled loop
  changes its learning rate without being compiled again. `step` keeps the state, and overwrites it if nobody else holds it.
- Two ways are faster where nothing is traced: `fused_adam` and `fused_sgd` on lists of arrays (NumPy, torch), and
  `compiled_update`, the whole update compiled once for a structure (JAX, TensorFlow).
- Half-precision weights are updated in float32, and their slots are float32.
- The update functions of `updates.py` run the same rules: they call `advance` with slots and a step of the user's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter, Signature
from typing import Any, ClassVar, NamedTuple, dataclass_transform

from trellis.core import dtypes, tree
from trellis.core.array import Array
from trellis.core.container import Container
from trellis.core.dispatch import find_all, interpreters, load
from trellis.core.free import as_it_is, committed, settled
from trellis.core.hints import install, refuse
from trellis.core.leaves import Nest, unwrap
from trellis.core.typing import AnyArray, NestT
from trellis.ops.conversion import astype, native_array
from trellis.optim.gradients import clip_by_global_norm, clip_by_value, wide
from trellis.optim.schedules import Rate
from trellis.transforms.carry import same_shape

Flat = list[AnyArray]
Slots = tuple[Array, ...]
ALL, ONE_BY_ONE = "all", "one by one"  # for `in_place`: not the slots alone; weight after weight, and no gradient is kept
IN_GRADIENT, IN_WEIGHTS, IN_RULE = "gradient", "weights", "rule"  # where an optimizer applies its weight decay
_BELOW_ONE = ("beta1", "beta2", "rho", "alpha")
_PLAIN = (int, float, type(None))


class Group(NamedTuple):
    """The positions of weights that share a factor of the learning rate and a weight decay."""

    positions: tuple[int, ...]
    factor: float
    decay: float


Groups = tuple[Group, ...]


class Given(Nest):
    """The weights, and the gradients as a list like `leaves`. A weight whose gradient is None stays as it is."""

    __slots__ = ("backend", "chosen", "grads", "traced")

    def __init__(self, name: str, v: Any, grads: Any) -> None:
        found, structure = tree.flatten(grads)
        super().__init__(v, committed(found))
        if structure != self.treedef:
            found = _with_holes(self.treedef, grads, f"{name}: weights and gradients")
        self.grads = [unwrap(x) for x in settled(found, self.leaves[0] if self.leaves else None)]
        self.chosen = tuple([i for i, g in enumerate(self.grads) if g is not None])
        self.backend = find_all(*self.leaves, *self.grads)
        check_shapes(name, self, self.backend, {"weight": self.leaves, "gradient": self.grads})
        first = [*self.leaves[:1], *(self.grads[i] for i in self.chosen[:1])]
        self.traced = self.backend.level > 1 or any(self.backend.is_traced(x) for x in first)  # an eager step needs their values


def check_shapes(name: str, nest: Nest, backend: Any, columns: Mapping[str, Flat]) -> None:
    """Raise if the arrays for one weight, one in each column, differ in shape."""
    shape_of = backend.shape_of
    first, *others = columns.values()
    for column in others:
        for i, (x, y) in enumerate(zip(first, column)):
            if y is not None and (own := shape_of(x)) != (given := shape_of(y)) and not same_shape(own, given):
                listed = ", ".join(f"{key} {shape_of(row[i])}" for key, row in columns.items() if row[i] is not None)
                raise ValueError(f"{name}: the shapes{nest.place(i)} differ: {listed}")


def _with_holes(own: tree.TreeDef, given: Any, what: str) -> list[Any]:
    """The leaves of `given` at the places of those of `own`, and None for all below a place where `given` has None."""
    structure, found = tree.structure(given), dict(tree.leaves_with_paths(given))
    holes = tuple(f"{path}/" if path else "" for path in tree.paths(structure, type(None)))
    paths = tree.paths(own)
    if not set(found) <= set(paths) or any(path not in found and not f"{path}/".startswith(holes) for path in paths):
        raise tree.structure_error(what, own, structure)
    return [found.get(path) for path in paths]


def column(what: str, treedef: tree.TreeDef, nest: Nest) -> Flat:
    """The leaves of a nest that has the structure, or at least the paths, of the weights."""
    if nest.treedef != treedef and tree.paths(nest.treedef) != tree.paths(treedef):
        raise tree.structure_error(what, treedef, nest.treedef)
    return nest.leaves


class State(Nest):
    """The slots and the step count of an optimizer as native arrays, in the structure of the weights.

    `private` says that nobody else holds these arrays, so that a step may overwrite them.
    """

    __slots__ = ("backend", "columns", "count", "device", "names", "private")

    def __init__(self, given: Given, names: Sequence[str], columns: list[Flat], count: Any, private: bool = False) -> None:
        self.treedef, self.wrapped, self.leaves = given.treedef, given.wrapped, []
        self.backend, self.device = load(given.backend.name), given.backend.device_of(given.leaves[0])
        self.names, self.columns, self.count, self.private = names, columns, count, private

    def fits(self, given: Given) -> bool:
        return self.backend.name == given.backend.name and self.treedef == given.treedef

    def container(self) -> Container:
        """The state for the user, who may keep it: it is not private any more."""
        self.private, count = False, self.count
        if isinstance(count, int):
            count = self.backend.full(shape=(), fill_value=count, dtype=dtypes.int32, device=self.device)
        slots = {name: self.rebuild(column) for name, column in zip(self.names, self.columns)}
        return Container({"step": next(filter(None, self.wrapped), as_it_is)(count), **slots})


def check_option(owner: str, name: str, value: Any) -> None:
    """Raise if an option of an optimizer cannot have this value."""
    if isinstance(value, (int, float)) and not value >= 0:
        raise ValueError(f"{owner}: {name}={value} must be 0 or more")
    if name in _BELOW_ONE and not value < 1:
        raise ValueError(f"{owner}: {name}={value} must be less than 1")
    if name == "lr" and isinstance(value, (Mapping, list, tuple)):
        raise TypeError(f"{owner}: lr is a {type(value).__name__}; parameters are given to optimizer.step(v, grads)")
    if isinstance(value, str) or (value is None and name in ("lr", "weight_decay")):
        raise TypeError(f"{owner}: {name}={value!r} must be a number{' or a schedule' if name == 'lr' else ''}")


def check_keys(owner: str, state: Mapping[str, Any], expected: Sequence[str]) -> Container | None:
    """A state with exactly these keys; None for an empty one."""
    given = Container(state)
    if len(given) and set(given) != set(expected):
        raise ValueError(f"{owner}.set_state: expected {sorted(expected)}, got {sorted(given)}")
    return given if len(given) else None


@dataclass_transform(eq_default=False)
class Optimizer:
    """An optimizer over a nest of arrays: `new_v = opt.step(v, grads)`, or pure: `new_v, state = opt.update(v, grads, state)`.

    Options of every optimizer, all but `lr` by keyword:
    - `lr`: a number, or a schedule: a function of the number of steps taken. `opt.lr = 0.01` changes it between steps.
    - `weight_decay`, and `decay`, a function of a weight's path that says whether the weight is decayed.
    - `lr_factors`: a factor of `lr` for each path: a function, or a dict from the beginnings of paths, {"encoder": 0.1}.
    - `clip_norm`, `clip_value`: clip the gradients, by their common norm or element by element.

    The state is a Container of `step` and the optimizer's slots, each like `v`. `opt.state` gives it, `opt.set_state(state)`
    takes it back, also from a file (`tl.save`, `tl.load`) or another framework. A weight whose gradient is None stays as it is.
    A weight that becomes None in `v`, because it is frozen, leaves the state; when it comes back its slots begin anew.

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
    _keeps: ClassVar[Mapping[str, str]] = {}  # slot -> the option without which it is not kept, or ""
    _kernel: ClassVar[str] = ""
    _decays: ClassVar[str] = IN_GRADIENT

    def __init_subclass__(cls, keeps: Iterable[str] = (), decays: str = "", kernel: str = "") -> None:
        cls._keeps = (keeps if isinstance(keeps, Mapping) else dict.fromkeys(keeps, "")) or cls._keeps
        cls._decays, cls._kernel = decays or cls._decays, kernel or cls._kernel
        bases = [vars(base) for base in reversed(cls.__mro__) if issubclass(base, Optimizer)]
        names = [n for base in bases for n, kind in base.get("__annotations__", {}).items() if "ClassVar" not in str(kind)]
        cls._defaults = {name: getattr(cls, name) for name in dict.fromkeys(names)}
        kinds = {n: Parameter.POSITIONAL_OR_KEYWORD if n == "lr" else Parameter.KEYWORD_ONLY for n in cls._defaults}
        parameters = [Parameter(n, kinds[n], default=d) for n, d in cls._defaults.items()]
        cls.__signature__ = Signature(parameters)  # type: ignore[attr-defined]

    def __init__(self, *args: Any, **options: Any) -> None:
        if len(args) > 1 or (args and "lr" in options):
            raise TypeError(f"{self._name}: only lr may stand without its name; give the other options by keyword")
        self._grouped: dict[Any, Groups] = {}
        self._compiled: dict[Any, Callable[..., Any]] = {}
        self._kept: State | None = None
        self._given_state: Container | None = None
        options = {**dict(zip(("lr",), args)), **options}
        for name in options:
            if name not in self._defaults:
                refuse(self._name, (name,), self._defaults)
                raise TypeError(f"{self._name}: unknown option {name!r}; it has {', '.join(self._defaults)}")
        for name, default in self._defaults.items():
            setattr(self, name, options.get(name, default))

    @property
    def _name(self) -> str:
        return type(self).__name__

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._defaults:
            check_option(self._name, name, value)
            if name != "lr" or callable(value) or callable(self.__dict__.get("lr")):
                object.__setattr__(self, "_grouped", {})  # both depend on the options
                object.__setattr__(self, "_compiled", {})
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        changed = [f"{n}={getattr(self, n)!r}" for n, d in self._defaults.items() if n == "lr" or getattr(self, n) is not d]
        return f"{self._name}({', '.join(changed)})"

    # ---- what a row defines ----------------------------------------------------------------------------------------------------
    @property
    def slots(self) -> tuple[str, ...]:
        """The names of the arrays that are kept for each weight, with these options."""
        return tuple([slot for slot, option in self._keeps.items() if not option or getattr(self, option)])

    def starts(self, shape: tuple[int, ...]) -> list[tuple[tuple[int, ...], float]]:
        """Shape and first value of each slot of a weight."""
        return [(shape, 0.0)] * len(self.slots)

    def rule(self, w: Array, g: Array, slots: Slots, lr: Any, step: Any, decay: float) -> tuple[Array, Slots]:
        """The amount to subtract from a weight, and its new slots.

        `step` counts from 1. Slots have the dtype of `w`; `lr` and `step` are Python numbers or arrays of that dtype.
        """
        raise NotImplementedError

    def kernel_options(self) -> dict[str, Any] | None:
        """The options for the backend's kernel; None if the kernel lacks one of them."""
        return None

    # ---- pure ------------------------------------------------------------------------------------------------------------------
    def init(self, v: Any) -> Container:
        """The state before the first step."""
        given = Given(self._name, v, v)
        return self._first_state(given).container() if given.leaves else Container()

    def update(self, v: NestT, grads: Any, state: Any) -> tuple[NestT, Container]:
        """New weights and new state; works inside jax.jit, tf.function and torch.compile, and lets gradients through."""
        given = Given(self._name, v, grads)
        if not given.leaves:
            return v, state
        columns = self._columns(given, state)
        backend, count = given.backend, unwrap(*settled([state["step"]], given.leaves[0]))
        if not (given.traced or _compiles(backend) or backend.is_traced(count)):
            count = int(load(backend.name).item(count))
        weights, columns = self._run(given, columns, count, stop=False, in_place=False)
        return given.rebuild(weights), State(given, self.slots, columns, count + 1).container()

    def _columns(self, given: Given, state: Any) -> list[Flat]:
        if any(name not in state for name in ("step", *self.slots)):
            expected = ["step", *self.slots]
            raise ValueError(f"{self._name}: the state has {list(state)}; expected {expected}, as opt.init(v) gives it")
        what, like = f"{self._name}: the weights and", given.leaves[0]
        return [column(f"{what} {n} in the state", given.treedef, Nest(state[n], like)) for n in self.slots]

    # ---- with a state of its own -----------------------------------------------------------------------------------------------
    def step(self, v: NestT, grads: Any) -> NestT:
        """The new weights, as constants; `v` and `grads` stay as they are, and `opt.state` advances."""
        return self._step(Given(self._name, v, grads), True)

    def consume(self, v: Any, grads: list[Any]) -> Any:
        """`step` in less memory: the nest of gradients leaves `grads`, and new weights take its place."""
        return self._step(Given(self._name, v, grads.pop()), ONE_BY_ONE)

    def _step(self, given: Given, in_place: bool | str) -> Any:
        if not given.leaves:
            return given.rebuild([])
        if given.traced:
            raise RuntimeError(
                f"{self._name}.step was called in a traced function, where its state would be lost; use "
                "new_v, state = opt.update(v, grads, state), with state = opt.init(v) before"
            )
        kept = self._kept
        if kept is None or not kept.fits(given):
            known, kept = self.state, self._first_state(given)
            if len(known):
                found = fitted(self._name, known, kept.container())
                kept.columns, kept.count = self._columns(given, found), int(kept.backend.item(unwrap(found["step"])))
        if not kept.private and _compiles(given.backend):
            kept.columns, kept.private = list(map(kept.backend.copies, kept.columns)), True
        in_place = kept.private and in_place
        weights, kept.columns = self._run(given, kept.columns, kept.count, stop=in_place != ONE_BY_ONE, in_place=in_place)
        kept.count, kept.private = kept.count + 1, True
        self._kept, self._given_state = kept, None
        return given.rebuild(weights)

    def begin(self, v: Any, state: Mapping[str, Any]) -> tuple[Given, State]:
        """The arguments of `overwrite`: the arrays of `v` and of a state of it."""
        given = Given(self._name, v, v)
        count = int(load(given.backend.name).item(unwrap(state["step"])))
        return given, State(given, self.slots, self._columns(given, state), count)

    def overwrite(self, given: Given, kept: State, grads: Flat) -> None:
        """A step that overwrites the weights and slots, for a loop that keeps these lists."""
        given.grads = grads
        weights, kept.columns = self._run(given, kept.columns, kept.count, stop=False, in_place=ALL)
        kept.count += 1
        for old, new in zip(given.leaves, weights):
            if old is not new:
                old[...] = new

    @property
    def state(self) -> Container:
        """The state: a Container of `step` and the slots; empty before the first step."""
        if self._given_state is not None:
            return self._given_state
        return Container() if self._kept is None else self._kept.container()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a state that `opt.state` or `opt.init` gave, or that was loaded; on whichever framework it is."""
        self._kept, self._given_state = None, check_keys(self._name, state, ["step", *self.slots])

    def _first_state(self, given: Given) -> State:
        backend = load(given.backend.name)
        rows = []
        for i, w in enumerate(given.leaves):
            dtype, device = given.backend.dtype_of(w), given.backend.device_of(w)
            if dtype.kind != "f":
                place = given.place(i)
                raise TypeError(f"{self._name}: the weight{place} is {dtype}; optimizers work on real floating-point arrays")
            starts = self.starts(given.backend.shape_of(w))
            rows.append([backend.full(shape=s, fill_value=x, dtype=wide(dtype), device=device) for s, x in starts])
        return State(given, self.slots, [list(column) for column in zip(*rows)], 0, private=True)

    # ---- the update on lists of native arrays ----------------------------------------------------------------------------------
    def _run(self, given: Given, columns: list[Flat], count: Any, *, stop: bool, in_place: bool | str) -> tuple[Flat, list[Flat]]:
        lr = None if callable(self.lr) else unwrap(self.lr)
        groups = self._groups(given)
        return self.advance(given.backend, groups, given.leaves, given.grads, columns, count, lr, stop=stop, in_place=in_place)

    def _groups(self, given: Given) -> Groups:
        """The weights, grouped by the values of the filters at their paths."""
        if not (self.decay or self.lr_factors):
            return (Group(given.chosen, 1.0, self.weight_decay),)
        key = given.treedef, given.chosen
        found = None if given.traced else self._grouped.get(key)
        if found is None:
            by_values: dict[tuple[float, float], list[int]] = {}
            paths = tree.paths(given.treedef)
            for i in given.chosen:
                decay = self.weight_decay if self.decay is None or self.decay(paths[i]) else 0.0
                by_values.setdefault((_factor(self.lr_factors, paths[i]), decay), []).append(i)
            found = tuple([Group(tuple(positions), *values) for values, positions in by_values.items()])
            if not given.traced:  # torch.compile would compile again for a dict that has grown
                self._grouped[key] = found
        return found

    def advance(
        self, backend: Any, groups: Groups, weights: Flat, grads: list[Any], columns: list[Flat], count: Any, lr: Any, *,
        stop: bool = False, in_place: bool | str = False,
    ) -> tuple[Flat, list[Flat]]:  # fmt: skip
        """New weights and columns of slots; compiled on the backends that compile updates.

        `count` is the number of steps before this one. `lr` None stands for the schedule. With `stop` no gradient flows
        through. `in_place` says that the columns are the optimizer's own, and may be overwritten.
        """
        if not _compiles(backend):
            return self._advance(backend, groups, stop, in_place, weights, grads, columns, count, lr)
        key = backend.name, groups, stop, in_place
        if key not in self._compiled:
            function = functools.partial(self._advance, backend, groups, stop, False)
            ours = (1, 2) if in_place == ONE_BY_ONE else (2,) if in_place else ()  # the gradients and the slots
            self._compiled[key] = backend.compiled_update(function, donate_argnums=ours)
        return self._compiled[key](weights, grads, columns, count, lr)

    def _advance(
        self, backend: Any, groups: Groups, stop: bool, in_place: bool | str,
        weights: Flat, grads: list[Any], columns: list[Flat], count: Any, lr: Any,
    ) -> tuple[Flat, list[Flat]]:  # fmt: skip
        if stop:
            backend = load(backend.name)  # values on the tape are NumPy's
            weights, grads = backend.constants(weights), _constants(backend, grads)
            columns = columns if in_place else [backend.constants(flat) for flat in columns]  # in place they are its own
            count, lr = (x if isinstance(x, _PLAIN) else backend.constants([x])[0] for x in (count, lr))
        if self.clip_value is not None:
            grads = clip_by_value(grads, self.clip_value)
        if self.clip_norm is not None:
            grads = clip_by_global_norm(grads, self.clip_norm)
        before: Any = count
        if not isinstance(count, (int, float)):
            widest = dtypes.float64 if any(backend.dtype_of(w) is dtypes.float64 for w in weights) else dtypes.float32
            before = astype(Array(count), widest)
        rate = self._rate(before, lr)
        new = [list(weights), *(list(column) for column in columns)]
        if in_place == ONE_BY_ONE:
            new, groups = [new[0], *columns], tuple([Group((i,), *values) for places, *values in groups for i in places])
        for positions, factor, decay in groups:
            chosen = [[x[i] for i in positions] for x in (weights, grads, *columns)]
            found = self._group(backend, chosen, rate if factor == 1 else rate * factor, before + 1, decay, in_place)
            if len(positions) == len(weights):
                new = found
                continue
            for column, values in zip(new, found):
                for i, value in zip(positions, values):
                    column[i] = value
            if in_place == ONE_BY_ONE:
                grads[positions[0]] = None
        return new[0], list(new[1:])

    def _rate(self, before: Any, lr: Any) -> Any:
        """The learning rate as a Python number or an Array."""
        if lr is None:
            lr = self.lr(before)  # type: ignore[operator]
            lr = float(lr) if isinstance(before, int) else lr
        return lr if isinstance(lr, (int, float, Array)) else Array(lr)

    def _group(self, backend: Any, chosen: list[Flat], rate: Any, step: Any, decay: float, in_place: bool | str) -> Any:
        """New weights and columns of one group: by the backend's kernel if it has one that can, else weight by weight."""
        numbers = not isinstance(rate, Array) and not isinstance(step, Array)
        kernel = getattr(backend, self._kernel, None) if numbers and backend.level == 0 else None
        options = None if kernel is None else self.kernel_options()
        if kernel is not None and options is not None:
            found = kernel(*chosen, lr=rate, step=step, decay=decay, in_place=in_place, **options)
            if found is not None:
                return found
        rows = [self._leaf(rate, step, decay, *map(Array, row)) for row in zip(*chosen)]
        return [list(column) for column in zip(*rows)]

    def _leaf(self, lr: Any, step: Any, decay: float, *arrays: Array) -> Flat:
        """New weight and slots of one weight. Each keeps its dtype; they are computed in that of the weight, or in float32."""
        own = [x.dtype for x in arrays]
        dtype = wide(own[0])
        w, g, *slots = [x if kept is dtype else astype(x, dtype) for x, kept in zip(arrays, own)]
        lr, step = [astype(x, dtype, copy=False) if isinstance(x, Array) else x for x in (lr, step)]
        if decay and self._decays == IN_GRADIENT:
            g = g + decay * w
        change, new = self.rule(w, g, tuple(slots), lr, step, decay)
        if decay and self._decays == IN_WEIGHTS:
            w = w * (1.0 - lr * decay)
        results = zip((w - change, *new), (own[0], *own[2:]))
        return [x._data if kept is dtype else astype(x, kept)._data for x, kept in results]


def _compiles(backend: Any) -> bool:
    return backend.level == 0 and hasattr(backend, "compiled_update")


def _constants(backend: Any, grads: list[Any]) -> list[Any]:
    """The gradients as constants; None stays."""
    fresh = iter(backend.constants([g for g in grads if g is not None]))
    return [None if g is None else next(fresh) for g in grads]


def _factor(factors: Callable[[str], float] | Mapping[str, float] | None, path: str) -> float:
    if factors is None:
        return 1.0
    if not isinstance(factors, Mapping):
        return float(factors(path))
    fitting = [start for start in factors if path == start or path.startswith(f"{start}/")]
    return float(factors[max(fitting, key=len)]) if fitting else 1.0


def fitted(name: str, state: Container, own: Container, partial: bool = False) -> Container:
    """A state with the nest, framework, devices and dtypes of `own`; the leaves are found by their paths.

    A weight that was frozen, and is None in one of the two, may have a leaf in the other: `own` decides. With `partial`, for a
    file, which holds no None, a leaf that the state lacks is that of `own`.
    """
    leaves, treedef = tree.flatten(own)
    paths = tree.paths(treedef)
    found = dict(tree.leaves_with_paths(state))
    holes = tuple(f"{path}/" for nest in (treedef, tree.structure(state)) for path in tree.paths(nest, type(None)))
    for odd in sorted(set(found) ^ set(paths)):
        if not f"{odd}/".startswith(holes) and (odd in found or not partial):
            only = "state" if odd in found else "weights"
            raise ValueError(f"{name}: the state does not fit the weights: {odd!r} is only in the {only}")
    matched = [_like(f"{name}: {path!r} in the state", found.get(path, x), x) for path, x in zip(paths, leaves)]
    return tree.unflatten(treedef, matched)


def _like(what: str, x: AnyArray, own: AnyArray) -> AnyArray:
    like = unwrap(own)
    backend = interpreters[type(like)]
    made = native_array(x, backend.dtype_of(like), backend.device_of(like), None, backend.name)
    shape, expected = backend.shape_of(made), backend.shape_of(like)
    if shape != expected:
        raise ValueError(f"{what} has shape {shape}; for these weights it must have {expected}")
    return Array(made) if isinstance(own, Array) else made


install(Optimizer, "Optimizer")
