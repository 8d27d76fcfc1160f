"""Network functions by torch's own kernels; what these convert, or have no rules for, goes to the composites."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch
import torch.nn.functional as F

from trellis.backends.torch import grad
from trellis.backends.torch.convolution import pad_asymmetric
from trellis.backends.torch.operands import FLOAT, HALF, with_composite
from trellis.backends.torch.pooling import channel_first, narrowed, widened
from trellis.composites import attention, composed, on_arrays, recurrent
from trellis.composites.support import floating

# ---- activations -------------------------------------------------------------------------------------------------------------
_SHORT = FLOAT - {torch.float64}  # for kernels that hold their constants in float32, whatever the dtype


def _swiglu(x: torch.Tensor, *, axis: int) -> torch.Tensor:
    first, second = x.chunk(2, axis)
    return F.silu(first) * second


# The activations that are a function of torch with the same name and parameters.
_BY_NAME = ["elu", "gelu", "hardswish", "leaky_relu", "logsigmoid", "mish", "relu", "relu6", "selu", "silu", "softplus"]

celu = with_composite(F.celu, composed.celu, _SHORT)
glu = with_composite(lambda x, *, axis: F.glu(x, axis), composed.glu)
hardsigmoid = with_composite(F.hardsigmoid, composed.hardsigmoid, _SHORT)
hardtanh = with_composite(lambda x, *, min, max: F.hardtanh(x, min, max), composed.hardtanh)
swiglu = with_composite(_swiglu, composed.swiglu)
globals().update({op: with_composite(getattr(F, op), getattr(composed, op)) for op in _BY_NAME})
__all__ = [
    "batch_norm", "celu", "cross_entropy", "fold", "glu", "grid_sample", "group_norm", "gru_update", "hardsigmoid", "hardtanh",
    "instance_norm", "interpolate", "layer_norm", "linear", "lstm_update", "rnn_update", "scaled_dot_product_attention", "swiglu",
    "unfold", *_BY_NAME,
]  # pyright: ignore[reportUnsupportedDunderAll]  # fmt: skip


# ---- cross-entropy, rows of classes side by side -----------------------------------------------------------------------------
def cross_entropy(
    x: Any, target: Any, weight: Any, *, ignore_index: int, label_smoothing: float, axis: int, reduction: str
) -> Any:
    params: dict[str, Any] = {"ignore_index": ignore_index, "label_smoothing": label_smoothing, "reduction": reduction}
    indices = not target.is_floating_point()
    # torch has no gradient by the weights
    fits = x.dtype in FLOAT and x.numel() and (weight is None or (weight.dtype is x.dtype and not weight.requires_grad))
    if not fits or not (indices or target.dtype is x.dtype):
        return composed.cross_entropy(x, target, weight, axis=axis, **params)
    rows = x.movedim(axis, -1)
    wanted = target.to(torch.int64).reshape(-1) if indices else target.movedim(axis, -1).reshape(-1, rows.shape[-1])
    loss = F.cross_entropy(rows.reshape(-1, rows.shape[-1]), wanted, weight, **params)
    return loss.reshape(rows.shape[:-1]) if reduction == "none" else loss


# ---- linear maps and attention -----------------------------------------------------------------------------------------------
_visible = on_arrays(attention._visible)


def linear(x: Any, weight: Any, bias: Any) -> Any:
    dtype = x.dtype
    if weight.dim() == 2 and dtype in FLOAT and weight.dtype is dtype and (bias is None or bias.dtype is dtype):
        return F.linear(x, weight, bias)
    x, weight, bias = floating("linear", x, weight, bias, real=True)
    return F.linear(x, weight, bias) if weight.dim() == 2 else composed.linear(x, weight, bias)


def scaled_dot_product_attention(
    query: Any, key: Any, value: Any, mask: Any, noise: Any, *, scale: float, is_causal: bool, dropout_p: float
) -> Any:
    # torch's own draws from the global generator, has a first derivative only, and takes 0 times -inf for a hidden score
    if noise is not None or not scale or transformed():
        options: dict[str, Any] = {"scale": scale, "is_causal": is_causal, "dropout_p": dropout_p}
        return composed.scaled_dot_product_attention(query, key, value, mask, noise, **options)
    if not (query.dtype is key.dtype is value.dtype and query.dtype in FLOAT):
        query, key, value = floating("scaled_dot_product_attention", query, key, value, real=True)
    result = _fused(query, key, value, mask, scale, is_causal)
    if mask is not None:
        return result
    lost = torch.isnan(query).any(-1, True) | torch.isnan(key).any(-1, True).all(-2, True)
    return torch.where(lost, torch.nan, result)  # torch's kernel: 0


def transformed() -> bool:
    """Whether torch.func's transforms run, which lack rules for fused kernels, or a gradient will be differentiated again."""
    return grad.in_transform() or (not torch.compiler.is_compiling() and grad._DEPTH.get() > 1)


