"""Elementwise ops: the torch function of the same name, or a row that names another kernel, for some dtypes or for all."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from trellis.backends import formulas
from trellis.backends.elementwise import Kernel, Kernels, clip_dtype, default_kernel, define, row, rows_by_name
from trellis.backends.torch import complexes, unsigned
from trellis.backends.torch.operands import COMPLEX, FLOAT, NATIVE, dtype_of, promoted, same_dtype, to_tensors, weak
from trellis.core.dtypes import bfloat16, float16, uint16, uint32, uint64
from trellis.core.table import TABLE

Tensor = torch.Tensor

# Python numbers of these may go to a torch kernel beside such tensors: the result is what a converted number would give.
_PLAIN = frozenset({torch.float32, torch.float64})
_PLAIN_INTEGERS = frozenset({torch.int32, torch.int64})


def _with_numbers(op: str, kernels: Kernels, slow: Kernel) -> Kernel:
    """torch's kernels take a Python number for x2, so it need not become a tensor."""
    native = default_kernel(_TABLE[op])
    direct = frozenset(dtype for dtype, kernel in kernels.items() if kernel is native)
    takes_numbers = TABLE[op].takes_numbers
    with_float = _PLAIN & direct if takes_numbers else frozenset()
    with_int = (_PLAIN | _PLAIN_INTEGERS) & direct if takes_numbers else frozenset()

    def mixed(x1: Any, x2: Any) -> torch.Tensor:
        if type(x2) is float:
            if type(x1) is Tensor and x1.dtype in with_float:
                return native(x1, x2)
        elif type(x2) is int:
            if type(x1) is Tensor and x1.dtype in with_int and -(2**31) <= x2 < 2**31:
                return native(x1, x2)
        elif isinstance(x1, Tensor) and isinstance(x2, Tensor) and x1.dtype is x2.dtype and x1.dtype in direct:
            return native(x1, x2)  # a Parameter and a Tensor
        return slow(x1, x2)

    return mixed


# ---- floats, where torch's kernel differs from the standard --------------------------------------------------------------------
def _float_sign(x: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.isnan(x), x, torch.sign(x))  # torch.sign(NaN) is 0


