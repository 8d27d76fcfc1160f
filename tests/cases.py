"""Every public function as data: a call, its NumPy or SciPy reference, and the arrays to run both on.

One table serves many tests: values, dtypes and shapes on every backend; native arrays in, native arrays out; `tl.Array` in,
`tl.Array` out; compiled; bound namespaces. `dynamic` marks results whose shape depends on the data, which JAX cannot compile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.special


@dataclass(frozen=True)
class Case:
    name: str
    run: Callable[..., Any]
    reference: Callable[..., Any]
    arrays: tuple[np.ndarray[Any, Any], ...]
    dynamic: bool = False
    tolerance: float = 1e-12

    @property
    def op(self) -> str:
        return self.name.split(":")[0]


CASES: list[Case] = []


def case(name: str, run: Callable[..., Any], reference: Callable[..., Any], *arrays: Any, **options: Any) -> None:
    CASES.append(Case(name, run, reference, tuple(np.asarray(a) for a in arrays), **options))


_rng = np.random.default_rng(0)
R = _rng.normal(size=(3, 4))  # any real numbers
P = _rng.uniform(0.1, 3.0, size=(3, 4))  # positive
U = _rng.uniform(-0.9, 0.9, size=(3, 4))  # inside (-1, 1)
R2 = _rng.normal(size=(3, 4))
ROW = _rng.normal(size=(4,))
C = _rng.normal(size=(3, 4)) + 1j * _rng.normal(size=(3, 4))
I = _rng.integers(-9, 9, size=(3, 4))
J = _rng.integers(1, 7, size=(3, 4))
B = _rng.random(size=(3, 4)) > 0.5
T = _rng.normal(size=(2, 3, 4))
V = _rng.normal(size=(7,))
SORTED = np.sort(_rng.normal(size=(9,)))
EDGE = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -2.5, 1.5])
GAPS = np.array([[1.0, np.nan, 3.0], [np.nan, np.nan, np.nan], [4.0, 0.5, -1.0]])
S = _rng.normal(size=(2, 4, 4))  # batch of square matrices
D = S @ np.swapaxes(S, -1, -2) + 4 * np.eye(4)  # positive definite
M = _rng.normal(size=(2, 5, 3))
TALL = _rng.normal(size=(6, 3))
K = np.array([2, 0, 1, 1])

# ---- elementwise ---------------------------------------------------------------------------------------------------------------
_UNARY: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "abs": (np.abs, (R, C, I)), "acos": (np.arccos, (U,)), "acosh": (np.arccosh, (P + 1,)), "asin": (np.arcsin, (U,)),
    "asinh": (np.arcsinh, (R, C)), "atan": (np.arctan, (R,)), "atanh": (np.arctanh, (U,)), "bitwise_invert": (np.invert, (I, B)),
    "ceil": (np.ceil, (R,)), "conj": (np.conj, (C, R)), "cos": (np.cos, (R, C)), "cosh": (np.cosh, (R, C)),
    "digamma": (scipy.special.digamma, (P, R)), "erf": (scipy.special.erf, (R, EDGE)), "erfc": (scipy.special.erfc, (R, 5 * P)),
    "erfinv": (scipy.special.erfinv, (U,)), "exp": (np.exp, (R, C)), "expit": (scipy.special.expit, (R, 30 * R)), "sigmoid": (scipy.special.expit, (R,)),
    "expm1": (np.expm1, (R, 1e-9 * R, C)), "floor": (np.floor, (R,)), "gammaln": (lambda x: np.where(x == -np.inf, np.inf, scipy.special.gammaln(x)), (P, R)),
    "i0": (scipy.special.i0, (R, 9 * R)), "imag": (np.imag, (C,)), "isfinite": (np.isfinite, (EDGE, I)), "isinf": (np.isinf, (EDGE, I)),
    "isnan": (np.isnan, (EDGE, I)), "log": (np.log, (P, C)), "log10": (np.log10, (P,)), "log1p": (np.log1p, (P, 1e-9 * P)),
    "log2": (np.log2, (P,)), "logical_not": (np.logical_not, (B,)), "logit": (scipy.special.logit, (np.abs(U),)),
    "negative": (np.negative, (R, I, C)), "positive": (np.positive, (R, I)), "real": (np.real, (C, R)), "reciprocal": (np.reciprocal, (P, C)),
    "round": (np.round, (R, EDGE)), "sign": (np.sign, (R, I, EDGE, C)), "signbit": (np.signbit, (R, EDGE)), "sin": (np.sin, (R, C)),
    "sinh": (np.sinh, (R, C)), "sqrt": (np.sqrt, (P, C)), "square": (np.square, (R, I, C)), "tan": (np.tan, (R, C)),
    "tanh": (np.tanh, (R, C)), "trunc": (np.trunc, (R,)),
}  # fmt: skip
for _name, (_reference, _inputs) in _UNARY.items():
    for _x in _inputs:
        case(f"{_name}:{_x.dtype}{_x.shape}", lambda tl, x, n=_name: getattr(tl, n)(x), _reference, _x, tolerance=2e-11)

_BINARY: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "add": (np.add, ((R, ROW), (I, J), (C, R))), "atan2": (np.arctan2, ((R, R2),)), "bitwise_and": (np.bitwise_and, ((I, J), (B, ~B))),
    "bitwise_left_shift": (np.left_shift, ((J, J),)), "bitwise_or": (np.bitwise_or, ((I, J), (B, ~B))),
    "bitwise_right_shift": (np.right_shift, ((I, J),)), "bitwise_xor": (np.bitwise_xor, ((I, J), (B, ~B))),
    "copysign": (np.copysign, ((R, R2),)), "divide": (np.divide, ((R, ROW), (C, C))), "equal": (np.equal, ((I, J), (B, B), (EDGE, EDGE))),
    "floor_divide": (np.floor_divide, ((R, P), (I, J))), "greater": (np.greater, ((R, ROW), (I, J))),
    "greater_equal": (np.greater_equal, ((R, ROW), (I, J))), "hypot": (np.hypot, ((R, R2),)), "less": (np.less, ((R, ROW), (I, J))),
    "less_equal": (np.less_equal, ((R, ROW), (I, J))), "logaddexp": (np.logaddexp, ((R, R2), (900 * R, 900 * R2))),
    "logical_and": (np.logical_and, ((B, ~B),)), "logical_or": (np.logical_or, ((B, ~B),)), "logical_xor": (np.logical_xor, ((B, B),)),
    "maximum": (np.maximum, ((R, ROW), (I, J), (EDGE, EDGE[::-1]))), "minimum": (np.minimum, ((R, ROW), (I, J), (EDGE, EDGE[::-1]))),
    "multiply": (np.multiply, ((R, ROW), (I, J), (C, C))), "nextafter": (np.nextafter, ((R, R2),)), "not_equal": (np.not_equal, ((I, J),)),
    "pow": (np.power, ((P, R), (I, J), (C, R))), "remainder": (np.remainder, ((R, P), (I, J))), "subtract": (np.subtract, ((R, ROW), (I, J))),
    "xlogy": (scipy.special.xlogy, ((R, P), (0 * P, 0 * P))),
}  # fmt: skip
for _name, (_reference, _pairs) in _BINARY.items():
    for _x, _y in _pairs:
        case(f"{_name}:{_x.dtype},{_y.dtype}{_x.shape}", lambda tl, x, y, n=_name: getattr(tl, n)(x, y), _reference, _x, _y, tolerance=2e-11)

case("clip:both", lambda tl, x: tl.clip(x, -0.5, 0.5), lambda x: np.clip(x, -0.5, 0.5), R)
case("clip:array", lambda tl, x, y: tl.clip(x, y), lambda x, y: np.clip(x, y, None), R, ROW)
case("isclose", lambda tl, x, y: tl.isclose(x, y, rtol=0.5), lambda x, y: np.isclose(x, y, rtol=0.5), R, R2)
case("isclose:nan", lambda tl, x: tl.isclose(x, x, equal_nan=True), lambda x: np.isclose(x, x, equal_nan=True), EDGE)
case("nan_to_num", lambda tl, x: tl.nan_to_num(x, nan=2.0), lambda x: np.nan_to_num(x, nan=2.0), EDGE)
case("nan_to_num:inf", lambda tl, x: tl.nan_to_num(x, posinf=1.0, neginf=-1.0), lambda x: np.nan_to_num(x, posinf=1.0, neginf=-1.0), EDGE)
case("allclose", lambda tl, x: tl.allclose(x, x + 1e-9), lambda x: np.asarray(True), R)
case("array_equal", lambda tl, x, y: tl.array_equal(x, y), lambda x, y: np.asarray(np.array_equal(x, y)), I, J)

# ---- reductions ----------------------------------------------------------------------------------------------------------------
for _name, _reference in {"sum": np.sum, "prod": np.prod, "mean": np.mean, "max": np.max, "min": np.min, "var": np.var, "std": np.std}.items():
    case(f"{_name}:all", lambda tl, x, n=_name: getattr(tl, n)(x), _reference, T)
    case(f"{_name}:axis", lambda tl, x, n=_name: getattr(tl, n)(x, axis=-1), lambda x, f=_reference: f(x, axis=-1), T)
    case(f"{_name}:axes", lambda tl, x, n=_name: getattr(tl, n)(x, axis=(0, -1), keepdims=True), lambda x, f=_reference: f(x, axis=(0, 2), keepdims=True), T)
    case(f"nan{_name}" if _name != "prod" else "nanprod", lambda tl, x, n=_name: getattr(tl, f"nan{n}")(x, axis=0), lambda x, f=_name: getattr(np, f"nan{f}")(x, axis=0), GAPS)
case("var:correction", lambda tl, x: tl.var(x, axis=1, correction=1), lambda x: np.var(x, axis=1, ddof=1), T)
case("std:correction", lambda tl, x: tl.std(x, correction=0.5), lambda x: np.std(x, ddof=0.5), T)
case("sum:dtype", lambda tl, x: tl.sum(x, dtype="float64"), lambda x: np.sum(x, dtype="float64"), I)
case("sum:int", lambda tl, x: tl.sum(x, axis=0), lambda x: np.sum(x, axis=0), I)
case("sum:bool", lambda tl, x: tl.sum(x), np.sum, B)
for _name, _reference in {"all": np.all, "any": np.any, "count_nonzero": np.count_nonzero}.items():
    case(f"{_name}:all", lambda tl, x, n=_name: getattr(tl, n)(x), lambda x, f=_reference: np.asarray(f(x)), B)
    case(f"{_name}:axis", lambda tl, x, n=_name: getattr(tl, n)(x, axis=1, keepdims=True), lambda x, f=_reference: f(x, axis=1, keepdims=True), B)
case("cumulative_sum", lambda tl, x: tl.cumulative_sum(x, axis=1), lambda x: np.cumsum(x, axis=1), T)
case("cumulative_sum:initial", lambda tl, x: tl.cumulative_sum(x, include_initial=True), lambda x: np.concatenate([[0.0], np.cumsum(x)]), V)
case("cumulative_prod", lambda tl, x: tl.cumulative_prod(x, axis=-1), lambda x: np.cumprod(x, axis=-1), T)
case("diff", lambda tl, x: tl.diff(x, axis=1, n=2), lambda x: np.diff(x, axis=1, n=2), T)
case("diff:ends", lambda tl, x, a: tl.diff(x, prepend=a, append=a), lambda x, a: np.diff(x, prepend=a, append=a), V, V[:2])
case("logsumexp", lambda tl, x: tl.logsumexp(x, axis=1), lambda x: scipy.special.logsumexp(x, axis=1), 400 * R)
case("softmax", lambda tl, x: tl.softmax(x), lambda x: scipy.special.softmax(x, axis=-1), 400 * R)
case("log_softmax", lambda tl, x: tl.log_softmax(x, axis=0), lambda x: scipy.special.log_softmax(x, axis=0), 40 * R)
case("median", lambda tl, x: tl.median(x, axis=1), lambda x: np.median(x, axis=1), T)
case("median:nan", lambda tl, x: tl.median(x, axis=1), lambda x: np.median(x, axis=1), GAPS)
case("quantile", lambda tl, x, q: tl.quantile(x, q, axis=-1), lambda x, q: np.quantile(x, q, axis=-1), T, np.array([0.1, 0.5, 1.0]))
for _method in ("lower", "higher", "nearest", "midpoint"):
    case(f"quantile:{_method}", lambda tl, x, m=_method: tl.quantile(x, 0.3, axis=0, method=m), lambda x, m=_method: np.quantile(x, 0.3, axis=0, method=m), T)
case("percentile", lambda tl, x: tl.percentile(x, 25.0, axis=1, keepdims=True), lambda x: np.percentile(x, 25.0, axis=1, keepdims=True), T)
case("nanmedian", lambda tl, x: tl.nanmedian(x, axis=1), lambda x: np.nanmedian(x, axis=1), GAPS)
case("nanquantile", lambda tl, x: tl.nanquantile(x, 0.3, axis=0), lambda x: np.nanquantile(x, 0.3, axis=0), GAPS)
case("cov", lambda tl, x: tl.cov(x), np.cov, R)
case("cov:weights", lambda tl, x, w: tl.cov(x, weights=w, correction=0), lambda x, w: np.cov(x, aweights=w, ddof=0), R, P[0])
case("corrcoef", lambda tl, x: tl.corrcoef(x), np.corrcoef, R)

# ---- manipulation --------------------------------------------------------------------------------------------------------------
case("reshape", lambda tl, x: tl.reshape(x, (4, -1)), lambda x: x.reshape(4, -1), T)
case("permute_dims", lambda tl, x: tl.permute_dims(x, (2, 0, -2)), lambda x: x.transpose(2, 0, 1), T)
case("moveaxis", lambda tl, x: tl.moveaxis(x, (0, 1), (-1, 0)), lambda x: np.moveaxis(x, (0, 1), (-1, 0)), T)
case("expand_dims", lambda tl, x: tl.expand_dims(x, (0, -1)), lambda x: np.expand_dims(x, (0, -1)), R)
case("squeeze", lambda tl, x: tl.squeeze(x, 1), lambda x: x.squeeze(1), R[:, None])
case("broadcast_to", lambda tl, x: tl.broadcast_to(x, (5, 3, 4)), lambda x: np.broadcast_to(x, (5, 3, 4)), R)
case("broadcast_arrays", lambda tl, x, y: tl.broadcast_arrays(x, y), lambda x, y: np.broadcast_arrays(x, y), R, ROW)
case("concat", lambda tl, x, y: tl.concat([x, y], axis=1), lambda x, y: np.concatenate([x, y], 1), R, R2)
case("concat:flat", lambda tl, x, y: tl.concat([x, y], axis=None), lambda x, y: np.concatenate([x, y], None), R, ROW)
case("concat:promote", lambda tl, x, y: tl.concat([x, y]), lambda x, y: np.concatenate([x, y]), R, I.astype("int32"))
case("stack", lambda tl, x, y: tl.stack([x, y], axis=-1), lambda x, y: np.stack([x, y], -1), R, R2)
case("unstack", lambda tl, x: tl.unstack(x, axis=1), lambda x: tuple(np.moveaxis(x, 1, 0)), T)
case("split", lambda tl, x: tl.split(x, 2, axis=-1), lambda x: tuple(np.split(x, 2, axis=-1)), T)
case("split:indices", lambda tl, x: tl.split(x, [1, 1, -1, 9], 1), lambda x: tuple(np.split(x, [1, 1, -1, 9], 1)), T)
case("array_split", lambda tl, x: tl.array_split(x, 4, axis=1), lambda x: tuple(np.array_split(x, 4, axis=1)), T)
case("chunk", lambda tl, x: tl.chunk(x, 3), lambda x: (x[:3], x[3:6], x[6:]), V)
case("swapaxes", lambda tl, x: tl.swapaxes(x, 0, -1), lambda x: np.swapaxes(x, 0, -1), T)
case("transpose", lambda tl, x: tl.transpose(x), np.transpose, T)
case("cumsum", lambda tl, x: tl.cumsum(x), np.cumsum, T)
case("cumprod", lambda tl, x: tl.cumprod(x, 1), lambda x: np.cumprod(x, 1), T)
case("dot", lambda tl, x: tl.dot(x, tl.matrix_transpose(x[0])), lambda x: np.dot(x, x[0].T), T)
case("round:decimals", lambda tl, x: tl.round(x, 1), lambda x: np.round(x, 1), T)
case("flip", lambda tl, x: tl.flip(x, axis=(0, -1)), lambda x: np.flip(x, (0, -1)), T)
case("flip:all", lambda tl, x: tl.flip(x), np.flip, T)
case("roll", lambda tl, x: tl.roll(x, (1, -2), axis=(0, 2)), lambda x: np.roll(x, (1, -2), (0, 2)), T)
case("roll:flat", lambda tl, x: tl.roll(x, 5), lambda x: np.roll(x, 5), T)
case("tile", lambda tl, x: tl.tile(x, (2, 1, 3)), lambda x: np.tile(x, (2, 1, 3)), R)
case("repeat", lambda tl, x: tl.repeat(x, 3, axis=1), lambda x: np.repeat(x, 3, 1), R)
case("repeat:array", lambda tl, x, n: tl.repeat(x, n, axis=1), lambda x, n: np.repeat(x, n, 1), R, K, dynamic=True)
case("meshgrid", lambda tl, x, y: tl.meshgrid(x, y), lambda x, y: tuple(np.meshgrid(x, y)), V, ROW)
case("meshgrid:ij", lambda tl, x, y: tl.meshgrid(x, y, indexing="ij"), lambda x, y: tuple(np.meshgrid(x, y, indexing="ij")), V, ROW)
case("tril", lambda tl, x: tl.tril(x, k=1), lambda x: np.tril(x, 1), S)
case("triu", lambda tl, x: tl.triu(x, k=-1), lambda x: np.triu(x, -1), S)
case("diag", lambda tl, x: tl.diag(x, k=1), lambda x: np.diag(x, 1), ROW)
case("diag:matrix", lambda tl, x: tl.diag(x), np.diag, R)
case("kron", lambda tl, x, y: tl.kron(x, y), np.kron, R, R2[:2, :2])
for _mode in ("constant", "reflect", "symmetric", "edge", "wrap"):
    case(f"pad:{_mode}", lambda tl, x, m=_mode: tl.pad(x, ((1, 2), (0, 3)), mode=m), lambda x, m=_mode: np.pad(x, ((1, 2), (0, 3)), mode=m), np.vstack([R, R2]))
case("pad:value", lambda tl, x: tl.pad(x, 2, constant_values=7.0), lambda x: np.pad(x, 2, constant_values=7.0), R)

# ---- searching, sorting, sets ----------------------------------------------------------------------------------------------------
for _name, _reference in {"argmax": np.argmax, "argmin": np.argmin}.items():
    case(f"{_name}:all", lambda tl, x, n=_name: getattr(tl, n)(x), lambda x, f=_reference: np.asarray(f(x)), T)
    case(f"{_name}:axis", lambda tl, x, n=_name: getattr(tl, n)(x, axis=1, keepdims=True), lambda x, f=_reference: f(x, axis=1, keepdims=True), T)
    case(f"{_name}:nan", lambda tl, x, n=_name: getattr(tl, n)(x, axis=1), lambda x, f=_reference: f(x, axis=1), GAPS)
case("nonzero", lambda tl, x: tl.nonzero(x), np.nonzero, B, dynamic=True)
case("where", lambda tl, c, x, y: tl.where(c, x, y), np.where, B, R, ROW)
case("where:scalar", lambda tl, c, x: tl.where(c, x, 0.0), lambda c, x: np.where(c, x, 0.0), B, R)
case("searchsorted", lambda tl, x, y: tl.searchsorted(x, y), np.searchsorted, SORTED, R)
case("searchsorted:right", lambda tl, x, y: tl.searchsorted(x, y, side="right"), lambda x, y: np.searchsorted(x, y, side="right"), np.sort(I.ravel()), J)
case("sort", lambda tl, x: tl.sort(x, axis=1), lambda x: np.sort(x, axis=1), T)
case("sort:down", lambda tl, x: tl.sort(x, descending=True), lambda x: -np.sort(-x), T)
case("argsort", lambda tl, x: tl.argsort(x, axis=0), lambda x: np.argsort(x, axis=0, stable=True), I)
case("top_k", lambda tl, x: tl.top_k(x, 2, axis=1), lambda x: (-np.sort(-x, 1)[:, :2], np.argsort(-x, 1)[:, :2]), R)
case("isin", lambda tl, x, y: tl.isin(x, y), np.isin, I, J)
case("isin:invert", lambda tl, x, y: tl.isin(x, y, invert=True), lambda x, y: np.isin(x, y, invert=True), I, J)
case("unique_values", lambda tl, x: tl.unique_values(x), np.unique, I, dynamic=True)
case("unique_counts", lambda tl, x: tl.unique_counts(x), lambda x: tuple(np.unique_counts(x)), I, dynamic=True)
case("unique_inverse", lambda tl, x: tl.unique_inverse(x), lambda x: tuple(np.unique_inverse(x)), I, dynamic=True)
case("unique_all", lambda tl, x: tl.unique_all(x), lambda x: tuple(np.unique_all(x)), I, dynamic=True)
case("bincount", lambda tl, x: tl.bincount(x, minlength=9), lambda x: np.bincount(x, minlength=9), J.ravel(), dynamic=True)
case("bincount:length", lambda tl, x, w: tl.bincount(x, weights=w, length=8), lambda x, w: np.bincount(x, w, 8), J.ravel(), P.ravel())
case("histogram", lambda tl, x: tl.histogram(x, 5), lambda x: np.histogram(x, 5), R)
case("histogram:edges", lambda tl, x, e: tl.histogram(x, e, density=True), lambda x, e: np.histogram(x, e, density=True), R, SORTED)
case("interp", lambda tl, x, y, z: tl.interp(x, y, z), np.interp, R, SORTED, np.cos(SORTED))

# ---- indexing --------------------------------------------------------------------------------------------------------------------
case("take", lambda tl, x, k: tl.take(x, k, axis=1), lambda x, k: np.take(x, k, axis=1), T, np.array([2, 0, -1]))
case("take_along_axis", lambda tl, x, k: tl.take_along_axis(x, k, axis=1), lambda x, k: np.take_along_axis(x, k, 1), R, np.argsort(R, 1))
case("gather", lambda tl, x, k: tl.gather(x, k), lambda x, k: x[k[:, 0], k[:, 1]], T, np.array([[0, 2], [1, 1], [1, 0]]))
case("scatter", lambda tl, k, u: tl.scatter(k, u, (5, 4)), lambda k, u: _scatter_reference(k, u), np.array([[1], [3], [1]]), R)
case("segment_sum", lambda tl, x, k: tl.segment_sum(x, k, num_segments=4), lambda x, k: _segments(x, k, np.add, 0.0), T.reshape(6, 4), np.array([0, 2, 0, 3, 2, 2]))
case("segment_max", lambda tl, x, k: tl.segment_max(x, k, num_segments=4), lambda x, k: _segments(x, k, np.maximum, -np.inf), T.reshape(6, 4), np.array([0, 2, 0, 3, 2, 2]))
case("segment_min", lambda tl, x, k: tl.segment_min(x, k, num_segments=4), lambda x, k: _segments(x, k, np.minimum, np.inf), T.reshape(6, 4), np.array([0, 2, 0, 3, 2, 2]))
for _mode, _ufunc in {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}.items():
    case(f"at:{_mode}", lambda tl, x, v, k, m=_mode: getattr(tl.at(x)[k, 1:], m)(v), lambda x, v, k, u=_ufunc: _at_reference(x, v, k, u), R, R2[:, 1:], np.array([2, 0, 2]))
case("at:set", lambda tl, x, v: tl.at(x)[::2, 1].set(v), lambda x, v: _set_reference(x, v), R, R2[:2, 0])


def _scatter_reference(indices: Any, updates: Any) -> Any:
    out = np.zeros((5, 4))
    np.add.at(out, indices[:, 0], updates)
    return out


def _segments(x: Any, ids: Any, ufunc: Any, start: float) -> Any:
    """Identity of the reduction for ids without rows; for max and min of floats that is the lowest and highest value."""
    out = np.full((4, x.shape[1]), start)
    ufunc.at(out, ids, x)
    return out


def _at_reference(x: Any, v: Any, k: Any, ufunc: Any) -> Any:
    out = x.copy()
    ufunc.at(out, (k[:, None], np.arange(1, 4)[None]), v)
    return out


def _set_reference(x: Any, v: Any) -> Any:
    out = x.copy()
    out[::2, 1] = v
    return out


# ---- linear algebra: unique results directly, decompositions by what they rebuild ---------------------------------------------------
case("matmul", lambda tl, x, y: tl.matmul(x, y), np.matmul, S, M[:, :4])
case("matmul:vector", lambda tl, x, y: tl.matmul(x, y), np.matmul, S, ROW)
case("matmul:int", lambda tl, x, y: tl.matmul(x, tl.matrix_transpose(y)), lambda x, y: x @ y.T, I, J)
case("matrix_transpose", lambda tl, x: tl.matrix_transpose(x), lambda x: np.swapaxes(x, -1, -2), T)
case("tensordot", lambda tl, x, y: tl.tensordot(x, y, axes=((1, 2), (0, 1))), lambda x, y: np.tensordot(x, y, ((1, 2), (0, 1))), T, R)
case("tensordot:axis", lambda tl, x, y: tl.tensordot(x, y, axes=(1, 0)), lambda x, y: np.tensordot(x, y, (1, 0)), T, R)
case("tensordot:int", lambda tl, x, y: tl.tensordot(x, y, axes=1), lambda x, y: np.tensordot(x, y, 1), T, R.T)
case("vecdot", lambda tl, x, y: tl.vecdot(x, y), lambda x, y: np.sum(np.conj(x) * y, -1), C, R)
case("outer", lambda tl, x, y: tl.outer(x, y), np.outer, V, ROW)
case("einsum", lambda tl, x, y: tl.einsum("bij,bjk->bik", x, y), lambda x, y: np.einsum("bij,bjk->bik", x, y), S, M[:, :4])
case("einsum:diagonal", lambda tl, x: tl.einsum("...ii->...i", x), lambda x: np.einsum("...ii->...i", x), S)
case("einsum:summed ellipsis", lambda tl, x, y: tl.einsum("...ik,...j->ij", x, y), lambda x, y: np.einsum("bik,bj->ij", x, y), S, S[:, 0])
case("diagonal", lambda tl, x: tl.linalg.diagonal(x, offset=1), lambda x: np.diagonal(x, 1, -2, -1), T)
case("trace", lambda tl, x: tl.linalg.trace(x), lambda x: np.trace(x, 0, -2, -1), T)
case("cross", lambda tl, x, y: tl.linalg.cross(x, y, axis=0), lambda x, y: np.cross(x, y, axis=0), R, R2)
case("det", lambda tl, x: tl.linalg.det(x), np.linalg.det, S)
case("slogdet", lambda tl, x: tl.linalg.slogdet(x), lambda x: tuple(np.linalg.slogdet(x)), S)
case("inv", lambda tl, x: tl.linalg.inv(x), np.linalg.inv, D)
case("pinv", lambda tl, x: tl.linalg.pinv(x), np.linalg.pinv, M)
case("solve", lambda tl, x, y: tl.linalg.solve(x, y), np.linalg.solve, D, M[:, :4])
case("solve:vector", lambda tl, x, y: tl.linalg.solve(x, y), lambda x, y: np.linalg.solve(x, y), D[0], ROW)
case("solve_triangular", lambda tl, x, y: tl.linalg.solve_triangular(x, y, lower=True, trans="T"), lambda x, y: scipy.linalg.solve_triangular(x, y, lower=True, trans="T"), D[0], ROW[:, None])
case("cholesky_solve", lambda tl, x, y: tl.cholesky_solve(x, y), lambda x, y: scipy.linalg.cho_solve((x, True), y), D[0], ROW)
case("cholesky_solve:upper", lambda tl, x, y: tl.linalg.cholesky_solve(x, y, upper=True), lambda x, y: np.stack([scipy.linalg.cho_solve((a, False), b) for a, b in zip(x, y)]), D, M[:, :4])
case("lstsq", lambda tl, x, y: tl.linalg.lstsq(x, y).solution, lambda x, y: np.linalg.lstsq(x, y)[0], TALL, R.reshape(6, 2))
case("cholesky", lambda tl, x: tl.linalg.cholesky(x), np.linalg.cholesky, D)
case("cholesky:upper", lambda tl, x: tl.linalg.cholesky(x, upper=True), lambda x: np.swapaxes(np.linalg.cholesky(x), -1, -2), D)
case("qr", lambda tl, x: tl.matmul(*tl.linalg.qr(x)), lambda x: x, M)
case("qr:complete", lambda tl, x: tl.matmul(*tl.linalg.qr(x, mode="complete")), lambda x: x, M)
case("eigh", lambda tl, x: _rebuilt_eigh(tl, x), lambda x: x, D)
case("eigvalsh", lambda tl, x: tl.linalg.eigvalsh(x), np.linalg.eigvalsh, D)
case("eig", lambda tl, x: tl.real(_rebuilt_eig(tl, x)), lambda x: x, S)
case("eigvals", lambda tl, x: tl.sort(tl.abs(tl.linalg.eigvals(x))), lambda x: np.sort(np.abs(np.linalg.eigvals(x))), S)
case("svd", lambda tl, x: _rebuilt_svd(tl, x), lambda x: x, M)
case("svdvals", lambda tl, x: tl.linalg.svdvals(x), lambda x: np.linalg.svd(x, compute_uv=False), M)
for _ord in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
    case(f"matrix_norm:{_ord}", lambda tl, x, o=_ord: tl.linalg.matrix_norm(x, ord=o), lambda x, o=_ord: np.linalg.norm(x, o, axis=(-2, -1)), M)
for _ord in (0, 1, 2, 3.5, np.inf, -np.inf):
    case(f"vector_norm:{_ord}", lambda tl, x, o=_ord: tl.linalg.vector_norm(x, axis=1, ord=o), lambda x, o=_ord: np.linalg.norm(x, o, axis=1), R)
case("matrix_power", lambda tl, x: tl.linalg.matrix_power(x, -3), lambda x: np.linalg.matrix_power(x, -3), D)
case("matrix_rank", lambda tl, x: tl.linalg.matrix_rank(x), np.linalg.matrix_rank, np.stack([D[0], np.outer(ROW, ROW)]))
case("expm", lambda tl, x: tl.linalg.expm(x), scipy.linalg.expm, S, tolerance=1e-10)
case("sqrtm", lambda tl, x: tl.linalg.sqrtm(x), lambda x: np.stack([scipy.linalg.sqrtm(m) for m in x]), D, tolerance=1e-9)
case("logm", lambda tl, x: tl.linalg.logm(x), lambda x: np.stack([scipy.linalg.logm(m) for m in x]), D, tolerance=1e-9)


def _rebuilt_eigh(tl: Any, x: Any) -> Any:
    values, vectors = tl.linalg.eigh(x)
    return tl.matmul(vectors * values[..., None, :], tl.matrix_transpose(vectors))


def _rebuilt_eig(tl: Any, x: Any) -> Any:
    values, vectors = tl.linalg.eig(x)
    return tl.matmul(vectors * values[..., None, :], tl.linalg.inv(vectors))


def _rebuilt_svd(tl: Any, x: Any) -> Any:
    u, s, vh = tl.linalg.svd(x, full_matrices=False)
    return tl.matmul(u * s[..., None, :], vh)


# ---- Fourier transforms ------------------------------------------------------------------------------------------------------------
for _name in ("fft", "ifft", "hfft"):
    case(f"{_name}", lambda tl, x, n=_name: getattr(tl.fft, n)(x, axis=0, norm="ortho"), lambda x, n=_name: getattr(np.fft, n)(x, axis=0, norm="ortho"), C)
    case(f"{_name}:n", lambda tl, x, n=_name: getattr(tl.fft, n)(x, n=6), lambda x, n=_name: getattr(np.fft, n)(x, n=6), C)
for _name in ("rfft", "ihfft"):
    case(f"{_name}", lambda tl, x, n=_name: getattr(tl.fft, n)(x, axis=0), lambda x, n=_name: getattr(np.fft, n)(x, axis=0), T)
    case(f"{_name}:n", lambda tl, x, n=_name: getattr(tl.fft, n)(x, n=3, norm="forward"), lambda x, n=_name: getattr(np.fft, n)(x, n=3, norm="forward"), T)
case("irfft", lambda tl, x: tl.fft.irfft(x, n=5), lambda x: np.fft.irfft(x, n=5), C)
case("fftn", lambda tl, x: tl.fft.fftn(x, s=(2, 5), axes=(0, 1)), lambda x: np.fft.fftn(x, s=(2, 5), axes=(0, 1)), C)
case("ifftn", lambda tl, x: tl.fft.ifftn(x), np.fft.ifftn, C)
case("rfftn", lambda tl, x: tl.fft.rfftn(x, axes=(0, 2)), lambda x: np.fft.rfftn(x, axes=(0, 2)), T)
case("irfftn", lambda tl, x: tl.fft.irfftn(x), np.fft.irfftn, C)
case("fftshift", lambda tl, x: tl.fft.fftshift(x, axes=(0, 1)), lambda x: np.fft.fftshift(x, axes=(0, 1)), T)
case("ifftshift", lambda tl, x: tl.fft.ifftshift(x), np.fft.ifftshift, T)

# ---- from an array, another array ---------------------------------------------------------------------------------------------------
case("zeros_like", lambda tl, x: tl.zeros_like(x), np.zeros_like, I)
case("ones_like", lambda tl, x: tl.ones_like(x, dtype="float64"), lambda x: np.ones_like(x, dtype="float64"), I)
case("full_like", lambda tl, x: tl.full_like(x, 3), lambda x: np.full_like(x, 3), R)
case("empty_like", lambda tl, x: tl.empty_like(x) * 0, lambda x: np.zeros_like(x), I)
case("astype", lambda tl, x: tl.astype(x, "int32"), lambda x: x.astype("int32"), R)
case("astype:bool", lambda tl, x: tl.astype(x, "bool"), lambda x: x.astype(bool), I)
case("to_device", lambda tl, x: tl.to_device(x, "cpu"), lambda x: x, R)