def _fused(query: Any, key: Any, value: Any, mask: Any, scale: float, is_causal: bool) -> Any:
    if mask is not None and (is_causal or mask.dtype is not torch.bool or mask.dim() < 2):
        scores = query.new_empty(()).expand(query.shape[-2], key.shape[-2])  # for its shape
        mask, is_causal = _visible(mask, is_causal, scores), False
        mask = mask.reshape((1,) * (2 - mask.dim()) + tuple(mask.shape))
    if query.dim() == 4 and query.shape[:2] == key.shape[:2] == value.shape[:2]:
        return F.scaled_dot_product_attention(query, key, value, mask, 0.0, is_causal, scale=scale)
    # the fused kernels are for 4 axes, two of them in front
    batch = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    query, key, value = (_flat(x, batch) for x in (query, key, value))
    mask = mask if mask is None or mask.dim() == 2 else _flat(mask, batch)
    result = F.scaled_dot_product_attention(query, key, value, mask, 0.0, is_causal, scale=scale)
    return result.reshape(*batch, *result.shape[-2:])


def _flat(x: Any, batch: Any) -> Any:
    return x.expand(*batch, *x.shape[-2:]).reshape(-1, 1, *x.shape[-2:])


# ---- recurrences -------------------------------------------------------------------------------------------------------------
def _recurrence(op: str, states: int, natives: dict[str, Any]) -> Callable[..., Any]:
    """An op from torch's kernel for each activation; `states` of its operands, after the first, are initial states."""
    composite = getattr(recurrent, op)

    @wraps(composite)
    def run(*operands: Any, **params: Any) -> Any:
        operands = floating(op, *operands, real=True)
        if transformed() or 0 in operands[0].shape:  # torch refuses sequences of no steps
            return composite(*operands, **params)
        x, *rest = operands
        # For weights that need a gradient, Inductor takes a kernel that has none. So torch.compile leaves these to Python, as it
        # does for torch.nn.LSTM.
        watched = torch.compiler.is_compiling() and any(w is not None and w.requires_grad for w in operands)
        native = natives[params.get("activation", "tanh")]
        return (_uncompiled if watched else _run_native)(native, x, rest[:states], *rest[states:], params["time_major"])

    return run


lstm_update = _recurrence("lstm_update", 2, {"tanh": torch.lstm})
gru_update = _recurrence("gru_update", 1, {"tanh": torch.gru})
rnn_update = _recurrence("rnn_update", 1, {"tanh": torch.rnn_tanh, "relu": torch.rnn_relu})


