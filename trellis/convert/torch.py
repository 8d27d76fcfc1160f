"""`torch.nn.Module`s, both ways.

- `TorchModule` is a Trellis model as a torch module: each part of the model is a part of it, with the parameters and buffers of
  that part. A copy of the model runs on them; autograd and torch.compile see torch's own ops.
- `FromTorch` is a torch module as a `tl.Module`. Its `v` are views of the parameters without their graph: an optimizer of torch
  and one of Trellis work on the same numbers.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from trellis.backends.torch.meta import native_device
from trellis.backends.torch.random import Generator
from trellis.convert import check as checking
from trellis.convert.common import Foreign, Slot, instance_of, original, skeleton
from trellis.core.array import Array
from trellis.core.dispatch import load
from trellis.nn import torch_names
from trellis.nn.border import across, inside, outside
from trellis.nn.module import Module
from trellis.nn.structure import Binding, gather, modules
from trellis.ops.conversion import to_numpy
from trellis.random.keys import key_data
from trellis.random.sources import NativeKey

load("torch")
TO, FROM = "to_torch_module", "from_torch_module"


# ---- a Module as a torch module ------------------------------------------------------------------------------------------------
class _Global(Generator):
    """torch's own generators, which torch.manual_seed seeds, and the stream that takes every draw of a run from them."""

    def __init__(self) -> None:
        super().__init__((0, 0))
        self.key = NativeKey(self)

    def next(self) -> NativeKey:
        return self.key

    def _place(self, device: Any) -> dict[str, Any]:
        return {"device": torch.get_default_device() if device is None else native_device(device)}

    def dropout(self, x: torch.Tensor, prob: float) -> torch.Tensor:
        return torch.dropout(x, prob, True)


_DRAWS = _Global()
_IN_TORCH = Binding(stream=_DRAWS)  # of every Module that a torch module runs


# A table of torch's, a name, and whose table it is: a parametrization takes the name out of the table, and the part computes it.
_Place = tuple[dict[str, Any], str, Any]


class TorchModule(torch.nn.Module):
    """A Trellis model, or a part of one, as a torch module. `trellis_module` computes; it holds no state of its own."""

    trellis_module: Any  # None for a list or dict of parts

    def __init__(self, module: Module | None) -> None:
        super().__init__()
        self.trellis_module = module
        self._places: list[_Place | None] = []  # where torch holds each array of the model, in its order
        if module is not None:
            self.training = module.training

    def _bind(self) -> None:
        """List the arrays that a call sets. The lists are not copied with the module: a copy makes its own."""
        self._arrays: list[tuple[Array, dict[str, Any], str, Any]] = []
        self._states: list[tuple[Module, str, Array, dict[str, Any], str]] = []  # buffers, and whose they are
        if self.trellis_module is None:
            return
        object.__setattr__(self.trellis_module, "_bound", _IN_TORCH)
        arrays = [place.array for place in torch_names.places(self.trellis_module)]
        self._arrays += [(array, *place) for array, place in zip(arrays, self._places, strict=True) if place is not None]
        found = {id(array): (array, table, name) for array, table, name, _ in self._arrays}
        for _, one, _ in modules(self.trellis_module):
            for name in sorted(one._meta.buffers):
                array = one.__dict__.get(name)
                if isinstance(array, Array):
                    self._states.append((one, name, *found[id(array)]))
        self._listen()

    def _listen(self) -> None:
        """Let a call of this part inside the model go through torch if anybody hooked in here."""
        if self.trellis_module is not None:
            hooks = (self._forward_hooks, self._forward_pre_hooks, self._backward_hooks, self._backward_pre_hooks)
            self.trellis_module.__dict__.pop("forward", None)
            if any(hooks):
                object.__setattr__(self.trellis_module, "forward", _Hooked(self))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        module = self.trellis_module
        if torch.compiler.is_compiling():
            return self._trace(args, kwargs)
        if module is None:
            raise TypeError("this is a list or dict of modules and has no forward of its own; call its members")
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
        binding = Binding(stream=_DRAWS)
        for array, table, name, part in self._arrays:
            binding.arrays[id(array)] = Array(table[name] if name in table else getattr(part, name))
        result = _past_hooks(binding.copy(self.trellis_module, None, None), args, kwargs)
        made, given = binding.modules, binding.arrays
        _assign(
            [(table, key, made[id(owner)].__dict__[name], given[id(array)]) for owner, name, array, table, key in self._states]
        )
        return result

    def train(self, mode: bool = True) -> TorchModule:
        if self.trellis_module is not None:
            self.trellis_module.training = mode
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_arrays", "_states")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._bind()

    def register_forward_hook(self, *args: Any, **kwargs: Any) -> Any:
        return self._heard(super().register_forward_hook(*args, **kwargs))

    def register_forward_pre_hook(self, *args: Any, **kwargs: Any) -> Any:
        return self._heard(super().register_forward_pre_hook(*args, **kwargs))

    def register_full_backward_hook(self, *args: Any, **kwargs: Any) -> Any:
        return self._heard(super().register_full_backward_hook(*args, **kwargs))

    def register_full_backward_pre_hook(self, *args: Any, **kwargs: Any) -> Any:
        return self._heard(super().register_full_backward_pre_hook(*args, **kwargs))

    def _heard(self, handle: Any) -> Any:
        self._listen()
        return handle

    def _get_name(self) -> str:
        return "Parts" if self.trellis_module is None else type(self.trellis_module).__name__

    def extra_repr(self) -> str:
        return "" if self.trellis_module is None else self.trellis_module._repr_arguments()


