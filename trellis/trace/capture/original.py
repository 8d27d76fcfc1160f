"""A source of torch as it runs in torch, for comparison: nothing of it changes, and dropout passes everything on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from trellis.trace.capture.torch import Nest, fill, in_mode, is_tensor

_DROPOUTS = {f"{kind}dropout{rank}" for kind in ("", "feature_", "alpha_", "feature_alpha_", "native_") for rank in ("", *"123")}


class _NoDropout(TorchFunctionMode):
    """Calls of torch's dropout functions pass their first argument on; attention drops nothing."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(function, "__name__", "")
        if name.strip("_") in _DROPOUTS:
            return args[0] if args else kwargs["input"]
        if name in ("lstm", "gru", "rnn_tanh", "rnn_relu") and isinstance(args[3], bool):
            args = (*args[:5], 0.0, *args[6:])
        if name == "multi_head_attention_forward":  # runs without this mode
            if len(args) > 10:
                args = (*args[:10], 0.0, *args[11:])
            else:
                kwargs["dropout_p"] = 0.0
        if name == "scaled_dot_product_attention":
            kwargs["dropout_p"] = 0.0
            args = (
                args[:4] + args[5:] if len(args) > 4 and len(args) < 6 else (*args[:4], 0.0, *args[5:]) if len(args) > 5 else args
            )
            if len(args) > 5:
                kwargs.pop("dropout_p")
        return function(*args, **kwargs)


class TorchOriginal:
    """A torch function or module on lists of tensors."""

    def __init__(self, source: Any, nest: Nest) -> None:
        self.source, self.nest = source, nest
        self.is_module = isinstance(source, torch.nn.Module)
        parameters = dict(source.named_parameters()) if self.is_module else {}
        self.sizes = {name: p.numel() for name, p in parameters.items() if p.requires_grad and p.is_floating_point()}

    @contextlib.contextmanager
    def _alone(self, training: bool, gradients: bool = False) -> Iterator[Callable[[Sequence[Any]], list[Any]]]:
        """Inside, the source may run: its buffers, modes and the random state are restored."""
        buffers = [(b, b.detach().clone()) for b in self.source.buffers()] if self.is_module else []
        with in_mode(self.source, training), torch.random.fork_rng(devices=[]), torch.set_grad_enabled(gradients), _NoDropout():

            def run(tensors: Sequence[Any]) -> list[Any]:
                args, kwargs = fill(self.nest.skeleton, [x.clone() if gradients is False else x for x in tensors])
                return Nest(self.source(*args, **kwargs)).tensors

            try:
                yield run
            finally:
                with torch.no_grad():
                    for buffer, value in buffers:
                        if not torch.equal(buffer, value):
                            buffer.copy_(value)

    def outputs(self, tensors: Sequence[Any], training: bool) -> list[Any]:
        with self._alone(training) as run:
            return [x.detach() if is_tensor(x) else x for x in run(tensors)]

    def graph_functions(self, tensors: Sequence[Any]) -> list[Any]:
        """The results with their gradient functions."""
        with self._alone(False, gradients=True) as run:
            return run(tensors)

    def gradients(self, tensors: Sequence[Any], cotangents: Sequence[Any], names: Sequence[str], training: bool) -> list[Any]:
        parameters = dict(self.source.named_parameters())
        with self._alone(training, gradients=True) as run:
            results = run(tensors)
            total = sum(
                ((y * torch.as_tensor(c)).sum() for y, c in zip(results, cotangents) if c is not None and y.requires_grad),
                start=torch.zeros(()),
            )
            if not total.requires_grad:
                return [torch.zeros_like(parameters[name]) for name in names]
            return list(torch.autograd.grad(total, [parameters[n] for n in names], allow_unused=True, materialize_grads=True))

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
