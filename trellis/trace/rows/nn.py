"""torch's ops of networks: products with weights, convolutions, pools, normalization, attention, resizing, losses, draws."""

from __future__ import annotations

import itertools
import math
from typing import Any

from trellis import ops as tl
from trellis.core.dtypes import bool as bool_, float32
from trellis.trace.rows.support import Row, Table, cast, drops, seed, sizes, whole


# ---- convolutions --------------------------------------------------------------------------------------------------------------
def _each(value: Any, dims: int) -> tuple[int, ...]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * dims if len(values) == 1 else values


def _batched(function: Row, x: Any, dims: int) -> Any:
    return function(x) if x.ndim == dims + 2 else tl.squeeze(function(tl.expand_dims(x, 0)), 0)


def _conv(dims: int) -> Row:
    def row(x: Any, w: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Any:
        pads = padding.upper() if isinstance(padding, str) else tuple((p, p) for p in _each(padding, dims))
        options = {"dims": dims, "dilations": _each(dilation, dims), "feature_group_count": groups, "bias": bias}
        formats = {"data_format": "channel_first", "filter_format": "channel_first"}
        return _batched(lambda y: tl.conv_general_dilated(y, w, _each(stride, dims), pads, **formats, **options), x, dims)

    return row


def _conv_transpose(dims: int) -> Row:
    def row(
        x: Any, w: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1,
        dilation: Any = 1,
    ) -> Any:  # fmt: skip
        steps, pads, extra, spread = (_each(v, dims) for v in (stride, padding, output_padding, dilation))
        rows = zip(x.shape[-dims:], steps, pads, spread, w.shape[2:], extra)
        size = tuple((n - 1) * s - 2 * p + d * (k - 1) + e + 1 for n, s, p, d, k, e in rows)
        filters = tl.permute_dims(w, (*range(2, dims + 2), 0, 1))
        options = {"dims": dims, "dilations": spread, "feature_group_count": groups, "bias": bias, "output_shape": size}
        both = tuple((p, p) for p in pads)
        return _batched(
            lambda y: tl.conv_general_transpose(y, filters, steps, both, data_format="channel_first", **options), x, dims
        )

    return row


def _convolution(
    x: Any, w: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int
) -> Any:
    dims = w.ndim - 2
    if transposed:
        return _conv_transpose(dims)(x, w, bias, stride, padding, output_padding, groups, dilation)
    return _conv(dims)(x, w, bias, stride, padding, dilation, groups)


# ---- pools ---------------------------------------------------------------------------------------------------------------------
_CHANNELS_FIRST = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def _max_pool(dims: int) -> Row:
    def row(x: Any, window: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> Any:
        window = _each(window, dims)
        options = {"data_format": _CHANNELS_FIRST[dims], "dilations": _each(dilation, dims), "ceil_mode": ceil_mode}
        pads = tuple((p, p) for p in _each(padding, dims))
        return _batched(
            lambda y: getattr(tl, f"max_pool{dims}d")(y, window, _each(stride, dims) or window, pads, **options), x, dims
        )

    return row


def _avg_pool(dims: int) -> Row:
    def row(
        x: Any, window: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
        divisor_override: Any = None,
    ) -> Any:  # fmt: skip
        window = _each(window, dims)
        pads = tuple((p, p) for p in _each(padding, dims))
        options = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad, "divisor_override": divisor_override}
        pool = getattr(tl, f"avg_pool{dims}d")
        strides = _each(stride, dims) or window
        if ceil_mode:
            window = _within(window, strides, pads, x.shape[-dims:])
        return _batched(lambda y: pool(y, window, strides, pads, data_format=_CHANNELS_FIRST[dims], **options), x, dims)

    return row


def _within(window: Any, strides: Any, pads: Any, sizes: Any) -> tuple[Any, ...]:
    """The window, no longer than the padded array: torch averages the elements that exist, and padding would take memory."""
    lengths = [n if n is None else n + sum(pad) for n, pad in zip(sizes, pads)]
    return tuple(n if n is not None and n < w < n + s else w for w, s, n in zip(window, strides, lengths))


def _adaptive(kind: str, dims: int) -> Row:
    def row(x: Any, size: Any) -> Any:
        pool = getattr(tl, f"adaptive_{kind}_pool{dims}d")
        wanted = tuple(None if n == -1 else n for n in _each(size, dims))
        return _batched(lambda y: pool(y, wanted, data_format=_CHANNELS_FIRST[dims]), x, dims)

    return row


def _adaptive_max(dims: int) -> Row:
    """(values, places in the flattened image); a cell of the result covers elements floor(i n / m) to ceil((i + 1) n / m)."""

    def row(x: Any, size: Any) -> list[Any]:
        whole = x.shape[-dims:]
        bounds = [[(i * n // m, -(-(i + 1) * n // m)) for i in range(m)] for n, m in zip(whole, _each(size, dims))]
        places = tl.broadcast_to(tl.reshape(tl.arange(math.prod(whole)), whole), x.shape)
        values, found = [], []
        for cell in itertools.product(*bounds):
            part = (..., *[slice(a, b) for a, b in cell])
            flat, at = (tl.reshape(v[part], sizes((*x.shape[:-dims], -1))) for v in (x, places))
            best = tl.argmax(flat, axis=-1, keepdims=True)
            values.append(tl.take_along_axis(flat, best, axis=-1))
            found.append(tl.take_along_axis(at, best, axis=-1))
        shape = sizes((*x.shape[:-dims], *map(len, bounds)))
        return [tl.reshape(tl.concat(v, axis=-1), shape) for v in (values, found)]

    return row


# ---- normalization -------------------------------------------------------------------------------------------------------------
def _layer_norm(x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn: Any = None) -> Any:
    return tl.layer_norm(x, tuple(range(-len(shape), 0)), scale=weight, offset=bias, eps=eps)


def _native_layer_norm(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> list[Any]:
    axes = tuple(range(-len(shape), 0))
    mean = tl.mean(x, axis=axes, keepdims=True)
    rstd = tl.reciprocal(tl.sqrt(tl.var(x, axis=axes, keepdims=True) + eps))
    return [_layer_norm(x, shape, weight, bias, eps), mean, rstd]


def _rms_norm(x: Any, shape: Any, weight: Any = None, eps: Any = None) -> Any:
    return tl.rms_norm(x, tuple(range(-len(shape), 0)), scale=weight, eps=eps)


def _group_norm(x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn: Any = None) -> Any:
    return tl.group_norm(x, groups, scale=weight, offset=bias, eps=eps, data_format="channel_first")


def _native_group_norm(x: Any, weight: Any, bias: Any, n: int, c: int, hw: int, groups: int, eps: float) -> list[Any]:
    flat = tl.reshape(x, sizes((x.shape[0], groups, c // groups * hw)))
    mean, rstd = tl.mean(flat, axis=2), tl.reciprocal(tl.sqrt(tl.var(flat, axis=2) + eps))
    return [_group_norm(x, groups, weight, bias, eps), mean, rstd]


def _batch_norm(*operands: Any) -> Any:
    return _batch_norm_training(*operands)[0]


def _batch_norm_training(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float, eps: float, *_: Any
) -> list[Any]:
    """(y, new mean, new variance)."""
    if mean is None:
        mean, variance = (tl.zeros((x.shape[1],), dtype=x.dtype), tl.ones((x.shape[1],), dtype=x.dtype))
        training = True
    options = {"training": training, "momentum": momentum, "eps": eps, "data_format": "channel_first"}
    return list(tl.batch_norm(x, mean, variance, scale=weight, offset=bias, **options))


def _functional_batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float, eps: float
) -> list[Any]:
    y, new_mean, new_variance = _batch_norm_training(x, weight, bias, mean, variance, training, momentum, eps)
    axes = tuple(i for i in range(x.ndim) if i != 1)
    return [y, tl.mean(x, axis=axes), tl.reciprocal(tl.sqrt(tl.var(x, axis=axes) + eps)), new_mean, new_variance]


def _instance_norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, use_input: bool, momentum: float, eps: float, cudnn: Any = None
) -> Any:
    if not use_input:
        return _batch_norm(x, weight, bias, mean, variance, False, momentum, eps)
    return tl.instance_norm(x, scale=weight, offset=bias, eps=eps, data_format="channel_first")


def _weight_norm(v: Any, g: Any, dim: int = 0) -> Any:
    axes = tuple(i for i in range(v.ndim) if i != dim)
    return v * (g / tl.sqrt(tl.sum(v * v, axis=axes, keepdims=True)))


# ---- attention -----------------------------------------------------------------------------------------------------------------
def _attention(
    query: Any, key: Any, value: Any, mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, *, scale: Any = None,
    enable_gqa: bool = False,
) -> Any:  # fmt: skip
    if enable_gqa and key.shape[-3] != query.shape[-3]:
        key, value = (tl.repeat(x, query.shape[-3] // x.shape[-3], axis=-3) for x in (key, value))
    dropout_p = dropout_p if drops() else 0.0
    if mask is None or mask.dtype is bool_:
        return tl.scaled_dot_product_attention(
            query, key, value, scale, mask=mask, is_causal=is_causal, dropout_p=dropout_p, training=dropout_p > 0,
            seed=seed() if dropout_p else None,
        )  # fmt: skip
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = tl.matmul(query * scale, tl.matrix_transpose(key)) + mask
    weights = tl.softmax(scores, axis=-1)
    weights = tl.where(tl.stop_gradient(tl.max(scores, axis=-1, keepdims=True)) == -math.inf, 0.0, weights)
    return tl.matmul(dropout(weights, dropout_p, dropout_p > 0), value)


def dropout(x: Any, p: float = 0.5, train: Any = True) -> Any:
    return x if not train or p == 0 or not drops() else tl.dropout(x, p, seed=seed())


def _native_dropout(x: Any, p: float, train: Any) -> list[Any]:
    if not train or p == 0 or not drops():
        return [x, tl.ones_like(x, dtype=bool_)]
    mask = tl.dropout(tl.ones_like(x), p, scale=False, seed=seed()) > 0
    return [tl.where(mask, x / (1 - p) if p < 1 else x, 0), mask]


def _feature_dropout(x: Any, p: float, train: Any) -> Any:
    shape = (*x.shape[:2], *[1] * (x.ndim - 2))
    return tl.dropout(x, p, seed=seed(), noise_shape=shape) if train and p and drops() else x


def _embedding(weight: Any, indices: Any, padding_idx: int = -1, scale_grad: bool = False, sparse: bool = False) -> Any:
    return tl.embedding(indices, weight, padding_idx=None if padding_idx < 0 else padding_idx)


def _embedding_bag(
    weight: Any, indices: Any, offsets: Any, scale_grad: bool = False, mode: int = 0, sparse: bool = False, weights: Any = None,
    include_last: bool = False, padding_idx: Any = None,
) -> list[Any]:  # fmt: skip
    """Sums, means or maxima of bags of rows, which begin at the offsets; the bag of each index, and the sizes of the bags."""
    count = offsets.shape[0] - include_last
    bag = tl.searchsorted(offsets[:count], tl.astype(tl.arange(indices.shape[0]), offsets.dtype), side="right") - 1
    kept = tl.ones_like(bag) if padding_idx is None else cast(indices != padding_idx % weight.shape[0], bag.dtype)
    rows = tl.take(weight, indices, axis=0)
    size = tl.segment_sum(kept, bag, num_segments=count)
    if mode == 2:
        rows = tl.where(tl.expand_dims(kept, 1) > 0, rows, -math.inf)
        made = tl.where(tl.expand_dims(size, 1) > 0, tl.segment_max(rows, bag, num_segments=count), 0.0)
    else:
        each = cast(kept, weight.dtype) if weights is None else weights * cast(kept, weight.dtype)
        made = tl.segment_sum(rows * tl.expand_dims(each, 1), bag, num_segments=count)
        made = made / cast(tl.expand_dims(tl.maximum(size, 1), 1), weight.dtype) if mode else made
    return [made, bag, size, size]


# ---- images --------------------------------------------------------------------------------------------------------------------
def _resize(mode: str, *, corners: bool = False, antialias: bool = False) -> Row:
    """The forms with explicit sizes and scales, and those (`vec`) where one of the two is None."""

    def row(x: Any, size: Any, *others: Any) -> Any:
        rest = list(others)
        align = rest.pop(0) if corners and rest else False
        scales = [s for r in rest if r is not None for s in (r if isinstance(r, (list, tuple)) else [r])]
        options = {"mode": mode, "align_corners": bool(align), "antialias": antialias, "data_format": "channel_first"}
        if size is None or [math.floor(n * s) for n, s in zip(x.shape[2:], scales)] == list(size):
            return tl.interpolate(x, scale_factor=tuple(scales), **options)  # torch divides places by the scale, not by the sizes
        return tl.interpolate(x, tuple(size), **options)

    return row


_SAMPLE, _PADDING = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def _grid_sample(x: Any, grid: Any, mode: int, padding: int, align: bool) -> Any:
    return tl.grid_sample(
        x, grid, mode=_SAMPLE[mode], padding_mode=_PADDING[padding], align_corners=align, data_format="channel_first"
    )


def _affine_grid(theta: Any, size: Any, align: bool) -> Any:
    def line(n: int) -> Any:
        return tl.linspace(-1.0, 1.0, n) if align else (tl.arange(n, dtype=float32) * 2 + 1) / n - 1

    axes = tl.meshgrid(*[line(n) for n in size[2:]], indexing="ij")
    points = tl.stack([*reversed(axes), tl.ones_like(axes[0])], axis=-1)
    flat = tl.matmul(tl.reshape(points, (1, -1, len(size) - 1)), tl.matrix_transpose(theta))
    return tl.reshape(flat, sizes((theta.shape[0], *size[2:], len(size) - 2)))


def _im2col(x: Any, window: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    def run(y: Any) -> Any:
        made = tl.unfold(
            y, tuple(window), tuple(stride), tuple((p, p) for p in padding), dilations=tuple(dilation), data_format="NCHW"
        )
        return tl.reshape(made, sizes((y.shape[0], made.shape[1], -1))) if made.ndim == 4 else made

    return _batched(run, x, 2)


# ---- losses --------------------------------------------------------------------------------------------------------------------
_REDUCTIONS = ("none", "mean", "sum")


def _cross_entropy(
    x: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100, smoothing: float = 0.0
) -> Any:
    options = {"ignore_index": int(ignore_index), "label_smoothing": smoothing, "reduction": _REDUCTIONS[reduction]}
    return tl.cross_entropy(x, target, weight=weight, axis=0 if x.ndim == 1 else 1, **options)


def _nll(x: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100) -> Any:
    axis = 0 if x.ndim == 1 else 1
    return tl.nll_loss(x, target, weight=weight, ignore_index=int(ignore_index), axis=axis, reduction=_REDUCTIONS[reduction])


def _nll_forward(x: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> list[Any]:
    kept = target != ignore_index
    count = (
        tl.zeros((), dtype=x.dtype)
        if reduction == 0 and x.ndim > 1
        else tl.sum(cast(kept, x.dtype))
        if weight is None
        else tl.sum(tl.where(kept, tl.take(weight, tl.where(kept, target, 0), axis=0), 0))
    )
    return [_nll(x, target, weight, reduction, ignore_index), count]


def _loss(name: str, **options: Any) -> Row:
    def row(x: Any, target: Any, reduction: int = 1, *rest: Any) -> Any:
        given = dict(zip(options, rest))
        return getattr(tl, name)(x, target, reduction=_REDUCTIONS[reduction], **{options[k]: v for k, v in given.items()})

    return row


def _bce(name: str) -> Row:
    def row(x: Any, target: Any, weight: Any = None, *rest: Any) -> Any:
        *positive, reduction = rest or (1,)
        options = {"pos_weight": positive[0]} if positive and positive[0] is not None else {}
        each = getattr(tl, name)(x, target, reduction="none", **options)
        each = each if weight is None else each * weight
        return (lambda each: each, tl.mean, tl.sum)[reduction](each)

    return row


def _grouped_mm(x: Any, weight: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None, **_: Any) -> Any:
    """Rows of x, in groups that end at `offs`, times the matrix of their group."""
    group = tl.searchsorted(offs, tl.astype(tl.arange(x.shape[0]), offs.dtype), side="right")
    group = tl.clip(group, 0, weight.shape[0] - 1)
    every = tl.matmul(tl.expand_dims(x, 0), weight)  # each matrix on all rows: the sizes of groups are data
    chosen = tl.sum(
        tl.where(tl.expand_dims(tl.expand_dims(group, 0) == tl.expand_dims(tl.arange(weight.shape[0]), 1), 2), every, 0), axis=0
    )
    inside = tl.arange(x.shape[0]) < offs[-1]
    return tl.where(tl.expand_dims(inside, 1), chosen, 0)


def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    if x.ndim > 1 and weight.ndim == 2:
        return tl.linear(x, weight, bias=bias)
    made = tl.matmul(x, tl.matrix_transpose(weight) if weight.ndim > 1 else weight)
    return made if bias is None else made + bias


TABLE: Table = {
    "linear.default": whole(_linear),
    "bilinear.default": lambda a, b, weight, bias=None: (
        tl.einsum("...i,oij,...j->...o", a, weight, b) + (0 if bias is None else bias)
    ),
    **{f"conv{n}d.default conv{n}d.padding": whole(_conv(n)) for n in (1, 2, 3)},
    "conv_transpose1d.default": whole(_conv_transpose(1)),
    "conv_transpose2d.input": whole(_conv_transpose(2)),
    "conv_transpose3d.input": whole(_conv_transpose(3)),
    "convolution.default": whole(_convolution),
    **{f"max_pool{n}d.default": _max_pool(n) for n in (1, 2, 3)},
    **{f"avg_pool{n}d.default": whole(_avg_pool(n)) for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d.default": _adaptive("avg", n) for n in (1, 2, 3)},
    **{f"_adaptive_avg_pool{n}d.default": _adaptive("avg", n) for n in (2, 3)},
    **{f"adaptive_max_pool{n}d.default": _adaptive_max(n) for n in (1, 2, 3)},
    "layer_norm.default": _layer_norm,
    "native_layer_norm.default": _native_layer_norm,
    "rms_norm.default": _rms_norm,
    "group_norm.default": _group_norm,
    "native_group_norm.default": _native_group_norm,
    "batch_norm.default": _batch_norm,
    "batch_norm.training": _batch_norm_training,
    "_native_batch_norm_legit_functional.default": _functional_batch_norm,
    "_native_batch_norm_legit_no_training.default": lambda x, w, b, m, v, *rest: [_batch_norm(x, w, b, m, v, False, *rest), m, v],
    "instance_norm.default": _instance_norm,
    "_weight_norm.default": _weight_norm,
    "scaled_dot_product_attention.default": _attention,
    "dropout.default": dropout,
    "native_dropout.default": _native_dropout,
    "feature_dropout.default": _feature_dropout,
    "embedding.default": _embedding,
    "embedding_bag.default embedding_bag.padding_idx": _embedding_bag,
    **{f"upsample_nearest{n}d.vec upsample_nearest{n}d.default": _resize("nearest") for n in (1, 2, 3)},
    **{f"_upsample_nearest_exact{n}d.vec _upsample_nearest_exact{n}d.default": _resize("nearest_exact") for n in (1, 2, 3)},
    "upsample_linear1d.vec upsample_bilinear2d.vec upsample_trilinear3d.vec": _resize("linear", corners=True),
    "upsample_linear1d.default upsample_bilinear2d.default upsample_trilinear3d.default": _resize("linear", corners=True),
    "upsample_bicubic2d.vec upsample_bicubic2d.default": _resize("bicubic", corners=True),
    "_upsample_bilinear2d_aa.vec _upsample_bilinear2d_aa.default": _resize("bilinear", corners=True, antialias=True),
    "_upsample_bicubic2d_aa.vec _upsample_bicubic2d_aa.default": _resize("bicubic", corners=True, antialias=True),
    "grid_sampler.default grid_sampler_2d.default grid_sampler_3d.default": _grid_sample,
    "affine_grid_generator.default": _affine_grid,
    "im2col.default": _im2col,
    "cosine_similarity.default": lambda a, b, dim=1, eps=1e-8: (
        tl.cosine_similarity(a, b, axis=dim, eps=eps)
        if a.ndim or b.ndim
        else tl.cosine_similarity(tl.reshape(a, (1,)), tl.reshape(b, (1,)), axis=0, eps=eps)
    ),
    # ---- losses
    "cross_entropy_loss.default": _cross_entropy,
    "nll_loss.default nll_loss_nd.default nll_loss2d.default": _nll,
    "nll_loss_forward.default nll_loss2d_forward.default": _nll_forward,
    "mse_loss.default": _loss("mse_loss"),
    "l1_loss.default": _loss("l1_loss"),
    "smooth_l1_loss.default": _loss("smooth_l1_loss", beta="beta"),
    "huber_loss.default": _loss("huber_loss", delta="delta"),
    "binary_cross_entropy.default": _bce("binary_cross_entropy"),
    "binary_cross_entropy_with_logits.default": _bce("binary_cross_entropy_with_logits"),
    # ---- experts of transformers
    "transformers.grouped_mm_fallback.default _grouped_mm.default": _grouped_mm,
}