class _Hooked:
    """Stands for `forward` of a part that has hooks. It is copied without the part, which puts its own there."""

    def __init__(self, part: TorchModule | None) -> None:
        self.part = part

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return inside(self.part(*outside(args), **outside(kwargs)))  # type: ignore[misc]

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
        found = _runner(native, _values(native, buffers=False))
        checking.verify_module(TO, model, found, inputs, lambda: _back(native))
    return native


def _parts(model: Module) -> TorchModule:
    """The torch modules of a tree of Modules, and in each the parameters and buffers of that part."""
    parts: dict[str, TorchModule] = {path: TorchModule(one) for path, one, _ in modules(model)}
    for path in list(parts):
        _part(parts, path)
    frozen = model.frozen
    places: dict[int, _Place] = {}
    for is_buffer in (False, True):
        for path, array in gather(model, is_buffer).to_flat_dict().items():
            above, _, name = path.rpartition("/")
            part = _part(parts, above)
            table: Any = part._buffers if is_buffer else part._parameters  # past torch's check: `children` is a good name
            table[name] = array._data if is_buffer else torch.nn.Parameter(array._data, requires_grad=path not in frozen)
            places[id(array)] = table, name, part
    for part in parts.values():
        if part.trellis_module is not None:
            part._places = [places.get(id(place.array)) for place in torch_names.places(part.trellis_module)]
        part._bind()
    return parts[""]


def _part(parts: dict[str, TorchModule], path: str) -> TorchModule:
    """The part at a path, in the part above it; those of lists and dicts are made."""
    if path not in parts:
        parts[path] = TorchModule(None)
    if path:
        above, _, name = path.rpartition("/")
        _part(parts, above)._modules.setdefault(name, parts[path])
    return parts[path]


def _back(native: TorchModule) -> Module:
    """The model that a torch module was made of, with the values it has now."""
    if native.trellis_module is None:
        raise TypeError(f"{FROM}: this is a list or dict of parts of a converted model; give the whole, or one part")
    v, buffers = (_values(native, is_buffer) for is_buffer in (False, True))
    model = original(native.trellis_module, *({path: x.detach() for path, x in part.items()} for part in (v, buffers)))
    for (_, one, _), (_, now, _) in zip(modules(model), modules(native.trellis_module)):
        one.__dict__.pop("forward", None)
        one.training = now.training
    for path in model.frozen:
        model.unfreeze(path)
    for path, x in v.items():
        if not x.requires_grad:
            model.freeze(path)
    return model


def _values(native: TorchModule, buffers: bool) -> dict[str, torch.Tensor]:
    """Path -> the tensor that a converted model runs on, of the parameters or the buffers."""
    found = {id(array): table[name] if name in table else getattr(part, name) for array, table, name, part in native._arrays}
    return {path: found[id(array)] for path, array in gather(native.trellis_module, buffers).to_flat_dict().items()}


# ---- a torch module as a Module ------------------------------------------------------------------------------------------------
class FromTorch(Foreign):
    """A torch module as a Module that shares its state."""

    framework = "torch"

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
        with link.alone(), _seeded(self.next_seed()):  # functional_call swaps the arrays for a while
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
        if not isinstance(value, torch.Tensor):
            raise ValueError(
                f"{self.name!r} belongs to a torch module, and cannot be on another backend; rebuild the model there and give it "
                "the values of v"
            )
        own, value = self.table[self.name], value.detach()
        if value.dtype != own.dtype or value.device != own.device:
            own.data = value.clone()
        else:
            with torch.no_grad():
                own.copy_(value)


@contextlib.contextmanager
def _seeded(key: Any) -> Iterator[None]:
    """Draws of torch's own generators by a key, if one is given, and the generators as they were behind it."""
    if key is None or isinstance(key, NativeKey):
        yield
        return
    words = key_data("seed", key)
    high, low = words if isinstance(words, tuple) else map(int, np.asarray(to_numpy(words)))
    with torch.random.fork_rng():
        torch.manual_seed((high << 32 | low) - 2**63)
        yield


def from_native(
    native: Any, constructor_args: Any = (), constructor_kwargs: Any = None, instance_args: Any = (), instance_kwargs: Any = None,
    *, check: bool = True,
) -> Module:  # fmt: skip
    native = instance_of(FROM, native, torch.nn.Module, "a torch.nn.Module", constructor_args, constructor_kwargs)
    if isinstance(native, TorchModule):
        return _back(native)
    if isinstance(native, (torch.jit.ScriptModule, torch.nn.DataParallel)):
        raise TypeError(
            f"{FROM}: a {type(native).__name__} cannot run on other parameters; give the torch.nn.Module that it was made of"
        )
    _materialize(native, instance_args, instance_kwargs or {})
    model = FromTorch(native)
    if check:
        guesses = [] if instance_kwargs else _guesses(native)
        expected = _runner(native, {name.replace(".", "/"): x for name, x in native.named_parameters()}, instance_kwargs)
        checking.verify(FROM, expected, _foreign_runner(model, instance_kwargs), tuple(instance_args) or None, guesses)
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


def _foreign_runner(model: FromTorch, kwargs: Any) -> checking.Runner:
    def run(inputs: checking.Inputs, training: bool) -> checking.Outcome:
        with _as_it_was(model.native):
            return checking.scored(model.train(training), inputs, kwargs)

    return run


def _guesses(native: torch.nn.Module) -> Iterator[checking.Inputs]:
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
