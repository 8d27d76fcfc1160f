"""Activations: the functions between the layers of a network. Their derivatives at kinks are torch's."""

from __future__ import annotations

from typing import Any

from trellis.array import Array
from trellis.container import Container, over_leaves
from trellis.dispatch import call
from trellis.dtypes import int32
from trellis.ops.arguments import check_axis, choice, one_axis, sizes
from trellis.ops.comparison import equal
from trellis.ops.conversion import astype
from trellis.ops.creation import ones_like
from trellis.ops.elementwise import add, divide, log, negative, subtract
from trellis.ops.products import softmax
from trellis.ops.random import SeedLike, computing
from trellis.ops.reduction import cumulative_sum
from trellis.ops.searching import argmax
from trellis.ops.special import expit as sigmoid
from trellis.sampling import Draw, inside
from trellis.transforms import stop_gradient
from trellis.typing import AnyArray, Operand

__all__ = [
    "celu", "elu", "gelu", "glu", "gumbel_softmax", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid", "mish",
    "prelu", "relu", "relu6", "selu", "sigmoid", "silu", "softplus", "softsign", "swiglu",
]  # fmt: skip


def relu(x: Operand, /) -> AnyArray:
    """x above 0, else 0.

    >>> import trellis as tl
    >>> tl.relu(tl.asarray([-2.0, 0.0, 3.0]))
    Array([0., 0., 3.], dtype=float32, backend='numpy', device='cpu')
    """
    return call("relu", x)


def relu6(x: Operand, /) -> AnyArray:
    """x between 0 and 6, the nearer of these beyond.

    >>> import trellis as tl
    >>> tl.relu6(tl.asarray([-2.0, 3.0, 8.0]))
    Array([0., 3., 6.], dtype=float32, backend='numpy', device='cpu')
    """
    return call("relu6", x)


def leaky_relu(x: Operand, /, *, negative_slope: float = 0.01) -> AnyArray:
    """x above 0, else `negative_slope` times x.

    >>> import trellis as tl
    >>> tl.leaky_relu(tl.asarray([-2.0, 3.0]), negative_slope=0.5)
    Array([-1.,  3.], dtype=float32, backend='numpy', device='cpu')
    """
    return call("leaky_relu", x, negative_slope=float(negative_slope))


def prelu(x: AnyArray, weight: Operand, /, *, data_format: str = "channel_last") -> AnyArray:
    """x above 0, else `weight` times x; `weight` is a number, an array that broadcasts, or one slope a channel.

    >>> import trellis as tl
    >>> tl.prelu(tl.asarray([[-2.0, -2.0]]), tl.asarray([0.5, 0.25]))
    Array([[-1. , -0.5]], dtype=float32, backend='numpy', device='cpu')
    """
    last = choice("prelu", "data_format", data_format, ("channel_last", "channel_first")) == "channel_last"
    shape, slopes = sizes(x), sizes(weight)
    if shape is not None and slopes is not None and len(slopes) == 1 and len(shape) > 1:
        channels = shape[-1 if last else 1]
        if slopes[0] not in (1, channels, None) and channels not in (1, None):
            raise ValueError(
                f"prelu: weight has {slopes[0]} slopes, but x of shape {shape} has {channels} channels ({data_format}); "
                f"give 1 or {channels}"
            )
    return call("prelu", x, weight, channel_last=last)


def elu(x: Operand, /, *, alpha: float = 1.0) -> AnyArray:
    """x above 0, else alpha * (exp(x) - 1).

    >>> import trellis as tl
    >>> tl.elu(tl.asarray([-1.0, 3.0]))
    Array([-0.63212055,  3.        ], dtype=float32, backend='numpy', device='cpu')
    """
    return call("elu", x, alpha=float(alpha))


