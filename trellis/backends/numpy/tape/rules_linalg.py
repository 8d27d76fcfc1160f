"""Gradient rules of matrix products and of linear algebra.

Symmetric in, symmetric out: `eigh` and `cholesky` read one triangle; their gradient is that of the symmetric matrix.
Eigenvectors and singular vectors are determined up to a phase: their gradients are right for functions that do not depend on it,
and infinite or NaN where two eigenvalues are equal and the vectors are used.
"""

from __future__ import annotations

import string
from typing import Any

import numpy as np

from trellis.backends.numpy.tape.recording import Linear, OfInputs, OfOutput
from trellis.backends.numpy.tape.rules_support import adjoint, conjugate, identity, zeros_like
from trellis.composites.linalg import cofactors, diagonal_matrix, gaps, off_diagonal, pinv_gradient, svd_gradient
from trellis.core.dispatch import call
from trellis.core.indexing import ARRAY
from trellis.ops.linalg import diagonal, eig, eigh, inv, matmul, solve, solve_triangular, svd
from trellis.ops.products import einsum

__all__ = ["LINALG_COMPOSED", "LINALG_RULES"]


def _column(x: Any) -> Any:
    return x[..., None]


def _row(x: Any) -> Any:
    return x[..., None, :]


# ---- products ----------------------------------------------------------------------------------------------------------------
def _matmul_first(g: Any, y: Any, x1: Any, x2: Any) -> Any:
    if len(x2.shape) == 1:
        return _column(g) * conjugate(x2) if len(x1.shape) > 1 else g * conjugate(x2)
    if len(x1.shape) == 1:
        return matmul(conjugate(x2), _column(g))[..., 0]
    return matmul(g, adjoint(x2))


def _matmul_second(g: Any, y: Any, x1: Any, x2: Any) -> Any:
    if len(x1.shape) == 1:
        return _column(conjugate(x1)) * _row(g) if len(x2.shape) > 1 else g * conjugate(x1)
    if len(x2.shape) == 1:
        rows = conjugate(x1).reshape((-1, x1.shape[-1])) if len(x1.shape) > 2 else conjugate(x1)
        return matmul(g.reshape((-1,)), rows)
    if len(x2.shape) == 2 and len(x1.shape) > 2:  # one product over the whole batch
        x1, g = x1.reshape((-1, x1.shape[-1])), g.reshape((-1, g.shape[-1]))
    return matmul(adjoint(x1), g)


