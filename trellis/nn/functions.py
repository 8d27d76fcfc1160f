"""Functions of one array as layers, made from a table: the activations, and pooling.

The constructor takes the parameters of the function behind its array, by position or by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Unpack

from trellis.core.typing import AnyArray
from trellis.nn.building import Options
from trellis.nn.layer import Layer, initial, size
from trellis.nn.module import Module
from trellis.nn.torch_names import AFFINE
from trellis.ops import activations, elementwise, pooling, products, special
from trellis.random import distributions

# The layers of the activations whose functions have the same names, in small letters.
_ACTIVATIONS = (
    "CELU", "ELU", "GELU", "GLU", "Hardsigmoid", "Hardswish", "Hardtanh", "LogSigmoid", "Mish", "ReLU", "ReLU6", "SELU", "SiLU",
    "Softplus", "Softsign", "SwiGLU",
)  # fmt: skip
__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    *_ACTIVATIONS, "AdaptiveAvgPool1D", "AdaptiveAvgPool2D", "AdaptiveAvgPool3D", "AdaptiveMaxPool1D", "AdaptiveMaxPool2D",
    "AdaptiveMaxPool3D", "AvgPool1D", "AvgPool2D", "AvgPool3D", "GlobalAvgPool", "GlobalMaxPool", "GumbelSoftmax", "LeakyReLU",
    "LogSoftmax", "MaxPool1D", "MaxPool2D", "MaxPool3D", "PReLU", "Sigmoid", "Softmax", "Tanh",
]  # fmt: skip

Function = Callable[..., Any]


class FunctionLayer(Module):
    """A function of one array and of parameters, which are attributes."""

    function: Function
    signature: inspect.Signature  # of the constructor
    positional: tuple[str, ...]  # the parameters that the function takes by position, and those by name
    named: tuple[str, ...]
    draws: bool

    def __init__(self, *args: Any, **options: Any) -> None:
        known = {name: options.pop(name) for name in self.signature.parameters if name in options}
        try:
            given = self.signature.bind(*args, **known)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}{self.signature}: {error}") from None
        given.apply_defaults()
        for name, value in given.arguments.items():
            setattr(self, name, value)
        super().__init__(**options)
        if self.draws:
            self._keep_random_state()

    def forward(self, x: AnyArray) -> AnyArray:
        named = {name: getattr(self, name) for name in self.named}
        if self.draws:
            named["seed"] = self.next_seed()
        return self.function(x, *[getattr(self, name) for name in self.positional], **named)

    def _repr_arguments(self) -> str:
        found = [(p, getattr(self, name)) for name, p in self.signature.parameters.items()]
        return ", ".join(repr(x) if p.default is p.empty else f"{p.name}={x!r}" for p, x in found if x != p.default)


def _layer(name: str, function: Function) -> type[FunctionLayer]:
    parameters = list(inspect.signature(function).parameters.values())[1:]
    kept = [p.replace(kind=p.POSITIONAL_OR_KEYWORD) for p in parameters if p.name != "seed"]
    positional = tuple(p.name for p in parameters if p.kind is p.POSITIONAL_ONLY)
    members = {
        "function": staticmethod(function), "signature": inspect.Signature(kept), "draws": len(kept) < len(parameters),
        "positional": positional, "named": tuple(p.name for p in kept if p.name not in positional),
        "__doc__": function.__doc__, "__module__": __name__, "__signature__": inspect.Signature(kept),
    }  # fmt: skip
    return type(name, (FunctionLayer,), members)


def _layers(name: str, function: str) -> list[type[FunctionLayer]]:
    """The layers of pooling over one, two and three axes."""
    return [_layer(f"{name}{rank}D", getattr(pooling, f"{function}{rank}d")) for rank in (1, 2, 3)]


globals().update({name: _layer(name, getattr(activations, name.lower())) for name in _ACTIVATIONS})
GumbelSoftmax = _layer("GumbelSoftmax", distributions.gumbel_softmax)
LeakyReLU = _layer("LeakyReLU", activations.leaky_relu)
LogSoftmax = _layer("LogSoftmax", products.log_softmax)
Sigmoid = _layer("Sigmoid", special.sigmoid)
Softmax = _layer("Softmax", products.softmax)
Tanh = _layer("Tanh", elementwise.tanh)

AdaptiveAvgPool1D, AdaptiveAvgPool2D, AdaptiveAvgPool3D = _layers("AdaptiveAvgPool", "adaptive_avg_pool")
AdaptiveMaxPool1D, AdaptiveMaxPool2D, AdaptiveMaxPool3D = _layers("AdaptiveMaxPool", "adaptive_max_pool")
AvgPool1D, AvgPool2D, AvgPool3D = _layers("AvgPool", "avg_pool")
MaxPool1D, MaxPool2D, MaxPool3D = _layers("MaxPool", "max_pool")
GlobalAvgPool = _layer("GlobalAvgPool", pooling.global_avg_pool)
GlobalMaxPool = _layer("GlobalMaxPool", pooling.global_max_pool)


class PReLU(Layer):
    """x where x > 0, else w * x. `w` is trained: one slope, or one slope per channel.

    >>> import trellis as tl
    >>> tl.PReLU()(tl.asarray([[-2.0, 2.0]]))
    Array([[-0.5,  2. ]], dtype=float32, backend='numpy', device='cpu')
    """

    _torch_rows = AFFINE
    w: AnyArray

    def __init__(
        self, num_parameters: int = 1, *, data_format: str = "channel_last", weight_initializer: Any = 0.25,
        **options: Unpack[Options],
    ) -> None:  # fmt: skip
        self.num_parameters, self.data_format = size("PReLU", "num_parameters", num_parameters), data_format
        self.weight_initializer = weight_initializer
        super().__init__(**options)

    def _create_variables(self, device: Any, dtype: Any) -> Mapping[str, Any]:
        return {"w": initial(self, "weight_initializer", (self.num_parameters,), device, dtype)}

    def forward(self, x: AnyArray) -> AnyArray:
        return activations.prelu(x, self.w, data_format=self.data_format)


def activation_of(layer: str, activation: str | Function) -> Function:
    """The function that a layer was given, or the name of."""
    if callable(activation):
        return activation
    found = {"tanh": elementwise.tanh, **{name: getattr(activations, name) for name in activations.__all__}}.get(activation)
    if found is None:
        raise ValueError(f"{layer}: activation={activation!r} is unknown; use a function, or its name, as 'relu' or 'gelu'")
    return found
