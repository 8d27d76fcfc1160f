"""Linear algebra. Integers are computed in float32 where a division is involved; half precision in float32, and cast back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from trellis.backends.elementwise import binary
from trellis.backends.torch.operands import COMPLEX, FLOAT, HALF, INTEGER, NATIVE, promoted, to_tensors, weak
from trellis.backends.torch.unsigned import wide
from trellis.composites import composed
from trellis.composites.linalg import cofactors, completed_qr, completed_svd, with_hermitian_gradient
from trellis.composites.support import axes_of
from trellis.core import errors, shape_checks
from trellis.core.dtypes import common_dtype


# ---- products ----------------------------------------------------------------------------------------------------------------
def _product(op: str, native: Callable[..., torch.Tensor], *arrays: torch.Tensor, **params: Any) -> torch.Tensor:
    """`native` of the arrays in their common numeric dtype."""
    dtype = common_dtype([weak(x) for x in arrays])
    if dtype.kind == "b":
        raise errors.not_numeric(op)
    return native(*map(wide, to_tensors(arrays, NATIVE[dtype])), **params).to(NATIVE[dtype])


def _matmul(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    return _product("matmul", torch.matmul, x1, x2)


matmul = binary(
    "matmul", dict.fromkeys(NATIVE.values(), _matmul) | dict.fromkeys(FLOAT | COMPLEX | INTEGER, torch.matmul), _matmul
)  # fmt: skip
matmul.__module__ = __name__


def matrix_transpose(x: torch.Tensor) -> torch.Tensor:
    if x.dim() < 2:
        raise errors.not_a_matrix("matrix_transpose", x.shape)
    return x.mT


def tensordot(x1: torch.Tensor, x2: torch.Tensor, *, axes: Any) -> torch.Tensor:
    shape_checks.of_ones(shape_checks.tensordot, "tensordot", (x1, x2), {"axes": axes})
    return _product("tensordot", torch.tensordot, x1, x2, dims=axes)


def einsum(*arrays: torch.Tensor, equation: str) -> torch.Tensor:
    shape_checks.of_ones(shape_checks.einsum, "einsum", arrays, {"equation": equation})
    return _product("einsum", functools.partial(torch.einsum, equation), *arrays)


def diagonal(x: torch.Tensor, *, offset: int) -> torch.Tensor:
    return torch.diagonal(x, offset, -2, -1)


# ---- decompositions and solvers ------------------------------------------------------------------------------------------------
def _run(op: str, native: Callable[..., Any], *arrays: torch.Tensor, **params: Any) -> Any:
    """`native` in a dtype that LAPACK knows, with its results in the half precision of the arrays, if they have one."""
    dtype = arrays[0].dtype
    alike = (dtype in FLOAT or dtype in COMPLEX) and arrays[-1].dtype is dtype  # there are one or two
    computed = arrays if alike else promoted("divide", *arrays)
    half = computed[0].dtype if computed[0].dtype in HALF else None
    try:
        result = native(*computed if half is None else [x.to(torch.float32) for x in computed], **params)
    except torch._C._LinAlgError as error:
        raise errors.decomposition_failed(op) from error
    if isinstance(result, torch.Tensor):
        return result if half is None or result.is_complex() else result.to(half)
    return tuple(result if half is None else [part if part.is_complex() else part.to(half) for part in result])


def _of_one(op: str, native: Callable[..., Any] | None = None) -> Callable[[torch.Tensor], Any]:
    return lambda x: _run(op, native or getattr(torch.linalg, op), x)


def _only_recorded(x: torch.Tensor) -> bool:
    """Whether autograd alone differentiates, so that values can be asked."""
    return x.requires_grad and not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is None


def _det(x: torch.Tensor) -> torch.Tensor:
    """torch's, with the derivative of a matrix without inverse, where torch's is 0."""
    found = torch.linalg.det(x)
    if not _differentiated(x) or (_only_recorded(x) and found.all()):
        return found
    singular, fixed = found.detach() == 0, x.detach()
    identity = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    # to second order in x - fixed: the linear term is there whole, the quadratic one by half
    beside = torch.sum(cofactors((x + fixed) / 2, fixed, identity) * (x - fixed), (-2, -1))
    return torch.where(singular, beside, torch.linalg.det(torch.where(singular[..., None, None], identity, x)))


det = _of_one("det", _det)
eig, eigh, eigvals, eigvalsh = map(_of_one, ("eig", "eigh", "eigvals", "eigvalsh"))
inv, slogdet, svdvals = map(_of_one, ("inv", "slogdet", "svdvals"))
expm = _of_one("expm", torch.linalg.matrix_exp)


def solve(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    return _run("solve", functools.partial(_matrices, torch.linalg.solve), x1, x2)


def _matrices(solver: Callable[..., torch.Tensor], a: torch.Tensor, b: torch.Tensor, **params: Any) -> torch.Tensor:
    """A 1-d `b` is a vector and any other is matrices; torch also takes some shapes for a batch of vectors.

    Both get the same rank, because the vmap of torch's solve confuses the axes of operands of two ranks.
    """
    if b.dim() == 1:
        return _matrices(solver, a, b[:, None], **params)[..., 0]
    while 0 < b.dim() < a.dim():
        b = b.unsqueeze(0)
    while 1 < a.dim() < b.dim():
        a = a.unsqueeze(0)
    return solver(a, b, **params)


def solve_triangular(x1: torch.Tensor, x2: torch.Tensor, *, lower: bool, trans: str, unit_diagonal: bool) -> torch.Tensor:
    a = x1 if trans == "N" else x1.mT if trans == "T" else x1.mH
    native = functools.partial(_matrices, torch.linalg.solve_triangular)
    return _run("solve_triangular", native, a, x2, upper=lower == (trans != "N"), unitriangular=unit_diagonal)


def cholesky(x: torch.Tensor, *, upper: bool) -> torch.Tensor:
    return _run("cholesky", torch.linalg.cholesky, with_hermitian_gradient(x) if x.is_complex() else x, upper=upper)


def qr(x: torch.Tensor, *, mode: str) -> tuple[torch.Tensor, torch.Tensor]:
    rows, columns = x.shape[-2:]
    if mode == "reduced" or rows <= columns or not _differentiated(x):
        return _run("qr", torch.linalg.qr, x, mode=mode)
    # torch has no derivative of a full set
    return completed_qr(x, *(functools.partial(_run, "qr", torch.linalg.qr, mode=mode) for mode in ("reduced", "complete")))


def _differentiated(x: torch.Tensor) -> bool:
    return x.requires_grad or torch._C._functorch.peek_interpreter_stack() is not None


def svd(x: torch.Tensor, *, full_matrices: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    found = _run("svd", torch.linalg.svd, x, full_matrices=full_matrices)
    if not full_matrices or x.shape[-1] == x.shape[-2] or not _differentiated(x):
        return found
    rank = found[1].shape[-1]
    return completed_svd((found[0][..., :rank], found[1], found[2][..., :rank, :]), found)  # torch takes the derivative for 0


def pinv(x: torch.Tensor, rtol: Any) -> torch.Tensor:
    return _run("pinv", torch.linalg.pinv, x, rtol=rtol if rtol is None or isinstance(rtol, torch.Tensor) else float(rtol))


_BLOCK = 4096


def vector_norm(x: torch.Tensor, *, axis: Any, keepdims: bool, ord: float) -> torch.Tensor:
    (x,) = promoted("divide", x)
    if axis == ():
        return torch.abs(x)
    if x.numel() == 0:  # torch refuses the largest of no elements, which is 0 for a norm
        return composed.vector_norm(x, axis=axis, keepdims=keepdims, ord=ord)
    axes = None if axis is None else axes_of("vector_norm", axis, x.dim())
    if x.dtype is torch.float32 and ord == 2 and x.numel() > 100 * _BLOCK and len(axes or ()) in (0, x.dim()):
        flat = x.reshape(-1)  # torch adds up millions of squares one by one, and loses digits: blocks first
        whole = flat.numel() - flat.numel() % _BLOCK
        parts = torch.linalg.vector_norm(flat[:whole].reshape(-1, _BLOCK), 2, 1)
        x = torch.cat([parts, flat[whole:]]).reshape((1,) * (x.dim() - 1) + (-1,))
    return torch.linalg.vector_norm(x, ord, axes, keepdims)
