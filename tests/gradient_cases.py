"""Every differentiable function as data: a function of arrays, and arrays to differentiate it at.

The arrays lie away from kinks and ties, so that differences along any direction say what the derivative is. Floating-point arrays
are differentiated by, unless `fixed` names their position; integers and bools are constants. A function whose result is known up
to a sign, a phase or an order (eigenvectors, QR) is followed by one that does not see it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import trellis as tl


@dataclass(frozen=True, eq=False)
class Case:
    name: str  # the op, and after a colon what is special
    run: Callable[..., Any]  # of arrays: an array, or a nest of them
    arrays: tuple[np.ndarray[Any, Any], ...]
    fixed: tuple[int, ...] = ()  # positions of floating-point arrays that are constants
    dynamic: bool = False  # the shape of the result depends on the data: JAX cannot compile it
    hermitian: bool = False  # defined on Hermitian matrices: it is differentiated along these
    tolerance: float = 1e-7  # of differences, relative to the largest derivative

    @property
    def op(self) -> str:
        return self.name.split(":")[0]

    @property
    def positions(self) -> list[int]:
        """Of the arrays that it is differentiated by."""
        return [i for i, a in enumerate(self.arrays) if a.dtype.kind in "fc" and i not in self.fixed]


CASES: list[Case] = []


def case(name: str, run: Callable[..., Any], *arrays: Any, **options: Any) -> None:
    CASES.append(Case(name, run, tuple(np.asarray(a) for a in arrays), **options))


_rng = np.random.default_rng(11)


def _normal(*shape: int) -> np.ndarray[Any, Any]:
    return _rng.normal(size=shape)


def _spread(*shape: int) -> np.ndarray[Any, Any]:
    """Numbers in random order, no two of them near each other, none near 0."""
    count = int(np.prod(shape))
    return _rng.permutation(np.linspace(-2.3, 2.5, count) + 0.07).reshape(shape)


X = np.array([[-1.7, 0.3, 2.2], [0.8, -0.6, 1.3]])  # not near a whole number or a half
Y = np.array([[0.45, -1.15, 0.9], [-0.35, 1.6, -2.1]])  # not near X
ROW = np.array([0.65, -1.4, 0.25])
P = np.array([[0.4, 1.7, 2.6], [0.9, 3.1, 0.7]])  # positive
Q = np.array([[1.3, 0.5, 0.8], [2.2, 1.6, 0.35]])
U = np.array([[-0.7, 0.2, 0.55], [0.85, -0.35, 0.12]])  # inside (-1, 1)
C = X + 1j * Y
Z = P - 0.7j * Y
B = np.array([[True, False, True], [False, True, True]])
T = _spread(2, 3, 2)
V = _spread(5)
GAPS = np.array([[1.0, np.nan, 3.0], [0.3, 0.5, np.nan], [4.0, 0.8, -1.0]])
S = np.array([[[2.0, -0.5, 0.3], [0.7, 1.5, -0.8], [-0.4, 0.6, -1.85]], [[-1.2, 0.4, 0.9], [0.1, 2.3, 0.5], [0.8, -0.7, 1.1]]])
D = S @ np.swapaxes(S, -1, -2) + np.diag([0.5, 1.0, 2.0])  # positive definite
E = np.array([[1.4, 0.3 - 0.5j, 0.2j], [-0.6, 2.1 + 0.4j, 0.7], [0.1 + 0.3j, -0.2, -1.6 + 0.8j]])  # complex, square
H = E @ E.conj().T + np.diag([0.5, 1.0, 2.0])  # Hermitian, positive definite
TALL, TALL_C = _normal(4, 3), _normal(4, 3) + 1j * _normal(4, 3)
K = np.array([2, 0, 1])
IDS = np.array([0, 2, 0, 1, 2])

# ---- elementwise ---------------------------------------------------------------------------------------------------------------
_UNARY: dict[str, tuple[Any, ...]] = {
    "abs": (X, C), "acos": (U, C), "acosh": (P + 1, C), "asin": (U, C), "asinh": (X, C), "atan": (X, C), "atanh": (U, C), "ceil": (X,),
    "conj": (C, X), "cos": (X, C), "cosh": (X, C), "digamma": (P, X), "erf": (X,), "erfc": (X,), "erfinv": (U,), "exp": (X, C),
    "expit": (X, 20 * X), "sigmoid": (X,), "expm1": (X, C), "floor": (X,), "gammaln": (P, X), "i0": (X, 5 * X), "imag": (C,), "log": (P, C),
    "log10": (P, C), "log1p": (P, C), "log2": (P, C), "logit": (np.abs(U),), "negative": (X, C), "positive": (X, C), "real": (C, X),
    "reciprocal": (X, C), "round": (X,), "sign": (X, C), "sin": (X, C), "sinh": (X, C), "sqrt": (P, C), "square": (X, C), "tan": (X, C),
    "tanh": (X, C), "trunc": (X,),
}  # fmt: skip
for _name, _inputs in _UNARY.items():
    for _i, _x in enumerate(_inputs):
        _suffix = "" if _i == 0 else ":complex" if _x.dtype.kind == "c" and _inputs[0].dtype.kind == "f" else ":other"
        case(_name + _suffix, lambda x, n=_name: getattr(tl, n)(x), _x)

_BINARY: dict[str, tuple[tuple[Any, Any], ...]] = {
    "add": ((X, ROW), (C, X)), "atan2": ((X, Y),), "copysign": ((X, Y),), "divide": ((X, ROW), (C, Z)), "floor_divide": ((X, P),),
    "hypot": ((X, Y),), "logaddexp": ((X, Y), (300 * X, 300 * Y)), "maximum": ((X, ROW),), "minimum": ((X, ROW),),
    "multiply": ((X, ROW), (C, X)), "pow": ((P, X), (C, Z)), "remainder": ((X, P), (X, -P)), "subtract": ((X, ROW), (X, C)), "xlogy": ((X, P),),
}  # fmt: skip
for _name, _pairs in _BINARY.items():
    for _i, (_x, _y) in enumerate(_pairs):
        case(_name + ("" if _i == 0 else ":other"), lambda x, y, n=_name: getattr(tl, n)(x, y), _x, _y)

case("pow:numbers", lambda x: (x**3, x**2.5, 2.0**x, x**-1, x**0), P)
case("pow:negative base", lambda x: (tl.pow(x, 3.0), x**2), X)
case("pow:zero base", lambda x: tl.pow(x, tl.full_like(x, 2.0)), np.array([0.0, 1.5]))
case("clip", lambda x: tl.clip(x, -0.5, 1.5), X)
case("clip:arrays", lambda x, low, high: tl.clip(x, low, high), X, X - np.array([0.3, -0.4, 0.5]), X + 1.0)
case("nan_to_num", lambda x: tl.nan_to_num(x, nan=2.0), GAPS)
case("where", lambda c, x, y: tl.where(c, x, y), B, X, ROW)
case("where:untaken", lambda x: tl.where(x > 0, tl.sqrt(tl.where(x > 0, x, 1.0)), 2.0), X)
case("expm1:zero", lambda x: tl.expm1(x), np.array([0j, 1e-9 + 0.5j]))
case("sqrt:chained", lambda x: tl.sqrt(tl.sum(x**2)) * tl.exp(-x), X)

# ---- reductions ----------------------------------------------------------------------------------------------------------------
for _name in ("sum", "prod", "mean", "max", "min", "var", "std"):
    case(_name, lambda x, n=_name: getattr(tl, n)(x), T)
    case(f"{_name}:axis", lambda x, n=_name: getattr(tl, n)(x, axis=(0, -1), keepdims=True), T)
    case(f"nan{_name}", lambda x, n=_name: getattr(tl, f"nan{n}")(x, axis=1), GAPS)
for _name in ("sum", "prod", "mean", "var", "std"):
    case(f"{_name}:complex", lambda x, n=_name: getattr(tl, n)(x, axis=1), C)
case("prod:zeros", lambda x: tl.prod(x, axis=1), np.array([[1.5, 0.0, -2.0], [0.0, 3.0, 0.0]]))
case("var:correction", lambda x: tl.var(x, axis=1, correction=1), T)
case("cumulative_sum", lambda x: tl.cumulative_sum(x, axis=1, include_initial=True), T)
case("cumulative_prod", lambda x: tl.cumulative_prod(x, axis=1), T)
case("cumulative_prod:zeros", lambda x: tl.cumulative_prod(x, axis=1, include_initial=True), np.array([[1.5, 0.0, -2.0, 3.0], [0.0, 3.0, 0.0, 2.0]]))
case("cumulative_prod:complex", lambda x: tl.cumulative_prod(x, axis=1), C)
case("diff", lambda x: tl.diff(x, axis=1, n=2), T)
case("diff:ends", lambda x, a: tl.diff(x, prepend=a, append=a), V, ROW[:2])
case("logsumexp", lambda x: tl.logsumexp(x, axis=1), 100 * X)
case("softmax", lambda x: tl.softmax(x), 3 * X)
case("log_softmax", lambda x: tl.log_softmax(x, axis=0), 3 * X)
case("median", lambda x: tl.median(x, axis=1), T)
case("quantile", lambda x, q: tl.quantile(x, q, axis=1), X, np.array([0.15, 0.6]))
case("quantile:midpoint", lambda x: tl.quantile(x, 0.3, axis=0, method="midpoint"), X)
case("percentile", lambda x: tl.percentile(x, 30.0, axis=1, keepdims=True), T)
case("nanmedian", lambda x: tl.nanmedian(x, axis=1), GAPS)
case("nanquantile", lambda x: tl.nanquantile(x, 0.3, axis=0), GAPS)
case("cov", lambda x: tl.cov(x), X)
case("cov:weights", lambda x, w: tl.cov(x, weights=w, correction=0), X, P[0])
case("corrcoef", lambda x: tl.corrcoef(x), X)

# ---- manipulation --------------------------------------------------------------------------------------------------------------
case("reshape", lambda x: tl.reshape(x, (4, -1)), T)
case("permute_dims", lambda x: tl.permute_dims(x, (2, 0, -2)), T)
case("transpose", lambda x: tl.transpose(x, (2, 0, 1)), T)
case("cumsum", lambda x: tl.cumsum(x, 1), T)
case("cumprod", lambda x: tl.cumprod(x), X)
case("dot", lambda x, y: tl.dot(x, y), T, X)
case("split", lambda x: tl.split(x, [1, 2], axis=-1), T)
case("array_split", lambda x: tl.array_split(x, 2, axis=1), T)
case("chunk", lambda x: tl.chunk(x, 2, axis=-1), T)
case("swapaxes", lambda x: tl.swapaxes(x, 0, 2), T)
case("moveaxis", lambda x: tl.moveaxis(x, (0, 1), (-1, 0)), T)
case("expand_dims", lambda x: tl.expand_dims(x, (0, -1)), X)
case("squeeze", lambda x: tl.squeeze(x, 1), X[:, None])
case("broadcast_to", lambda x: tl.broadcast_to(x, (4, 2, 3)), X)
case("broadcast_arrays", lambda x, y: tl.broadcast_arrays(x, y), X, ROW)
case("concat", lambda x, y: tl.concat([x, y], axis=1), X, Y)
case("concat:flat", lambda x, y: tl.concat([x, y, x], axis=None), X, ROW)
case("stack", lambda x, y: tl.stack([x, y], axis=-1), X, Y)
case("unstack", lambda x: tl.unstack(x, axis=1)[:2], T)
case("flip", lambda x: tl.flip(x, axis=(0, -1)), T)
case("roll", lambda x: tl.roll(x, (1, -2), axis=(0, 2)), T)
case("roll:flat", lambda x: tl.roll(x, 5), T)
case("tile", lambda x: tl.tile(x, (2, 1, 3)), X)
case("repeat", lambda x: tl.repeat(x, 3, axis=1), X)
case("repeat:array", lambda x, n: tl.repeat(x, n, axis=1), X, K, dynamic=True)
case("meshgrid", lambda x, y: tl.meshgrid(x, y), ROW, V)
case("tril", lambda x: tl.tril(x, k=1), S)
case("triu", lambda x: tl.triu(x, k=-1), S)
case("diag", lambda x: tl.diag(x, k=1), ROW)
case("diag:matrix", lambda x: tl.diag(x), X)
case("kron", lambda x, y: tl.kron(x, y), X, Y[:, :2])
for _mode in ("constant", "reflect", "symmetric", "edge", "wrap"):
    case("pad" if _mode == "constant" else f"pad:{_mode}", lambda x, m=_mode: tl.pad(x, ((1, 1), (0, 2)), mode=m), X)

# ---- order ---------------------------------------------------------------------------------------------------------------------
case("sort", lambda x: tl.sort(x, axis=1), T)
case("sort:down", lambda x: tl.sort(x, descending=True), T)
case("top_k", lambda x: tl.top_k(x, 2, axis=1)[0], X)
case("top_k:small", lambda x: tl.top_k(x, 2, largest=False)[0], X)
case("unique_values", lambda x: tl.unique_values(x), X, dynamic=True)
case("unique_all", lambda x: tl.unique_all(x)[0], X, dynamic=True)
case("unique_counts", lambda x: tl.unique_counts(x)[0], X, dynamic=True)
case("unique_inverse", lambda x: tl.unique_inverse(x)[0], X, dynamic=True)
case("bincount", lambda k, w: tl.bincount(k, weights=w, length=4), IDS, V)
case("histogram", lambda x, w: tl.histogram(x, 3, weights=w)[0], V, P.ravel()[:5], fixed=(0,))
case("histogram:density", lambda x, e, w: tl.histogram(x, e, weights=w, density=True)[0], V, np.array([-3.0, 0.4, 1.0, 3.0]), P.ravel()[:5])
case("interp", lambda x, xp, fp: tl.interp(x, xp, fp), X, np.array([-1.2, 0.1, 1.0, 1.9]), np.array([0.3, 1.4, -0.8, 0.6]))

# ---- indexing --------------------------------------------------------------------------------------------------------------------
case("take", lambda x, k: tl.take(x, k, axis=1), T, np.array([2, 0, -1, 2]))
case("take_along_axis", lambda x, k: tl.take_along_axis(x, k, axis=1), X, np.array([[2, 0], [1, 1]]))
case("gather", lambda x, k: tl.gather(x, k), T, np.array([[0, 2], [1, 1], [0, 2]]))
case("gather:batch", lambda x, k: tl.gather(x, k, batch_dims=1), T, np.array([[[0], [2]], [[1], [1]]]))
case("scatter", lambda k, u: tl.scatter(k, u, (5, 3)), np.array([[1], [3]]), X)
case("scatter:add", lambda k, u: tl.scatter(k, u, (4,)), np.array([[1], [3], [1]]), ROW)
case("scatter:max", lambda k, u: tl.scatter(k, u, (4,), mode="max"), np.array([[1], [3], [1]]), ROW)
case("segment_sum", lambda x, k: tl.segment_sum(x, k, num_segments=4), V, IDS)
case("segment_max", lambda x, k: tl.segment_max(x, k, num_segments=3), V, IDS)
case("segment_min", lambda x, k: tl.segment_min(x, k, num_segments=3), V, IDS)
case("at", lambda x, v: tl.at(x)[:, ::2].set(v), X, Y[:, :2])
case("at:reversed", lambda x, v, k: tl.at(x)[::-1, k].set(v), X, Y[:, :2], np.array([2, 0]))
case("at:add", lambda x, v, k: tl.at(x)[k, 1:].add(v), X, _spread(3, 2), np.array([1, 0, 1]))
case("at:multiply", lambda x, v, k: tl.at(x)[k, 1:].multiply(v), X, Y[:, 1:], np.array([1, 0]))
case("at:multiply twice", lambda x, v, k: tl.at(x)[k].multiply(v), V, ROW, np.array([1, 3, 1]))
case("at:max", lambda x, v, k: tl.at(x)[k].max(v), V, ROW, np.array([1, 3, 1]))
case("at:min", lambda x, v, k: tl.at(x)[k].min(v), V, ROW, np.array([1, 3, 1]))
case("getitem", lambda x, k: tl.asarray(x)[k, None, 1:, ::-1], T, np.array([0, 1, 0]))
case("getitem:mixed", lambda x, k: tl.asarray(x)[k, :, 1], T, np.array([1, 0, 1]))
case("getitem:mask", lambda x, k: tl.asarray(x)[k], X, B, dynamic=True)

# ---- products ------------------------------------------------------------------------------------------------------------------
case("matmul", lambda x, y: tl.matmul(x, y), S, T[0])
case("matmul:vector", lambda x, y: (tl.matmul(x, y), tl.matmul(y, x), tl.matmul(y, y)), S, ROW)
case("matmul:complex", lambda x, y: tl.matmul(x, y), C, E)
case("matrix_transpose", lambda x: tl.matrix_transpose(x), T)
case("tensordot", lambda x, y: tl.tensordot(x, y, axes=((1,), (1,))), T, X)
case("vecdot", lambda x, y: tl.vecdot(x, y), X, ROW)
case("vecdot:complex", lambda x, y: tl.vecdot(x, y), C, Z)
case("outer", lambda x, y: tl.outer(x, y), V, ROW)
case("einsum", lambda x, y: tl.einsum("bij,jk->bik", x, y), S, X.T)
case("einsum:diagonal", lambda x: tl.einsum("...ii->...i", x), S)
case("einsum:sums", lambda x, y: tl.einsum("ij,k->j", x, y), X, ROW)
case("einsum:complex", lambda x, y: tl.einsum("ij,jk->ki", x, y), C, E)
case("diagonal", lambda x: tl.linalg.diagonal(x, offset=1), S)
case("trace", lambda x: tl.linalg.trace(x), S)
case("cross", lambda x, y: tl.linalg.cross(x, y), X, Y)

# ---- linear algebra --------------------------------------------------------------------------------------------------------------
case("det", lambda x: tl.linalg.det(x), S)
case("det:complex", lambda x: tl.linalg.det(x), E)
case("slogdet", lambda x: tl.linalg.slogdet(x)[1], S)
case("slogdet:complex", lambda x: tuple(tl.linalg.slogdet(x)), E)
case("inv", lambda x: tl.linalg.inv(x), S)
case("inv:complex", lambda x: tl.linalg.inv(x), E)
case("pinv", lambda x: tl.linalg.pinv(x), TALL)
case("pinv:complex", lambda x: tl.linalg.pinv(x), TALL_C)
case("solve", lambda x, y: tl.linalg.solve(x, y), S, X.T)
case("solve:vector", lambda x, y: tl.linalg.solve(x, y), S, ROW)
case("solve:complex", lambda x, y: tl.linalg.solve(x, y), E, C.T)
case("solve_triangular", lambda x, y: tl.linalg.solve_triangular(x, y, lower=True, trans="T"), S, X.T)
case("solve_triangular:unit", lambda x, y: tl.linalg.solve_triangular(x, y, lower=False, unit_diagonal=True), S, X.T)
case("solve_triangular:complex", lambda x, y: (tl.linalg.solve_triangular(x, y, lower=True), tl.linalg.solve_triangular(x, y, lower=False, trans="C")), E, C.T)
case("cholesky_solve", lambda x, y: tl.cholesky_solve(x, y), S, X.T)
case("cholesky_solve:complex", lambda x, y: tl.cholesky_solve(x, y, upper=True), E, C.T)
case("lstsq", lambda x, y: tuple(tl.linalg.lstsq(x, y))[:2], TALL, _normal(4, 2))
case("cholesky", lambda x: tl.linalg.cholesky(x), D, hermitian=True)
case("cholesky:upper", lambda x: tl.linalg.cholesky(x, upper=True), D, hermitian=True)
case("cholesky:complex", lambda x: tl.linalg.cholesky(x), H, hermitian=True)
case("qr", lambda x: _squares(tl.linalg.qr(x)), TALL)
case("qr:wide", lambda x: _squares(tl.linalg.qr(x)), TALL.T)
case("qr:complex", lambda x: _squares(tl.linalg.qr(x)), TALL_C)
case("qr:complete", lambda x: (_projector(tl.matrix_transpose(tl.linalg.qr(x, mode="complete")[0][:, 2:])), *_squares(tl.linalg.qr(x, mode="complete")[1:])), TALL[:, :2])
case("eigh", lambda x: (tl.linalg.eigh(x)[0], *_squares(tl.linalg.eigh(x)[1:])), D, hermitian=True)
case("eigh:complex", lambda x: (tl.linalg.eigh(x)[0], *_squares(tl.linalg.eigh(x)[1:])), H, hermitian=True)
case("eigvalsh", lambda x: tl.linalg.eigvalsh(x), D, hermitian=True)
case("eigvalsh:complex", lambda x: tl.linalg.eigvalsh(x), H, hermitian=True)
case("eig", lambda x: _weighed(*tl.linalg.eig(x)), S[0])
case("eig:complex", lambda x: _weighed(*tl.linalg.eig(x)), E)
case("eigvals", lambda x: tl.sum(tl.exp(tl.linalg.eigvals(x)), axis=-1), S)
case("eigvals:complex", lambda x: tl.sum(tl.exp(tl.linalg.eigvals(x)), axis=-1), E)
case("svd", lambda x: _squares(tl.linalg.svd(x, full_matrices=False)), TALL)
case("svd:wide", lambda x: _squares(tl.linalg.svd(x, full_matrices=False)), TALL.T)
case("svd:complex", lambda x: _rebuilt(*tl.linalg.svd(x, full_matrices=False)), TALL_C)
case("svd:full", lambda x: tl.linalg.svd(x)[1], TALL)
case("svd:rest", lambda x: _projector(tl.matrix_transpose(tl.linalg.svd(x)[0][:, 2:])), TALL[:, :2])
case("svd:rest complex", lambda x: _projector(tl.linalg.svd(x)[2][2:]), TALL_C[:, :2].T)
case("svdvals", lambda x: tl.linalg.svdvals(x), TALL)
case("svdvals:complex", lambda x: tl.linalg.svdvals(x), TALL_C.T)
for _ord in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
    case("matrix_norm" if _ord == "fro" else f"matrix_norm:{_ord}", lambda x, o=_ord: tl.linalg.matrix_norm(x, ord=o), S)
for _ord in (2, 1, 3.5, np.inf, -np.inf):
    case("vector_norm" if _ord == 2 else f"vector_norm:{_ord}", lambda x, o=_ord: tl.linalg.vector_norm(x, axis=1, ord=o), X)
case("vector_norm:complex", lambda x: tl.linalg.vector_norm(x, axis=0), C)
case("matrix_power", lambda x: tl.linalg.matrix_power(x, 3), S)
case("matrix_power:inverse", lambda x: tl.linalg.matrix_power(x, -2), S)
case("expm", lambda x: tl.linalg.expm(x), S)
case("expm:squared", lambda x: tl.linalg.expm(x), 4 * E)
case("sqrtm", lambda x: tl.linalg.sqrtm(x), D[0])
case("logm", lambda x: tl.linalg.logm(x), D[0])


def _squares(parts: Any) -> tuple[Any, ...]:
    """What does not see signs and phases."""
    return tuple(tl.real(tl.conj(part) * part) for part in parts)


def _weighed(values: Any, vectors: Any) -> Any:
    """What sees neither the order of eigenvectors nor their phases, but their lengths."""
    squares = tl.real(tl.conj(vectors) * vectors)
    return tl.sum(tl.multiply(tl.exp(values)[..., None, :], squares), axis=-1)


def _projector(rows: Any) -> Any:
    """Onto the space of the rows."""
    return tl.matmul(tl.conj(tl.matrix_transpose(rows)), rows)


def _rebuilt(u: Any, s: Any, vh: Any) -> Any:
    return tl.matmul(u * tl.astype(tl.sin(s), u.dtype)[..., None, :], vh)


# ---- Fourier transforms ------------------------------------------------------------------------------------------------------------
for _name in ("fft", "ifft", "hfft", "irfft"):
    case(_name, lambda x, n=_name: getattr(tl.fft, n)(x, axis=1, norm="ortho"), C)
    case(f"{_name}:longer", lambda x, n=_name: getattr(tl.fft, n)(x, n=5, norm="forward"), C)
    case(f"{_name}:shorter", lambda x, n=_name: getattr(tl.fft, n)(x, n=2), C)
for _name in ("rfft", "ihfft"):
    case(_name, lambda x, n=_name: getattr(tl.fft, n)(x, axis=1), T)
    case(f"{_name}:longer", lambda x, n=_name: getattr(tl.fft, n)(x, n=6, norm="ortho"), X)
    case(f"{_name}:shorter", lambda x, n=_name: getattr(tl.fft, n)(x, n=2, norm="forward"), X)
case("fftn", lambda x: tl.fft.fftn(x, s=(3, 2), axes=(0, 1)), C)
case("ifftn", lambda x: tl.fft.ifftn(x), C)
case("rfftn", lambda x: tl.fft.rfftn(x, axes=(0, 1)), T)
case("irfftn", lambda x: tl.fft.irfftn(x, s=(2, 5)), C)
case("fft:real", lambda x: tl.fft.fft(x), X)
case("fftshift", lambda x: tl.fft.fftshift(x, axes=(0, 1)), T)
case("ifftshift", lambda x: tl.fft.ifftshift(x), T)

# ---- conversion ----------------------------------------------------------------------------------------------------------------------
case("astype", lambda x: tl.astype(x, "complex128") * (1 + 2j), X)
case("asarray", lambda x: tl.asarray(x, dtype="complex128"), X)
case("array", lambda x: tl.array(x, dtype="complex128"), X)
case("to_device", lambda x: tl.to_device(x, "cpu"), X)
case("to_native", lambda x: tl.to_native(tl.asarray(x) * 2), X)

# ---- what has no derivative, and why ---------------------------------------------------------------------------------------------------
NOT_DIFFERENTIABLE: dict[str, tuple[str, ...]] = {
    "the result is bool": (
        "all", "allclose", "any", "array_equal", "equal", "greater", "greater_equal", "is_array", "isclose", "isfinite", "isin", "isinf",
        "isnan", "less", "less_equal", "logical_and", "logical_not", "logical_or", "logical_xor", "not_equal", "signbit",
    ),
    "it takes integers": (
        "bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor",
    ),
    "the result is integers": ("argmax", "argmin", "argsort", "count_nonzero", "matrix_rank", "nonzero", "searchsorted"),
    "it makes constants": (
        "arange", "empty", "empty_like", "eye", "fftfreq", "full", "full_like", "linspace", "ones", "ones_like", "rfftfreq", "zeros", "zeros_like",
    ),
    "it leaves the framework": ("from_dlpack", "to_backend", "to_numpy"),
    "it is about no array": ("backends",),
    "it steps from one floating-point number to the next": ("nextafter",),
    "its derivative is 0 by definition": ("stop_gradient",),
}  # fmt: skip