def _run_native(
    native: Any, x: Any, initial: list[Any], kernel: Any, weights: Any, bias: Any, other: Any, time_major: bool
) -> Any:
    """torch takes one batch axis, and both biases or none."""
    batch = x.shape[1:-1] if time_major else x.shape[:-2]
    rows = x.flatten(1, -2) if time_major and len(batch) > 1 else x.flatten(0, -3) if len(batch) > 1 else x
    rows = rows.unsqueeze(1 if time_major else 0) if not batch else rows
    state = [h.reshape(1, -1, h.shape[-1]) for h in initial]
    parameters = [kernel.T, weights.T]
    if bias is not None or other is not None:
        zero = kernel.new_zeros(kernel.shape[1]) if bias is None or other is None else None
        parameters += [zero if bias is None else bias, zero if other is None else other]
    hidden = state if len(state) > 1 else state[0]
    every, *last = native(rows, hidden, parameters, len(parameters) > 2, 1, 0.0, False, False, not time_major)
    lead = (x.shape[0], *batch) if time_major else (*batch, x.shape[-2])
    return every.reshape(*lead, weights.shape[0]), *(h.reshape(*batch, weights.shape[0]) for h in last)


_uncompiled = torch.compiler.disable(_run_native)


# ---- normalization, where all arrays have one dtype that the kernels take ----------------------------------------------------
# The kernels want the channels first: a view says so, and they keep to the order in memory, but for `group_norm` in training.
def _fits(x: torch.Tensor, *others: torch.Tensor | None) -> bool:
    dtype = x.dtype
    for v in others:
        if v is not None and v.dtype is not dtype:
            return False
    return dtype in FLOAT


def layer_norm(x: Any, scale: Any, offset: Any, *, axes: tuple[int, ...], eps: float) -> Any:
    if axes[0] == -len(axes) and _fits(x, scale, offset):
        return torch.layer_norm(x, x.shape[axes[0] :], scale, offset, eps)
    return composed.layer_norm(x, scale, offset, axes=axes, eps=eps)


def group_norm(x: Any, scale: Any, offset: Any, *, num_groups: int, eps: float, channel_last: bool) -> Any:
    # torch refuses one value a group, and has no rule for vmap
    if not _fits(x, scale, offset) or x.numel() in (0, num_groups) or _in_transform():
        return composed.group_norm(x, scale, offset, num_groups=num_groups, eps=eps, channel_last=channel_last)
    # The backward of channels-last memory writes the gradient of x even where only those of scale or offset are asked for, and
    # segfaults (torch 2.13). `x.requires_grad` does not tell what is asked for.
    plain = any(one is not None and one.requires_grad for one in (scale, offset))
    return channel_first(lambda x: F.group_norm(x.contiguous() if plain else x, num_groups, scale, offset, eps), x, channel_last)


def instance_norm(x: Any, scale: Any, offset: Any, *, eps: float, channel_last: bool) -> Any:
    spatial = x.shape[1:-1] if channel_last else x.shape[2:]
    # torch refuses one value a channel, and rounds half precision twice
    if not _fits(x, scale, offset) or x.dtype in HALF or not x.numel() or spatial.numel() == 1:
        return composed.instance_norm(x, scale, offset, eps=eps, channel_last=channel_last)
    return channel_first(lambda x: F.instance_norm(x, None, None, scale, offset, True, 0.0, eps), x, channel_last)


def _in_transform() -> bool:
    return torch._C._functorch.peek_interpreter_stack() is not None


_in_transform._dynamo_marked_constant = True  # type: ignore[attr-defined]  # Dynamo takes any result of the function for not None


def batch_norm(
    x: Any, mean: Any, variance: Any, scale: Any, offset: Any, *, training: bool, momentum: float, eps: float, channel_last: bool
) -> Any:
    # torch changes statistics in place, which torch.func's transforms refuse, has no gradient by given ones, and takes no eps=0.
    needs_composite = eps == 0 if training else mean.requires_grad or variance.requires_grad
    if needs_composite or not _fits(x, mean, variance, scale, offset) or _in_transform():
        params: dict[str, Any] = {"training": training, "momentum": momentum, "eps": eps, "channel_last": channel_last}
        return composed.batch_norm(x, mean, variance, scale, offset, **params)
    if training:
        mean, variance = mean.detach().clone(), variance.detach().clone()
    statistics = mean, variance
    options = scale, offset, training, momentum, eps
    return channel_first(lambda x: F.batch_norm(x, *statistics, *options), x, channel_last), *statistics


