"""`Linear`, `Bilinear` and `Embedding`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from trellis.core.array import Array
from trellis.core.dispatch import diagnose, interpreters
from trellis.core.typing import AnyArray
from trellis.nn.building import Options
from trellis.nn.layer import Layer, initial, size, weight_and_bias
from trellis.nn.torch_names import AFFINE
from trellis.ops.attention import embedding, linear
from trellis.ops.elementwise import add
from trellis.ops.products import einsum
from trellis.ops.shapes import check_linear
from trellis.random.initializers import Normal

__all__ = ["Bilinear", "Embedding", "Linear"]

_UNIT = Normal(0.0, 1.0)


class Linear(Layer):
    """`x @ w.mT + b` on the last axis of `x`, with `w` of shape (output_channels, input_channels).

    >>> import trellis as tl
    >>> tl.Linear(3, 4)(tl.ones((2, 5, 3))).shape
    (2, 5, 4)
    """

    _torch_rows = AFFINE
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
        return weight_and_bias(self, (self.output_channels, self.input_channels), device, dtype)

    def forward(self, x: AnyArray) -> AnyArray:
        w, b = self.w, self.b
        if b is not None and type(x) is Array:  # the common case, spelt out because it is the hottest of all layers
            found = interpreters[type(x._data)]
            if interpreters[type(w._data)] is found and interpreters[type(b._data)] is found:
                try:
                    return Array(found.linear(x._data, w._data, b._data))
                except Exception as error:  # name a mistake as `tl.linear` does; all other errors go on as they are
                    check_linear("linear", x.shape, w.shape, b.shape)
                    diagnose("linear", (x, w, b), {}, error)
                    raise
        return linear(x, w, bias=b)


class Bilinear(Layer):
    """x1 @ w[k] @ x2 + b[k] for each of the outputs, with `w` of shape (output_channels, input1_channels, input2_channels).

    >>> import trellis as tl
    >>> tl.Bilinear(3, 4, 5)(tl.ones((2, 3)), tl.ones((2, 4))).shape
    (2, 5)
    """

    _torch_rows = AFFINE
    w: AnyArray
    b: AnyArray

    def __init__(
        self, input1_channels: int, input2_channels: int, output_channels: int, *, with_bias: bool = True,
        weight_initializer: Any = "glorot_uniform", bias_initializer: Any = "zeros", **options: Unpack[Options],
    ) -> None:  # fmt: skip
        self.input1_channels = size("Bilinear", "input1_channels", input1_channels)
        self.input2_channels = size("Bilinear", "input2_channels", input2_channels)
        self.output_channels = size("Bilinear", "output_channels", output_channels)
        self.with_bias, self.weight_initializer, self.bias_initializer = with_bias, weight_initializer, bias_initializer
        super().__init__(**options)

    def _create_variables(self, device: Any, dtype: Any) -> Mapping[str, Any]:
        shape = self.output_channels, self.input1_channels, self.input2_channels
        return weight_and_bias(self, shape, device, dtype, out_axis=0)

    def forward(self, x1: AnyArray, x2: AnyArray) -> AnyArray:
        y = einsum("...i,kij,...j->...k", x1, self.w, x2)
        return y if self.b is None else add(y, self.b)


class Embedding(Layer):
    """A row of `w` [num_embeddings, embedding_dim] for each integer; the row `padding_idx` is 0 and gets no gradient.

    >>> import trellis as tl
    >>> tl.Embedding(10, 4)(tl.asarray([[1, 2, 3]])).shape
    (1, 3, 4)
    """

    _torch_rows = AFFINE
    w: AnyArray

    def __init__(
        self, num_embeddings: int, embedding_dim: int, *, padding_idx: int | None = None, max_norm: float | None = None,
        weight_initializer: Any = _UNIT, **options: Unpack[Options],
    ) -> None:  # fmt: skip
        self.num_embeddings = size("Embedding", "num_embeddings", num_embeddings)
        self.embedding_dim = size("Embedding", "embedding_dim", embedding_dim)
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ValueError(f"Embedding: padding_idx={padding_idx} is out of range for num_embeddings={num_embeddings}")
        self.padding_idx, self.max_norm, self.weight_initializer = padding_idx, max_norm, weight_initializer
        super().__init__(**options)

    def _create_variables(self, device: Any, dtype: Any) -> Mapping[str, Any]:
        w = initial(self, "weight_initializer", (self.num_embeddings, self.embedding_dim), device, dtype)
        if self.padding_idx is not None:
            w[self.padding_idx] = 0.0
        return {"w": w}

    def forward(self, indices: AnyArray) -> AnyArray:
        return embedding(indices, self.w, padding_idx=self.padding_idx, max_norm=self.max_norm)
