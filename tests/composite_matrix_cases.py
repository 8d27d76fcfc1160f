"""The composites of linear algebra and Fourier transforms as data, beside `composite_cases`."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from composite_cases import EMPTY, C, I, R, T, case, f32, inf, nan, rng

SQUARE = rng.normal(size=(2, 4, 4))
DEFINITE = SQUARE @ np.swapaxes(SQUARE, -1, -2) + 0.1 * np.eye(4)
COMPLEX = rng.normal(size=(4, 4)) + 1j * rng.normal(size=(4, 4))
LOW_RANK = rng.normal(size=(5, 2)) @ rng.normal(size=(2, 4))
TARGET = rng.normal(size=(2, 4))
TALL = rng.normal(size=(5, 3))
VECTORS = rng.normal(size=(5, 3))

# ---- products ------------------------------------------------------------------------------------------------------------------
case("outer", (R[0], C[1]), {}, lambda: np.outer(R[0], C[1]))
case("outer", (I[0].astype(np.int8), I[1].astype(np.int8)), {}, lambda: np.outer(I[0], I[1]).astype(np.int8))
case("vecdot", (C, C[::-1].copy()), {"axis": -1}, lambda: np.vecdot(C, C[::-1]))
case("vecdot", (R, R[0]), {"axis": -1}, lambda: np.vecdot(R, R[0]))
case("vecdot", (T, R[:, :1]), {"axis": -2}, lambda: np.sum(T * R[:, :1], axis=-2))
case("vecdot", (I.astype(np.int8), I.astype(np.int16)), {"axis": 0}, lambda: np.sum(I * I, axis=0).astype(np.int16))
case("cross", (VECTORS, VECTORS[::-1].copy()), {"axis": -1}, lambda: np.cross(VECTORS, VECTORS[::-1]))
case("cross", (VECTORS.T.copy(), VECTORS[:1].T.copy()), {"axis": 0}, lambda: np.cross(VECTORS, VECTORS[:1]).T)
case("cross", (VECTORS, VECTORS[0]), {"axis": -1}, lambda: np.cross(VECTORS, VECTORS[0]))
case("cross", (I[:, :3].copy(), I[:, 1:].copy()), {"axis": 1}, lambda: np.cross(I[:, :3], I[:, 1:]))
for axes in (0, 1, 2, ((2,), (1,)), ((1, 2), (0, 1)), ((-1, 1), (1, 0)), ((), ())):
    case("tensordot", (T, R), {"axes": axes}, lambda a=axes: np.tensordot(T, R, a)) if axes not in (1,) else None
case("tensordot", (T, R.T.copy()), {"axes": 1}, lambda: np.tensordot(T, R.T, 1))
case("tensordot", (np.array(2.0), R), {"axes": 0}, lambda: 2 * R)
case("tensordot", (I, I.T.copy()), {"axes": 1}, lambda: I @ I.T)
case("tensordot", (EMPTY, EMPTY), {"axes": ((1,), (1,))}, np.zeros((3, 3)))
for offset in (0, 1, -2, 7):
    case("trace", T, {"offset": offset, "dtype": None}, lambda o=offset: np.trace(T, o, 1, 2))
case("trace", I.astype(np.int8), {"offset": 0, "dtype": None}, lambda: np.asarray(np.trace(I)))
for n in (0, 1, 2, 3, 7, -1, -3):
    case("matrix_power", DEFINITE, {"n": n}, lambda n=n: np.linalg.matrix_power(DEFINITE, n), tolerance=1e-9)
FACTOR = np.linalg.cholesky(DEFINITE)
for upper, factor in ((False, FACTOR), (True, np.swapaxes(FACTOR, -1, -2).copy())):
    case("cholesky_solve", (factor, SQUARE), {"upper": upper}, lambda: np.linalg.solve(DEFINITE, SQUARE), tolerance=1e-8)
case("matrix_power", I[:, :3].copy(), {"n": 3}, lambda: np.linalg.matrix_power(I[:, :3], 3))
case("matrix_power", I[:, :3].astype(np.int8), {"n": 0}, np.eye(3, dtype=np.int8))

# ---- norms ---------------------------------------------------------------------------------------------------------------------
for order in (2, 1, 0, inf, -inf, 3, 0.5, -1, 2.5):
    for axis in (None, 0, -1, (0, 2)):
        for keep in (False, True):
            case("vector_norm", T, {"axis": axis, "keepdims": keep, "ord": order}, lambda a=axis, k=keep, o=order: np.linalg.vector_norm(T, axis=a, keepdims=k, ord=o))
    case("vector_norm", C, {"axis": 1, "keepdims": False, "ord": order}, lambda o=order: np.linalg.vector_norm(C, axis=1, ord=o))
    case("vector_norm", np.array([0.0, 3.0, -4.0]), {"axis": None, "keepdims": False, "ord": order}, lambda o=order: np.linalg.vector_norm(np.array([0.0, 3.0, -4.0]), ord=o))
case("vector_norm", I, {"axis": 0, "keepdims": False, "ord": 2}, lambda: np.linalg.norm(I, axis=0).astype(np.float32))
case("vector_norm", np.full(4, 300, np.float16), {"axis": 0, "keepdims": False, "ord": 2}, np.float16(600))
case("vector_norm", EMPTY, {"axis": 1, "keepdims": False, "ord": inf}, np.zeros(3))
case("vector_norm", EMPTY, {"axis": 1, "keepdims": False, "ord": 2}, np.zeros(3))
for order in ("fro", "nuc", 1, -1, 2, -2, inf, -inf):
    for keep in (False, True):
        case("matrix_norm", T, {"keepdims": keep, "ord": order}, lambda k=keep, o=order: np.linalg.matrix_norm(T, keepdims=k, ord=o))
    case("matrix_norm", C, {"keepdims": False, "ord": order}, lambda o=order: np.linalg.matrix_norm(C, ord=o))
case("matrix_norm", I, {"keepdims": False, "ord": 1}, lambda: np.linalg.norm(I, 1).astype(np.float32))

# ---- singular values -----------------------------------------------------------------------------------------------------------
for x in (R, R.T.copy(), T, C, LOW_RANK, np.zeros((2, 3)), EMPTY):
    case("pinv", (x, None), {}, lambda x=x: np.linalg.pinv(x, rtol=max(x.shape[-2:]) * 2.0**-52))
    case("matrix_rank", (x, None), {}, lambda x=x: np.asarray(np.linalg.matrix_rank(x)))
case("pinv", (T, 0.5), {}, lambda: np.linalg.pinv(T, rtol=0.5))
case("pinv", (T, np.array([0.1, 0.9])), {}, lambda: np.linalg.pinv(T, rtol=np.array([0.1, 0.9])))
case("pinv", (I, None), {}, lambda: np.linalg.pinv(I).astype(np.float32), tolerance=1e-4)
case("matrix_rank", (T, np.array([0.1, 0.9])), {}, lambda: np.linalg.matrix_rank(T, rtol=np.array([0.1, 0.9])))
case("matrix_rank", (f32(LOW_RANK), None), {}, np.array(2))


def _least_squares(a: Any, b: Any, rtol: float | None = None) -> Any:
    solution, _, rank, values = np.linalg.lstsq(a, b, rcond=rtol)
    return solution, np.sum(np.abs(b - a @ solution) ** 2, axis=0), np.asarray(np.int64(rank)), values


for a, b in ((R.T.copy(), TARGET[0]), (R.T.copy(), TARGET.T.copy()), (LOW_RANK, np.ones(5)), (C.T.copy(), TARGET[0]), (LOW_RANK * 1j, TALL)):
    kind = np.result_type(a, b)
    case("lstsq", (a, b), {"rtol": None}, lambda a=a.astype(kind), b=b.astype(kind): _least_squares(a, b))
case("lstsq", (R.T.copy(), TARGET[0]), {"rtol": 0.6}, lambda: _least_squares(R.T, TARGET[0], 0.6))

# ---- matrix functions ----------------------------------------------------------------------------------------------------------
JORDAN = np.array([[2.0, 1.0, 0.0], [0.0, 2.0, 1.0], [0.0, 0.0, 2.0]])
TURN = np.array([[0.0, -1.0], [1.0, 0.0]])
PROJECTION = np.ones((3, 3)) / 3
for x in (SQUARE, SQUARE * 30, SQUARE * 1e-9, COMPLEX, JORDAN, np.zeros((2, 2)), TURN * 50, np.array([[1.0, 1e5], [0.0, -1.0]])):
    case("expm", x, {}, lambda x=x: scipy.linalg.expm(x), tolerance=1e-10)
case("expm", f32(SQUARE), {}, lambda: scipy.linalg.expm(SQUARE).astype(np.float32), tolerance=1e-4)
case("expm", I[:, :3].copy(), {}, lambda: scipy.linalg.expm(I[:, :3].astype(float)).astype(np.float32), tolerance=1e-3)
case("expm", np.array([np.eye(2), np.full((2, 2), nan), np.full((2, 2), inf)]), {}, np.stack([np.e * np.eye(2), np.full((2, 2), nan), np.full((2, 2), nan)]))
case("expm", np.zeros((0, 0)), {}, np.zeros((0, 0)))
case("expm", np.zeros((0, 2, 2)), {}, np.zeros((0, 2, 2)))
case("expm", np.array([[-1000.0]]), {}, np.array([[0.0]]))
for x in (DEFINITE, JORDAN, COMPLEX, np.eye(3), TURN, DEFINITE * 1e200, DEFINITE * 1e-200, np.diag([1.0, 1e-10, 1e6])):
    case("sqrtm", x, {}, lambda x=x: _batched(scipy.linalg.sqrtm, x), tolerance=1e-10)
case("sqrtm", PROJECTION, {}, PROJECTION, tolerance=1e-7)
case("sqrtm", np.zeros((2, 2)), {}, np.zeros((2, 2)))
case("sqrtm", -np.eye(2), {}, np.full((2, 2), nan))
case("sqrtm", np.diag([1.0, -4.0]), {}, np.full((2, 2), nan))
case("sqrtm", np.array([[0.0, 1.0], [0.0, 0.0]]), {}, np.full((2, 2), nan))
case("sqrtm", np.diag([1.0, -4.0]).astype(complex), {}, np.diag([1, 2j]))
case("sqrtm", np.array([np.eye(2), np.diag([-1.0, 2.0]), np.full((2, 2), nan)]), {}, np.stack([np.eye(2), np.full((2, 2), nan), np.full((2, 2), nan)]))
case("sqrtm", f32(DEFINITE), {}, lambda: _batched(scipy.linalg.sqrtm, DEFINITE).astype(np.float32), tolerance=1e-4)
case("sqrtm", np.zeros((0, 0)), {}, np.zeros((0, 0)))
for x in (DEFINITE, JORDAN, COMPLEX, np.diag([1.0, 1.0, 2.0]), TURN, DEFINITE * 1e150, np.diag([1.0, 1e-5, 1e3]), scipy.linalg.expm(SQUARE[0])):
    case("logm", x, {}, lambda x=x: _batched(scipy.linalg.logm, x), tolerance=1e-10)
case("logm", np.zeros((2, 2)), {}, np.full((2, 2), nan))
case("logm", np.diag([1.0, -4.0]), {}, np.full((2, 2), nan))
case("logm", np.diag([1.0, -4.0]).astype(complex), {}, np.diag([0, np.log(4) + np.pi * 1j]), tolerance=1e-10)
case("logm", f32(DEFINITE), {}, lambda: _batched(scipy.linalg.logm, DEFINITE).astype(np.float32), tolerance=1e-4)


def _batched(function: Any, x: Any) -> Any:
    result = np.stack([function(m) for m in x.reshape((-1, *x.shape[-2:]))]).reshape(x.shape)
    return result.astype(x.dtype) if x.dtype.kind == "c" else np.real(result)


# ---- Fourier transforms --------------------------------------------------------------------------------------------------------
for norm in ("backward", "ortho", "forward"):
    for name in ("fftn", "ifftn", "rfftn", "irfftn"):
        for s, axes in ((None, None), (None, (0,)), (None, (-1, 0)), ((3, 5), (0, 2)), ((2, 6), None), ((4, 3), (0, 1))):
            x = T if name == "rfftn" else T + 1j * T[::-1]
            along = axes if axes is not None or s is None else tuple(range(-len(s), 0))
            case(name, x, {"s": s, "axes": axes, "norm": norm}, lambda f=name, x=x, s=s, a=along, o=norm: getattr(np.fft, f)(x, s, a, o))
    for n in (None, 3, 6, 7):
        case("hfft", C, {"n": n, "axis": 1, "norm": norm}, lambda n=n, o=norm: np.fft.hfft(C, n, 1, o))
        case("ihfft", R, {"n": n, "axis": 0, "norm": norm}, lambda n=n, o=norm: np.fft.ihfft(R, n, 0, o))
for axes in (None, 0, -1, (0, 2), ()):
    case("fftshift", T, {"axes": axes}, lambda a=axes: np.fft.fftshift(T, a))
    case("ifftshift", T, {"axes": axes}, lambda a=axes: np.fft.ifftshift(T, a))