# ---- images; a channel-last array goes to the kernels as a permuted view -----------------------------------------------------
_LINEAR = ("linear", "bilinear", "trilinear")  # by the number of spatial axes


def interpolate(
    x: torch.Tensor, *, sizes: Any, scales: Any, mode: str, align_corners: bool, antialias: bool, channel_last: bool
) -> torch.Tensor:  # fmt: skip
    if mode.startswith("nearest"):
        resize = partial(F.interpolate, mode=mode.replace("_", "-"))
        if x.dtype not in FLOAT:
            return _chosen(x, resize, sizes, scales, 1 if channel_last else 2)
        return channel_first(lambda x: resize(x, sizes if scales is None else None, scales), x, channel_last)
    options: Any = {} if mode == "area" else {"align_corners": align_corners, "antialias": antialias}
    name = _LINEAR[len(sizes) - 1] if mode == "linear" else {"cubic": "bicubic"}.get(mode, mode)
    size = sizes if scales is None or mode == "area" else None
    scales = None if size else scales
    return narrowed(channel_first(lambda x: F.interpolate(x, size, scales, name, **options), widened(x), channel_last), x)


def _chosen(x: torch.Tensor, resize: Any, sizes: Any, scales: Any, first: int) -> torch.Tensor:
    """The nearest elements of an array of integers, which the kernels do not take: they resize the indices of each axis."""
    dims = len(sizes)
    for i in range(dims):
        places = torch.arange(x.shape[first + i], dtype=torch.float32, device=x.device).reshape(1, 1, *(1,) * (dims - 1), -1)
        size = None if scales else (*(1,) * (dims - 1), sizes[i])
        places = resize(places, size, None if scales is None else (*(1.0,) * (dims - 1), scales[i]))
        x = torch.index_select(x, first + i, places.reshape(-1).long())
    return x


def grid_sample(
    x: torch.Tensor, grid: torch.Tensor, *, mode: str, padding_mode: str, align_corners: bool, channel_last: bool
) -> torch.Tensor:  # fmt: skip
    x, grid = floating("grid_sample", x, grid, real=True)
    options: Any = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    if grad.in_transform():  # it may be jvp: the kernel has derivatives of any order, but none forward
        return composed.grid_sample(x, grid, channel_last=channel_last, **options)
    wide = widened(grid)
    return narrowed(channel_first(lambda x: F.grid_sample(x, wide, **options), widened(x), channel_last), x)


def unfold(
    x: torch.Tensor, *, window: Any, strides: Any, padding: Any, dilations: Any, channel_last: bool
) -> torch.Tensor:  # fmt: skip
    if len(window) != 2 or x.dtype not in FLOAT:
        return composed.unfold(x, window=window, strides=strides, padding=padding, dilations=dilations, channel_last=channel_last)
    x = x.permute(0, 3, 1, 2) if channel_last else x
    x, rest = pad_asymmetric(x, padding)
    columns = F.unfold(x, window, dilations, rest, strides)
    return columns.transpose(1, 2) if channel_last else columns


def fold(
    x: torch.Tensor, *, sizes: Any, window: Any, strides: Any, padding: Any, dilations: Any, channel_last: bool
) -> torch.Tensor:  # fmt: skip
    if len(window) != 2 or x.dtype not in FLOAT:
        return composed.fold(
            x, sizes=sizes, window=window, strides=strides, padding=padding, dilations=dilations, channel_last=channel_last
        )
    whole = [n + low + high for n, (low, high) in zip(sizes, padding)]
    folded = F.fold(x.transpose(1, 2) if channel_last else x, whole, window, dilations, 0, strides)
    for axis, (n, (low, _)) in enumerate(zip(sizes, padding), 2):
        folded = folded.narrow(axis, low, n)
    return folded.permute(0, 2, 3, 1) if channel_last else folded
