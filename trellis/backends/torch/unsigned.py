"""uint16, uint32 and uint64, for which torch has conversions, multiplication and few other kernels (pytorch issue 58734).

uint16 is computed in int32 and uint32 in int64, which hold their values. uint64 is computed in int64 with the same bits:
sums and products wrap alike; what depends on order looks at `ordered`, the bits with the highest one flipped.
Converting back wraps, as unsigned arithmetic does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from trellis.backends.torch.operands import COMPLEX, DTYPE, UNSIGNED
from trellis.core import errors

Kernel = Callable[..., torch.Tensor]
WIDE = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.int64}
BITS = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
LOWEST = -(2**63)


def wide(x: torch.Tensor) -> torch.Tensor:
    """Signed, for arithmetic that wraps. Other dtypes stay."""
    return x.to(WIDE[x.dtype]) if x.dtype in UNSIGNED else x


def bits(x: torch.Tensor) -> torch.Tensor:
    """The same memory as signed integers, for what only moves elements. Other dtypes stay."""
    return x.view(BITS[x.dtype]) if x.dtype in UNSIGNED else x


def from_bits(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Back from `bits`. Not by `view` for the others: it cuts them off from their gradient."""
    return x.view(dtype) if dtype in UNSIGNED else x


def ordered(x: torch.Tensor) -> torch.Tensor:
    """Signed integers in the same order. Other dtypes stay; bool becomes uint8, which has more kernels."""
    if x.dtype is torch.uint64:
        return x.to(torch.int64) ^ LOWEST
    return x.to(torch.uint8) if x.dtype is torch.bool else wide(x)


def from_ordered(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return (x ^ LOWEST).to(dtype) if dtype is torch.uint64 else x.to(dtype)


def ordered_real(op: str, x: torch.Tensor) -> torch.Tensor:
    """`ordered` of an array that must not be complex."""
    if x.dtype in COMPLEX:
        raise errors.no_order(op, DTYPE[x.dtype])
    return ordered(x)


def _converted(into: Callable[..., torch.Tensor], back: Callable[..., torch.Tensor] | None) -> Callable[[Kernel], Kernel]:
    """Makes a kernel of other dtypes one of unsigned integers: `into` converts its operands and `back` its result."""

    def convert(kernel: Kernel) -> Kernel:
        def run(*operands: torch.Tensor) -> torch.Tensor:
            result = kernel(*map(into, operands))
            return result if back is None else back(result, operands[0].dtype)

        return run

    return convert


# How to convert a kernel -> the elementwise ops whose kernels are to be converted so.
CONVERSIONS = {
    _converted(wide, torch.Tensor.to): (
        "add", "bitwise_invert", "bitwise_left_shift", "negative", "square", "subtract",
    ),
    _converted(ordered, None): ("greater", "greater_equal", "less", "less_equal"),
    _converted(ordered, from_ordered): ("maximum", "minimum"),
    _converted(torch.Tensor.bool, None): ("logical_and", "logical_not", "logical_or", "logical_xor"),
}  # fmt: skip


def moving(kernel: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A kernel that only moves elements of its first operand."""

    def run(x: torch.Tensor, *args: Any, **params: Any) -> torch.Tensor:
        return kernel(x.view(BITS[x.dtype]), *args, **params).view(x.dtype) if x.dtype in UNSIGNED else kernel(x, *args, **params)

    return run


def sign(x: torch.Tensor) -> torch.Tensor:
    return (x != 0).to(x.dtype)


def floor_divide(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    """By zero it is 0, as in NumPy; torch raises."""
    divide = _divide_uint64 if x1.dtype is torch.uint64 else torch.floor_divide
    a, b = wide(x1), wide(x2)
    return torch.where(b == 0, 0, divide(a, torch.where(b == 0, 1, b))).to(x1.dtype)


def remainder(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    a, b = wide(x1), wide(x2)
    if x1.dtype is not torch.uint64:
        return torch.remainder(a, torch.where(b == 0, 1, b)).to(x1.dtype)
    b = torch.where(b == 0, 1, b)
    return (a - _divide_uint64(a, b) * b).to(x1.dtype)


def _divide_uint64(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Half the dividend fits in int64; twice that quotient is right or one too small. (Hacker's Delight, 9-3)."""
    small = torch.where(b < 0, 1, b)
    quotient = torch.div((a >> 1) & (2**63 - 1), small, rounding_mode="trunc") << 1
    rest = a - quotient * small
    quotient = quotient + ((rest ^ LOWEST) >= (small ^ LOWEST)).to(torch.int64)
    return torch.where(b < 0, ((a ^ LOWEST) >= (b ^ LOWEST)).to(torch.int64), quotient)


def right_shift(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    if x1.dtype is not torch.uint64:
        return (wide(x1) >> wide(x2)).to(x1.dtype)
    a, b = wide(x1), wide(x2)
    b = torch.where((b < 0) | (b > 64), 64, b)  # a shift of 2**63 or more, too, leaves nothing
    return torch.where(b == 0, a, ((a >> 1) & (2**63 - 1)) >> torch.where(b == 0, 0, b - 1)).to(x1.dtype)


def power(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    """Odd numbers repeat modulo 2**64 after 2**62 powers and even ones are 0 there, so the highest bit may go."""
    exponent = wide(x2)
    if x2.dtype is torch.uint64:
        exponent = torch.where(exponent < 0, (exponent & (2**63 - 1)) | 2**62, exponent)
    return torch.pow(wide(x1), exponent).to(x1.dtype)
