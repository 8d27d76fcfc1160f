"""Exponential, square root and logarithm of square matrices, in a number of steps that does not depend on the values.

Eager calls look at the values and stop early; traced ones take all steps. A matrix for which there is no answer is replaced by
one that is harmless, and its result by NaN, so that it disturbs neither the others of its batch nor their gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from trellis import ops as tl
from trellis.composites.linalg import matrix_norm
from trellis.composites.support import arange, cast, constant, count, epsilon, eye, full, is_concrete, wide
from trellis.core.array import Array
from trellis.core.dtypes import bool as bool_, real_of

_NAN = float("nan")


def _of_matrices(op: str, x: Array, function: Callable[[Array, Array], Array]) -> Array:
    """`function` of the matrices, in a dtype to compute in, and of the identity."""
    dtype, (a,) = wide(op, x, real=False)
    shape = a.shape
    if count(shape) == 0:
        return cast(a, dtype)
    if len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] is None:
        raise ValueError(f"{op}: the last two axes must be equal, got shape {shape}")
    return cast(function(a, eye(a, shape[-1], a.dtype)), dtype)


def _magnitudes(a: Array) -> Array:
    """|a|, or |real(a)| + |imag(a)| for complex numbers."""
    return abs(tl.real(a)) + abs(tl.imag(a)) if a.dtype.kind == "c" else abs(a)


# ---- exponential --------------------------------------------------------------------------------------------------------------
# Scaling and squaring with the [13/13] Pade approximant: N. J. Higham, "The scaling and squaring method for the matrix
# exponential revisited", SIAM J. Matrix Anal. Appl. 26 (2005). Coefficients over the first one.
_PADE = tuple(math.comb(13, j) * math.factorial(26 - j) / math.factorial(26) for j in range(14))
_THETA = 5.371920351148152  # up to this norm the approximant is exact to rounding
_SQUARINGS_TRACED = 16  # norms up to 350,000; beyond, a compiled expm is NaN


def expm(x: Array) -> Array:
    return _of_matrices("expm", x, _expm)


def _expm(a: Array, identity: Array) -> Array:
    norm = tl.expand_dims(tl.max(tl.sum(_magnitudes(a), axis=-2), axis=-1), (-2, -1))
    steps = _squarings(tl.where(tl.isfinite(norm), norm, 0.0)) if is_concrete(norm) else _SQUARINGS_TRACED
    within = norm <= _THETA * 2.0**steps  # False for NaN too
    a = tl.where(within, a, 0.0)
    halved = [norm > _THETA * 2.0**i for i in range(steps)]
    for chosen in halved:
        a = tl.where(chosen, a * 0.5, a)
    result = _pade(a, identity)
    for chosen in halved:
        result = tl.where(chosen, result @ result, result)
    return tl.where(within, result, _NAN)


def _squarings(norm: Array) -> int:
    largest, steps = tl.max(norm).item(), 0
    while largest > _THETA:
        largest, steps = largest / 2, steps + 1
    return steps


def _pade(a: Array, identity: Array) -> Array:
    b = _PADE
    a2 = a @ a
    a4 = a2 @ a2
    a6 = a4 @ a2

    def combined(c6: float, c4: float, c2: float) -> Array:
        return a6 * c6 + (a4 * c4 + a2 * c2)

    odd = a6 @ combined(b[13], b[11], b[9]) + (combined(b[7], b[5], b[3]) + identity * b[1])
    odd = a @ odd
    even = a6 @ combined(b[12], b[10], b[8]) + (combined(b[6], b[4], b[2]) + identity)
    return tl.linalg.solve(even - odd, even + odd)


# ---- square root --------------------------------------------------------------------------------------------------------------
# The product form of the Denman-Beavers iteration, scaled: N. J. Higham, "Functions of Matrices" (2008), equation 6.29.
# It converges to the principal root if no eigenvalue is zero or negative, and is exact if they are not too far apart. For the
# rest there are the eigenvectors; of two roots the one whose square is nearer is taken.
_STEPS_EAGER = 60  # far more than any matrix takes that has a root
_STEPS_TRACED = 12  # random matrices of any condition take 6 to 13; roots that are not exact by then follow from eigenvectors
_STEPS_AGAIN = 8  # for the root of a root: its eigenvalues are closer together and in the right half plane


def sqrtm(x: Array) -> Array:
    return _of_matrices("sqrtm", x, _sqrtm)


def _sqrtm(a: Array, identity: Array) -> Array:
    finite = _all_finite(a)
    a = tl.where(finite, a, identity)
    scale = _scale(a)
    a = a * scale
    result, error = _iterated_root(a, identity, _STEPS_TRACED)
    found = error <= 100 * _rounding(a)
    if not (is_concrete(found) and tl.all(found).item()):
        other, its_error = _root_by_eigenvectors(tl.where(found, _distinct(identity), a))
        first = found | (error <= its_error)
        result = tl.where(first, result, other)
        result = tl.where(tl.where(first, error, its_error) <= epsilon(a.dtype) ** 0.5, result, _NAN)
    return tl.where(finite, result / tl.sqrt(scale), _NAN)


def _rounding(a: Array) -> float:
    """The relative error of a product of such matrices by rounding: n * epsilon."""
    return a.shape[-1] * epsilon(a.dtype)  # type: ignore[operator]


def _scale(a: Array) -> Array:
    """A factor that brings the largest element near 1, so that squares neither overflow nor vanish; it has no derivative."""
    largest = tl.max(_magnitudes(a), axis=(-2, -1), keepdims=True)
    return tl.exp(-tl.round(tl.log(tl.where(largest == 0, 1.0, largest))))


def _all_finite(x: Array) -> Array:
    return tl.all(tl.isfinite(x), axis=(-2, -1), keepdims=True)


def _distinct(identity: Array) -> Array:
    """A matrix whose eigenvectors have derivatives: its eigenvalues differ."""
    rows = tl.reshape(arange(identity, identity.shape[-1], real_of(identity.dtype)), (-1, 1))  # type: ignore[arg-type]
    return identity * (rows + 1)


def _iterated_root(a: Array, identity: Array, steps: int) -> tuple[Array, Array]:
    """The principal root of each matrix, and the error of its square."""
    root, alive = a, _has_inverse(a)
    product = tl.where(alive, a, identity)
    for step in range(_STEPS_EAGER if is_concrete(a) else steps):
        inverse, usable = _inverse(product, identity)
        alive = alive & usable
        factor = _balance(product, inverse) * (1.0371 if step < 2 else 1.0)  # no eigenvalue of -1, which gives 0
        product, inverse = product * factor, inverse / factor
        root = root @ (identity + inverse) * (tl.sqrt(factor) * 0.5)
        product = (identity * 2 + (product + inverse)) * 0.25
        rest = _norm(product - identity)
        if is_concrete(rest) and tl.all((rest <= 10 * _rounding(a)) | ~alive).item():
            break
    root = tl.where(alive & _all_finite(root), root, identity)
    return root, tl.where(alive, _error_of_square(root, a), float("inf"))


def _norm(x: Array) -> Array:
    return matrix_norm(x, keepdims=True, ord="fro")


def _has_inverse(x: Array) -> Array:
    return tl.expand_dims(tl.isfinite(tl.linalg.slogdet(x)[1]), (-2, -1))


def _inverse(x: Array, identity: Array) -> tuple[Array, Array]:
    """The inverse, and whether there is one. Once the first matrix has one, a later one without is a rare accident."""
    try:
        return tl.linalg.inv(x), full(x, (), True, bool_)
    except np.linalg.LinAlgError:
        usable = _has_inverse(x)
        return tl.linalg.inv(tl.where(usable, x, identity)), usable


def _balance(product: Array, inverse: Array) -> Array:
    """The factor that makes a matrix and its inverse equally large, rounded to a power of e so that it has no derivative."""
    return tl.exp(tl.round((tl.log(_norm(inverse)) - tl.log(_norm(product))) * 0.5))


def _error_of_square(root: Array, a: Array) -> Array:
    """|root @ root - a| / |root|**2."""
    distance, length = _norm(root @ root - a), _norm(root)
    zero = length == 0
    return tl.where(zero, distance, distance / tl.where(zero, 1.0, length * length))


def _root_by_eigenvectors(a: Array) -> tuple[Array, Array]:
    """A root of matrices with zero, negative, or very different eigenvalues, and the error of its square."""
    values, vectors = tl.linalg.eig(a)
    zero = values == 0
    roots = tl.where(zero, 0.0, tl.sqrt(tl.where(zero, 1.0, values)))
    root = vectors * tl.expand_dims(roots, -2) @ tl.linalg.pinv(vectors)
    root = root if a.dtype.kind == "c" else tl.real(root)
    return root, _error_of_square(root, a)


# ---- logarithm ----------------------------------------------------------------------------------------------------------------
# log(a) = 8 log(a^(1/8)), and log(I + e) is the integral of e (I + t e)^-1 for t from 0 to 1, by Gauss-Legendre with 32 points:
# exact to rounding up to a condition number of 1e8 of the eigenvalues, whatever their angles.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)  # for the interval from -1 to 1


def logm(x: Array) -> Array:
    return _of_matrices("logm", x, _logm)


def _logm(a: Array, identity: Array) -> Array:
    valid = _all_finite(a)
    a = tl.where(valid, a, identity)
    logarithm = tl.expand_dims(tl.linalg.slogdet(a)[1], (-2, -1))
    valid = valid & tl.isfinite(logarithm)
    exponent = tl.round(tl.where(valid, logarithm, 0.0) / a.shape[-1])  # type: ignore[arg-type]
    root = sqrtm(tl.where(valid, a * tl.exp(-exponent), identity))  # eigenvalues around 1
    valid = valid & _all_finite(root)
    root = tl.where(valid, root, identity)
    for _ in range(2):
        root, error = _iterated_root(root, identity, _STEPS_AGAIN)
        valid = valid & (error <= epsilon(a.dtype) ** 0.5)
    result = _integrated(root - identity, identity) * 8 + identity * exponent
    return tl.where(valid, result, _NAN)


def _integrated(e: Array, identity: Array) -> Array:
    """log(I + e) as a weighted sum over all points at once."""
    columns = (np.reshape(column, (-1, *(1,) * e.ndim)) for column in (_NODES + 1, _WEIGHTS))
    points, weights = (cast(constant(column / 2, e), real_of(e.dtype)) for column in columns)
    return tl.sum(tl.linalg.solve(e * points + identity, e * weights), axis=0)
