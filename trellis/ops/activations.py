"""Activations: the functions between the layers of a network. Where they have a kink, the derivative is that of torch."""

from __future__ import annotations

from trellis.core.dispatch import call
from trellis.core.typing import AnyArray, Operand
from trellis.ops.arguments import check_axis, choice, one_axis
from trellis.ops.shapes import shape_of


def relu(x: Operand, /) -> AnyArray:
    """max(x, 0).

    >>> import trellis as tl
    >>> tl.relu(tl.asarray([-2.0, 0.0, 3.0]))
    Array([0., 0., 3.], dtype=float32, backend='numpy', device='cpu')
    """
    return call("relu", x)


def relu6(x: Operand, /) -> AnyArray:
    """min(max(x, 0), 6).

    >>> import trellis as tl
    >>> tl.relu6(tl.asarray([-2.0, 3.0, 8.0]))
    Array([0., 3., 6.], dtype=float32, backend='numpy', device='cpu')
    """
    return call("relu6", x)


def leaky_relu(x: Operand, /, *, negative_slope: float = 0.01) -> AnyArray:
    """x where x > 0, else negative_slope * x.

    >>> import trellis as tl
    >>> tl.leaky_relu(tl.asarray([-2.0, 3.0]), negative_slope=0.5)
    Array([-1.,  3.], dtype=float32, backend='numpy', device='cpu')
    """
    return call("leaky_relu", x, negative_slope=float(negative_slope))


def prelu(x: AnyArray, weight: Operand, /, *, data_format: str = "channel_last") -> AnyArray:
    """x where x > 0, else weight * x; `weight` is a number, an array that broadcasts, or one slope per channel.

    >>> import trellis as tl
    >>> tl.prelu(tl.asarray([[-2.0, -2.0]]), tl.asarray([0.5, 0.25]))
    Array([[-1. , -0.5]], dtype=float32, backend='numpy', device='cpu')
    """
    last = choice("prelu", "data_format", data_format, ("channel_last", "channel_first")) == "channel_last"
    shape, slopes = shape_of(x), shape_of(weight)
    if len(slopes) == 1 and len(shape) > 1:
        channels = shape[-1 if last else 1]
        if slopes[0] not in (1, channels, None) and channels not in (1, None):
            raise ValueError(f"prelu: weight has {slopes[0]} slopes; x of shape {shape}, {data_format}, needs 1 or {channels}")
    return call("prelu", x, weight, channel_last=last)


def elu(x: Operand, /, *, alpha: float = 1.0) -> AnyArray:
    """x where x > 0, else alpha * (exp(x) - 1).

    >>> import trellis as tl
    >>> tl.elu(tl.asarray([-1.0, 3.0]))
    Array([-0.63212055,  3.        ], dtype=float32, backend='numpy', device='cpu')
    """
    return call("elu", x, alpha=float(alpha))


def selu(x: Operand, /) -> AnyArray:
    """1.0507 * elu(x, alpha=1.6733): these constants keep mean 0 and variance 1 from layer to layer.

    >>> import trellis as tl
    >>> tl.selu(tl.asarray([-1.0, 3.0]))
    Array([-1.1113307,  3.152103 ], dtype=float32, backend='numpy', device='cpu')
    """
    return call("selu", x)


def celu(x: Operand, /, *, alpha: float = 1.0) -> AnyArray:
    """x where x > 0, else alpha * (exp(x / alpha) - 1); it is smooth at 0 for every alpha.

    >>> import trellis as tl
    >>> tl.celu(tl.asarray([-2.0, 3.0]), alpha=2.0)
    Array([-1.2642411,  3.       ], dtype=float32, backend='numpy', device='cpu')
    """
    if alpha == 0:
        raise ValueError("celu: alpha=0 would divide by zero; use tl.relu, its limit")
    return call("celu", x, alpha=float(alpha))


def gelu(x: Operand, /, *, approximate: str | bool = "none") -> AnyArray:
    """x * (1 + erf(x / sqrt(2))) / 2; `approximate="tanh"` (or True): x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2.

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
    """log(1 + exp(beta * x)) / beta; x itself where beta * x > threshold.

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
    """log(1 / (1 + exp(-x))), exact where the sigmoid underflows.

    >>> import trellis as tl
    >>> tl.logsigmoid(tl.asarray([-1000.0, 1000.0]))
    Array([-1000.,    -0.], dtype=float32, backend='numpy', device='cpu')
    """
    return call("logsigmoid", x)


def hardsigmoid(x: Operand, /) -> AnyArray:
    """min(max(x / 6 + 1/2, 0), 1).

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
    """`min` where x < min, `max` where x > max, else x.

    >>> import trellis as tl
    >>> tl.hardtanh(tl.asarray([-4.0, 0.5, 4.0]))
    Array([-1. ,  0.5,  1. ], dtype=float32, backend='numpy', device='cpu')
    """
    if min > max:
        raise ValueError(f"hardtanh: min={min} is above max={max}; swap them")
    return call("hardtanh", x, min=float(min), max=float(max))


def glu(x: AnyArray, /, *, axis: int = -1) -> AnyArray:
    """a * sigmoid(b), where a and b are the halves of x along `axis`.

    >>> import trellis as tl
    >>> tl.glu(tl.asarray([4.0, 0.0]))
    Array([2.], dtype=float32, backend='numpy', device='cpu')
    """
    _check_halves("glu", x, axis)
    return call("glu", x, axis=axis)


def swiglu(x: AnyArray, /, *, axis: int = -1) -> AnyArray:
    """silu(a) * b, where a and b are the halves of x along `axis`.

    >>> import trellis as tl
    >>> tl.swiglu(tl.asarray([0.0, 100.0, 5.0, 1.0]))
    Array([  0., 100.], dtype=float32, backend='numpy', device='cpu')
    """
    _check_halves("swiglu", x, axis)
    return call("swiglu", x, axis=axis)


def _check_halves(op: str, x: AnyArray, axis: int) -> None:
    shape = shape_of(x)
    size = shape[check_axis(op, one_axis(op, axis), len(shape))]
    if size is not None and size % 2:
        raise ValueError(f"{op}: axis {axis} of shape {shape} has size {size}, which is odd; it must be even")
