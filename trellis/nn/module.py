"""`tl.Module`: a layer or a model, written once, that runs and trains on whichever framework its parameters are on.

- Set attributes and define `forward`. Arrays, layers, and lists and dicts of them are found by looking at the attributes; see
  `structure.py` for their names. What is set until the Module is built is state: floating-point Arrays are parameters, Arrays of
  integers or booleans and what `register_buffer` gets are buffers. An Array that is set later under a new name is just kept.
- Inside `forward` every array is a `tl.Array`; at the border what you pass is what you get.
- A call with `v=` runs on a copy of the tree, so that nothing that happens in it, an error or another thread, touches the Module.
- Parameters on torch are plain tensors that do not require grad, so that nothing is recorded for a call that needs no gradient.
  `tl.value_and_grad` and the others need no marking. For a native `loss.backward()` mark them:
  `for p in tl.to_native(model.v).flatten()[1]: p.requires_grad_()`; their graph goes through the Module.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar, Self, Unpack

from trellis.core import dtypes, rerun, typing as kinds
from trellis.core.container import Container
from trellis.core.free import commit
from trellis.core.hints import install, refuse
from trellis.core.printing import outline_html
from trellis.nn import building, navigation, printing, saving, structure, torch_names
from trellis.nn.border import run, run_copy
from trellis.nn.building import Options, Stream
from trellis.nn.structure import ARRAY, KINDS, Binding, Meta, adopt, as_array, children, gather, is_floating, nodes_of, settled
from trellis.nn.tracking import TRACKING, run_tracked
from trellis.random.keys import Key
from trellis.transforms.gradients import grads_enter


def _converter(framework: str) -> Any:
    package = {"haiku": "dm-haiku"}.get(framework, framework)
    try:
        return import_module(f"trellis.convert.{framework}")
    except ModuleNotFoundError as error:
        if str(error.name).startswith("trellis"):
            raise
        raise ImportError(f"the converter of {framework} needs {error.name}, which is missing; pip install {package}") from error


def _from_native(framework: str) -> Any:
    def from_native(
        native: Any, constructor_args: Any = (), constructor_kwargs: Any = None, instance_args: Any = (),
        instance_kwargs: Any = None, *, inputs: Any = None, check: bool = True, **options: Any,
    ) -> Module:  # fmt: skip
        """A native module, an instance or a class and the arguments of its constructor, as a Module that shares its state.

        It is a `torch.nn.Module`, a Keras layer or model, a `flax.nnx.Module`, or a Haiku module class. A transformed function of
        Haiku needs `params_hk=` (and `state_hk=`). `inputs`, or `instance_args`, and `instance_kwargs` are the arguments of a
        call: a module that is built by its first call is built with them, and the check runs on them. A module that
        `to_torch_module` or another of these made comes back as the class that it was.

        With `backend=` a torch module is captured as a graph and brought to another framework, with copies of its weights, as
        `tl.transpile` does; it runs and trains there without torch.
        """
        given = _one_of(f"from_{framework}_module", inputs, tuple(instance_args) or None)
        args = () if given is None else given if isinstance(given, tuple) else (given,)
        made = constructor_args, constructor_kwargs, args, instance_kwargs
        if framework == "torch" and (options.get("backend") or "torch") != "torch":
            return import_module("trellis.trace.transpile").from_torch_module(native, *made, check=check, **options)
        if framework == "torch":
            options.pop("backend", None)
        return _converter(framework).from_native(native, *made, check=check, **options)

    return staticmethod(from_native)


def _to_native(model: Module, framework: str, inputs: Any, check: bool, instance_args: Any) -> Any:
    given = _one_of(f"to_{framework}_module", inputs, instance_args)
    return _converter(framework).to_native(model, inputs=given, check=check)


def _one_of(owner: str, inputs: Any, instance_args: Any) -> Any:
    """The arguments of a call, which have two names."""
    if inputs is not None and instance_args is not None:
        raise TypeError(f"{owner}: inputs= and instance_args= are two names of one argument; give one of them")
    return instance_args if inputs is None else inputs


@functools.cache
def _repeating(own: Any, checkpoint: Any) -> Any:
    if hasattr(own, "_repeats"):
        return own

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return checkpoint(functools.partial(own.forward, self))(*args, **kwargs)

    return type(own)(own.__name__, (own,), {"forward": forward, "__module__": own.__module__, "_repeats": True})


class Construction(type):
    """Builds a Module when its `__init__` is done, whether or not that called `super().__init__()`, and when."""

    def __call__(cls: type[kinds.Result], *args: Any, **kwargs: Any) -> kinds.Result:
        try:
            made: Any = type.__call__(cls, *args, **kwargs)
        except (TypeError, ValueError) as error:
            known = {*inspect.signature(cls).parameters, *Options.__annotations__}
            refuse(cls.__name__, kwargs, known, error)
            raise
        building.check_arguments(made, (*args, *kwargs.values()))
        adopt(made, made)
        made._meta.built = bool(made._meta.built)
        if made._meta.options.get("build_mode", "on_init") == "on_init":
            building.build(made)
        return made

    @property
    def __signature__(cls) -> inspect.Signature:
        """That of `__init__`, or the one that a layer made from a function has; for `inspect` and `help`."""
        return vars(cls).get("__signature__") or inspect.signature(cls.__init__.__get__(cls))  # type: ignore[attr-defined]


class Module(metaclass=Construction):
    """A layer or a model: parameters, buffers and other Modules as attributes, and `forward`.

    >>> import trellis as tl
    >>> class Net(tl.Module):
    ...     def __init__(self):
    ...         self.hidden = tl.Linear(3, 4)
    ...         self.out = tl.Linear(4, 1)
    ...
    ...     def forward(self, x):
    ...         return self.out(tl.tanh(self.hidden(x)))
    >>> net = Net()
    >>> net.v["hidden/w"].shape, net(tl.ones((2, 3))).shape
    ((4, 3), (2, 1))
    >>> loss = lambda v: tl.mean(net(tl.ones((2, 3)), v=v) ** 2)
    >>> value, grads = tl.value_and_grad(loss)(net.v)
    >>> net.v = tl.gradient_descent_update(net.v, grads, 0.1)
    """

    _bound: Binding | None = None  # set on the copies that a call with other parameters runs on
    _meta: Meta
    _torch_rows: ClassVar[torch_names.Rows] = {}  # the attributes that have other names or layouts in torch
    training: bool

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        made = super().__new__(cls)
        object.__setattr__(made, "_meta", Meta(made))
        object.__setattr__(made, "training", True)
        return made

    def __init__(self, **options: Unpack[Options]) -> None:
        given: dict[str, Any] = dict(options)
        self._meta.options = building.check_options(type(self).__name__, given)
        self.training = given.pop("training", True)

    # ---- what a subclass writes ------------------------------------------------------------------------------------------------
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The computation of the Module; `_forward` is another name for it."""
        return self._forward(*args, **kwargs)

    def _forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no forward; define `def forward(self, x): ...` in the class")

    def _build(self, *args: Any, **kwargs: Any) -> None:
        """Make layers; called once before the variables are made, with the arguments of the first call if that is what builds."""

    def _create_variables(self, device: Any, dtype: dtypes.DType) -> Mapping[str, Any]:
        """The Module's own variables: a dict of arrays, nested if you like; each becomes an attribute."""
        return {}

    def _create_buffers(self, device: Any, dtype: dtypes.DType) -> Mapping[str, Any]:
        """The Module's own buffers: a dict of arrays; each becomes an attribute."""
        return {}

    def _torch_row(self, path: str, default: str) -> torch_names.Row:
        """The name and the layout in torch of an attribute, or of "attribute/key" in a nest; without a row, `default`."""
        return self._torch_rows.get(path, (default, torch_names.SAME))

    # ---- the call --------------------------------------------------------------------------------------------------------------
    def __call__(self, *args: Any, v: Any = None, **kwargs: Any) -> Any:
        """Run `forward`. With `v` on other parameters: this Module stays as it is.

        `track_submod_rets=True` keeps the results of the layers in `submod_rets`, and their order in `submod_call_order`;
        `submod_depth` and `submods_to_track` (paths or Modules) choose among them, `expected_submod_rets` compares them.
        """
        if v is None and self._bound is not None:
            return run(self, args, kwargs)
        if not self._meta.built:
            self._build_by_call(args, kwargs)
        if kwargs and not TRACKING.isdisjoint(kwargs):
            tracking = {name: kwargs.pop(name) for name in TRACKING if name in kwargs}
            return run_tracked(self, args, kwargs, v, **tracking)
        if v is None and grads_enter():
            return run(self, args, kwargs)
        return run_copy(self, args, kwargs, v, keep_buffers=True)[0]

    def _build_by_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._meta.options.get("build_mode") == "explicit":
            raise RuntimeError(f"{type(self).__name__} is not built; call module.build() first, as build_mode='explicit' asks")
        building.build(self, args, kwargs)

    def _copy(self, binding: Binding, v: Any, buffers: Any) -> Self:
        """A copy of the tree for one run."""
        made = binding.copy(self, nodes_of(v, "v"), nodes_of(buffers, "buffers"))
        if binding.late:
            binding.release()
            made = binding.copy(self, nodes_of(v, "v"), nodes_of(buffers, "buffers"))
        if binding.wrong:
            for name, nest in (("v", v), ("buffers", buffers)):
                if nest is not None:
                    own = gather(self, buffers=name == "buffers").to_flat_dict()
                    building.compare(type(self).__name__, name, own, Container(nest).to_flat_dict())
        return made

    def _repeated(self, checkpoint: Any) -> Self:
        """This Module under another class, with the very attributes, whose backward pass repeats `forward`."""
        made = object.__new__(_repeating(type(self), checkpoint))
        object.__setattr__(made, "__dict__", self.__dict__)
        return made

    # ---- attributes ------------------------------------------------------------------------------------------------------------
    def __setattr__(self, name: str, value: Any) -> None:
        kind = KINDS[type(value)]
        if self._bound is not None:
            self._bound.changed = True
        if kind:
            value = self._admitted(name, value, kind)
        elif value is not None and KINDS[type(self.__dict__.get(name))] == ARRAY:
            found = as_array(value)
            value = value if found is None else self._admitted(name, found, ARRAY)
        elif not self._meta.built:
            building.check_attribute(self, name, value)
        object.__setattr__(self, name, value)

    def _admitted(self, name: str, value: Any, kind: int) -> Any:
        """The value to store for an array, a Module or a nest."""
        if isinstance(getattr(type(self), name, None), property):
            return value
        meta, value = self._meta, commit(value)
        holds_modules = kind != ARRAY and adopt(self, value, kind)
        if kind == ARRAY:
            if name in meta.buffers:
                return value if rerun.changes(self, name) or self._bound is not None else settled(self, name, value)
            if not meta.built and not is_floating(value):
                meta.buffers.add(name)
        if meta.built and not holds_modules and name not in self.__dict__:
            meta.plain.add(name)
        return value

    def register_buffer(self, name: str, value: Any) -> None:
        """Keep an array as state that is saved and moves with the Module but is not trained; None keeps the name free."""
        found = None if value is None else as_array(value)
        if value is not None and found is None:
            raise TypeError(f"register_buffer: {name!r} is a {type(value).__name__}; expected an array")
        if hasattr(type(self), name):
            raise ValueError(f"register_buffer: {name!r} is a name of Module's own; choose another")
        self._meta.buffers.add(name)
        self._meta.plain.discard(name)
        object.__setattr__(self, name, found)

    # ---- state -----------------------------------------------------------------------------------------------------------------
    @property
    def v(self) -> Container:
        """The parameters of the whole tree. To change some, assign: `model.v = model.v.set("linear/w", x)`."""
        return structure.fixed(gather(self))

    @v.setter
    def v(self, values: Any) -> None:
        building.assign_arrays(self, values)

    @property
    def buffers(self) -> Container:
        """The buffers of the whole tree; assign to change them."""
        return structure.fixed(gather(self, buffers=True))

    @buffers.setter
    def buffers(self, values: Any) -> None:
        building.assign_arrays(self, values, buffers=True)

    @property
    def trainable_v(self) -> Container:
        """The parameters, with None in the place of those that are frozen. A call takes it as `v=`: what is None stays."""
        frozen = self.frozen
        return gather(self).map_with_paths(lambda path, x: None if path in frozen else x)

    def state(self) -> Container:
        """Parameters, buffers and random state, as one Container of these three."""
        return Container(v=gather(self), buffers=gather(self, buffers=True), random=navigation.random_state(self))

    def set_state(self, state: Any) -> None:
        """Take over the result of `state()` of a Module of the same structure."""
        state = {"v": {}, "buffers": {}, "random": {}} | dict(Container(state))  # a file keeps no empty Container
        building.assign_arrays(self, state["v"])
        building.assign_arrays(self, state["buffers"], buffers=True)
        navigation.set_random_state(self, state["random"])

    def build(self, *args: Any, **kwargs: Any) -> Self:
        """Make the variables now. Does nothing if they are there."""
        building.build(self, args, kwargs)
        return self

    @property
    def built(self) -> bool:
        return bool(self._meta.built)

    def train(self, mode: bool = True) -> Self:
        """Switch the whole tree to training mode: Dropout drops, BatchNorm uses the batch."""
        for _, module, _ in structure.modules(self):
            module.training = mode
        return self

    def eval(self) -> Self:
        """Switch the whole tree to evaluation mode."""
        return self.train(False)

    def freeze(self, path: str = "") -> Self:
        """Let the parameters at `path`, or all, enter as constants: their gradient is zero. See `trainable_v`.

        A parameter that several parts share is frozen for all of them, whichever part it is frozen in.
        """
        return navigation.set_frozen(self, path, True)

    def unfreeze(self, path: str = "") -> Self:
        """Undo `freeze`."""
        return navigation.set_frozen(self, path, False)

    @property
    def frozen(self) -> set[str]:
        """The paths of the parameters that are frozen."""
        return navigation.frozen_paths(self)

    def to_backend(self, backend: str) -> Self:
        """Bring parameters and buffers to another framework, in place."""
        return building.move_arrays(self, backend=backend)

    def to_device(self, device: Any) -> Self:
        """Bring parameters and buffers to another device, in place."""
        return building.move_arrays(self, device=device)

    def astype(self, dtype: Any) -> Self:
        """Cast floating-point parameters and buffers, in place."""
        return building.move_arrays(self, dtype=dtypes.as_dtype(dtype))

    def next_seed(self) -> Key | None:
        """The seed for a random op in `forward`: pass it as `seed=`.

        Inside `tl.functional_call(..., seed=n)` a new key of that seed at each call; in a Module made with `seed=` one of its own
        random state; else None, the framework's generator.
        """
        if self._bound is not None and self._bound.stream is not None:
            return self._bound.stream.next()
        stream = self._meta.options.get("draws")
        return None if stream is None else stream.next()

    def _keep_random_state(self) -> None:
        """Draw from the Module's own seed, if it has one; called by layers that draw in `forward`."""
        seed = self._meta.options.get("seed")
        if seed is not None:
            self._meta.options["draws"] = Stream(Key(seed))

    # ---- the tree --------------------------------------------------------------------------------------------------------------
    top_mod = navigation.top_mod

    def mod_depth(self) -> int:
        """How many Modules are above this one."""
        return len(navigation.ancestors(self))

    def mod_height(self) -> int:
        """How many levels of Modules are below this one."""
        return max(depth for _, _, depth in structure.modules(self))

    def sub_mods(self, depth: int | None = None) -> dict[str, Module]:
        """Path -> Module, for all Modules below, or those up to `depth` levels below."""
        return {path: found for path, found, level in structure.modules(self) if level and (depth is None or level <= depth)}

    def top_v(self, depth: int | None = None) -> Container:
        """The parameters of `top_mod(depth)`."""
        return self.top_mod(depth).v

    def v_with_top_v_key_chains(self, depth: int | None = None) -> Container:
        """This Module's `v`, at its path as seen from `top_mod(depth)`."""
        path = navigation.path_from(self.top_mod(depth), self)
        return Container.from_flat_dict({path: self.v}) if path else self.v

    @property
    def submod_rets(self) -> dict[str, list[Any]]:
        """Path -> results, one per call of the layer, of the last call with `track_submod_rets=True`."""
        return self._meta.rets

    @property
    def submod_call_order(self) -> dict[str, Any]:
        """Calls of the last call with `track_submod_rets=True`, in order and nested: "path_n" -> the result, or calls within."""
        return self._meta.order

    # ---- files -----------------------------------------------------------------------------------------------------------------
    save = saving.save_module
    load_weights = saving.load_module
    to_torch_state_dict = torch_names.to_state_dict
    load_torch_state_dict = torch_names.load_state_dict

    # ---- native modules --------------------------------------------------------------------------------------------------------
    def to_torch_module(self, *, inputs: Any = None, check: bool = True, instance_args: Any = None) -> Any:
        """A `torch.nn.Module` with copies of the values, whatever backend this is on; names are those of `v`, with dots.

        What `check=True` does, here and below: both run on `inputs` (a tuple of arguments, else guessed) in evaluation and in
        training, and results or gradients that differ are a ValueError that names the layer. `instance_args` is another name of
        `inputs`.
        """
        return _to_native(self, "torch", inputs, check, instance_args)

    def to_keras_module(self, *, inputs: Any = None, check: bool = True, instance_args: Any = None) -> Any:
        """A `keras.Model` with copies of the values, on the backend that Keras runs on; weights have the paths of `v`."""
        return _to_native(self, "keras", inputs, check, instance_args)

    def to_haiku_module(self, *, inputs: Any = None, check: bool = True, instance_args: Any = None) -> Any:
        """A Haiku module to make and call inside `hk.transform_with_state`, whose `init` gives copies of the values."""
        return _to_native(self, "haiku", inputs, check, instance_args)

    def to_flax_module(self, *, inputs: Any = None, check: bool = True, instance_args: Any = None) -> Any:
        """A `flax.nnx.Module` with copies of the values as `nnx.Param`s and, for buffers, `nnx.BatchStat`s."""
        return _to_native(self, "flax", inputs, check, instance_args)

    from_torch_module = _from_native("torch")
    from_keras_module = _from_native("keras")
    from_haiku_module = _from_native("haiku")
    from_flax_module = _from_native("flax")

    # ---- copies and text -------------------------------------------------------------------------------------------------------
    def __getstate__(self) -> dict[str, Any]:
        meta = self._meta
        kept = {name: getattr(meta, name) for name in ("buffers", "plain", "frozen", "built", "options")}
        return {**self.__dict__, "_meta": kept, "_bound": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        meta = Meta(self)
        for name, value in state["_meta"].items():
            setattr(meta, name, value)
        for name, value in {**state, "_meta": meta}.items():
            object.__setattr__(self, name, value)
        for child in children(self):
            child._meta.parent = weakref.ref(self)

    def _repr_arguments(self) -> str:
        """The text in parentheses behind the class in `repr`."""
        return ""

    def __repr__(self) -> str:
        return printing.module_repr(self)

    def _repr_html_(self) -> str:
        title, *lines = repr(self).splitlines()
        return outline_html(title, lines)


install(Module, "Module")
