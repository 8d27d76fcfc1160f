"""Multi-head attention, and the layers of a transformer around it. In every mask True, or any number but 0, means: attend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Unpack

from trellis.core.typing import AnyArray
from trellis.nn.building import Options
from trellis.nn.functions import activation_of
from trellis.nn.layer import Layer, inherited, initial, probability, size
from trellis.nn.linear import Linear
from trellis.nn.normalization import LayerNorm
from trellis.nn.torch_names import ATTENTION, TRANSFORMER
from trellis.ops.attention import dropout, multi_head_attention
from trellis.ops.elementwise import add

__all__ = [
    "MultiHeadAttention", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer",
]  # fmt: skip

Activation = str | Callable[[Any], Any]


class MultiHeadAttention(Layer):
    """Attention of `num_heads` heads: query [batch, q, embed_dim]; key and value [batch, k, ...] are the query if not given.

    Projections: `in_proj_weights` [3 * embed_dim, embed_dim], or with `key_dim` or `value_dim` `q_`, `k_` and `v_proj_weights`;
    `in_proj_bias`, `out_proj_weights`, `out_proj_bias`. Masks and results are those of `tl.multi_head_attention`.

    >>> import trellis as tl
    >>> tl.MultiHeadAttention(16, 4)(tl.ones((2, 5, 16)), is_causal=True).shape
    (2, 5, 16)
    """

    _torch_rows = ATTENTION

    def __init__(
        self, embed_dim: int, num_heads: int = 8, *, key_dim: int | None = None, value_dim: int | None = None,
        dropout: float = 0.0, scale: float | None = None, with_bias: bool = True, weight_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros", **options: Unpack[Options],
    ) -> None:  # fmt: skip
        name = "MultiHeadAttention"
        self.embed_dim, self.num_heads = size(name, "embed_dim", embed_dim), size(name, "num_heads", num_heads)
        if embed_dim % num_heads:
            raise ValueError(f"{name}: num_heads={num_heads} does not divide embed_dim={embed_dim}")
        self.key_dim = None if key_dim is None else size(name, "key_dim", key_dim)
        self.value_dim = None if value_dim is None else size(name, "value_dim", value_dim)
        self.dropout, self.scale, self.with_bias = probability(name, "dropout", dropout), scale, with_bias
        self.weight_initializer, self.bias_initializer = weight_initializer, bias_initializer
        super().__init__(**options)
        self._keep_random_state()

    def _create_variables(self, device: Any, dtype: Any) -> Mapping[str, Any]:
        width, key, value = self.embed_dim, self.key_dim, self.value_dim
        shapes = {"in_proj_weights": (3 * width, width)}
        if key is not None or value is not None:
            shapes = {f"{name}_proj_weights": (width, size or width) for name, size in zip("qkv", (width, key, value))}
        shapes["out_proj_weights"] = width, width
        made = {name: initial(self, "weight_initializer", shape, device, dtype) for name, shape in shapes.items()}
        biases = {"in_proj_bias": 3 * width, "out_proj_bias": width} if self.with_bias else {}
        return made | {name: initial(self, "bias_initializer", (n,), device, dtype) for name, n in biases.items()}

    def forward(
        self, query: AnyArray, key: AnyArray | None = None, value: AnyArray | None = None, *, mask: AnyArray | None = None,
        key_padding_mask: AnyArray | None = None, is_causal: bool = False, return_attention_weights: bool = False,
        average_attention_weights: bool = True,
    ) -> Any:  # fmt: skip
        own = self.__dict__
        drops = self.training and self.dropout > 0
        return multi_head_attention(
            query, key=key, value=value, num_heads=self.num_heads, scale=self.scale, mask=mask, key_padding_mask=key_padding_mask,
            **{name: own.get(name) for name in ATTENTION}, is_causal=is_causal, dropout_p=self.dropout, training=drops,
            seed=self.next_seed() if drops else None, return_attention_weights=return_attention_weights,
            average_attention_weights=average_attention_weights,
        )  # fmt: skip


class TransformerLayer(Layer):
    """The common part of encoder and decoder layers: attention and two linear layers, each added to its input."""

    _torch_rows = TRANSFORMER
    has_memory = False  # whether it attends to a memory too

    def __init__(
        self, embed_dim: int, num_heads: int = 8, feedforward_dim: int = 2048, *, dropout: float = 0.1,
        activation: Activation = "relu", norm_first: bool = False, eps: float = 1e-5, with_bias: bool = True,
        **options: Unpack[Options],
    ) -> None:  # fmt: skip
        name = type(self).__name__
        self.embed_dim, self.num_heads, self.feedforward_dim = embed_dim, num_heads, feedforward_dim
        self.dropout, self.norm_first = probability(name, "dropout", dropout), norm_first
        self.activation, self.eps, self.with_bias = activation, eps, with_bias
        self._function = activation_of(name, activation)
        given = inherited(options)
        self.attention = MultiHeadAttention(embed_dim, num_heads, dropout=dropout, with_bias=with_bias, **next(given))
        if self.has_memory:
            self.cross_attention = MultiHeadAttention(embed_dim, num_heads, dropout=dropout, with_bias=with_bias, **next(given))
        self.linear1 = Linear(embed_dim, feedforward_dim, with_bias=with_bias, **next(given))
        self.linear2 = Linear(feedforward_dim, embed_dim, with_bias=with_bias, **next(given))
        self.norm1 = LayerNorm(embed_dim, eps=eps, with_bias=with_bias, **next(given))
        self.norm2 = LayerNorm(embed_dim, eps=eps, with_bias=with_bias, **next(given))
        if self.has_memory:
            self.norm3 = LayerNorm(embed_dim, eps=eps, with_bias=with_bias, **next(given))
        super().__init__(**options)
        self._keep_random_state()

    def _dropped(self, x: AnyArray) -> AnyArray:
        return dropout(x, self.dropout, seed=self.next_seed()) if self.training and self.dropout else x

    def _added(self, x: AnyArray, norm: Any, block: Callable[[Any], Any]) -> AnyArray:
        """x + block(norm(x)) with `norm_first`, else norm(x + block(x))."""
        return add(x, self._dropped(block(norm(x)))) if self.norm_first else norm(add(x, self._dropped(block(x))))

    def _feedforward(self, x: AnyArray) -> AnyArray:
        return self.linear2(self._dropped(self._function(self.linear1(x))))


class TransformerEncoderLayer(TransformerLayer):
    """Self-attention and a network of two linear layers: x [batch, length, embed_dim]; with `is_causal` for decoder-only models.

    >>> import trellis as tl
    >>> tl.TransformerEncoderLayer(16, 4, 32, norm_first=True)(tl.ones((2, 5, 16))).shape
    (2, 5, 16)
    """

    def forward(
        self, x: AnyArray, *, mask: AnyArray | None = None, key_padding_mask: AnyArray | None = None, is_causal: bool = False
    ) -> AnyArray:
        def attend(y: AnyArray) -> AnyArray:
            return self.attention(y, mask=mask, key_padding_mask=key_padding_mask, is_causal=is_causal)

        return self._added(self._added(x, self.norm1, attend), self.norm2, self._feedforward)


class TransformerDecoderLayer(TransformerLayer):
    """Self-attention, attention to `memory` [batch, k, embed_dim], and a network of two linear layers.

    >>> import trellis as tl
    >>> tl.TransformerDecoderLayer(16, 4, 32)(tl.ones((2, 5, 16)), tl.ones((2, 7, 16)), is_causal=True).shape
    (2, 5, 16)
    """

    has_memory = True

    def forward(
        self, x: AnyArray, memory: AnyArray, *, mask: AnyArray | None = None, memory_mask: AnyArray | None = None,
        key_padding_mask: AnyArray | None = None, memory_key_padding_mask: AnyArray | None = None, is_causal: bool = False,
    ) -> AnyArray:  # fmt: skip
        def attend(y: AnyArray) -> AnyArray:
            return self.attention(y, mask=mask, key_padding_mask=key_padding_mask, is_causal=is_causal)

        def attend_memory(y: AnyArray) -> AnyArray:
            return self.cross_attention(y, memory, memory, mask=memory_mask, key_padding_mask=memory_key_padding_mask)

        x = self._added(x, self.norm1, attend)
        return self._added(self._added(x, self.norm2, attend_memory), self.norm3, self._feedforward)


class TransformerStack(Layer):
    """Layers of one kind, one after the other, and a normalization at the end, which `norm_first` asks for."""

    layer: Callable[..., Any]

    def __init__(
        self, num_layers: int, embed_dim: int, num_heads: int = 8, feedforward_dim: int = 2048, *, dropout: float = 0.1,
        activation: Activation = "relu", norm_first: bool = False, final_norm: bool | None = None, eps: float = 1e-5,
        with_bias: bool = True, **options: Unpack[Options],
    ) -> None:  # fmt: skip
        self.num_layers = size(type(self).__name__, "num_layers", num_layers)
        self.embed_dim, self.num_heads, self.feedforward_dim, self.dropout = embed_dim, num_heads, feedforward_dim, dropout
        self.activation, self.norm_first, self.final_norm = activation, norm_first, final_norm
        self.eps, self.with_bias = eps, with_bias
        given = inherited(options)
        self.layers = [
            self.layer(
                embed_dim, num_heads, feedforward_dim, dropout=dropout, activation=activation, norm_first=norm_first, eps=eps,
                with_bias=with_bias, **next(given),
            )
            for _ in range(num_layers)
        ]  # fmt: skip
        ends = norm_first if final_norm is None else final_norm
        self.norm = LayerNorm(embed_dim, eps=eps, with_bias=with_bias, **next(given)) if ends else None
        super().__init__(**options)

    def forward(self, x: AnyArray, *args: Any, **kwargs: Any) -> AnyArray:
        for layer in self.layers:
            x = layer(x, *args, **kwargs)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(TransformerStack):
    """`num_layers` of `TransformerEncoderLayer`; a call takes what these take. `is_causal=True` makes it a decoder-only model.

    >>> import trellis as tl
    >>> tl.TransformerEncoder(2, 16, 4, 32)(tl.ones((2, 5, 16)), is_causal=True).shape
    (2, 5, 16)
    """

    layer = TransformerEncoderLayer


class TransformerDecoder(TransformerStack):
    """`num_layers` of `TransformerDecoderLayer`; a call takes what these take: x, memory and masks.

    >>> import trellis as tl
    >>> tl.TransformerDecoder(2, 16, 4, 32)(tl.ones((2, 5, 16)), tl.ones((2, 7, 16)), is_causal=True).shape
    (2, 5, 16)
    """

    layer = TransformerDecoderLayer