def selu(x: Operand, /) -> AnyArray:
    """The scaled `elu` that keeps mean 0 and variance 1 from layer to layer.

    >>> import trellis as tl
    >>> tl.selu(tl.asarray([-1.0, 3.0]))
    Array([-1.1113307,  3.152103 ], dtype=float32, backend='numpy', device='cpu')
    """
    return call("selu", x)


def celu(x: Operand, /, *, alpha: float = 1.0) -> AnyArray:
    """x above 0, else alpha * (exp(x / alpha) - 1): smooth at 0 for every alpha.

    >>> import trellis as tl
    >>> tl.celu(tl.asarray([-2.0, 3.0]), alpha=2.0)
    Array([-1.2642411,  3.       ], dtype=float32, backend='numpy', device='cpu')
    """
    if alpha == 0:
        raise ValueError("celu: alpha=0 would divide by zero; use tl.relu, its limit")
    return call("celu", x, alpha=float(alpha))


def gelu(x: Operand, /, *, approximate: str | bool = "none") -> AnyArray:
    """x times the normal distribution function of x; `approximate="tanh"` (or True) is the well-known approximation.

    >>> import trellis as tl
    >>> tl.gelu(tl.asarray([0.0, 3.0]))
    Array([0.       , 2.9959502], dtype=float32, backend='numpy', device='cpu')
    """
    form = ("tanh" if approximate else "none") if isinstance(approximate, bool) else approximate
    return call("gelu", x, approximate=choice("gelu", "approximate", form, ("none", "tanh")))


def silu(x: Operand, /) -> AnyArray:
    """x * sigmoid(x), also known as swish.

    >>> import trellis as tl
    >>> tl.silu(tl.asarray([-100.0, 0.0, 100.0]))
    Array([ -0.,   0., 100.], dtype=float32, backend='numpy', device='cpu')
    """
    return call("silu", x)


def mish(x: Operand, /) -> AnyArray:
    """x * tanh(softplus(x)).

    >>> import trellis as tl
    >>> tl.mish(tl.asarray([-200.0, 0.0, 100.0]))
    Array([ -0.,   0., 100.], dtype=float32, backend='numpy', device='cpu')
    """
    return call("mish", x)


