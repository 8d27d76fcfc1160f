"""Which dtypes each elementwise op computes in: rows of a table, after the array API standard.

A backend's fast path never comes here. Its slow path (mixed dtypes, Python scalars, an integer given to `exp`) asks
`compute_dtype`, which promotes, moves integers to the default float where the op is defined on floats, and raises the same
TypeError for every backend where the dtype makes no sense.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trellis.dtypes import DType, bool as bool_, common_dtype, float32, int64, integer_range

_FLOATING = """acos acosh asin asinh atan atanh cos cosh divide exp expm1 log log10 log1p log2 reciprocal sin sinh sqrt tan tanh
    expit softmax log_softmax logsumexp"""
_REAL_FLOATING = "atan2 copysign hypot logaddexp nextafter signbit erf erfc erfinv gammaln digamma i0 logit xlogy"
_NUMERIC = "abs add conj imag multiply negative positive pow real round sign square subtract"
_REAL = "ceil clip floor floor_divide greater greater_equal less less_equal maximum minimum remainder trunc"
_INTEGER = "bitwise_left_shift bitwise_right_shift"
_INTEGER_OR_BOOL = "bitwise_and bitwise_invert bitwise_or bitwise_xor"
_ANY = "equal not_equal isfinite isinf isnan isclose where logical_and logical_not logical_or logical_xor"

# domain name -> (dtype kinds allowed, whether integers move to the default float, what to say)
_DOMAINS = {
    "floating": ("fc", True, "a floating-point dtype"),
    "real floating": ("f", True, "a real floating-point dtype"),
    "numeric": ("iufc", False, "a numeric dtype"),
    "real": ("iuf", False, "a real numeric dtype"),
    "integer": ("iu", False, "an integer dtype"),
    "integer or bool": ("biu", False, "an integer or bool dtype"),
    "any": ("biufc", False, "any dtype"),
}

DOMAIN: dict[str, str] = {
    op: domain
    for domain, ops in (
        ("floating", _FLOATING),
        ("real floating", _REAL_FLOATING),
        ("numeric", _NUMERIC),
        ("real", _REAL),
        ("integer", _INTEGER),
        ("integer or bool", _INTEGER_OR_BOOL),
        ("any", _ANY),
    )
    for op in ops.split()
}


def kinds(op: str) -> str:
    """The dtype kinds, as in `DType.kind`, that `op` computes in directly."""
    return _DOMAINS[DOMAIN[op]][0]


def compute_dtype(op: str, items: Sequence[Any], default_int: DType = int64) -> DType:
    """The dtype `op` computes in, given the DType or Python scalar of each operand. TypeError if there is none."""
    allowed, to_float, expected = _DOMAINS[DOMAIN[op]]
    try:
        dtype = common_dtype(items, default_int)
    except TypeError as error:
        raise TypeError(f"{op}: {error}") from None
    if dtype.kind not in allowed and to_float and dtype.kind in "biu":
        dtype = float32
    if dtype.kind not in allowed:
        given = " and ".join(str(x) if type(x) is DType else f"Python {type(x).__name__}" for x in items)
        fix = "cast it with tl.astype" if dtype is not bool_ else "cast it with tl.astype(x, tl.int64), or use a logical op"
        raise TypeError(f"{op}: expected {expected}, got {given}; {fix}")
    if dtype.kind in "iu":
        low, high = integer_range(dtype)
        for x in items:
            if type(x) is not DType and not low <= x <= high:
                raise OverflowError(
                    f"{op}: the Python integer {x} does not fit in {dtype} ({low} to {high}); cast the array first"
                )
    return dtype
