"""`torch.nn.Module`s, both ways.

- `TorchModule` is a Trellis model as a torch module: each part of the model is a part of it, with the parameters and buffers of
  that part. A copy of the model runs on them; autograd and torch.compile see torch's own ops.
- `FromTorch` is a torch module as a `tl.Module`. Its `v` are views of the parameters without their graph: an optimizer of torch
  and one of Trellis work on the same numbers.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from trellis.backends.torch.random import GLOBAL, seeded
from trellis.convert import check as checking
from trellis.convert.common import Foreign, Slot, instance_of, original, skeleton
from trellis.core.array import Array
from trellis.core.dispatch import load
from trellis.nn.border import across, inside, outside
from trellis.nn.module import Module
from trellis.nn.normalization import BatchNorm
from trellis.nn.structure import ARRAY, KINDS, MODULE, Binding, gather, items, key_of, members, modules

load("torch")
TO, FROM = "to_torch_module", "from_torch_module"


# ---- a Module as a torch module ------------------------------------------------------------------------------------------------
_IN_TORCH = Binding(stream=GLOBAL)  # of every Module that a torch module runs


class TorchModule(torch.nn.Module):
    """A Trellis model, or a part of one, as a torch module. `trellis_module` computes; it holds no state of its own."""

    trellis_module: Any  # None for a list or dict of parts

    def __init__(self, module: Module | None) -> None:
        torch.nn.Module.__init__(self)
        self.trellis_module = module
        self._held: dict[str, tuple[str, Array]] = {}  # the attribute and the Array of each parameter and buffer of this part
        self._members: dict[str, Module | None] = {}  # the Module that each part below computes; None for a list or dict
        self.training = module is None or module.training

    def _links(self) -> Iterator[tuple[dict[str, Any], str, Any, Any]]:
        """(table, name, part, the Module that it computes) of every part below; not below one that was replaced."""
        for name, module in self._members.items():
            part = self._modules.get(name)
            yield self._modules, name, part, module
            if _is_part(part, module):
                yield from part._links()  # type: ignore[union-attr]

    def _bind(self) -> None:
        """List what a call sets and looks at. The lists are not copied with the module: a copy makes its own."""
        links, found = list(self._links()), {}
        self._watched = [link[:3] for link in links]  # tables, names, and what they held; a change binds anew
        self._arrays: list[tuple[Array, dict[str, Any], str, Any]] = []  # a table of torch's and a name, and whose table it is
        self._states: list[tuple[Any, str, Array, dict[str, Any], str]] = []  # buffers, and whose they are
        if self.trellis_module is not None:
            object.__setattr__(self.trellis_module, "_bound", _IN_TORCH)
        for part in dict.fromkeys([self, *(part for _, _, part, module in links if _is_part(part, module))]):
            for key, (name, array) in part._held.items():
                # A parametrization takes the name out of the table, and the part computes it.
                table: Any = part._buffers if key in part._buffers else part._parameters
                if table is part._buffers:
                    self._states.append((part.trellis_module, name, array, table, key))
                if id(array) not in found:
                    self._arrays.append((array, table, key, part))
                elif table.get(key) is not found[id(array)]:
                    raise RuntimeError(f"{key!r} was replaced in one of several parts that share it; replace it in all of them")
                else:
                    self._watched.append((table, key, table.get(key)))
                found[id(array)] = table.get(key)
        chosen: dict[int, Any] = {}
        for _, name, part, module in links:
            if chosen.setdefault(id(module), part) is not part and module is not None:
                raise RuntimeError(f"{name!r} was replaced in one of several parts that share it; replace it in all of them")
            if module is None and not _is_part(part, None):
                raise RuntimeError(f"{name!r} was replaced, a list or dict of parts of a converted model; replace its members")
            if module is not None:
                module.__dict__.pop("forward", None)
                part._listen() if _is_part(part, module) else object.__setattr__(module, "forward", _Hooked(part))

    def _listen(self) -> None:
        """Let a call of this part inside the model go through torch if anybody hooked in here."""
        hooks = (self._forward_hooks, self._forward_pre_hooks, self._backward_hooks, self._backward_pre_hooks)
        if self.trellis_module is not None and "forward" not in self.trellis_module.__dict__ and any(hooks):
            object.__setattr__(self.trellis_module, "forward", _Hooked(self))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        module = self.trellis_module
        if module is None:
            raise TypeError("this is a list or dict of modules and has no forward of its own; call its members")
        for table, name, value in self._watched:
            if table.get(name) is not value:
                self._bind()
                break
        if torch.compiler.is_compiling():
            return self._trace(args, kwargs)
        for array, table, name, part in self._arrays:
            array._data = table[name] if name in table else getattr(part, name)
        if not self._states:
            return _past_hooks(module, args, kwargs)
        try:
            result = _past_hooks(module, args, kwargs)
            _assign([(table, key, owner.__dict__[name], array) for owner, name, array, table, key in self._states])
        finally:
            for owner, name, array, _, _ in self._states:
                object.__setattr__(owner, name, array)
        return result

    def _trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The same without a trace in the model, since torch.compile would repeat every change of it at each call."""
        binding = Binding(stream=GLOBAL)
        for array, table, name, part in self._arrays:
            binding.arrays[id(array)] = Array(table[name] if name in table else getattr(part, name))
        result = _past_hooks(binding.copy(self.trellis_module, None, None), args, kwargs)
        made, given = binding.modules, binding.arrays
        _assign([(table, key, made[id(one)].__dict__[name], given[id(x)]) for one, name, x, table, key in self._states])
        return result

    def train(self, mode: bool = True) -> TorchModule:
        if self.trellis_module is not None:
            self.trellis_module.training = mode
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_arrays", "_states", "_watched")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._bind()

    def _get_name(self) -> str:
        return "Parts" if self.trellis_module is None else type(self.trellis_module).__name__

    def extra_repr(self) -> str:
        return "" if self.trellis_module is None else self.trellis_module._repr_arguments()