def softplus(x: Operand, /, *, beta: float = 1.0, threshold: float = 20.0) -> AnyArray:
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x is above `threshold`.

    >>> import trellis as tl
    >>> tl.softplus(tl.asarray([0.0, 100.0]))
    Array([  0.6931472, 100.       ], dtype=float32, backend='numpy', device='cpu')
    """
    if beta == 0:
        raise ValueError("softplus: beta=0 would divide by zero; use a beta above 0")
    return call("softplus", x, beta=float(beta), threshold=float(threshold))


def softsign(x: Operand, /) -> AnyArray:
    """x / (1 + |x|).

    >>> import trellis as tl
    >>> tl.softsign(tl.asarray([-1.0, 3.0]))
    Array([-0.5 ,  0.75], dtype=float32, backend='numpy', device='cpu')
    """
    return call("softsign", x)


def logsigmoid(x: Operand, /) -> AnyArray:
    """log(sigmoid(x)), exact where the sigmoid underflows.

    >>> import trellis as tl
    >>> tl.logsigmoid(tl.asarray([-1000.0, 1000.0]))
    Array([-1000.,    -0.], dtype=float32, backend='numpy', device='cpu')
    """
    return call("logsigmoid", x)


def hardsigmoid(x: Operand, /) -> AnyArray:
    """x / 6 + 1/2, between 0 and 1.

    >>> import trellis as tl
    >>> tl.hardsigmoid(tl.asarray([-4.0, 0.0, 1.5]))
    Array([0.  , 0.5 , 0.75], dtype=float32, backend='numpy', device='cpu')
    """
    return call("hardsigmoid", x)


def hardswish(x: Operand, /) -> AnyArray:
    """x * hardsigmoid(x).

    >>> import trellis as tl
    >>> tl.hardswish(tl.asarray([-4.0, 1.5, 4.0]))
    Array([-0.   ,  1.125,  4.   ], dtype=float32, backend='numpy', device='cpu')
    """
    return call("hardswish", x)


def hardtanh(x: Operand, /, *, min: float = -1.0, max: float = 1.0) -> AnyArray:
    """x between `min` and `max`, the nearer of these beyond.

    >>> import trellis as tl
    >>> tl.hardtanh(tl.asarray([-4.0, 0.5, 4.0]))
    Array([-1. ,  0.5,  1. ], dtype=float32, backend='numpy', device='cpu')
    """
    if min > max:
        raise ValueError(f"hardtanh: min={min} is above max={max}")
    return call("hardtanh", x, min=float(min), max=float(max))


def glu(x: AnyArray, /, *, axis: int = -1) -> AnyArray:
    """The first half of x along `axis` times the sigmoid of the second.

    >>> import trellis as tl
    >>> tl.glu(tl.asarray([4.0, 0.0]))
    Array([2.], dtype=float32, backend='numpy', device='cpu')
    """
    _check_halves("glu", x, axis)
    return call("glu", x, axis=axis)


def swiglu(x: AnyArray, /, *, axis: int = -1) -> AnyArray:
    """`silu` of the first half of x along `axis` times the second.

    >>> import trellis as tl
    >>> tl.swiglu(tl.asarray([0.0, 100.0, 5.0, 1.0]))
    Array([  0., 100.], dtype=float32, backend='numpy', device='cpu')
    """
    _check_halves("swiglu", x, axis)
    return call("swiglu", x, axis=axis)


def _check_halves(op: str, x: Any, axis: Any) -> None:
    shape = sizes(x)
    if shape is None:
        return
    size = shape[check_axis(op, one_axis(op, axis), len(shape))]
    if size is not None and size % 2:
        raise ValueError(f"{op}: axis {axis} of shape {shape} has size {size}, which has no two halves; it must be even")


def gumbel_softmax(
    logits: AnyArray, /, *, tau: float = 1.0, hard: bool = False, axis: int = -1, seed: SeedLike = None
) -> AnyArray:
    """A random choice by `logits` along `axis`, softened so that it has a gradient: softmax((logits + Gumbel noise) / tau).

    With `hard` the result is one-hot, and its gradient that of the soft one. The same `seed` gives the same choice everywhere.

    >>> import trellis as tl
    >>> tl.gumbel_softmax(tl.asarray([0.0, 50.0, 0.0]), hard=True, seed=0)
    Array([0., 1., 0.], dtype=float32, backend='numpy', device='cpu')
    """
    if not tau > 0:
        raise ValueError(f"gumbel_softmax: tau={tau} must be above 0")
    if isinstance(logits, Container):
        draw_leaf = lambda leaf: gumbel_softmax(leaf, tau=tau, hard=hard, axis=axis, seed=seed)  # noqa: E731
        return over_leaves("gumbel_softmax", draw_leaf, logits)
    draw = Draw("gumbel_softmax", {"logits": logits}, None, None, None, seed)
    wanted = draw.float_dtype(None)
    compute = computing(wanted)
    noise = negative(log(negative(log(inside(draw.source.unit(draw.shape, compute), compute)))))
    axis = check_axis("gumbel_softmax", one_axis("gumbel_softmax", axis), len(draw.shape))
    soft = softmax(divide(add(draw.parameter("logits", compute), noise), tau), axis=axis)
    if hard:
        soft = add(subtract(_one_hot_largest(soft, axis), stop_gradient(soft)), soft)
    return draw.finish(astype(soft, wanted, copy=False))


def _one_hot_largest(x: Array, axis: int) -> Any:
    """1 at the first of the largest elements along `axis`, 0 elsewhere."""
    places = cumulative_sum(ones_like(x, dtype=int32), axis=axis)
    return astype(equal(places, add(argmax(x, axis=axis, keepdims=True), 1)), x.dtype)