def _labels(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """A letter for each axis of each operand and of the result. Axes under an ellipsis get letters that are free."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    free = [c for c in string.ascii_letters if c not in equation]
    widest = max(rank - len(term.replace("...", "")) if "..." in term else 0 for term, rank in zip(terms, ranks))
    dots = "".join(free[:widest])
    inputs = [term.replace("...", dots[widest - (rank - len(term) + 3) :]) for term, rank in zip(terms, ranks)]
    if not arrow:  # letters that occur once, in order
        letters = left.replace(",", "").replace("...", "")
        right = "..." + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    return inputs, right.replace("...", dots)


def _einsum(position: int, g: Any, y: Any, *arrays: Any, equation: str) -> Any:
    """The einsum of g and the other operands. Letters that none of them has stand on a vector of ones."""
    inputs, output = _labels(equation, [len(x.shape) for x in arrays])
    sizes: dict[str, int] = {}
    for term, x in zip(inputs, arrays):
        for letter, n in zip(term, x.shape):
            sizes[letter] = max(sizes.get(letter, 1), n)
    terms = [output] + [term for i, term in enumerate(inputs) if i != position]
    operands = [g] + [conjugate(x) for i, x in enumerate(arrays) if i != position]
    spare = iter(c for c in string.ascii_letters if c not in "".join(inputs) + output)
    wanted = ""
    for letter in inputs[position]:
        if letter in wanted:  # a diagonal: the gradient lies on it
            twin = next(spare)
            terms.append(letter + twin)
            operands.append(identity(sizes[letter], y))
            wanted += twin
            continue
        if not any(letter in term for term in terms):
            terms.append(letter)
            operands.append(np.ones(sizes[letter], y.dtype))
        wanted += letter
    return einsum(f"{','.join(terms)}->{wanted}", *operands)


def _diagonal(g: Any, y: Any, x: Any, *, offset: int) -> Any:
    size = g.shape[-1]
    rows, columns = np.arange(size) + max(-offset, 0), np.arange(size) + max(offset, 0)
    key = (slice(None),) * (len(x.shape) - 2) + (ARRAY, ARRAY)
    return call("index_update", zeros_like(x), g, rows, columns, key=key, mode="set")


# ---- solving -----------------------------------------------------------------------------------------------------------------
def _inv(g: Any, y: Any, x: Any) -> Any:
    other = adjoint(y)
    return -(other @ g @ other)


def _det(g: Any, y: Any, x: Any) -> Any:
    try:
        inverse = inv(x)
    except np.linalg.LinAlgError:
        return _column(_column(g)) * conjugate(
            cofactors(x, call("stop_gradient", x, preserve_type=True), identity(x.shape[-1], x))
        )
    return _column(_column(g * conjugate(y))) * adjoint(inverse)


def _slogdet(g: Any, y: Any, x: Any) -> Any:
    (g_sign, g_log), (sign, _) = g, y
    factor = zeros_like(sign) if g_log is None else g_log
    if g_sign is not None and sign.dtype.kind == "c":
        factor = (g_sign * conjugate(sign)).imag * 1j + factor
    elif g_log is None:
        return None
    return _column(_column(factor)) * adjoint(inv(x))


def _solve_second(g: Any, y: Any, x1: Any, x2: Any) -> Any:
    if len(x2.shape) == 1:
        return solve(adjoint(x1), _column(g))[..., 0]
    return solve(adjoint(x1), g)


def _outer(a: Any, b: Any, vectors: bool) -> Any:
    """a @ b^H, of vectors or matrices."""
    return _column(a) * _row(conjugate(b)) if vectors else a @ adjoint(b)


def _solve_first(g: Any, y: Any, x1: Any, x2: Any) -> Any:
    return -_outer(_solve_second(g, y, x1, x2), y, len(x2.shape) == 1)


def _triangular_second(g: Any, y: Any, x1: Any, x2: Any, *, lower: bool, trans: str, unit_diagonal: bool) -> Any:
    vector = len(x2.shape) == 1
    matrix = conjugate(x1) if trans == "T" else x1
    result = solve_triangular(
        matrix, _column(g) if vector else g, lower=lower, trans="C" if trans == "N" else "N", unit_diagonal=unit_diagonal
    )
    return result[..., 0] if vector else result


def _triangular_first(g: Any, y: Any, x1: Any, x2: Any, *, lower: bool, trans: str, unit_diagonal: bool) -> Any:
    right = _triangular_second(g, y, x1, x2, lower=lower, trans=trans, unit_diagonal=unit_diagonal)
    result = -_outer(right, y, len(x2.shape) == 1)
    result = result.mT if trans == "T" else adjoint(result) if trans == "C" else result
    return np.tril(result, k=-int(unit_diagonal)) if lower else np.triu(result, k=int(unit_diagonal))


# ---- decompositions ----------------------------------------------------------------------------------------------------------
def _symmetric(x: Any) -> Any:
    return (x + adjoint(x)) * 0.5


def _cholesky(g: Any, y: Any, x: Any, *, upper: bool) -> Any:
    if upper:
        g, y = adjoint(g), adjoint(y)
    size = y.shape[-1]
    half = np.tril(np.ones((size, size), y.dtype)) - 0.5 * np.eye(size, dtype=y.dtype)
    middle = adjoint(y) @ g * half
    left = solve_triangular(y, middle, lower=True, trans="C")
    return _symmetric(adjoint(solve_triangular(y, adjoint(left), lower=True, trans="C")))


def _qr(g: Any, y: Any, x: Any, *, mode: str) -> Any:
    rows, columns = x.shape[-2:]
    q, r = y
    gq, gr = (zeros_like(part) if one is None else one for one, part in zip(g, y))
    if mode == "complete" and rows > columns:
        gq, q = _leading(gq, q, columns), q[..., :columns]
        gr, r = (part[..., :columns, :] for part in (gr, r))
    if rows >= columns:
        return _qr_tall(gq, gr, q, r)
    # The first columns are a square matrix with the same Q; the other columns are Q times those of R.
    first, second = (..., slice(None, rows)), (..., slice(rows, None))
    gv = gr[second]
    gq = gq + x[second] @ adjoint(gv)
    return np.concatenate([_qr_tall(gq, gr[first], q, r[first]), q @ gv], axis=-1)


def _qr_tall(gq: Any, gr: Any, q: Any, r: Any) -> Any:
    middle = gr @ adjoint(r) - adjoint(q) @ gq
    upper = np.triu(middle, k=1)
    middle = upper + adjoint(upper) + diagonal_matrix(_real(diagonal(middle), q))
    right = gq + q @ middle
    return adjoint(solve_triangular(r, adjoint(right), lower=False))


def _real(x: Any, like: Any) -> Any:
    """The real part, in the dtype that it had."""
    return (x + conjugate(x)) * 0.5 if like.dtype.kind == "c" else x


def _eigh(g: Any, y: Any, x: Any) -> Any:
    (gw, gv), (w, v) = g, y
    middle = diagonal_matrix(zeros_like(w) if gw is None else gw)
    if gv is not None:
        middle = middle + off_diagonal(adjoint(v) @ gv) / gaps(w)
    return _symmetric(v @ middle @ adjoint(v))


def _eig(g: Any, y: Any, x: Any) -> Any:
    """C. Boeddeker et al., "On the computation of complex-valued gradients" (2017), for eigenvectors of length 1."""
    (gw, gv), (w, v) = g, y
    middle = diagonal_matrix(zeros_like(w) if gw is None else gw)
    if gv is not None:
        inner = adjoint(v) @ gv
        inner = inner - adjoint(v) @ v * _row(_real(diagonal(inner), v))
        middle = middle + off_diagonal(inner) / conjugate(gaps(w))
    return solve(adjoint(v), middle @ adjoint(v))


def _svd(g: Any, y: Any, x: Any, *, full_matrices: bool) -> Any:
    (gu, gs, gvh), (u, s, vh) = g, y
    rank = s.shape[-1]
    gu, u = _leading(gu, u, rank), u[..., 0:rank]
    gvh = None if gvh is None else adjoint(_leading(adjoint(gvh), adjoint(vh), rank))
    return svd_gradient(gu, gs, gvh, u, s, vh[..., 0:rank, :])


def _leading(g: Any, y: Any, rank: int) -> Any:
    """The gradient for the first `rank` columns; the others of a full set turn with them, and no more than they must."""
    if g is None or g.shape[-1] == rank:
        return g
    first, rest = (..., slice(None, rank)), (..., slice(rank, None))
    turned = y[rest] @ adjoint(g[rest]) @ y[first]
    return g[first] - turned


LINALG_RULES: dict[str, Any] = {
    "matmul": OfInputs((_matmul_first, _matmul_second)),
    "einsum": _einsum,
    "diagonal": Linear((_diagonal,)),
    "inv": OfOutput((_inv,)),
    "det": (_det,),
    "slogdet": (_slogdet,),
    "solve": (_solve_first, _solve_second),
    "solve_triangular": (_triangular_first, _triangular_second),
    "pinv": (lambda g, y, x, rtol: pinv_gradient(g, y, x), None),
    "cholesky": OfOutput((_cholesky,)),
    "qr": (_qr,),
    "eigh": (_eigh,),
    "eig": (_eig,),
    "svd": (_svd,),
}
LINALG_COMPOSED: dict[str, Any] = {
    "eigvalsh": lambda x: eigh(x)[0],
    "eigvals": lambda x: eig(x)[0],
    "svdvals": lambda x: svd(x, full_matrices=False)[1],
}