def _heard(name: str) -> Any:
    """A method that registers a hook, and lets the part know."""
    register = getattr(torch.nn.Module, name)

    def registered(self: TorchModule, *args: Any, **kwargs: Any) -> Any:
        handle = register(self, *args, **kwargs)
        self._listen()
        return handle

    return registered


for _name in ("forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook"):
    setattr(TorchModule, f"register_{_name}", _heard(f"register_{_name}"))


class TorchBatchNorm(TorchModule, torch.nn.modules.batchnorm._BatchNorm):
    """A batch normalization that torch knows as one: `swa_utils.update_bn` resets its statistics and sets its momentum."""

    track_running_stats = False  # under torch's names

    momentum: Any = property(lambda one: one.trellis_module.momentum, lambda one, x: setattr(one.trellis_module, "momentum", x))

    @property
    def num_features(self) -> int:  # type: ignore[reportIncompatibleVariableOverride]
        # only `SyncBatchNorm.convert_sync_batchnorm` asks
        raise TypeError(f"a converted {self._get_name()} cannot become a SyncBatchNorm; leave it, or put one there that fits")

    def reset_running_stats(self) -> None:
        for name, value in (("running_mean", 0), ("running_variance", 1), ("batches", 0)):
            self._buffers[name].fill_(value)  # type: ignore[union-attr]


def _is_part(part: Any, module: Module | None) -> bool:
    """Whether a torch module is the part that computes a Module, or None."""
    return isinstance(part, TorchModule) and part.trellis_module is module


class _Hooked:
    """Stands for `forward` of a part that has hooks or was replaced. It is copied without the part, which puts its own there."""

    def __init__(self, part: Any) -> None:
        self.part = part

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.part is None:
            raise AttributeError("the model calls a part that was removed from its torch module; put torch.nn.Identity() there")
        return inside(self.part(*outside(args), **outside(kwargs)))

    def __reduce__(self) -> Any:
        return _Hooked, (None,)


