"""Elementwise ops: one row each. `direct` dtypes run torch's kernel as it is; the others come here by the slow way."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

import torch

from trellis.backends import elementwise as factories
from trellis.backends.torch import unsigned
from trellis.backends.torch.complex import complex_acos, complex_expm1, complex_log1p, complex_round, complex_sign, complex_tanh
from trellis.backends.torch.convert import BOOL, COMPLEX, FLOAT, INTEGER, UNSIGNED, promoted, same_dtype, value_for, weak
from trellis.domains import compute_dtype

Tensor = torch.Tensor
Kernel = Callable[..., torch.Tensor]

_NUMERIC = FLOAT | COMPLEX | INTEGER
_ALL = _NUMERIC | BOOL
# Python numbers of these may go to a torch kernel beside such tensors: the result is what a converted number would give.
_PLAIN = frozenset({torch.float32, torch.float64})
_PLAIN_INTEGERS = frozenset({torch.int32, torch.int64})


def _unary(name: str, native: Kernel, direct: Set[torch.dtype], others: dict[torch.dtype, Kernel]) -> Kernel:
    def slow(x: torch.Tensor) -> torch.Tensor:
        (x,) = promoted(name, x)
        return others.get(x.dtype, native)(x)

    return factories.unary(name, native, direct, slow)


def _binary(
    name: str, native: Kernel, direct: Set[torch.dtype], others: dict[torch.dtype, Kernel], numbers: bool = True
) -> Kernel:
    """`numbers`: whether torch's kernel takes a Python number for x2."""

    with_float = _PLAIN & direct if numbers else frozenset()
    with_int = (_PLAIN | _PLAIN_INTEGERS) & direct if numbers else frozenset()

    def slow(x1: Any, x2: Any) -> torch.Tensor:
        if type(x2) is float:
            if type(x1) is Tensor and x1.dtype in with_float:
                return native(x1, x2)
        elif type(x2) is int:
            if type(x1) is Tensor and x1.dtype in with_int and -(2**31) <= x2 < 2**31:
                return native(x1, x2)
        elif isinstance(x1, Tensor) and isinstance(x2, Tensor) and x1.dtype is x2.dtype and x1.dtype in direct:
            return native(x1, x2)  # a Parameter and a Tensor
        x1, x2 = promoted(name, x1, x2)
        return others.get(x1.dtype, native)(x1, x2)

    return factories.binary(name, native, direct, slow)


def _for(dtypes: Set[torch.dtype], kernel: Kernel) -> dict[torch.dtype, Kernel]:
    return dict.fromkeys(dtypes, kernel)


# ---- floats, where torch's kernel differs from the standard --------------------------------------------------------------------
def _float_sign(x: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.isnan(x), x, torch.sign(x))  # torch.sign(NaN) is 0


