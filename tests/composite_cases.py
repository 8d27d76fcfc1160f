"""Every composite as data: operands, parameters, and what NumPy or SciPy say, or the answer itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import scipy.linalg
import scipy.special


@dataclass(frozen=True)
class Case:
    op: str
    operands: tuple[Any, ...]
    params: dict[str, Any]
    expected: Callable[[], Any]
    dtype: Any = None
    tolerance: float | None = None


CASES: list[Case] = []


def case(op: str, operands: Any, params: dict[str, Any], expected: Any, **options: Any) -> None:
    operands = operands if isinstance(operands, tuple) else (operands,)
    answer = expected if callable(expected) else lambda: expected
    CASES.append(Case(op, operands, params, answer, **options))


def f32(*values: Any) -> np.ndarray[Any, Any]:
    return np.array(*values, dtype=np.float32)


inf, nan = np.inf, np.nan
rng = np.random.default_rng(7)
R = rng.normal(size=(3, 4))
T = rng.normal(size=(2, 3, 4))
C = rng.normal(size=(3, 4)) + 1j * rng.normal(size=(3, 4))
I = rng.integers(-9, 9, size=(3, 4))
U8 = rng.integers(0, 255, size=(3, 4)).astype(np.uint8)
B = rng.random((3, 4)) > 0.5
HALF = R.astype(np.float16)
BRAIN = R.astype(ml_dtypes.bfloat16)
GAPS = np.array([[1.0, nan, 3.0, -2.0], [nan, nan, nan, nan], [4.0, 0.5, -1.0, inf]])
EMPTY = np.zeros((3, 0))
WIDE = np.array([[-inf, -inf, -inf], [-inf, 0.0, 1.0], [inf, 0.0, 1.0], [inf, inf, -inf], [1e3, 1e3, -1e3], [nan, 1.0, inf]])


# ---- elementwise ---------------------------------------------------------------------------------------------------------------
LINE = np.array([-800.0, -40.0, -1.5, -1e-9, 0.0, 1e-9, 2.5, 40.0, 800.0, inf, -inf, nan])
UNIT = np.array([0.0, 1e-300, 1e-5, 0.25, 0.31, 0.5 - 1e-9, 0.5, 0.5 + 1e-12, 0.69, 0.75, 1 - 1e-12, 1.0, -0.5, 1.5, nan])
PAIRS = np.array([(a, b) for a in (0.0, -0.0, 2.0, -3.0, inf, -inf, nan, 1e308) for b in (0.0, 2.0, 5.0, inf, -inf, nan, 1e308)])
A, Z = PAIRS[:, 0].copy(), PAIRS[:, 1].copy()
case("expit", LINE, {}, lambda: scipy.special.expit(LINE))
case("expit", LINE.astype(np.float16), {}, lambda: scipy.special.expit(LINE).astype(np.float16))
case("expit", I, {}, lambda: scipy.special.expit(I).astype(np.float32))
case("expit", C, {}, lambda: 1 / (1 + np.exp(-C)))
case("logit", UNIT, {}, lambda: scipy.special.logit(UNIT))
case("logit", UNIT.astype(np.float32), {}, lambda: scipy.special.logit(UNIT.astype(np.float32)))
case("logaddexp", (A, Z), {}, lambda: np.logaddexp(A, Z))
case("logaddexp", (R, 1.5), {}, lambda: np.logaddexp(R, 1.5))
case("logaddexp", (2, R.astype(np.float32)), {}, lambda: np.logaddexp(2, R).astype(np.float32))
case("logaddexp", (I, I[0]), {}, lambda: np.logaddexp(I, I[0]).astype(np.float32))
case("hypot", (A, Z), {}, lambda: np.hypot(A, Z))
case("hypot", (R[:, :1], R[:1]), {}, lambda: np.hypot(R[:, :1], R[:1]))
case("xlogy", (A, Z), {}, lambda: scipy.special.xlogy(A, Z))
case("xlogy", (0, Z), {}, lambda: scipy.special.xlogy(0, Z))
case("nan_to_num", LINE, {"nan": 0.0, "posinf": None, "neginf": None}, lambda: np.nan_to_num(LINE))
case("nan_to_num", f32(LINE), {"nan": 1.0, "posinf": 5.0, "neginf": -7.0}, lambda: np.nan_to_num(f32(LINE), nan=1, posinf=5, neginf=-7))
case("nan_to_num", f32(LINE), {"nan": 0.0, "posinf": None, "neginf": None}, lambda: np.nan_to_num(f32(LINE)))
case("nan_to_num", I, {"nan": 1.0, "posinf": None, "neginf": None}, lambda: I)
case("nan_to_num", np.array([complex(nan, 1), complex(2, nan), 3 - 4j]), {"nan": 9.0, "posinf": None, "neginf": None}, np.array([9 + 1j, 2 + 9j, 3 - 4j]))
for nan_equal in (False, True):
    options = {"rtol": 1e-5, "atol": 1e-8, "equal_nan": nan_equal}
    case("isclose", (A, Z), options, lambda e=nan_equal: np.isclose(A, Z, equal_nan=e))
    case("isclose", (np.array([1.0, nan, 1e10]), np.array([1.000001, nan, 1.00001e10])), options, np.array([True, nan_equal, True]))
    case("array_equal", (GAPS, GAPS), {"equal_nan": nan_equal}, lambda e=nan_equal: np.asarray(np.array_equal(GAPS, GAPS, equal_nan=e)))
case("isclose", (U8, U8[::-1].copy()), {"rtol": 0.0, "atol": 1.0, "equal_nan": False}, lambda: np.abs(U8.astype(int) - U8[::-1]) <= 1)
case("isclose", (np.int8([100, 100]), np.int8([-100, 99])), {"rtol": 0.1, "atol": 0.0, "equal_nan": False}, np.array([False, True]))
case("isclose", (B, ~B), {"rtol": 1e-5, "atol": 1e-8, "equal_nan": False}, lambda: B == ~B)
case("isclose", (C, C + 1e-9), {"rtol": 1e-5, "atol": 1e-8, "equal_nan": False}, np.ones((3, 4), bool))
case("isclose", (R, 0.0), {"rtol": 0.0, "atol": 0.5, "equal_nan": False}, lambda: np.abs(R) <= 0.5)
case("allclose", (R, R + 1e-10), {"rtol": 1e-5, "atol": 1e-8, "equal_nan": False}, np.array(True))
case("allclose", (EMPTY, EMPTY), {"rtol": 1e-5, "atol": 1e-8, "equal_nan": False}, np.array(True))
case("array_equal", (R, R[:2]), {"equal_nan": False}, np.array(False))
case("array_equal", (R, R[0]), {"equal_nan": False}, np.array(False))
case("array_equal", (I, I.astype(np.int32)), {"equal_nan": True}, np.array(True))

# ---- manipulation --------------------------------------------------------------------------------------------------------------
case("broadcast_arrays", (R, R[0], I[:, :1]), {}, lambda: tuple(np.broadcast_arrays(R, R[0], I[:, :1])))
for indexing in ("xy", "ij"):
    case("meshgrid", (R[0], I[1], R[:, 0].copy()), {"indexing": indexing}, lambda i=indexing: tuple(np.meshgrid(R[0], I[1], R[:, 0], indexing=i)))
    case("meshgrid", (R[0],), {"indexing": indexing}, lambda i=indexing: tuple(np.meshgrid(R[0], indexing=i)))
for end in (True, False):
    params = {"num": 5, "endpoint": end, "place": -1, "dtype": None}
    case("linspace_between", (R, R[0]), params, lambda e=end: np.linspace(R, np.broadcast_to(R[0], R.shape), 5, e, axis=-1))
for source, destination in (((0,), (-1,)), ((-1, 0), (0, 1)), ((2, 1, 0), (0, 1, 2)), ((), ())):
    case("moveaxis", T, {"source": source, "destination": destination}, lambda s=source, d=destination: np.moveaxis(T, s, d))
for axis in (0, 1, -1, 2):
    case("stack", (R, I), {"axis": axis}, lambda a=axis: np.stack((R, I), a))
for axis in (0, -1):
    case("unstack", T, {"axis": axis}, lambda a=axis: tuple(np.moveaxis(T, a, 0)))
for indices in ((), (1,), (1, 1, 3)):
    case("split", T, {"indices": indices, "axis": -1}, lambda i=indices: tuple(np.split(T, i, -1)))
for shift, axis in ((2, None), (-7, 1), (5, 0), ((1, -2), (0, 1)), ((1, 2), (1, 1)), (0, 0)):
    case("roll", R, {"shift": shift, "axis": axis}, lambda s=shift, a=axis: np.roll(R, s, a))
case("roll", EMPTY, {"shift": 1, "axis": 1}, EMPTY)
for repetitions in ((2,), (2, 3), (2, 1, 2), (), (0, 2)):
    case("tile", R, {"repetitions": repetitions}, lambda r=repetitions: np.tile(R, r))
case("tile", np.array(3), {"repetitions": (2, 2)}, np.full((2, 2), 3))
for x, value in [(R, np.array(1.5)), (I, np.array(-3)), (U8, np.array(7, np.uint8)), (B, np.array(True)), (C, np.array(2.0 - 1j)), (EMPTY, np.array(nan))]:
    case("pad_with", (x, value), {"pad_width": ((1, 0), (2, 3))}, lambda x=x, v=value: np.pad(x, ((1, 0), (2, 3)), constant_values=v))
for a, b in ((R, R[0]), (R[0], R), (R, T), (T, R), (np.array(2.0), R), (R, np.array(2.0)), (I, U8.astype(np.int64)), (EMPTY, R), (C, R)):
    case("kron", (a, b), {}, lambda a=a, b=b: np.kron(a, b))
for k in (0, 1, -2, 5):
    case("diag", np.array([1.0, inf, nan]), {"k": k}, lambda k=k: np.diag(np.array([1.0, inf, nan]), k))
    case("diag", R, {"k": k}, lambda k=k: np.diag(R, k))
case("diag", B[0], {"k": 1}, lambda: np.diag(B[0], 1))
case("diag", np.zeros(0), {"k": -1}, np.zeros((1, 1)))
case("diag", I[0], {"k": -1}, lambda: np.diag(I[0], -1))

# ---- reductions ----------------------------------------------------------------------------------------------------------------
for axis in (None, 0, -1, (0, 1)):
    for keep in (False, True):
        reduce = {"axis": axis, "keepdims": keep}
        case("count_nonzero", I, reduce, lambda a=axis, k=keep: np.asarray(np.count_nonzero(I, axis=a, keepdims=k)))
        case("std", R, {**reduce, "correction": 1.0}, lambda a=axis, k=keep: np.std(R, axis=a, ddof=1, keepdims=k))
        case("logsumexp", R, reduce, lambda a=axis, k=keep: scipy.special.logsumexp(R, axis=a, keepdims=k))
        for name in ("nansum", "nanprod"):
            case(name, GAPS, {**reduce, "dtype": None}, lambda n=name, a=axis, k=keep: getattr(np, n)(GAPS, axis=a, keepdims=k))
        for name in ("nanmax", "nanmin", "nanmean"):
            case(name, GAPS, reduce, lambda n=name, a=axis, k=keep: getattr(np, n)(GAPS, axis=a, keepdims=k))
        for name in ("nanvar", "nanstd"):
            finite = np.where(np.isinf(GAPS), 3.0, GAPS)
            case(name, finite, {**reduce, "correction": 1.0}, lambda n=name, a=axis, k=keep, x=finite: getattr(np, n)(x, axis=a, ddof=1, keepdims=k))
case("count_nonzero", GAPS, {"axis": 0, "keepdims": False}, lambda: np.count_nonzero(GAPS, axis=0))
case("count_nonzero", B, {"axis": 1, "keepdims": False}, lambda: np.count_nonzero(B, axis=1))
case("count_nonzero", C, {"axis": None, "keepdims": False}, np.array(12))
case("std", I, {"axis": 0, "correction": 0.0, "keepdims": False}, lambda: np.std(I, axis=0).astype(np.float32))
case("std", np.ones((2, 3)), {"axis": 1, "correction": 0.0, "keepdims": False}, np.zeros(2))
case("logsumexp", WIDE, {"axis": 1, "keepdims": False}, np.array([-inf, np.log(1 + np.e), inf, inf, 1000 + np.log(2), nan]))
case("logsumexp", EMPTY, {"axis": 1, "keepdims": False}, np.full(3, -inf))
case("logsumexp", EMPTY, {"axis": 0, "keepdims": True}, np.zeros((1, 0)))
case("logsumexp", C, {"axis": 0, "keepdims": False}, lambda: scipy.special.logsumexp(C, axis=0))
case("logsumexp", I, {"axis": 0, "keepdims": False}, lambda: scipy.special.logsumexp(I, axis=0).astype(np.float32))
case("logsumexp", np.array(2.0), {"axis": None, "keepdims": False}, np.array(2.0))
for axis in (0, -1, (0, 1), None):
    case("softmax", R * 300, {"axis": axis}, lambda a=axis: scipy.special.softmax(R * 300, axis=a))
    case("log_softmax", R * 300, {"axis": axis}, lambda a=axis: scipy.special.log_softmax(R * 300, axis=a))
case("softmax", f32([[-inf, 0, 1]]), {"axis": -1}, lambda: scipy.special.softmax(f32([[-inf, 0, 1]]), axis=-1))
case("log_softmax", f32([[-inf, 0, 200]]), {"axis": -1}, f32([[-inf, -200, 0]]))
case("softmax", EMPTY, {"axis": -1}, EMPTY)
case("log_softmax", EMPTY, {"axis": -1}, EMPTY)
case("softmax", I, {"axis": 0}, lambda: scipy.special.softmax(I, axis=0).astype(np.float32))
case("softmax", BRAIN, {"axis": 0}, lambda: scipy.special.softmax(R, axis=0), dtype="bfloat16")
case("nansum", I.astype(np.int8), {"axis": 0, "dtype": None, "keepdims": False}, lambda: I.sum(axis=0))
case("nansum", np.array([complex(nan, 1), 2j]), {"axis": None, "dtype": None, "keepdims": False}, np.array(2j))
case("nanmax", I, {"axis": 1, "keepdims": False}, lambda: I.max(axis=1))
case("nanmean", I, {"axis": 1, "keepdims": False}, lambda: I.mean(axis=1).astype(np.float32))
case("nanmean", EMPTY, {"axis": 1, "keepdims": False}, np.full(3, nan))
case("nanmean", GAPS.astype(np.float16), {"axis": 1, "keepdims": False}, lambda: np.nanmean(GAPS, axis=1).astype(np.float16))
case("nanvar", C, {"axis": 1, "correction": 0.0, "keepdims": False}, lambda: np.var(C, axis=1))
case("nanvar", GAPS[:2], {"axis": 0, "correction": 1.0, "keepdims": False}, np.full(4, nan))
for n in (0, 1, 2, 4, 6):
    case("diff", (R, None, None), {"axis": -1, "n": n}, lambda n=n: np.diff(R, n=n))
case("diff", (T, T[:, :1].copy(), T), {"axis": 1, "n": 2}, lambda: np.diff(T, n=2, axis=1, prepend=T[:, :1], append=T))
case("diff", (R, np.array(0.0), 1.0), {"axis": 0, "n": 1}, lambda: np.diff(R, axis=0, prepend=0.0, append=1.0))
case("diff", (B, None, None), {"axis": 0, "n": 1}, lambda: np.diff(B, axis=0))
case("diff", (U8, None, None), {"axis": 1, "n": 1}, lambda: np.diff(U8, axis=1))

# ---- quantiles, covariance -----------------------------------------------------------------------------------------------------
QS = np.array([[0.0, 0.1, 0.5], [0.77, 1.0, 1 / 3]])
for method in ("linear", "lower", "higher", "nearest", "midpoint"):
    for q in (0.0, 0.25, 0.5, 0.9, 1):
        case("quantile", (R, q), {"axis": 1, "keepdims": False, "method": method}, lambda q=q, m=method: np.quantile(R, q, axis=1, method=m))
    case("quantile", (R, QS), {"axis": 0, "keepdims": False, "method": method}, lambda m=method: np.quantile(R, QS, axis=0, method=m))
    case("nanquantile", (GAPS[::2], 0.4), {"axis": 1, "keepdims": False, "method": method}, lambda m=method: np.nanquantile(GAPS[::2], 0.4, axis=1, method=m))
    case("nanquantile", (GAPS[:2], QS), {"axis": 1, "keepdims": False, "method": method}, lambda m=method: np.nanquantile(GAPS[:2], QS, axis=1, method=m))
for axis in (None, 0, -1, (0, 2), (2, 0), (0, 1, 2)):
    for keep in (False, True):
        case("quantile", (T, 0.3), {"axis": axis, "keepdims": keep, "method": "linear"}, lambda a=axis, k=keep: np.quantile(T, 0.3, axis=a, keepdims=k))
        case("quantile", (T, QS), {"axis": axis, "keepdims": keep, "method": "linear"}, lambda a=axis, k=keep: np.quantile(T, QS, axis=a, keepdims=k))
        case("nanquantile", (T, QS[0]), {"axis": axis, "keepdims": keep, "method": "linear"}, lambda a=axis, k=keep: np.quantile(T, QS[0], axis=a, keepdims=k))
plain = {"axis": None, "keepdims": False, "method": "linear"}
case("percentile", (R, 100 * QS), {"axis": 0, "keepdims": False, "method": "linear"}, lambda: np.percentile(R, 100 * QS, axis=0))
case("quantile", (GAPS, 0.5), {**plain, "axis": 1}, np.array([nan, nan, 2.25]))
case("nanquantile", (GAPS, 0.5), {**plain, "axis": 1}, np.array([1.0, nan, 2.25]))
case("quantile", (np.array([inf, inf, 1.0, -inf]), np.array([0.0, 0.2, 0.5, 0.8, 1.0])), plain, np.array([-inf, -inf, inf, inf, inf]))
case("quantile", (np.array([-1.7e308, 1.7e308]), 0.75), plain, np.array(0.85e308))
case("quantile", (I, 0.5), plain, lambda: np.quantile(I, 0.5).astype(np.float32))
case("quantile", (HALF, 0.5), plain, lambda: np.quantile(HALF, 0.5).astype(np.float16))
case("quantile", (np.array(3.0), 0.7), plain, np.array(3.0))
case("quantile", (EMPTY, 0.7), {**plain, "axis": 1}, np.full(3, nan))
case("quantile", (f32(R), QS), {**plain, "axis": 1}, lambda: np.quantile(R, QS, axis=1), dtype="float32")
W = np.array([0.5, 2.0, 1.0, 3.5])
for correction in (1, 0):
    case("cov", (R, None), {"correction": correction}, lambda c=correction: np.cov(R, ddof=c))
    case("cov", (R, W), {"correction": correction}, lambda c=correction: np.cov(R, aweights=W, ddof=c))
case("cov", (C, None), {"correction": 1}, lambda: np.cov(C))
case("cov", (C, W), {"correction": 1}, lambda: np.cov(C, aweights=W))
case("cov", (R[0], None), {"correction": 1}, lambda: np.cov(R[0]))
case("cov", (I, None), {"correction": 1}, lambda: np.cov(I).astype(np.float32))
case("corrcoef", R, {}, lambda: np.corrcoef(R))
case("corrcoef", C, {}, lambda: np.corrcoef(C))
case("corrcoef", R[0], {}, np.array(1.0))

# ---- searching -----------------------------------------------------------------------------------------------------------------
MANY = rng.integers(-20, 20, size=40)
for invert in (False, True):
    for dtype in ("int8", "int16", "int32", "int64", "float32", "float64", "complex64", "complex128"):
        some, few = I.astype(dtype), MANY[:5].astype(dtype)
        case("isin", (some, MANY.astype(dtype)), {"invert": invert}, lambda s=some, i=invert: np.isin(s, MANY, invert=i))
        case("isin", (some, few), {"invert": invert}, lambda s=some, f=few, i=invert: np.isin(s, f, invert=i))
    for dtype in ("uint8", "uint16", "uint32", "uint64"):
        some, many = U8.astype(dtype), (MANY % 100).astype(dtype)
        case("isin", (some, many), {"invert": invert}, lambda s=some, m=many, i=invert: np.isin(s, m, invert=i))
case("isin", (GAPS, GAPS), {"invert": False}, ~np.isnan(GAPS))
case("isin", (GAPS, np.concatenate([GAPS.ravel(), GAPS.ravel()])), {"invert": False}, ~np.isnan(GAPS))
case("isin", (B, np.array([True])), {"invert": False}, B)
case("isin", (R, np.zeros(0)), {"invert": False}, np.zeros((3, 4), bool))
case("isin", (R, np.zeros(0)), {"invert": True}, np.ones((3, 4), bool))
case("isin", (I, 3), {"invert": False}, I == 3)
case("isin", (3, I), {"invert": False}, np.asarray(np.isin(3, I)))
case("isin", (I.astype(np.int8), MANY), {"invert": False}, lambda: np.isin(I, MANY))
for largest in (True, False):
    for axis in (0, -1):
        order = np.argsort(-R if largest else R, axis=axis, kind="stable")
        chosen = np.take(order, [0, 1], axis=axis)
        case("top_k", R, {"k": 2, "axis": axis, "largest": largest}, lambda c=chosen, a=axis: (np.take_along_axis(R, c, a), c))
case("top_k", np.array([1, 3, 3, 2]), {"k": 3, "axis": 0, "largest": True}, (np.array([3, 3, 2]), np.array([1, 2, 3])))
case("top_k", R, {"k": 0, "axis": 1, "largest": True}, (np.zeros((3, 0)), np.zeros((3, 0), np.int64)))
H = rng.normal(size=200)
H[:7] = [0.0, 1.0, -1.0, 0.5, 2.0, -2.0, 0.1]
HW = rng.random(200)
GRID = np.linspace(-2, 2, 9)
for density in (False, True):
    for weights in (None, HW):
        for bins in (1, 10, 17):
            case("histogram", (H, None, weights), {"bins": bins, "range": None, "density": density}, lambda b=bins, w=weights, d=density: np.histogram(H, b, weights=w, density=d))
        case("histogram", (H, None, weights), {"bins": 8, "range": (-2, 2), "density": density}, lambda w=weights, d=density: np.histogram(H, 8, (-2, 2), weights=w, density=d))
        case("histogram", (H, GRID, weights), {"bins": None, "range": None, "density": density}, lambda w=weights, d=density: np.histogram(H, GRID, weights=w, density=d))
counting = {"bins": 4, "range": None, "density": False}
case("histogram", (I, None, None), counting, lambda: (np.histogram(I, 4)[0], np.histogram(I, 4)[1].astype(np.float32)))
case("histogram", (np.zeros(0), None, None), counting, lambda: np.histogram(np.zeros(0), 4))
case("histogram", (np.full(5, 3.0), None, None), counting, lambda: np.histogram(np.full(5, 3.0), 4))
case("histogram", (GAPS, None, None), {**counting, "range": (-2.0, 4.0)}, lambda: np.histogram(GAPS, 4, (-2, 4)))
case("histogram", (T, np.array([0.0, 0.0, 1.0, 5.0]), None), {**counting, "bins": None}, lambda: np.histogram(T, np.array([0.0, 0.0, 1.0, 5.0])))
case("histogram", (f32(H), None, None), {"bins": 6, "range": (0, 1), "density": False}, lambda: (np.histogram(f32(H), 6, (0, 1))[0], np.histogram(f32(H), 6, (0, 1))[1].astype(np.float32)))
XP, FP = np.array([-1.0, 0.0, 0.5, 0.5, 2.0]), np.array([3.0, -1.0, 2.0, 5.0, 4.0])
AT = np.array([[-2.0, -1.0, -0.3], [0.0, 0.2, 0.5], [1.1, 2.0, 9.0], [nan, inf, -inf]])
between = {"left": None, "right": None}
case("interp", (AT, XP, FP), between, lambda: np.interp(AT, XP, FP))
case("interp", (AT, XP, FP), {"left": -100.0, "right": nan}, lambda: np.interp(AT, XP, FP, -100.0, nan))
case("interp", (AT, XP, FP * (1 + 2j)), between, lambda: np.interp(AT, XP, FP * (1 + 2j)))
case("interp", (AT[:3], XP[:1], FP[:1]), between, np.full((3, 3), 3.0))
case("interp", (0.3, XP, FP), between, lambda: np.interp(0.3, XP, FP))
case("interp", (f32(AT), f32(XP), f32(FP)), between, lambda: np.interp(AT, XP, FP).astype(np.float32))
case("interp", (np.array([1, 2]), np.array([0, 4]), np.array([0, 8])), between, f32([2.0, 4.0]))
case("interp", (np.array([0.0, 1.0, 0.5]), np.array([0.0, 1.0]), np.array([1.0, inf])), between, np.array([1.0, inf, inf]))

# ---- gather, scatter -----------------------------------------------------------------------------------------------------------
case("gather", (T, np.array([[0, 2], [1, -1]])), {"batch_dims": 0}, lambda: T[[0, 1], [2, -1]])
case("gather", (T, np.array([[[2], [0]], [[1], [1]]])), {"batch_dims": 1}, lambda: np.stack([T[0][[2, 0]], T[1][[1, 1]]]))
case("gather", (T, np.array([[[1], [0], [3]], [[2], [2], [0]]])), {"batch_dims": 2}, lambda: np.take_along_axis(T, np.array([[[1], [0], [3]], [[2], [2], [0]]]), 2)[..., 0])
case("gather", (T, np.array([1])), {"batch_dims": 0}, lambda: T[1])
case("gather", (R, np.array([1, 2])), {"batch_dims": 0}, lambda: np.asarray(R[1, 2]))
case("gather", (R, np.zeros((2, 0), np.int64)), {"batch_dims": 0}, lambda: np.stack([R, R]))
case("gather", (R, np.zeros((0, 1), np.int64)), {"batch_dims": 0}, np.zeros((0, 4)))
WHERE = np.array([[1], [3], [1], [-1]])
case("scatter", (WHERE, R.T.copy()), {"shape": (5, 3), "mode": "add"}, lambda: np.stack([0 * R.T[0], R.T[0] + R.T[2], 0 * R.T[0], R.T[1], R.T[3]]))
case("scatter", (WHERE, np.array([1, -5, -7, -9])), {"shape": (5,), "mode": "max"}, np.array([0, 1, 0, -5, -9]))
case("scatter", (WHERE, np.array([1.0, 5.0, 7.0, 9.0])), {"shape": (5,), "mode": "min"}, np.array([0.0, 1.0, 0.0, 5.0, 9.0]))
case("scatter", (np.array([[0, 1], [2, 0]]), np.array([4, 5])), {"shape": (3, 2), "mode": "set"}, np.array([[0, 4], [0, 0], [5, 0]]))
case("scatter", (WHERE, np.array([True, False, False, True])), {"shape": (5,), "mode": "max"}, np.array([False, True, False, False, True]))