def _float_floor_divide(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    """At infinities the standard wants the quotient itself; torch follows Python there."""
    x1, x2 = x1.detach(), x2.detach()  # a step function: its derivative is 0, for which torch has no rule
    infinite = torch.isinf(x1) | torch.isinf(x2)
    return torch.where(infinite, x1 / x2, torch.floor_divide(x1, x2))


def _if_differentiated(native: Kernel, other: Kernel) -> Kernel:
    """`native`, or `other`, whose derivative is right, where there may be one."""

    def run(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
        if x1.requires_grad or x2.requires_grad or torch._C._functorch.peek_interpreter_stack() is not None:
            return other(x1, x2)
        return native(x1, x2)

    return run


def _float_remainder(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    rest = torch.remainder(x1, x2)
    return torch.where(rest == 0, torch.copysign(rest, x2), rest)  # a zero, too, has the sign of x2


def _differentiable_remainder(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    """The same; its zeros have the derivative of torch's own."""
    rest = torch.remainder(x1, x2)
    return torch.where(rest == 0, torch.copysign(rest.detach(), x2.detach()) - (rest.detach() - rest), rest)


def _integer_floor_divide(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    """By zero it is 0, as in NumPy, where torch raises; by -1 the lowest integer wraps, where the processor may trap."""
    special = _zero_or_minus_one(x2)
    return torch.where(special, x1 * x2, torch.floor_divide(x1, torch.where(special, 1, x2)))


def _integer_remainder(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    return torch.remainder(x1, torch.where(_zero_or_minus_one(x2), 1, x2))


def _zero_or_minus_one(x: torch.Tensor) -> torch.Tensor:
    return (x == 0) | (x == -1) if x.dtype is not torch.uint8 else x == 0


def _in_float32(kernel: Kernel) -> Kernel:
    """For float16 and bfloat16, in which the steps of a kernel lose digits: erf is 0 at 1e-17, and logit is rough near 1/2."""
    return lambda x: kernel(x.float()).to(x.dtype)


def _pow(x1: torch.Tensor, x2: Any) -> torch.Tensor:
    """torch takes sqrt and rsqrt for the numbers 0.5 and -0.5; at -0 and -inf these are not the power."""
    if type(x2) is float and x2 in (0.5, -0.5):
        recorded = x1.requires_grad or torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None
        if x2 > 0 and not recorded:  # the square root, corrected in its own memory: a new array costs more than the root
            return torch.pow(x1, x2).add_(0.0).masked_fill_(torch.isneginf(x1), torch.inf)
        x1 = (x1 + 0.0).masked_fill(x1 == -torch.inf, torch.inf)
    return torch.pow(x1, x2)


def _integer_pow(x1: torch.Tensor, x2: Any) -> torch.Tensor:
    """torch refuses a negative Python number as an exponent, and takes it as a tensor."""
    return torch.pow(x1, torch.full_like(x1, x2) if type(x2) is int and x2 < 0 else x2)


def _identity(x: torch.Tensor) -> torch.Tensor:
    return x


# The ops whose kernel is not the torch function of the same name. torch's own short names save a call inside of torch.
# Kind "w" is uint16, uint32 and uint64, for which torch has few kernels; kind "h" is float16 and bfloat16.
_TABLE = rows_by_name(
    (torch,),
    abs=row(torch.abs, w=_identity),
    acos=row(torch.acos, c=complexes.acos),
    bitwise_invert=torch.bitwise_not,
    bitwise_right_shift=row(torch.bitwise_right_shift, w=unsigned.right_shift),
    ceil=row(torch.ceil, iu=_identity),
    conj=row(torch.conj_physical, iu=_identity),
    divide=torch.true_divide,
    equal=torch.eq,
    erf=row(torch.erf, h=_in_float32(torch.erf)),
    expit=torch.sigmoid,
    expm1=row(torch.expm1, c=partial(formulas.complex_expm1, torch, torch.complex)),
    floor=row(torch.floor, iu=_identity),
    floor_divide=row(_integer_floor_divide, f=_float_floor_divide, w=unsigned.floor_divide),
    gammaln=torch.lgamma,
    greater=torch.gt,
    greater_equal=torch.ge,
    hypot=_if_differentiated(torch.hypot, partial(formulas.hypot, torch)),
    imag=row(torch.zeros_like, c=torch.imag),
    less=torch.lt,
    less_equal=torch.le,
    log1p=row(torch.log1p, c=partial(formulas.complex_log1p, torch, torch.complex)),
    logaddexp=_if_differentiated(torch.logaddexp, partial(formulas.logaddexp, torch)),
    logit=row(torch.logit, h=_in_float32(torch.logit)),
    multiply=torch.mul,
    negative=torch.neg,
    nextafter=_if_differentiated(torch.nextafter, lambda x1, x2: torch.where(x1 == x2, x1, torch.nextafter(x1, x2))),
    not_equal=torch.ne,
    positive=_identity,
    pow=row(_pow, i=_integer_pow, c=partial(formulas.complex_pow, torch), w=unsigned.power),
    real=row(torch.real, iu=_identity),
    remainder=row(_integer_remainder, f=_if_differentiated(_float_remainder, _differentiable_remainder), w=unsigned.remainder),
    round=row(torch.round, iu=_identity, c=complexes.round),
    sign=row(torch.sign, f=_float_sign, c=partial(formulas.complex_sign, torch, torch.complex), w=unsigned.sign),
    subtract=torch.sub,
    tanh=row(torch.tanh, c=complexes.tanh),
    trunc=row(torch.trunc, iu=_identity),
    xlogy=_if_differentiated(torch.xlogy, partial(formulas.xlogy, torch)),
)
_TABLE |= {op: row(_TABLE[op], w=convert(_TABLE[op])) for convert, ops in unsigned.CONVERSIONS.items() for op in ops}


def clip(x: torch.Tensor, min: Any, max: Any) -> torch.Tensor:
    dtype = NATIVE[clip_dtype(dtype_of(x), [weak(bound) for bound in (min, max) if bound is not None])]
    if min is None and max is None:
        return x.clone()
    wide, low, high = (None if v is None else unsigned.ordered(to_tensors((x, v), dtype)[1]) for v in (x, min, max))
    return unsigned.from_ordered(torch.clamp(wide, low, high), dtype).to(x.dtype)


def where(condition: torch.Tensor, x1: Any, x2: Any) -> torch.Tensor:
    if not isinstance(condition, torch.Tensor):
        condition = torch.tensor(bool(condition), device=getattr(x1, "device", None) or getattr(x2, "device", None))
    elif condition.dtype is not torch.bool:
        condition = condition != 0
    if isinstance(x1, torch.Tensor) and isinstance(x2, torch.Tensor):
        x1, x2 = same_dtype((x1, x2))
    else:
        x1, x2 = (x.to(condition.device) if x.dim() == 0 else x for x in promoted("where", x1, x2))
    return torch.where(condition, x1, x2)


def nan_to_num(x: torch.Tensor, *, nan: float, posinf: float | None, neginf: float | None) -> torch.Tensor:
    if x.dtype in COMPLEX:
        parts = (torch.nan_to_num(part, nan, posinf, neginf) for part in (x.real, x.imag))
        return torch.complex(*parts)
    return torch.nan_to_num(x, nan, posinf, neginf) if x.dtype in FLOAT else x


_KINDS = dict.fromkeys((uint16, uint32, uint64), "w") | dict.fromkeys((float16, bfloat16), "h")
__all__ = ["clip", "nan_to_num", "where", *_TABLE]  # pyright: ignore[reportUnsupportedDunderAll]
globals().update(define(_TABLE, NATIVE, promoted, _with_numbers, _KINDS))