def _past_hooks(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a part without its hooks, which torch has called already."""
    if "forward" in module.__dict__:
        return across(type(module).forward.__get__(module), args, kwargs)
    return module(*args, **kwargs)


def _assign(states: list[tuple[dict[str, Any], str, Array, Array]]) -> None:
    """Give the buffers that a run changed their new values, in place, as torch's own modules do: (table, name, new, old)."""
    changed = [(table, name, new._data) for table, name, new, old in states if new is not old]
    if not changed:
        return
    values = [value for _, _, value in changed]
    if not torch.compiler.is_compiling():
        functions: Any = torch._C._functorch  # type: ignore[reportAttributeAccessIssue]
        if functions.peek_interpreter_stack() is not None:  # inside torch.func.grad a value is a shell around a tensor
            values = [functions.get_unwrapped(x) if functions.is_gradtrackingtensor(x) else x for x in values]
    buffers = [table[name] for table, name, _ in changed]
    with torch.no_grad():
        if all(a.shape == b.shape for a, b in zip(buffers, values)):
            torch._foreach_copy_(buffers, values)
        else:
            for (table, name, _), value in zip(changed, values):
                table[name] = value.detach()


def to_native(model: Module, *, inputs: Any = None, check: bool = True) -> TorchModule:
    native = _parts(skeleton(model, "torch", TO))
    if check:
        checking.verify_module(TO, model, _runner(native, _values(native, buffers=False)), inputs, lambda: _back(native))
    return native


def _parts(model: Module) -> TorchModule:
    """The torch modules of a tree of Modules, and in each the parameters and buffers of that part, shared ones at every place."""
    paths = {id(array): path for path, array in gather(model).to_flat_dict().items()}
    frozen, made, tensors = model.frozen, {}, {}

    def grow(part: TorchModule, held: Iterable[tuple[str, Any]], buffers: Any, above: tuple[int, ...]) -> TorchModule:
        for name, value in held:
            # no dots in a key: they join the names of torch's paths
            kind, key = KINDS[type(value)], (name if part.trellis_module is None else key_of(name)).replace(".", "·")
            while key in part._held or key in part._members:  # "a.b" beside "a·b"
                key += "·"
            if kind == ARRAY and (name in buffers or id(value) in paths):
                if id(value) not in tensors:
                    trained = name not in buffers and paths[id(value)] not in frozen
                    tensors[id(value)] = value._data if name in buffers else torch.nn.Parameter(value._data, trained)
                # past torch's check: `children` is a good name
                (part._buffers if name in buffers else part._parameters)[key] = tensors[id(value)]  # type: ignore[index]
                part._held[key] = name, value
            elif kind == MODULE and id(value) not in above:  # no cycle, which torch cannot walk
                part._modules[key], part._members[key] = whole(value, above), value
            elif kind > MODULE:
                nest = grow(TorchModule(None), items(value, kind), (), above)
                if nest._held or nest._members:
                    part._modules[key], part._members[key] = nest, None
        return part

    def whole(module: Module, above: tuple[int, ...]) -> TorchModule:
        if id(module) not in made:
            made[id(module)] = part = (TorchBatchNorm if isinstance(module, BatchNorm) else TorchModule)(module)
            grow(part, [(name, value) for name, value, _ in members(module)], module._meta.buffers, (*above, id(module)))
        return made[id(module)]

    native = whole(model, ())
    for part in native.modules():
        part._bind()  # type: ignore[operator]
    return native


def _back(native: TorchModule) -> Module:
    """The model that a torch module was made of, with the values it has now."""
    if native.trellis_module is None:
        raise TypeError(f"{FROM}: this is a list or dict of parts of a converted model; give the whole, or one part")
    for _, name, part, module in native._links():
        if not _is_part(part, module):
            raise TypeError(f"{FROM}: the part {name!r} was replaced by a {type(part).__name__}; it is no Trellis model any more")
    v, buffers = (_values(native, is_buffer) for is_buffer in (False, True))
    model = original(native.trellis_module, *({path: x.detach() for path, x in part.items()} for part in (v, buffers)))
    for (_, one, _), (_, now, _) in zip(modules(model), modules(native.trellis_module)):
        one.__dict__.pop("forward", None)
        one.training = now.training
    for path, x in v.items():
        (model.unfreeze if x.requires_grad else model.freeze)(path)
    return model


def _values(native: TorchModule, buffers: bool) -> dict[str, torch.Tensor]:
    """Path -> the tensor that a converted model runs on, of the parameters or the buffers."""
    found = {id(array): table[name] if name in table else getattr(part, name) for array, table, name, part in native._arrays}
    return {path: found[id(array)] for path, array in gather(native.trellis_module, buffers).to_flat_dict().items()}


# ---- a torch module as a Module ------------------------------------------------------------------------------------------------
class FromTorch(Foreign):
    """A torch module as a Module that shares its state."""

    framework = home = "torch"

    def _slots(self) -> list[Slot]:
        views: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # a tensor of the module, and the view of it that `v` holds
        slots = []
        for place, part in self.native.named_modules():
            above = tuple(place.split(".")) if place else ()
            for table, is_buffer in ((part._parameters, False), (part._buffers, True)):
                for name, tensor in table.items():
                    if tensor is not None:
                        held = _Held(table, name, views)
                        frozen = not is_buffer and not tensor.requires_grad
                        slots.append(Slot((*above, name), held.get(), is_buffer, frozen, held.get, held.put))
        return slots

    def _identities(self) -> list[Any]:
        tables = ((part, part._parameters | part._buffers) for part in self.native.modules())
        return [x for part, table in tables for x in (part, *(name for name, value in table.items() if value is not None))]

    def _native_mode(self, mode: bool | None) -> bool:
        if mode is not None:
            self.native.train(mode)
        return self.native.training

    def _call_native(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self._meta.link.alone():
            return self.native(*args, **kwargs)

    def _call_pure(self, arrays: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Mapping[int, Any]]:
        link = self._meta.link
        given = [x.clone() if slot.is_buffer else x for x, slot in zip(arrays, link.slots)]
        state = dict(zip(link.names, given))
        with link.alone(), seeded(self.next_seed()):  # functional_call swaps the arrays for a while
            result = torch.func.functional_call(self.native, state, args, kwargs, tie_weights=False)
        # torch's batch normalization changes its statistics without a sign
        buffers = [i for i, slot in enumerate(link.slots) if slot.is_buffer]
        training = bool(buffers) and any(part.training for part in self.native.modules())
        now = {i: state[link.names[i]] for i in buffers}
        return result, {i: x for i, x in now.items() if training or x is not given[i] or given[i]._version}


class _Held:
    """One tensor of a torch module, read and written."""

    def __init__(self, table: dict[str, Any], name: str, views: dict[int, tuple[torch.Tensor, torch.Tensor]]) -> None:
        self.table, self.name, self.views = table, name, views

    def get(self) -> torch.Tensor:
        own = self.table[self.name]
        found = self.views.get(id(own))
        if found is None or found[0] is not own or found[1].data_ptr() != own.data_ptr() or found[1].dtype != own.dtype:
            self.views[id(own)] = found = own, own.detach()
        return found[1]

    def put(self, value: Any) -> None:
        own, value = self.table[self.name], value.detach()
        if value.dtype != own.dtype or value.device != own.device:
            own.data = value.clone()
        else:
            with torch.no_grad():
                own.copy_(value)


def from_native(
    native: Any, constructor_args: Any = (), constructor_kwargs: Any = None, instance_args: Any = (), instance_kwargs: Any = None,
    *, check: bool = True,
) -> Module:  # fmt: skip
    native = instance_of(FROM, native, torch.nn.Module, "a torch.nn.Module", constructor_args, constructor_kwargs)
    if isinstance(native, TorchModule):
        return _back(native)
    if isinstance(native, (torch.jit.ScriptModule, torch.nn.DataParallel)):
        raise TypeError(f"{FROM}: a {type(native).__name__} cannot run on other parameters; give the module it was made of")
    _materialize(native, instance_args, instance_kwargs or {})
    model = FromTorch(native)
    if check:
        guessed = [] if instance_kwargs else guesses(native)
        expected = _runner(native, {name.replace(".", "/"): x for name, x in native.named_parameters()}, instance_kwargs)
        found = checking.foreign_runner(model, instance_kwargs, _as_it_was)
        checking.verify(FROM, expected, found, tuple(instance_args) or None, guessed)
    return model


def _materialize(native: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
    """Give lazy modules their shapes, by a call."""
    waiting = [name for name, x in [*native.named_parameters(), *native.named_buffers()] if is_lazy(x)]
    if not waiting:
        return
    if not args and not kwargs:
        raise ValueError(f"{FROM}: {waiting[0]!r} has no shape before the first call; give instance_args= to call it with")
    with _as_it_was(native), torch.no_grad():
        native.eval()(*outside(tuple(args)), **outside(kwargs))


# ---- the check -----------------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def _as_it_was(native: torch.nn.Module) -> Iterator[None]:
    """Inside, a module may run; behind it modes, buffers and random generators are as before."""
    modes = [(part, part.training) for part in native.modules()]
    tables = [(part._buffers, name, x) for part in native.modules() for name, x in part._buffers.items()]
    kept = [(table, name, x, x.detach().clone()) for table, name, x in tables if x is not None and not is_lazy(x)]
    with torch.random.fork_rng():
        try:
            yield
        finally:
            for part, mode in modes:
                part.training = mode
                if isinstance(part, TorchModule) and part.trellis_module is not None:
                    part.trellis_module.training = mode
            with torch.no_grad():
                for table, name, x, value in kept:
                    table[name] = x
                    x.copy_(value)


def _runner(native: torch.nn.Module, parameters: Mapping[str, torch.Tensor], kwargs: Any = None) -> checking.Runner:
    """Runs of a torch module as torch runs it; `parameters` are those by path."""

    def run(inputs: checking.Inputs, training: bool) -> checking.Outcome:
        arguments = outside(checking.placed(inputs, "torch", [Array(x) for x in native.parameters()]))
        with _as_it_was(native):
            result = native.train(training)(*arguments, **(kwargs or {}))
            total = outside(checking.score(result))
            gradients = {path: torch.zeros_like(x) for path, x in parameters.items()}
            if isinstance(total, torch.Tensor) and total.requires_grad:
                wanted = {path: x for path, x in parameters.items() if x.requires_grad}
                found = torch.autograd.grad(total, list(wanted.values()), allow_unused=True, materialize_grads=True)
                gradients.update(zip(wanted, found))
        return checking.outcome(result, gradients)

    return run


def guesses(native: torch.nn.Module) -> Iterator[checking.Inputs]:
    """Inputs for the first part whose class is known."""
    hints = (checking.hinted(part, _HINTS) for part in native.modules())
    for kind, size in itertools.islice(filter(None, hints), 1):
        yield from checking.repeated(native.forward, checking.arrays(kind, size, channel_last=False))


_HINTS: checking.Hints = {  # the first that a part is an instance of
    **dict.fromkeys((torch.nn.Conv1d, torch.nn.ConvTranspose1d), ("line", "in_channels")),
    **dict.fromkeys((torch.nn.Conv3d, torch.nn.ConvTranspose3d), ("volume", "in_channels")),
    torch.nn.BatchNorm1d: ("vector", "num_features"),
    torch.nn.BatchNorm3d: ("volume", "num_features"),
    torch.nn.Linear: ("vector", "in_features"),
    torch.nn.modules.conv._ConvNd: ("image", "in_channels"),
    torch.nn.Embedding: ("indices", "num_embeddings"),
    torch.nn.RNNBase: ("sequence", "input_size"),
    torch.nn.modules.rnn.RNNCellBase: ("vector", "input_size"),
    torch.nn.MultiheadAttention: ("sequence", "embed_dim"),
    torch.nn.modules.batchnorm._NormBase: ("image", "num_features"),
    torch.nn.LayerNorm: ("vector", "normalized_shape"),
}
