"""`Linear`, and Modules one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Unpack

from trellis.array import Array
from trellis.dispatch import interpreters
from trellis.nn.building import Options
from trellis.nn.layer import initial, size
from trellis.nn.module import Module
from trellis.ops.attention import linear
from trellis.typing import AnyArray

__all__ = ["Linear", "Sequential"]


class Linear(Module):
    """`x @ w.mT + b` on the last axis of `x`, with `w` of shape (output_channels, input_channels).

    >>> import trellis as tl
    >>> tl.Linear(3, 4)(tl.ones((2, 5, 3))).shape
    (2, 5, 4)
    """

    w: AnyArray
    b: AnyArray

    def __init__(
        self, input_channels: int, output_channels: int, *, with_bias: bool = True, weight_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros", **options: Unpack[Options],
    ) -> None:  # fmt: skip
        self.input_channels = size("Linear", "input_channels", input_channels)
        self.output_channels = size("Linear", "output_channels", output_channels)
        self.with_bias, self.weight_initializer, self.bias_initializer = with_bias, weight_initializer, bias_initializer
        super().__init__(**options)

    def _create_variables(self, device: Any, dtype: Any) -> Mapping[str, Any]:
        return {
            "w": initial(self, "weight_initializer", (self.output_channels, self.input_channels), device, dtype),
            "b": initial(self, "bias_initializer", (self.output_channels,), device, dtype) if self.with_bias else None,
        }

    def forward(self, x: AnyArray) -> AnyArray:
        w, b = self.w, self.b
        if b is not None and type(x) is Array:  # the common case, spelt out because it is the hottest of all layers
            found = interpreters[type(x._data)]
            if interpreters[type(w._data)] is found and interpreters[type(b._data)] is found:
                try:
                    return Array(found.linear(x._data, w._data, b._data))
                except Exception:  # said in our words by the function
                    return linear(x, w, bias=b)
        return linear(x, w, bias=b)

    def _repr_arguments(self) -> str:
        return f"{self.input_channels}, {self.output_channels}" + ("" if self.with_bias else ", with_bias=False")


class Sequential(Module):
    """Modules or functions, one after the other; the first takes the arguments. Their parameters are at `v0`, `v1`, ...

    >>> import trellis as tl
    >>> model = tl.Sequential(tl.Linear(3, 4), tl.tanh, tl.Linear(4, 1))
    >>> model.v["v2/w"].shape, model(tl.ones((2, 3))).shape
    ((1, 4), (2, 1))
    """

    def __init__(self, *modules: Callable[..., Any], **options: Unpack[Options]) -> None:
        for i, module in enumerate(modules):
            if not callable(module):
                raise TypeError(f"Sequential: argument {i} is a {type(module).__name__}; expected a Module or a function")
            setattr(self, f"v{i}", module)
        self.length = len(modules)
        super().__init__(**options)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        for i, module in enumerate(self):
            args = (module(*args, **kwargs) if i == 0 else module(args[0]),)
        return args[0] if len(args) == 1 else args

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        return iter([getattr(self, f"v{i}") for i in range(self.length)])

    def __getitem__(self, index: int) -> Any:
        return list(self)[index]
