"""Every elementwise function of one array against mpmath, in units in the last place (ulp), per dtype and backend.

Points are drawn over the whole domain: decades from the smallest to the largest normal number, the neighbourhood of 0, 1 and of
each function's zeros and poles. A result may be off by `LIMIT` ulps of its dtype. Kernels of a framework that need more are in
`WIDER`. Near a zero of the function that is not at 0, a kernel in `SCALES` counts in ulps of the number that stands there.

Sums, norms and normalizations of many numbers are held to float64 in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest
import scipy.special
from helpers import make, to_numpy

import trellis as tl

mpmath.mp.dps = 40

Reference = Callable[[Any], Any]
_INFINITE = mpmath.inf


def _log1p(x: Any) -> Any:
    return mpmath.log1p(x)


def _softplus(x: Any) -> Any:
    return x if x > 20 else mpmath.log1p(mpmath.exp(x))


def _erfc(x: Any) -> Any:
    return mpmath.erfc(max(min(x, 1000), -1000))  # mpmath fails at 1e300


def _gelu(x: Any) -> Any:
    return x * _erfc(-x / mpmath.sqrt(2)) / 2


def _gelu_tanh(x: Any) -> Any:
    return x / (1 + mpmath.exp(-2 * mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3)))


_ALPHA, _SCALE = mpmath.mpf("1.6732632423543772848170429916717"), mpmath.mpf("1.0507009873554804934193349852946")

# name -> (reference, lowest and highest argument; None is the range of the dtype)
FUNCTIONS: dict[str, tuple[Reference, float | None, float | None]] = {
    "acos": (mpmath.acos, -1, 1),
    "acosh": (mpmath.acosh, 1, None),
    "asin": (mpmath.asin, -1, 1),
    "asinh": (mpmath.asinh, None, None),
    "atan": (mpmath.atan, None, None),
    "atanh": (mpmath.atanh, -1, 1),
    "cos": (mpmath.cos, -100, 100),
    "cosh": (mpmath.cosh, None, None),
    "digamma": (mpmath.digamma, 0, None),
    "elu": (lambda x: x if x > 0 else mpmath.expm1(x), None, None),
    "erf": (mpmath.erf, None, None),
    "erfc": (_erfc, None, None),
    "erfinv": (mpmath.erfinv, -1, 1),
    "exp": (mpmath.exp, None, None),
    "expit": (lambda x: 1 / (1 + mpmath.exp(-x)), None, None),
    "expm1": (mpmath.expm1, None, None),
    "gammaln": (mpmath.loggamma, 0, None),
    "gelu": (_gelu, None, None),
    "gelu tanh": (_gelu_tanh, None, None),
    "i0": (lambda x: mpmath.besseli(0, x), -80, 80),
    "log": (mpmath.log, 0, None),
    "log10": (mpmath.log10, 0, None),
    "log1p": (_log1p, -1, None),
    "log2": (lambda x: mpmath.log(x, 2), 0, None),
    "logit": (lambda x: mpmath.log(x / (1 - x)), 0, 1),
    "logsigmoid": (lambda x: -mpmath.log1p(mpmath.exp(-x)) if x > 0 else x - mpmath.log1p(mpmath.exp(x)), None, None),
    "mish": (lambda x: x * mpmath.tanh(mpmath.log1p(mpmath.exp(x))), None, None),
    "reciprocal": (lambda x: 1 / x, None, None),
    "selu": (lambda x: _SCALE * (x if x > 0 else _ALPHA * mpmath.expm1(x)), None, None),
    "sigmoid": (lambda x: 1 / (1 + mpmath.exp(-x)), None, None),
    "silu": (lambda x: x / (1 + mpmath.exp(-x)), None, None),
    "sin": (mpmath.sin, -100, 100),
    "sinh": (mpmath.sinh, None, None),
    "softplus": (_softplus, None, None),
    "softsign": (lambda x: x / (1 + abs(x)), None, None),
    "sqrt": (mpmath.sqrt, 0, None),
    "tan": (mpmath.tan, -100, 100),
    "tanh": (mpmath.tanh, None, None),
}
DTYPES = {
    "float64": np.dtype("float64"),
    "float32": np.dtype("float32"),
    "float16": np.dtype("float16"),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
LIMIT = 4.0
# (backend, function, dtype) -> ulps, measured and rounded up. But for gelu these are the framework's own kernels.
WIDER: dict[tuple[str, str, str], float] = {
    ("jax", "atanh", "float64"): 53,  # log1p(-0.4) is 50 ulps off, with the flags of the tests and with none
    ("jax", "log1p", "float64"): 53,
    ("jax", "digamma", "float64"): 10,
    ("jax", "digamma", "float32"): 7,
    ("jax", "erfc", "float64"): 8,
    ("jax", "erfc", "float32"): 11,
    ("jax", "erfinv", "float64"): 6,
    ("jax", "erfinv", "float32"): 6,
    ("jax", "gammaln", "float64"): 9,
    ("jax", "gammaln", "float32"): 11,
    ("jax", "sinh", "float32"): 6,
    ("tensorflow", "digamma", "float64"): 6,
    ("tensorflow", "digamma", "float32"): 7,
    ("tensorflow", "erfc", "float64"): 6,
    ("tensorflow", "erfc", "float32"): 11,
    ("tensorflow", "expit", "float32"): 5,
    ("tensorflow", "sigmoid", "float32"): 5,
    ("tensorflow", "silu", "float32"): 5,
    ("torch", "digamma", "float64"): 6,
    ("torch", "digamma", "float32"): 8,
    ("torch", "gelu", "float32"): 5,
    # erfc(x / sqrt(2)) has the condition number x * x, and the quotient is rounded: at -12 and -20 that is 140 ulps
    **{(backend, "gelu", "float64"): 160 for backend in ("numpy", "jax", "tensorflow")},
    **{(backend, "gelu", "float32"): 120 for backend in ("jax", "tensorflow")},
    ("numpy", "gelu", "float32"): 10,
    # x / (1 + exp(-2 c)) with a cubic c has the condition number 2 |c|
    **{(backend, "gelu tanh", "float64"): 300 for backend in ("numpy", "jax", "tensorflow")},
    **{(backend, "gelu tanh", "float32"): 60 for backend in ("numpy", "jax", "tensorflow")},
}
# (backend, function) -> the size whose ulps count where the result is smaller: the kernel adds terms of this size that cancel.
SCALES: dict[tuple[str, str], float] = {
    ("jax", "digamma"): 1.0,
    ("jax", "gammaln"): 1.0,
    ("tensorflow", "digamma"): 1.0,
    ("torch", "digamma"): 1.0,
    ("torch", "gelu tanh"): 1.0,
    ("torch", "gelu"): 1.0,  # (1 + erf) / 2 in one fused kernel, where erfc takes four times as long
}


def points(dtype: np.dtype[Any], low: float | None, high: float | None) -> np.ndarray[Any, Any]:
    """Numbers of `dtype` over the domain, without its ends."""
    info = ml_dtypes.finfo(dtype)
    smallest, largest = float(info.smallest_normal), float(info.max)
    sizes = np.geomspace(smallest * 4, largest / 4, 60)
    near = np.array(
        [
            1e-8,
            1e-6,
            1e-5,
            1e-4,
            1e-3,
            0.01,
            0.1,
            0.25,
            0.4,
            0.5,
            0.6,
            0.75,
            0.9,
            0.99,
            0.999,
            1 - 1e-7,
            1 - 1e-8,
            1 - 1e-12,
            1.0,
            1.001,
            1.1,
            1.4616,
            1.5,
            2.0,
            2.5,
            3.0,
            5.0,
            8.0,
            12.0,
            20.0,
            50.0,
            85.0,
            700.0,
        ]
    )
    beside_one = 1 + float(info.eps) * np.array([-64, -8, -1, -0.5, 1, 8, 64])
    with np.errstate(over="ignore"):
        found = np.concatenate([-sizes, -near, -beside_one, beside_one, near, sizes]).astype(dtype)
    wide = found.astype("float64")
    inside = (
        np.isfinite(wide) & (wide > (-np.inf if low is None else low)) & (wide < (np.inf if high is None else high)) & (wide != 0)
    )
    return np.unique(found[inside])


def ulps(found: np.ndarray[Any, Any], exact: list[Any], dtype: np.dtype[Any], scale: float = 0.0) -> np.ndarray[Any, Any]:
    """The error of each result in units in the last place; 0 where both overflow, and where the result is subnormal and close."""
    info = ml_dtypes.finfo(dtype)
    largest, smallest, eps = mpmath.mpf(float(info.max)), mpmath.mpf(float(info.smallest_normal)), mpmath.mpf(float(info.eps))
    off = []
    for value, true in zip(found.astype("float64").tolist(), exact):
        if abs(true) > largest * (1 - 2 * eps):
            off.append(0.0 if np.isinf(value) or abs(value) > float(largest) * (1 - 8 * float(eps)) else np.inf)
        elif not np.isfinite(value):
            off.append(np.inf)
        else:
            unit = mpmath.mpf(2) ** mpmath.floor(mpmath.log(max(abs(true), smallest, scale), 2)) * eps
            off.append(float(abs(mpmath.mpf(value) - true) / unit))
    return np.array(off)


_EXACT: dict[tuple[str, str], tuple[Any, list[Any]]] = {}


def exact_values(name: str, dtype: str) -> tuple[np.ndarray[Any, Any], list[Any]]:
    if (name, dtype) not in _EXACT:
        reference, low, high = FUNCTIONS[name]
        xs = points(DTYPES[dtype], low, high)
        _EXACT[name, dtype] = xs, [mpmath.re(reference(mpmath.mpf(float(x)))) for x in xs]
    return _EXACT[name, dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_precision(backend: str, name: str, dtype: str) -> None:
    xs, exact = exact_values(name, dtype)
    function, _, kind = name.partition(" ")
    found = to_numpy(getattr(tl, function)(make(backend, xs), **({"approximate": kind} if kind else {})))
    off = ulps(found, exact, DTYPES[dtype], SCALES.get((backend, name), 0.0))
    worst = int(np.argmax(off))
    limit = WIDER.get((backend, name, dtype), LIMIT)
    assert off[worst] <= limit, (
        f"{name}({xs[worst]!r}) = {found[worst]!r}, exactly {mpmath.nstr(exact[worst], 12)}: {off[worst]:.3g} ulps"
    )


# ---- of many numbers -----------------------------------------------------------------------------------------------------------
Wide = np.ndarray[Any, np.dtype[np.float64]]
_ROWS, _COUNT = 3, 4096
_MANY = np.random.default_rng(11).normal(1.0, 0.5, size=(_ROWS, _COUNT))


def _normalized(x: Wide) -> Wide:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


# name -> (ours, in float64 by NumPy and SciPy); each reduces or normalizes the last axis
OF_MANY: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sum": (lambda x: tl.sum(x, axis=-1), lambda x: x.sum(-1)),
    "mean": (lambda x: tl.mean(x, axis=-1), lambda x: x.mean(-1)),
    "var": (lambda x: tl.var(x, axis=-1), lambda x: x.var(-1)),
    "std": (lambda x: tl.std(x, axis=-1), lambda x: x.std(-1)),
    "vector_norm": (lambda x: tl.linalg.vector_norm(x, axis=-1), lambda x: np.linalg.norm(x, axis=-1)),
    "vector_norm_3": (lambda x: tl.linalg.vector_norm(x, axis=-1, ord=3), lambda x: np.linalg.norm(x, 3, axis=-1)),
    "logsumexp": (lambda x: tl.logsumexp(x, axis=-1), lambda x: scipy.special.logsumexp(x, axis=-1)),
    "softmax": (lambda x: tl.softmax(x, axis=-1), lambda x: scipy.special.softmax(x, axis=-1)),
    "log_softmax": (lambda x: tl.log_softmax(x, axis=-1), lambda x: scipy.special.log_softmax(x, axis=-1)),
    "cumulative_sum": (lambda x: tl.cumulative_sum(x, axis=-1), lambda x: x.cumsum(-1)),
    "layer_norm": (lambda x: tl.layer_norm(x, eps=1e-5), _normalized),
    "rms_norm": (lambda x: tl.rms_norm(x, eps=1e-5), lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)),
    "instance_norm": (
        lambda x: tl.instance_norm(x[:, :, None], eps=1e-5)[:, :, 0],
        lambda x: _normalized(x),
    ),
    "group_norm": (
        lambda x: tl.group_norm(x[:, :, None], 1, eps=1e-5, data_format="channel_last")[:, :, 0],
        lambda x: _normalized(x),
    ),
    "matmul": (lambda x: x @ tl.matrix_transpose(x), lambda x: x @ x.T),
    "mse_loss": (lambda x: tl.mse_loss(x, x[:, ::-1]), lambda x: np.square(x - x[:, ::-1]).mean()),
}
OF_MANY_LIMIT = {"float64": 64.0, "float32": 32.0, "float16": 1.5, "bfloat16": 1.5}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OF_MANY)
def test_precision_of_many(backend: str, name: str, dtype: str) -> None:
    """In ulps of the larger of the result and 1: half precision is rounded once, from float32."""
    ours, exact = OF_MANY[name]
    given = _MANY.astype(DTYPES[dtype])
    expected = exact(given.astype(np.float64))
    found = to_numpy(ours(tl.asarray(make(backend, given)))).astype(np.float64)
    unit = 2.0 ** np.floor(np.log2(np.maximum(np.abs(expected), 1.0))) * float(ml_dtypes.finfo(DTYPES[dtype]).eps)
    worst = float((np.abs(found - expected) / unit).max())
    assert worst <= OF_MANY_LIMIT[dtype], f"{name} in {dtype} is {worst:.3g} ulps off"


def test_precision_of_ten_million(backend: str) -> None:
    x = np.random.default_rng(5).normal(size=10_000_000).astype(np.float32)
    given, wide = tl.asarray(make(backend, x)), x.astype(np.float64)
    expected = {"vector_norm": np.linalg.norm(wide), "sum": np.abs(wide).sum(), "mean": np.abs(wide).mean(), "var": wide.var()}
    found = {
        "vector_norm": tl.linalg.vector_norm(given),
        "sum": tl.sum(abs(given)),
        "mean": tl.mean(abs(given)),
        "var": tl.var(given),
    }
    off = {name: abs(float(found[name]) / value - 1) / 2.0**-24 for name, value in expected.items()}
    assert max(off.values()) <= 64, f"ulps: {off}"


def test_means_round_once(backend: str) -> None:
    """The sum of a few ones is exact, so the mean is the quotient."""
    for size in (3, 7, 30, 41):
        for ones in range(1, size, 3):
            x = (np.arange(size) < ones).astype(np.float32)
            assert float(tl.mean(make(backend, x))) == float(np.float32(ones) / np.float32(size))