def _float_floor_divide(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    """At infinities the standard wants the quotient itself; torch follows Python there."""
    x1, x2 = x1.detach(), x2.detach()  # a step function: its derivative is 0, for which torch has no rule
    infinite = torch.isinf(x1) | torch.isinf(x2)
    return torch.where(infinite, x1 / x2, torch.floor_divide(x1, x2))


def _logaddexp(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    """torch's own, but where it may be differentiated: twice, it is NaN for operands far apart."""
    if not (x1.requires_grad or x2.requires_grad or torch._C._functorch.peek_interpreter_stack() is not None):
        return torch.logaddexp(x1, x2)
    first = x1 >= x2
    larger, smaller = torch.where(first, x1, x2), torch.where(first, x2, x1)
    same = torch.isinf(x1) & (x1 == x2)
    distance = torch.where(same, -torch.inf, smaller - torch.where(same, 0.0, larger))
    return larger + torch.log1p(torch.exp(distance))


def _float_remainder(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    rest = torch.remainder(x1, x2)
    return torch.where(rest == 0, torch.copysign(rest, x2), rest)  # a zero, too, has the sign of x2


def _integer_floor_divide(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    """By zero it is 0, as in NumPy, where torch raises; by -1 the lowest integer wraps, where the processor may trap."""
    special = (x2 == 0) | (x2 == -1) if x2.dtype is not torch.uint8 else x2 == 0
    return torch.where(special, x1 * x2, torch.floor_divide(x1, torch.where(special, 1, x2)))


def _integer_remainder(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    special = (x2 == 0) | (x2 == -1) if x2.dtype is not torch.uint8 else x2 == 0
    return torch.remainder(x1, torch.where(special, 1, x2))


def _imag(x: torch.Tensor) -> torch.Tensor:
    return torch.imag(x) if x.dtype in COMPLEX else torch.zeros_like(x)


def _true(x: torch.Tensor) -> torch.Tensor:
    return torch.logical_not(x != 0)


def _identity(x: torch.Tensor) -> torch.Tensor:
    return x


_INTEGERS = INTEGER | UNSIGNED
_same = _for(_INTEGERS, _identity)
_wraps = unsigned.wrapping
_compares = unsigned.comparing
_chooses = unsigned.choosing

# op: torch's kernel, the dtypes for which it is right as it is, and kernels for others in its domain
_UNARY: dict[str, tuple[Kernel, Set[torch.dtype], dict[torch.dtype, Kernel]]] = {
    "abs": (torch.abs, _NUMERIC, _for(UNSIGNED, _identity)),
    "acos": (torch.acos, FLOAT, _for(COMPLEX, complex_acos)),
    "acosh": (torch.acosh, FLOAT | COMPLEX, {}),
    "asin": (torch.asin, FLOAT | COMPLEX, {}),
    "asinh": (torch.asinh, FLOAT | COMPLEX, {}),
    "atan": (torch.atan, FLOAT | COMPLEX, {}),
    "atanh": (torch.atanh, FLOAT | COMPLEX, {}),
    "bitwise_invert": (torch.bitwise_not, INTEGER | BOOL, _for(UNSIGNED, _wraps(torch.bitwise_not))),
    "ceil": (torch.ceil, FLOAT, _same),
    "conj": (torch.conj_physical, _NUMERIC, _same),
    "cos": (torch.cos, FLOAT | COMPLEX, {}),
    "cosh": (torch.cosh, FLOAT | COMPLEX, {}),
    "exp": (torch.exp, FLOAT | COMPLEX, {}),
    "expm1": (torch.expm1, FLOAT, _for(COMPLEX, complex_expm1)),
    "floor": (torch.floor, FLOAT, _same),
    "imag": (_imag, _NUMERIC | UNSIGNED, {}),
    "isfinite": (torch.isfinite, _ALL | UNSIGNED, {}),
    "isinf": (torch.isinf, _ALL | UNSIGNED, {}),
    "isnan": (torch.isnan, _ALL | UNSIGNED, {}),
    "log": (torch.log, FLOAT | COMPLEX, {}),
    "log10": (torch.log10, FLOAT | COMPLEX, {}),
    "log1p": (torch.log1p, FLOAT, _for(COMPLEX, complex_log1p)),
    "log2": (torch.log2, FLOAT | COMPLEX, {}),
    "logical_not": (torch.logical_not, _ALL, _for(UNSIGNED, _true)),
    "negative": (torch.neg, _NUMERIC, _for(UNSIGNED, _wraps(torch.neg))),
    "positive": (_identity, _NUMERIC | UNSIGNED, {}),
    "real": (torch.real, _NUMERIC, _same),
    "reciprocal": (torch.reciprocal, FLOAT | COMPLEX, {}),
    "round": (torch.round, FLOAT, _same | _for(COMPLEX, complex_round)),
    "sign": (torch.sign, INTEGER, _for(FLOAT, _float_sign) | _for(COMPLEX, complex_sign) | _for(UNSIGNED, unsigned.sign)),
    "signbit": (torch.signbit, FLOAT, {}),
    "sin": (torch.sin, FLOAT | COMPLEX, {}),
    "sinh": (torch.sinh, FLOAT | COMPLEX, {}),
    "sqrt": (torch.sqrt, FLOAT | COMPLEX, {}),
    "square": (torch.square, _NUMERIC, _for(UNSIGNED, _wraps(torch.square))),
    "tan": (torch.tan, FLOAT | COMPLEX, {}),
    "tanh": (torch.tanh, FLOAT, _for(COMPLEX, complex_tanh)),
    "trunc": (torch.trunc, FLOAT, _same),
}

_truth = unsigned.truth
_BINARY: dict[str, tuple[Kernel, Set[torch.dtype], dict[torch.dtype, Kernel]]] = {
    "add": (torch.add, _NUMERIC, _for(UNSIGNED, _wraps(torch.add))),
    "atan2": (torch.atan2, FLOAT, {}),
    "bitwise_and": (torch.bitwise_and, INTEGER | BOOL | UNSIGNED, {}),
    "bitwise_left_shift": (torch.bitwise_left_shift, INTEGER, _for(UNSIGNED, _wraps(torch.bitwise_left_shift))),
    "bitwise_or": (torch.bitwise_or, INTEGER | BOOL | UNSIGNED, {}),
    "bitwise_right_shift": (torch.bitwise_right_shift, INTEGER, _for(UNSIGNED, unsigned.right_shift)),
    "bitwise_xor": (torch.bitwise_xor, INTEGER | BOOL | UNSIGNED, {}),
    "copysign": (torch.copysign, FLOAT, {}),
    "divide": (torch.true_divide, FLOAT | COMPLEX, {}),
    "equal": (torch.eq, _ALL | UNSIGNED, {}),
    "floor_divide": (
        torch.floor_divide,
        frozenset(),
        _for(FLOAT, _float_floor_divide) | _for(INTEGER, _integer_floor_divide) | _for(UNSIGNED, unsigned.floor_divide),
    ),
    "greater": (torch.gt, INTEGER | FLOAT, _for(UNSIGNED, _compares(torch.gt))),
    "greater_equal": (torch.ge, INTEGER | FLOAT, _for(UNSIGNED, _compares(torch.ge))),
    "hypot": (torch.hypot, FLOAT, {}),
    "less": (torch.lt, INTEGER | FLOAT, _for(UNSIGNED, _compares(torch.lt))),
    "less_equal": (torch.le, INTEGER | FLOAT, _for(UNSIGNED, _compares(torch.le))),
    "logaddexp": (torch.logaddexp, frozenset(), _for(FLOAT, _logaddexp)),
    "logical_and": (torch.logical_and, _ALL, _for(UNSIGNED, _truth(torch.logical_and))),
    "logical_or": (torch.logical_or, _ALL, _for(UNSIGNED, _truth(torch.logical_or))),
    "logical_xor": (torch.logical_xor, _ALL, _for(UNSIGNED, _truth(torch.logical_xor))),
    "maximum": (torch.maximum, INTEGER | FLOAT, _for(UNSIGNED, _chooses(torch.maximum))),
    "minimum": (torch.minimum, INTEGER | FLOAT, _for(UNSIGNED, _chooses(torch.minimum))),
    "multiply": (torch.mul, _NUMERIC | UNSIGNED, {}),
    "nextafter": (torch.nextafter, FLOAT, {}),
    "not_equal": (torch.ne, _ALL | UNSIGNED, {}),
    "pow": (torch.pow, _NUMERIC, _for(UNSIGNED, unsigned.power)),
    "remainder": (
        torch.remainder,
        frozenset(),
        _for(FLOAT, _float_remainder) | _for(INTEGER, _integer_remainder) | _for(UNSIGNED, unsigned.remainder),
    ),
    "subtract": (torch.sub, _NUMERIC, _for(UNSIGNED, _wraps(torch.sub))),
}
_TAKE_NUMBERS = frozenset(
    [
        "add",
        "divide",
        "equal",
        "greater",
        "greater_equal",
        "less",
        "less_equal",
        "multiply",
        "not_equal",
        "pow",
        "subtract",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
    ]
)


def clip(x: torch.Tensor, min: Any, max: Any) -> torch.Tensor:
    compute_dtype("clip", [weak(v) for v in (x,)])
    low = None if min is None else value_for("clip", x, min)
    high = None if max is None else value_for("clip", x, max)
    if low is None and high is None:
        return x.clone()
    if x.dtype not in UNSIGNED:
        return torch.clamp(x, low, high)
    bounds = (None if v is None else unsigned.ordered(v) for v in (low, high))
    return unsigned.from_ordered(torch.clamp(unsigned.ordered(x), *bounds), x.dtype)


def where(condition: torch.Tensor, x1: Any, x2: Any) -> torch.Tensor:
    if condition.dtype is not torch.bool:
        condition = condition != 0
    if isinstance(x1, torch.Tensor) and isinstance(x2, torch.Tensor):
        x1, x2 = same_dtype((x1, x2))
    else:
        x1, x2 = (x.to(condition.device) if x.dim() == 0 else x for x in promoted("where", x1, x2))
    return torch.where(condition, x1, x2)


for _name, _row in _UNARY.items():
    globals()[_name] = _unary(_name, *_row)
for _name, _row in _BINARY.items():
    globals()[_name] = _binary(_name, *_row, numbers=_name in _TAKE_NUMBERS)

__all__ = [*_UNARY, *_BINARY, "clip", "where"]  # pyright: ignore[reportUnsupportedDunderAll]
