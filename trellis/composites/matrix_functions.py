"""Exponential, square root and logarithm of square matrices, in a number of steps that does not depend on the values.

Eager calls look at the values and stop early; traced ones take all steps. A matrix for which there is no answer is replaced by
one that is harmless, and its result by NaN, so that it disturbs neither the others of its batch nor their gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.composites.norms import matrix_norm
from trellis.composites.support import cast, count, dtype_of, epsilon, eye, is_concrete, one_floating, rank_of, shape_of, single
from trellis.dispatch import interpreters
from trellis.dtypes import real_of
from trellis.ops.comparison import equal, greater, isfinite, less_equal, logical_and
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
# It converges to the principal root if no eigenvalue is zero or negative. For the rest there are the eigenvectors.
def _steps(dtype: Any) -> int:
    """Enough for any condition that the precision can express: each step divides it by 4, the last five double the digits."""
    return 34 if epsilon(dtype) < 1e-10 else 20


def sqrtm(x: Any) -> Any:
    given = one_floating("sqrtm", x)
    if count(shape_of(given)) == 0:
        return given
    a, identity = _prepared("sqrtm", given)
    finite = _all_finite(a)
    a = where(finite, a, identity)
    scale = _magnitude(a)
    a = multiply(a, scale)
    result, found = _iterated_root(a, identity, _steps(dtype_of(a)))
    if not (is_concrete(found) and _item(all(found))):
        other, also = _root_by_eigenvectors(where(found, _distinct(identity), a))
        result = where(found, result, where(also, other, _NAN))
    return cast(where(finite, divide(result, sqrt(scale)), _NAN), dtype_of(given))


def _magnitude(a: Any) -> Any:
    """A factor that brings the largest element near 1, so that squares neither overflow nor vanish; it has no derivative."""
    largest = max(add(abs(real(a)), abs(imag(a))) if dtype_of(a).kind == "c" else abs(a), axis=(-2, -1), keepdims=True)
    return exp(negative(round(log(where(equal(largest, 0), 1.0, largest)))))


def _all_finite(x: Any) -> Any:
    return all(isfinite(x), axis=(-2, -1), keepdims=True)


def _distinct(identity: Any) -> Any:
    """A matrix whose eigenvectors have derivatives: its eigenvalues differ."""
    size = shape_of(identity)[-1]
    rows = reshape(interpreters[type(identity)].constant(np.arange(1.0, size + 1), like=identity), (-1, 1))  # type: ignore[operator]
    return multiply(identity, cast(rows, dtype_of(identity)))


def _iterated_root(a: Any, identity: Any, steps: int) -> tuple[Any, Any]:
    """The principal root of each matrix, and whether the iteration found it."""
    size = shape_of(a)[-1]
    limit = 10 * size * epsilon(dtype_of(a))  # type: ignore[operator]
    root, product, alive = a, a, None
    settled = None
    for _ in range(steps):
        scale, usable = _scale(product)
        alive = usable if alive is None else logical_and(alive, usable)
        scaled = where(usable, multiply(product, scale), identity)
        inverse = inv(scaled)
        root = multiply(matmul(root, add(identity, inverse)), multiply(sqrt(scale), 0.5))
        product = multiply(add(multiply(identity, 2), add(scaled, inverse)), 0.25)
        settled = less_equal(matrix_norm(subtract(product, identity), keepdims=True, ord="fro"), limit)
        if is_concrete(settled) and _item(all(settled)):
            break
    close = _squares_to(root, a, 100 * size * epsilon(dtype_of(a)))  # type: ignore[operator]
    return where(close, root, identity), logical_and(alive, close)


def _scale(product: Any) -> tuple[Any, Any]:
    """A factor that brings the determinant near 1, rounded so that it has no derivative; and whether there is an inverse."""
    _, logarithm = slogdet(product)
    usable = isfinite(logarithm)
    size = shape_of(product)[-1]
    factor = exp(negative(round(divide(where(usable, logarithm, 0.0), size))))
    return expand_dims(factor, (-2, -1)), expand_dims(usable, (-2, -1))


def _squares_to(root: Any, a: Any, tolerance: float) -> Any:
    """Whether root @ root is `a`, to the precision that the size of the root allows."""
    distance = matrix_norm(subtract(matmul(root, root), a), keepdims=True, ord="fro")
    length = matrix_norm(root, keepdims=True, ord="fro")
    return less_equal(distance, multiply(multiply(length, length), tolerance))


def _root_by_eigenvectors(a: Any) -> tuple[Any, Any]:
    """The root of matrices with zero or negative eigenvalues, and whether it is one."""
    values, vectors = eig(a)
    zero = equal(values, 0)
    roots = where(zero, 0.0, sqrt(where(zero, 1.0, values)))
    root = matmul(multiply(vectors, expand_dims(roots, -2)), pinv(vectors))
    root = root if dtype_of(a).kind == "c" else real(root)
    return root, _squares_to(root, a, epsilon(dtype_of(a)) ** 0.5)


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
    scale, usable = _scale(a)
    valid = logical_and(valid, usable)
    a = where(usable, multiply(a, scale), identity)
    root = sqrtm(a)
    valid = logical_and(valid, _all_finite(root))
    root = where(_all_finite(root), root, identity)
    steps = _steps(dtype_of(a))
    for share in (2, 3):  # a root has the square root of the condition: fewer steps
        root, found = _iterated_root(root, identity, steps // share + 3)
        valid = logical_and(valid, found)
    result = subtract(multiply(_integrated(subtract(root, identity), identity), 8), multiply(identity, _log_of(scale)))
    return cast(where(valid, result, _NAN), dtype_of(given))


def _log_of(scale: Any) -> Any:
    """The whole number of which `scale` is the exponential."""
    return round(log(scale))


def _integrated(e: Any, identity: Any) -> Any:
    """log(I + e) as a weighted sum over all points at once."""
    ones = (1,) * rank_of(e)
    points, weights = (
        cast(reshape(interpreters[type(e)].constant(np.asarray(column), like=e), (-1, *ones)), real_of(dtype_of(e)))
        for column in zip(*_POINTS)
    )
    return sum(solve(add(multiply(e, points), identity), multiply(e, weights)), axis=0)
