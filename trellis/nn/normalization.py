"""Normalization layers, with a scale `w` and an offset `b`; `BatchNorm` keeps running statistics as buffers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from trellis.core.dispatch import target
from trellis.core.typing import AnyArray, Shape
from trellis.nn.building import Options
from trellis.nn.layer import Layer, initial, size
from trellis.nn.torch_names import NORMALIZATION
from trellis.ops.arguments import shape as shape_argument
from trellis.ops.conversion import astype
from trellis.ops.creation import ones, zeros
from trellis.ops.normalization import batch_norm, group_norm, instance_norm, layer_norm, rms_norm
from trellis.ops.windows import channel_last

__all__ = ["BatchNorm1D", "BatchNorm2D", "BatchNorm3D", "GroupNorm", "InstanceNorm", "LayerNorm", "RMSNorm"]


class Normalization(Layer):
    """A scale and an offset of one shape, unless `affine` is False; without bias the scale alone."""

    _torch_rows = NORMALIZATION
    affine: bool
    with_bias = True
    weight_initializer: Any = "ones"
    bias_initializer: Any = "zeros"
    w: AnyArray
    b: AnyArray

    def _shape(self) -> tuple[int, ...]:
        raise NotImplementedError

    def _create_variables(self, device: Any, dtype: Any) -> Mapping[str, Any]:
        wanted = {"w": ("weight_initializer", self.affine), "b": ("bias_initializer", self.affine and self.with_bias)}
        shape = self._shape()
        return {name: initial(self, by, shape, device, dtype) if here else None for name, (by, here) in wanted.items()}


class ChannelNormalization(Normalization):
    """One scale and one offset per channel."""

    def __init__(
        self, num_features: int, *, eps: float = 1e-5, affine: bool = True, data_format: str = "channel_last",
        weight_initializer: Any = "ones", bias_initializer: Any = "zeros", **options: Unpack[Options],
    ) -> None:  # fmt: skip
        self.num_features = size(type(self).__name__, "num_features", num_features)
        self.eps, self.affine, self.data_format = eps, affine, data_format
        self.weight_initializer, self.bias_initializer = weight_initializer, bias_initializer
        super().__init__(**options)

    def _shape(self) -> tuple[int, ...]:
        return (self.num_features,)


class BatchNorm(ChannelNormalization):
    """Batch normalization of any rank; a subclass fixes the numbers of axes."""

    axes: tuple[int, ...]
    running_mean: AnyArray
    running_variance: AnyArray
    batches: AnyArray

    def __init__(
        self, num_features: int, *, momentum: float | None = 0.1, data_format: str = "channel_last", **options: Any
    ) -> None:
        channel_last(type(self).__name__, data_format, self.axes[-1] - 2)
        self.momentum = momentum
        super().__init__(num_features, data_format=data_format, **options)

    def _create_buffers(self, device: Any, dtype: Any) -> Mapping[str, Any]:
        return {
            "running_mean": zeros(self.num_features, dtype=dtype, device=device),
            "running_variance": ones(self.num_features, dtype=dtype, device=device),
            "batches": zeros((), dtype=target().default_int(), device=device),
        }

    def forward(self, x: AnyArray) -> AnyArray:
        if x.ndim not in self.axes:
            wanted = " or ".join(map(str, self.axes))
            raise ValueError(f"{type(self).__name__}: x of shape {x.shape} has {x.ndim} axes; expected {wanted}")
        form = "channel_last" if x.ndim == 2 else self.data_format
        old = self.running_mean, self.running_variance
        # a batch that is spread over processes is normalized by all of its rows
        y, *new = getattr(self._bound and self._bound.stream, "batch_norm", batch_norm)(
            x, *old, scale=self.w, offset=self.b, training=self.training, eps=self.eps, data_format=form,
            momentum=1.0 if self.momentum is None else self.momentum,
        )  # fmt: skip
        if self.training:
            self.batches = self.batches + 1
            if self.momentum is None:  # the mean over all batches so far
                new = [a + (b - a) / self.batches for a, b in zip(old, new)]
            self.running_mean, self.running_variance = new
        # Statistics in a longer dtype, as in mixed precision, leave that of the result alone.
        short = x.dtype.kind == "f" and y.dtype != x.dtype and (self.w is None or self.w.dtype == x.dtype)
        return astype(y, x.dtype) if short else y


class BatchNorm1D(BatchNorm):
    """Each channel of [batch, channels] or [batch, w, channels] normalized over the rest, in training by the batch.

    Buffers `running_mean` and `running_variance`, which evaluation uses, follow the batches: new = (1 - momentum) * old +
    momentum * batch, or with momentum=None the mean of all; `batches` counts them. `w` scales, `b` is added, with `affine`.
    Options: eps, momentum, affine, data_format, weight_initializer, bias_initializer.

    >>> import trellis as tl
    >>> layer = tl.BatchNorm1D(1)
    >>> y = layer(tl.asarray([[1.0], [3.0]]))
    >>> layer.running_mean
    Array([0.2], dtype=float32, backend='numpy', device='cpu')
    """

    axes = 2, 3


class BatchNorm2D(BatchNorm):
    """`BatchNorm1D` for images, [batch, h, w, channels].

    >>> import trellis as tl
    >>> layer = tl.BatchNorm2D(3)
    >>> layer(tl.ones((2, 4, 4, 3))).shape, list(layer.buffers)
    ((2, 4, 4, 3), ['running_mean', 'running_variance', 'batches'])
    """

    axes = (4,)


class BatchNorm3D(BatchNorm):
    """`BatchNorm1D` for volumes, [batch, d, h, w, channels].

    >>> import trellis as tl
    >>> tl.BatchNorm3D(3)(tl.ones((2, 4, 4, 4, 3))).shape
    (2, 4, 4, 4, 3)
    """

    axes = (5,)


class InstanceNorm(ChannelNormalization):
    """Each channel of each sample normalized over the spatial axes, scaled by `w` and moved by `b`.

    >>> import trellis as tl
    >>> tl.InstanceNorm(3)(tl.ones((2, 4, 4, 3))).shape
    (2, 4, 4, 3)
    """

    def forward(self, x: AnyArray) -> AnyArray:
        return instance_norm(x, scale=self.w, offset=self.b, eps=self.eps, data_format=self.data_format)


class GroupNorm(ChannelNormalization):
    """Each of `num_groups` groups of channels of each sample normalized over channels and spatial axes.

    >>> import trellis as tl
    >>> tl.GroupNorm(2, 6)(tl.ones((2, 4, 4, 6))).shape
    (2, 4, 4, 6)
    """

    def __init__(self, num_groups: int, num_features: int, **options: Any) -> None:
        self.num_groups = size("GroupNorm", "num_groups", num_groups)
        if num_features % num_groups:
            raise ValueError(f"GroupNorm: num_groups={num_groups} does not divide num_features={num_features}")
        super().__init__(num_features, **options)

    def forward(self, x: AnyArray) -> AnyArray:
        return group_norm(x, self.num_groups, scale=self.w, offset=self.b, eps=self.eps, data_format=self.data_format)


class LayerNorm(Normalization):
    """The last axes, of shape `normalized_shape`, normalized together; `w` and `b` have that shape.

    >>> import trellis as tl
    >>> tl.LayerNorm(4)(tl.ones((2, 5, 4))).shape
    (2, 5, 4)
    """

    def __init__(
        self, normalized_shape: Shape, *, eps: float | None = 1e-5, affine: bool = True, with_bias: bool = True,
        weight_initializer: Any = "ones", bias_initializer: Any = "zeros", **options: Unpack[Options],
    ) -> None:  # fmt: skip
        self.normalized_shape = shape_argument(type(self).__name__, normalized_shape, "normalized_shape")
        self.eps, self.affine, self.with_bias = eps, affine, with_bias
        self.weight_initializer, self.bias_initializer = weight_initializer, bias_initializer
        super().__init__(**options)

    def _shape(self) -> tuple[int, ...]:
        return self.normalized_shape

    def _axes(self, x: AnyArray) -> tuple[int, ...]:
        wanted, found = self.normalized_shape, x.shape[-len(self.normalized_shape) :]
        if len(found) < len(wanted) or any(n != m for n, m in zip(found, wanted) if n is not None):
            raise ValueError(f"{type(self).__name__}: x of shape {x.shape} does not end in normalized_shape={wanted}")
        return tuple(range(-len(wanted), 0))

    def forward(self, x: AnyArray) -> AnyArray:
        return layer_norm(x, self._axes(x), scale=self.w, offset=self.b, eps=self.eps or 0.0)


class RMSNorm(LayerNorm):
    """The last axes, of shape `normalized_shape`, over the root of the mean of their squares, times `w`.

    >>> import trellis as tl
    >>> tl.RMSNorm(2, eps=0.0)(tl.asarray([3.0, 4.0]))
    Array([0.84852815, 1.1313709 ], dtype=float32, backend='numpy', device='cpu')
    """

    def __init__(
        self, normalized_shape: Shape, *, eps: float | None = None, affine: bool = True, weight_initializer: Any = "ones",
        **options: Unpack[Options],
    ) -> None:  # fmt: skip
        given: Any = {"affine": affine, "weight_initializer": weight_initializer, **options}
        super().__init__(normalized_shape, eps=eps, with_bias=False, **given)

    def forward(self, x: AnyArray) -> AnyArray:
        return rms_norm(x, self._axes(x), scale=self.w, eps=self.eps)
