"""`torch.nn.Module`s, both ways.

- `TorchModule` is a Trellis model as a torch module: each part of the model is a part of it, with the parameters and buffers of
  that part. A copy of the model runs on them; what is computed, and what autograd and torch.compile see, are torch's own ops.
- `FromTorch` is a torch module as a `tl.Module`. Its `v` are views of the parameters without their graph: an optimizer of torch
  and one of Trellis work on the same numbers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from trellis import tree
from trellis.array import Array
from trellis.backends.torch.meta import native_device
from trellis.backends.torch.random import Generator
from trellis.convert import check as checking
from trellis.convert.common import Foreign, Slot, instance_of, original, skeleton
from trellis.dispatch import load
from trellis.keys import key_data
from trellis.nn import torch_names
from trellis.nn.border import _inside as inside, across, outside
from trellis.nn.module import Module
from trellis.nn.structure import Binding, gather, modules
from trellis.ops.conversion import to_numpy
from trellis.sampling import NativeKey

load("torch")


# ---- a Module as a torch module ------------------------------------------------------------------------------------------------
class _Global(Generator):
    """torch's own generators, which torch.manual_seed seeds."""

    def __init__(self) -> None:
        super().__init__((0, 0))

    def _place(self, device: Any) -> dict[str, Any]:
        return {"device": torch.get_default_device() if device is None else native_device(device)}

    def dropout(self, x: torch.Tensor, prob: float) -> torch.Tensor:
        return torch.dropout(x, prob, True)


class _Draws:
    """Every draw of a run takes from torch's generators."""

    key = NativeKey(_Global())

    def next(self) -> NativeKey:
        return self.key


_DRAWS = _Draws()
_IN_TORCH = Binding(stream=_DRAWS)  # what all Modules run by torch modules are bound to


# A table of torch's, a name, and whose table it is: a parametrization takes the name out of the table, and the part computes it.
_Place = tuple[dict[str, Any], str, Any]


class TorchModule(torch.nn.Module):
    """A Trellis model, or a part of one, as a torch module. `trellis_module` is what computes; it holds no state of its own."""

    trellis_module: Any  # None for a list or dict of parts

    def __init__(self, module: Module | None) -> None:
        super().__init__()
        self.trellis_module = module
        self._places: list[_Place | None] = []  # where torch holds each array of the model, in its order
        if module is not None:
            self.training = module.training

    def _bind(self) -> None:
        """Prepare what a call needs. Not copied with the module: a copy binds its own."""
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
    """In the place of `forward` of a part that has hooks. A copy of the part puts its own there."""

    def __init__(self, part: TorchModule | None) -> None:
        self.part = part

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return inside(self.part(*outside(args), **outside(kwargs)), [])  # type: ignore[misc]

    def __deepcopy__(self, memo: Any) -> _Hooked:
        return _Hooked(None)

    def __reduce__(self) -> Any:
        return _Hooked, (None,)


