"""Exponential, square root and logarithm of square matrices, in a number of steps that does not depend on the values.

Eager calls look at the values and stop early; traced ones take all steps. A matrix for which there is no answer is replaced by
one that is harmless, and its result by NaN, so that it disturbs neither the others of its batch nor their gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.composites.norms import matrix_norm
from trellis.composites.support import (
    arange,
    cast,
    count,
    dtype_of,
    epsilon,
    eye,
    full,
    is_concrete,
    one_floating,
    rank_of,
    shape_of,
    single,
)
from trellis.dispatch import interpreters
from trellis.dtypes import bool as bool_, real_of
from trellis.ops.comparison import equal, greater, isfinite, less_equal, logical_and, logical_not, logical_or
from trellis.ops.elementwise import abs, add, divide, exp, imag, log, multiply, negative, real, round, sqrt, subtract
from trellis.ops.linalg import eig, inv, matmul, pinv, slogdet, solve
from trellis.ops.manipulation import expand_dims, reshape
from trellis.ops.reduction import all, max, sum
from trellis.ops.searching import where

__all__ = ["expm", "logm", "sqrtm"]

_NAN = float("nan")


def _prepared(op: str, x: Any) -> tuple[Any, Any]:
    """The matrices in a dtype to compute in, and the identity beside them."""
    x = one_floating(op, x)
    shape = shape_of(x)
    if len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] is None:
        raise ValueError(f"{op}: the last two axes must be equal, got shape {shape}")
    x = cast(x, single(dtype_of(x)))
    return x, eye(x, shape[-1], dtype_of(x))


def _item(x: Any) -> Any:
    return interpreters[type(x)].item(x)


# ---- exponential --------------------------------------------------------------------------------------------------------------
# Scaling and squaring with the [13/13] Pade approximant: N. J. Higham, "The scaling and squaring method for the matrix
# exponential revisited", SIAM J. Matrix Anal. Appl. 26 (2005). Coefficients over the first one.
_PADE = tuple(
    b / 64764752532480000.0
    for b in (64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
              670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1)
)  # fmt: skip
_THETA = 5.371920351148152  # up to this norm the approximant is exact to rounding
_SQUARINGS_TRACED = 16  # norms up to 350,000; beyond, a compiled expm is NaN


def expm(x: Any) -> Any:
    given = one_floating("expm", x)
    if count(shape_of(given)) == 0:
        return given
    a, identity = _prepared("expm", given)
    parts = add(abs(real(a)), abs(imag(a))) if dtype_of(a).kind == "c" else abs(a)
    norm = expand_dims(max(sum(parts, axis=-2), axis=-1), (-2, -1))
    finite = isfinite(norm)
    steps = _squarings(where(finite, norm, 0.0)) if is_concrete(norm) else _SQUARINGS_TRACED
    within = less_equal(norm, _THETA * 2.0**steps)  # False for NaN too
    a = where(within, a, 0.0)
    halved = [greater(norm, _THETA * 2.0**i) for i in range(steps)]
    for chosen in halved:
        a = where(chosen, multiply(a, 0.5), a)
    result = _pade(a, identity)
    for chosen in halved:
        result = where(chosen, matmul(result, result), result)
    return cast(where(within, result, _NAN), dtype_of(given))


def _squarings(norm: Any) -> int:
    largest, steps = _item(max(norm)), 0
    while largest > _THETA:
        largest, steps = largest / 2, steps + 1
    return steps


def _pade(a: Any, identity: Any) -> Any:
    b = _PADE
    a2 = matmul(a, a)
    a4 = matmul(a2, a2)
    a6 = matmul(a4, a2)

    def combined(c6: float, c4: float, c2: float) -> Any:
        return add(multiply(a6, c6), add(multiply(a4, c4), multiply(a2, c2)))

    odd = add(matmul(a6, combined(b[13], b[11], b[9])), add(combined(b[7], b[5], b[3]), multiply(identity, b[1])))
    odd = matmul(a, odd)
    even = add(matmul(a6, combined(b[12], b[10], b[8])), add(combined(b[6], b[4], b[2]), identity))
    return solve(subtract(even, odd), add(even, odd))


# ---- square root --------------------------------------------------------------------------------------------------------------
# The product form of the Denman-Beavers iteration, scaled: N. J. Higham, "Functions of Matrices" (2008), equation 6.29.
# It converges to the principal root if no eigenvalue is zero or negative, and is exact if they are not too far apart. For the
# rest there are the eigenvectors; of two roots the one whose square is nearer is taken.
_STEPS_EAGER = 60  # far more than any matrix takes that has a root
_STEPS_TRACED = 12  # random matrices of any condition take 6 to 13; what is not exact by then goes by its eigenvectors
_STEPS_AGAIN = 8  # for the root of a root: its eigenvalues are closer together and in the right half plane


def sqrtm(x: Any) -> Any:
    given = one_floating("sqrtm", x)
    if count(shape_of(given)) == 0:
        return given
    a, identity = _prepared("sqrtm", given)
    finite = _all_finite(a)
    a = where(finite, a, identity)
    scale = _magnitude(a)
    a = multiply(a, scale)
    result, error = _iterated_root(a, identity, _STEPS_TRACED)
    found = less_equal(error, _tight(a))
    if not (is_concrete(found) and _item(all(found))):
        other, its_error = _root_by_eigenvectors(where(found, _distinct(identity), a))
        first = logical_or(found, less_equal(error, its_error))
        result = where(first, result, other)
        result = where(less_equal(where(first, error, its_error), epsilon(dtype_of(a)) ** 0.5), result, _NAN)
    return cast(where(finite, divide(result, sqrt(scale)), _NAN), dtype_of(given))


def _tight(a: Any) -> float:
    return 100 * shape_of(a)[-1] * epsilon(dtype_of(a))  # type: ignore[operator]


def _magnitude(a: Any) -> Any:
    """A factor that brings the largest element near 1, so that squares neither overflow nor vanish; it has no derivative."""
    largest = max(add(abs(real(a)), abs(imag(a))) if dtype_of(a).kind == "c" else abs(a), axis=(-2, -1), keepdims=True)
    return exp(negative(round(log(where(equal(largest, 0), 1.0, largest)))))


def _all_finite(x: Any) -> Any:
    return all(isfinite(x), axis=(-2, -1), keepdims=True)


def _distinct(identity: Any) -> Any:
    """A matrix whose eigenvectors have derivatives: its eigenvalues differ."""
    rows = reshape(arange(identity, shape_of(identity)[-1], real_of(dtype_of(identity))), (-1, 1))  # type: ignore[arg-type]
    return multiply(identity, add(rows, 1))


def _iterated_root(a: Any, identity: Any, steps: int) -> tuple[Any, Any]:
    """The principal root of each matrix, and the error of its square."""
    root, product, alive = a, a, _has_inverse(a)
    product = where(alive, product, identity)
    limit = 10 * shape_of(a)[-1] * epsilon(dtype_of(a))  # type: ignore[operator]
    for step in range(_STEPS_EAGER if is_concrete(a) else steps):
        inverse, usable = _inverse(product, identity)
        alive = logical_and(alive, usable)
        factor = multiply(_balance(product, inverse), 1.0371 if step < 2 else 1.0)  # no eigenvalue of -1, which gives 0
        product, inverse = multiply(product, factor), divide(inverse, factor)
        root = multiply(matmul(root, add(identity, inverse)), multiply(sqrt(factor), 0.5))
        product = multiply(add(multiply(identity, 2), add(product, inverse)), 0.25)
        rest = _norm(subtract(product, identity))
        if is_concrete(rest) and _item(all(logical_or(less_equal(rest, limit), logical_not(alive)))):
            break
    root = where(logical_and(alive, _all_finite(root)), root, identity)
    return root, where(alive, _error_of_square(root, a), float("inf"))


def _norm(x: Any) -> Any:
    return matrix_norm(x, keepdims=True, ord="fro")


def _has_inverse(x: Any) -> Any:
    return expand_dims(isfinite(slogdet(x)[1]), (-2, -1))


def _inverse(x: Any, identity: Any) -> tuple[Any, Any]:
    """The inverse, and whether there is one. Once the first matrix has one, a later one without is a rare accident."""
    usable = full(x, (), True, bool_)
    try:
        inverse = inv(x)
    except np.linalg.LinAlgError:
        usable = _has_inverse(x)
        inverse = inv(where(usable, x, identity))
    return inverse, usable


def _balance(product: Any, inverse: Any) -> Any:
    """The factor that makes a matrix and its inverse equally large, rounded to a power of e so that it has no derivative."""
    return exp(round(multiply(subtract(log(_norm(inverse)), log(_norm(product))), 0.5)))


def _error_of_square(root: Any, a: Any) -> Any:
    """How far root @ root is from `a`, relative to what the size of the root allows."""
    distance, length = _norm(subtract(matmul(root, root), a)), _norm(root)
    zero = equal(length, 0)
    return where(zero, distance, divide(distance, where(zero, 1.0, multiply(length, length))))


def _root_by_eigenvectors(a: Any) -> tuple[Any, Any]:
    """A root of matrices with zero, negative, or very different eigenvalues, and the error of its square."""
    values, vectors = eig(a)
    zero = equal(values, 0)
    roots = where(zero, 0.0, sqrt(where(zero, 1.0, values)))
    root = matmul(multiply(vectors, expand_dims(roots, -2)), pinv(vectors))
    root = root if dtype_of(a).kind == "c" else real(root)
    return root, _error_of_square(root, a)


# ---- logarithm ----------------------------------------------------------------------------------------------------------------
# log(a) = 8 log(a^(1/8)), and log(I + e) is the integral of e (I + t e)^-1 for t from 0 to 1, by Gauss-Legendre with 32 points:
# exact to rounding up to a condition number of 1e8 of the eigenvalues, whatever their angles. (point in 0 to 1, weight):
_HALF_POINTS = (
    (0.048307665687738324, 0.09654008851472766),
    (0.1444719615827965, 0.09563872007927471),
    (0.23928736225213706, 0.09384439908080451),
    (0.33186860228212767, 0.09117387869576378),
    (0.42135127613063533, 0.08765209300440378),
    (0.5068999089322294, 0.08331192422694671),
    (0.5877157572407623, 0.07819389578707023),
    (0.6630442669302152, 0.07234579410884834),
    (0.7321821187402897, 0.06582222277636168),
    (0.7944837959679424, 0.058684093478535565),
    (0.84936761373257, 0.05099805926237609),
    (0.8963211557660521, 0.042835898022226836),
    (0.9349060759377397, 0.034273862913021765),
    (0.9647622555875064, 0.025392065309262024),
    (0.9856115115452684, 0.016274394730905743),
    (0.9972638618494816, 0.007018610009470506),
)
_POINTS = tuple((0.5 + sign * t / 2, w / 2) for t, w in _HALF_POINTS for sign in (-1, 1))


def logm(x: Any) -> Any:
    given = one_floating("logm", x)
    if count(shape_of(given)) == 0:
        return given
    a, identity = _prepared("logm", given)
    valid = _all_finite(a)
    a = where(valid, a, identity)
    _, logarithm = slogdet(a)
    valid = logical_and(valid, expand_dims(isfinite(logarithm), (-2, -1)))
    exponent = round(divide(where(isfinite(logarithm), logarithm, 0.0), shape_of(a)[-1]))  # type: ignore[arg-type]
    exponent = expand_dims(exponent, (-2, -1))
    root = sqrtm(where(valid, multiply(a, exp(negative(exponent))), identity))  # eigenvalues around 1
    valid = logical_and(valid, _all_finite(root))
    root = where(valid, root, identity)
    for _ in range(2):
        root, error = _iterated_root(root, identity, _STEPS_AGAIN)
        valid = logical_and(valid, less_equal(error, epsilon(dtype_of(a)) ** 0.5))
    result = add(multiply(_integrated(subtract(root, identity), identity), 8), multiply(identity, exponent))
    return cast(where(valid, result, _NAN), dtype_of(given))


def _integrated(e: Any, identity: Any) -> Any:
    """log(I + e) as a weighted sum over all points at once."""
    ones = (1,) * rank_of(e)
    points, weights = (
        cast(reshape(interpreters[type(e)].constant(np.asarray(column), like=e), (-1, *ones)), real_of(dtype_of(e)))
        for column in zip(*_POINTS)
    )
    return sum(solve(add(multiply(e, points), identity), multiply(e, weights)), axis=0)
