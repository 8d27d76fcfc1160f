"""torch's random numbers: other numbers than torch's, of the same distribution."""

from __future__ import annotations

from typing import Any

from trellis import ops as tl, random
from trellis.core.dtypes import float32, int64
from trellis.trace.rows.support import Table, cast, is_array, seed, sizes, supported


def _rand(shape: Any, *_: Any, dtype: Any = None) -> Any:
    return random.random_uniform(shape=sizes(shape), dtype=dtype or float32, seed=seed())


def _randn(shape: Any, *_: Any, dtype: Any = None) -> Any:
    return random.random_normal(shape=sizes(shape), dtype=dtype or float32, seed=seed())


def _randint(low: int, high: int, shape: Any, *, dtype: Any = None) -> Any:
    dtype = dtype or int64
    made = random.randint(low, high, shape=sizes(shape), dtype=supported(dtype if dtype.kind in "iu" else int64), seed=seed())
    return cast(made, dtype)


def _bernoulli(x: Any, p: Any = None) -> Any:
    probs = x if p is None else tl.zeros_like(x) + p
    return cast(random.random_uniform(shape=x.shape, seed=seed()) < probs, x.dtype)


def _normal(mean: Any, std: Any) -> Any:
    shape = tl.broadcast_arrays(*[v for v in (mean, std) if is_array(v)])[0].shape
    return random.random_normal(shape=shape, seed=seed()) * std + mean


def _multinomial(probs: Any, count: int, replacement: bool = False) -> Any:
    rows = probs if probs.ndim == 2 else tl.expand_dims(probs, 0)
    rows = rows / tl.sum(rows, axis=-1, keepdims=True)
    made = random.multinomial(rows.shape[-1], count, batch_size=rows.shape[0], probs=rows, replace=replacement, seed=seed())
    return made if probs.ndim == 2 else tl.squeeze(made, 0)


def _rrelu(x: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Any:
    slope = (_rand(x.shape, dtype=x.dtype) * (upper - lower) + lower) if training else (lower + upper) / 2
    return tl.where(x >= 0, x, x * slope)


TABLE: Table = {
    "rand.default": _rand,
    "rand_like.default": lambda x, *, dtype=None: _rand(x.shape, dtype=dtype or x.dtype),
    "randn.default": _randn,
    "randn_like.default": lambda x, *, dtype=None: _randn(x.shape, dtype=dtype or x.dtype),
    "randint.low": _randint,
    "randint.default": lambda high, shape, *, dtype=None: _randint(0, high, shape, dtype=dtype),
    "randint_like.low_dtype": lambda x, low, high, *, dtype=None: _randint(low, high, x.shape, dtype=dtype or x.dtype),
    "randperm.default": lambda n, *, dtype=None: random.permutation(n, seed=seed()),
    "bernoulli.default bernoulli.p bernoulli.float bernoulli.Tensor": _bernoulli,
    "normal_functional.default": lambda x, mean=0, std=1: _randn(x.shape, dtype=x.dtype) * std + mean,
    "normal.Tensor_float normal.Tensor_Tensor normal.float_Tensor": _normal,
    "uniform.default": lambda x, low=0.0, high=1.0: _rand(x.shape, dtype=x.dtype) * (high - low) + low,
    "exponential.default": lambda x, rate=1.0: -tl.log(1 - _rand(x.shape, dtype=x.dtype)) / rate,
    "multinomial.default": _multinomial,
    "rrelu.default": _rrelu,
}