def _past_hooks(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a part computes: torch has called its hooks already."""
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
    native = _parts(skeleton(model, "torch", "to_torch_module"))
    if check:
        checking.verify("to_torch_module", checking.module_runner(model), _runner(native), inputs, list(checking.guesses(model)))
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
        raise TypeError("from_torch_module: this is a list or dict of parts of a converted model; give the whole, or one part")
    found = {id(array): table[name] if name in table else getattr(part, name) for array, table, name, part in native._arrays}
    arrays = [gather(native.trellis_module, buffers).to_flat_dict() for buffers in (False, True)]
    v, buffers = ({path: found[id(array)].detach() for path, array in part.items()} for part in arrays)
    model = original(native.trellis_module, v, buffers)
    for _, one, _ in modules(model):
        one.__dict__.pop("forward", None)
    frozen = model.frozen
    for path, array in arrays[0].items():
        if (path in frozen) is found[id(array)].requires_grad:
            (model.unfreeze if path in frozen else model.freeze)(path)
    for (_, one, _), (_, now, _) in zip(modules(model), modules(native.trellis_module)):
        one.training = now.training
    return model


# ---- a torch module as a Module ------------------------------------------------------------------------------------------------
class FromTorch(Foreign):
    """A torch module as a Module that shares its state."""

    framework = "torch"
    names: Names

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

    def _connect(self) -> None:
        super()._connect()
        slots = self._meta.link.slots
        object.__setattr__(self, "names", Names([".".join(slot.path) for slot in slots], [slot.is_buffer for slot in slots]))

    def _native_mode(self, mode: bool | None) -> bool:
        if mode is not None:
            self.native.train(mode)
        return self.native.training

    def _call_native(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self._meta.link.alone():
            return self.native(*args, **kwargs)

    def _call_pure(self, arrays: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Mapping[int, Any]]:
        names = self.names
        given = [x.clone() if is_buffer else x for x, is_buffer in zip(arrays, names.are_buffers)]
        state = dict(zip(names.all, given))
        with self._meta.link.alone(), _seeded(self.next_seed()):  # functional_call swaps the arrays for a while
            result = torch.func.functional_call(self.native, state, args, kwargs, tie_weights=False)
        # torch's batch normalization changes its statistics without a sign
        training = any(names.are_buffers) and any(part.training for part in self.native.modules())
        changed = {}
        for i, (name, is_buffer) in enumerate(zip(names.all, names.are_buffers)):
            if is_buffer and (training or state[name] is not given[i] or given[i]._version):
                changed[i] = state[name]
        return result, changed


class Names:
    """The names of the arrays of a torch module, in the order of the slots."""

    def __init__(self, all: list[str], are_buffers: list[bool]) -> None:
        self.all, self.are_buffers = all, are_buffers


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
    owner = "from_torch_module"
    native = instance_of(owner, native, torch.nn.Module, "a torch.nn.Module", constructor_args, constructor_kwargs)
    if isinstance(native, TorchModule):
        return _back(native)
    if isinstance(native, (torch.jit.ScriptModule, torch.nn.DataParallel)):
        raise TypeError(
            f"{owner}: a {type(native).__name__} cannot run on other parameters; give the torch.nn.Module that it was made of"
        )
    _materialize(owner, native, instance_args, instance_kwargs or {})
    model = FromTorch(native)
    if check:
        inputs = tuple(instance_args) or None
        found = _foreign_runner(model, instance_kwargs or {})
        checking.verify(owner, _runner(native, instance_kwargs), found, inputs, [] if instance_kwargs else list(_guesses(native)))
    return model


def _materialize(owner: str, native: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
    """Give lazy modules their shapes, by a call."""
    waiting = [name for name, x in [*native.named_parameters(), *native.named_buffers()] if is_lazy(x)]
    if not waiting:
        return
    if not args and not kwargs:
        raise ValueError(f"{owner}: {waiting[0]!r} has no shape before the first call; give instance_args= to call it with")
    with _as_it_was(native), torch.no_grad():
        native.eval()(*tree.map(_native, tuple(args)), **tree.map(_native, kwargs))


def _native(x: Any) -> Any:
    return x._data if isinstance(x, Array) else x


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


def _runner(native: torch.nn.Module, kwargs: Any = None) -> checking.Runner:
    """Runs of a torch module as torch runs it."""
    parameters = {name.replace(".", "/"): x for name, x in native.named_parameters()}

    def run(inputs: checking.Inputs, training: bool) -> checking.Outcome:
        with _as_it_was(native):
            native.train(training)
            result = native(*_inputs(native, inputs), **(kwargs or {}))
            outputs = [x for x in tree.leaves(result) if isinstance(x, torch.Tensor)]
            total: Any = 0.0
            for x, weight in zip(outputs, checking.weights(outputs)):
                if x.is_floating_point() and x.requires_grad:
                    total = total + (x * torch.from_numpy(weight).to(x)).sum()
            gradients = {name: torch.zeros_like(x) for name, x in parameters.items()}
            wanted = {name: x for name, x in parameters.items() if x.requires_grad}
            if isinstance(total, torch.Tensor):
                found = torch.autograd.grad(total, list(wanted.values()), allow_unused=True, materialize_grads=True)
                gradients.update(zip(wanted, found))
        return checking.Outcome(
            checking.outputs_of(outputs),
            {name: np.asarray(to_numpy(x)) for name, x in gradients.items()},
            lambda: _native_parts(native, inputs, training, kwargs),
        )

    return run


def _native_parts(native: torch.nn.Module, inputs: Any, training: bool, kwargs: Any) -> dict[str, Any]:
    """What the parts return: of a converted model by its own means, else by hooks."""
    if isinstance(native, TorchModule):
        return checking.module_runner(_back(native))(inputs, training).parts()
    found: dict[str, Any] = {}

    def hook(path: str) -> Any:
        return lambda part, args, result: found.setdefault(path, []).append(checking.outputs_of(result))

    handles = [part.register_forward_hook(hook(name.replace(".", "/"))) for name, part in native.named_modules() if name]
    try:
        with _as_it_was(native), torch.no_grad():
            native.train(training)(*_inputs(native, inputs), **(kwargs or {}))
    finally:
        for handle in handles:
            handle.remove()
    return found


def _inputs(native: torch.nn.Module, inputs: Any) -> Any:
    like = next((x for x in native.parameters() if x.is_floating_point()), None)

    def bring(x: Any) -> Any:
        if not isinstance(x, np.ndarray):
            return x
        made = torch.from_numpy(x.copy())
        return made if like is None else made.to(like.device, like.dtype if made.is_floating_point() else made.dtype)

    return tree.map(bring, inputs)


def _foreign_runner(model: FromTorch, kwargs: Any) -> checking.Runner:
    def run(inputs: checking.Inputs, training: bool) -> checking.Outcome:
        with _as_it_was(model.native):
            model.train(training)
            return checking.Outcome(*checking.scored(model, checking.on_backend(inputs, model), kwargs))

    return run


def _guesses(native: torch.nn.Module) -> Iterator[checking.Inputs]:
    """Inputs for the first part whose class is known."""
    for part in native.modules():
        for kind, hint in _HINTS.items():
            if isinstance(part, kind):
                name, attribute = hint
                size = getattr(part, attribute)
                size = size[-1] if isinstance(size, tuple) else size
                yield from checking.repeated(native.forward, checking.arrays(name, size, channel_last=False))
                return


_HINTS: dict[type, tuple[str, str]] = {  # the first that a part is an instance of
    torch.nn.Conv1d: ("line", "in_channels"),
    torch.nn.ConvTranspose1d: ("line", "in_channels"),
    torch.nn.Conv3d: ("volume", "in_channels"),
    torch.nn.ConvTranspose3d: ("volume", "in_channels"),
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
