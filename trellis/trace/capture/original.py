"""A source of torch as it runs in torch, for comparison: nothing of it changes, and dropout passes everything on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from trellis.trace.capture.torch import Nest, changed_text, fill, in_mode, is_tensor
from trellis.trace.errors import TranspileError, user_line

_KINDS = ("", "feature_", "alpha_", "feature_alpha_", "native_")
_DROPOUTS = {*[f"{kind}dropout" for kind in _KINDS], "dropout1d", "dropout2d", "dropout3d"}


# Where other functions have a probability of dropout among their arguments.
_CHANCES = {"scaled_dot_product_attention": 4, "multi_head_attention_forward": 10}
_CHANCES |= dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), 5)


class _NoDropout(TorchFunctionMode):
    """Calls of torch's dropout functions pass their first argument on; attention drops nothing."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(function, "__name__", "")
        if name.strip("_") in _DROPOUTS:
            return args[0] if args else kwargs["input"]
        if function is torch.ops.higher_order.cond:  # torch would compile it, and modes cannot be compiled
            return args[1 if args[0] else 2](*args[3])
        place = _CHANCES.get(name, 0)
        if len(args) > place > 0 and (place != 5 or isinstance(args[3], bool)):  # recurrent networks of packed sequences differ
            args = (*args[:place], 0.0, *args[place + 1 :])
        elif place in (4, 10):
            kwargs["dropout_p"] = 0.0
        return function(*args, **kwargs)


class _NoWrites(TorchDispatchMode):
    """No op may write to the tensors of `names`, by the address of their memory: the source would not be as it was."""

    def __init__(self, names: dict[int, str]) -> None:
        super().__init__()
        self.names = names

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for spec, x in zip(function._schema.arguments, args) if function._schema.is_mutable else ():
            if spec.is_write and is_tensor(x) and x.numel() and _memory(x) in self.names:
                raise TranspileError(changed_text(user_line(), self.names[_memory(x)]))
        return function(*args, **(kwargs or {}))


def _memory(x: Any) -> int:
    return x.untyped_storage().data_ptr()


class TorchOriginal:
    """A torch function or module on lists of tensors."""

    def __init__(self, source: Any, nest: Nest) -> None:
        self.source, self.nest = source, nest
        self.is_module = isinstance(source, torch.nn.Module)
        self.guarded: dict[int, str] = {}  # names of the tensors that the first run may not write to, by address
        parameters = dict(source.named_parameters()) if self.is_module else {}
        kept = self.source.state_dict() if self.is_module else {}
        self.buffers = [name for name, _ in self.source.named_buffers() if name in kept] if self.is_module else []
        self.sizes = {name: p.numel() for name, p in parameters.items() if p.requires_grad and p.is_floating_point()}

    @contextlib.contextmanager
    def _alone(self, training: bool, gradients: bool = False) -> Iterator[Callable[[Sequence[Any]], list[Any]]]:
        """Inside, the source may run: its buffers, modes and the random state are restored."""
        parts = list(self.source.modules()) if self.is_module else []
        held = [(part._buffers, dict(part._buffers)) for part in parts]
        weights = [(p, p.detach()) for p in self.source.parameters()] if parts else []
        buffers = [(b, b.detach(), b.detach().clone()) for b in self.source.buffers()] if parts else []
        with (
            in_mode(self.source, training), torch.random.fork_rng(devices=[]), torch.set_grad_enabled(gradients),
            torch.compiler.set_stance("force_eager"), _NoDropout(),
        ):  # fmt: skip

            def run(tensors: Sequence[Any]) -> list[Any]:
                copies = [x.clone() for x in tensors]  # the source may change them
                self.guarded |= {_memory(x): f"argument {i}" for i, x in enumerate(copies)}
                args, kwargs = fill(self.nest.skeleton, copies)
                return Nest(self.source(*args, **kwargs)).tensors

            try:
                yield run
            finally:
                for found, before in held:  # the source may assign other tensors to its names
                    found.update(before)
                with torch.no_grad():
                    for weight, memory in weights:
                        weight.data = memory
                    for buffer, memory, value in buffers:
                        buffer.data = memory
                        if not torch.equal(buffer, value):
                            buffer.copy_(value)

    def outputs(self, tensors: Sequence[Any], training: bool) -> list[Any]:
        with self._alone(training) as run:
            made = run(tensors)
            made += [self.source.get_buffer(name) for name in self.buffers]
            return [x.detach().clone() if is_tensor(x) else x for x in made]

    def graph_functions(self, tensors: Sequence[Any]) -> list[Any]:
        """The results with their gradient functions. An argument, or a tensor that is no buffer, may not change."""
        for path, part in self.source.named_modules() if self.is_module else ():
            held = {**{k: x for k, x in vars(part).items() if is_tensor(x)}, **part._parameters}
            self.guarded |= {_memory(x): f"tensor {f'{path}.{k}'.strip('.')!r}" for k, x in held.items() if x is not None}
        with self._alone(False, gradients=True) as run, _NoWrites(self.guarded):
            return run(tensors)

    def gradients(self, tensors: Sequence[Any], cotangents: Sequence[Any], names: Sequence[str], training: bool) -> Any:
        parameters = dict(self.source.named_parameters())
        with self._alone(training, gradients=True) as run:
            results = run(tensors)
            total = sum(
                ((y * torch.as_tensor(c)).sum() for y, c in zip(results, cotangents) if c is not None and y.requires_grad),
                start=torch.zeros(()),
            )
            if not total.requires_grad:
                return [torch.zeros_like(parameters[name]) for name in names]
            try:
                return list(torch.autograd.grad(total, [parameters[n] for n in names], allow_unused=True, materialize_grads=True))
            except RuntimeError:  # an op has no derivative in torch: the source does not train there either
                return None

    def nudged(self, tensors: Sequence[Any]) -> list[Any]:
        rng = torch.Generator().manual_seed(0)
        return [x * (1 + 1e-6 * torch.randn(x.shape, generator=rng)).to(x.dtype) if x.is_floating_point() else x for x in tensors]

    def parts(self, tensors: Sequence[Any], training: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        handles = []

        def listen(path: str) -> Any:
            def hook(part: Any, args: Any, result: Any) -> None:
                values = Nest(result).tensors
                if values:
                    found.setdefault(path, values[0].detach())

            return hook

        for path, part in self.source.named_modules() if self.is_module else ():
            handles.append(part.register_forward_hook(listen(path)))
        try:
            self.outputs(tensors, training)
        finally:
            for handle in handles:
                handle.remove()
        return found
