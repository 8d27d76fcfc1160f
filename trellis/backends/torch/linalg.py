"""Linear algebra. Integers are computed in float32 where a division is involved; half precision in float32, and cast back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from trellis.backends import elementwise as factories
from trellis.backends.torch.convert import (
    COMPLEX,
    FLOAT,
    HALF,
    INTEGER,
    NATIVE,
    check_rank,
    positive_axes,
    promoted,
    to_tensors,
    weak,
)
from trellis.backends.torch.unsigned import wide
from trellis.composites import norms
from trellis.domains import compute_dtype

__all__ = [
    "cholesky", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "einsum", "expm", "inv", "matmul", "matrix_transpose",
    "qr", "slogdet", "solve", "solve_triangular", "svd", "svdvals", "tensordot", "vector_norm",
]  # fmt: skip


# ---- products ----------------------------------------------------------------------------------------------------------------
def _numeric(op: str, *arrays: Any) -> list[torch.Tensor]:
    """The arrays in their common numeric dtype."""
    try:
        dtype = compute_dtype("multiply", [weak(x) for x in arrays])
    except TypeError as error:
        raise TypeError(str(error).replace("multiply", op, 1)) from None
    return to_tensors(arrays, NATIVE[dtype])


def _matmul(x1: Any, x2: Any) -> torch.Tensor:
    x1, x2 = _numeric("matmul", x1, x2)
    return torch.matmul(wide(x1), wide(x2)).to(x1.dtype)


matmul = factories.binary("matmul", torch.matmul, FLOAT | COMPLEX | INTEGER, _matmul)


def matrix_transpose(x: torch.Tensor) -> torch.Tensor:
    if x.dim() < 2:
        raise ValueError(f"matrix_transpose: expected at least 2 dimensions, got shape {tuple(x.shape)}")
    return x.mT


def tensordot(x1: torch.Tensor, x2: torch.Tensor, *, axes: Any) -> torch.Tensor:
    x1, x2 = _numeric("tensordot", x1, x2)
    return torch.tensordot(wide(x1), wide(x2), dims=axes).to(x1.dtype)


def einsum(*arrays: torch.Tensor, equation: str) -> torch.Tensor:
    numeric = _numeric("einsum", *arrays)
    return torch.einsum(equation, *(wide(x) for x in numeric)).to(numeric[0].dtype)


def diagonal(x: torch.Tensor, *, offset: int) -> torch.Tensor:
    return torch.diagonal(x, offset, -2, -1)


# ---- decompositions and solvers ------------------------------------------------------------------------------------------------
def _floating(*arrays: torch.Tensor) -> tuple[list[torch.Tensor], Callable[[torch.Tensor], torch.Tensor]]:
    """The arrays in a dtype that LAPACK knows, and how a result gets back to the dtype that was asked for."""
    promoted_arrays = promoted("divide", *arrays)
    half = promoted_arrays[0].dtype
    if half not in HALF:
        return promoted_arrays, _as_it_is
    return [x.to(torch.float32) for x in promoted_arrays], lambda result: result.to(half)


def _as_it_is(x: torch.Tensor) -> torch.Tensor:
    return x


def _run(op: str, native: Callable[..., Any], *arrays: torch.Tensor, **params: Any) -> Any:
    """Call `native`, with its results in the dtype of the arrays; numpy's LinAlgError for torch's."""
    computed, back = _floating(*arrays)
    try:
        result = native(*computed, **params)
    except torch._C._LinAlgError as error:
        raise np.linalg.LinAlgError(f"{op}: {error}") from error
    return back(result) if isinstance(result, torch.Tensor) else tuple(back(part) for part in result)


def det(x: torch.Tensor) -> torch.Tensor:
    return _run("det", torch.linalg.det, x)


def slogdet(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return _run("slogdet", torch.linalg.slogdet, x)


def inv(x: torch.Tensor) -> torch.Tensor:
    return _run("inv", torch.linalg.inv, x)


def solve(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    return _run("solve", _solve, x1, x2)


def _solve(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _matrices(torch.linalg.solve, a, b)


def _matrices(solver: Callable[..., torch.Tensor], a: torch.Tensor, b: torch.Tensor, **params: Any) -> torch.Tensor:
    """A 1-d `b` is a vector and any other is matrices; torch also takes some shapes for a batch of vectors."""
    if b.dim() == 1:
        return solver(a, b[:, None], **params)[..., 0]
    while 0 < b.dim() < a.dim():
        b = b.unsqueeze(0)
    return solver(a, b, **params)


def solve_triangular(x1: torch.Tensor, x2: torch.Tensor, *, lower: bool, trans: str, unit_diagonal: bool) -> torch.Tensor:
    def native(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if trans == "N":
            return _matrices(torch.linalg.solve_triangular, a, b, upper=not lower, unitriangular=unit_diagonal)
        turned = a.mT if trans == "T" else a.mH
        return _matrices(torch.linalg.solve_triangular, turned, b, upper=lower, unitriangular=unit_diagonal)

    return _run("solve_triangular", native, x1, x2)


def cholesky(x: torch.Tensor, *, upper: bool) -> torch.Tensor:
    return _run("cholesky", torch.linalg.cholesky, _with_hermitian_gradient(x) if x.is_complex() else x, upper=upper)


def _with_hermitian_gradient(x: torch.Tensor) -> torch.Tensor:
    """`x` itself. Of its gradient the Hermitian part counts; torch's, of complex matrices, has another part too."""
    half = (x + x.mH) / 2
    return half + (x - half).detach()


def qr(x: torch.Tensor, *, mode: str) -> tuple[torch.Tensor, torch.Tensor]:
    rows, columns = x.shape[-2:]
    if mode == "reduced" or rows <= columns or not _differentiated(x):
        return _run("qr", torch.linalg.qr, x, mode=mode)
    q, r = _run("qr", torch.linalg.qr, x, mode="reduced")  # torch has no derivative of the rest
    rest, _ = _run("qr", torch.linalg.qr, x.detach(), mode="complete")
    rest = _orthogonal(torch.cat([q, rest[..., columns:]], -1), columns)
    return torch.cat([q, rest], -1), torch.cat([r, r.new_zeros((*r.shape[:-2], rows - columns, columns))], -2)


def _differentiated(x: torch.Tensor) -> bool:
    return x.requires_grad or torch._C._functorch.peek_interpreter_stack() is not None


def eigh(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return _run("eigh", torch.linalg.eigh, x)


def eigvalsh(x: torch.Tensor) -> torch.Tensor:
    return _run("eigvalsh", torch.linalg.eigvalsh, x)


def eig(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    computed, _ = _floating(x)
    values, vectors = _complex_run("eig", torch.linalg.eig, computed[0])
    return values, vectors


def eigvals(x: torch.Tensor) -> torch.Tensor:
    computed, _ = _floating(x)
    return _complex_run("eigvals", torch.linalg.eigvals, computed[0])


def _complex_run(op: str, native: Callable[..., Any], x: torch.Tensor) -> Any:
    try:
        return native(x)
    except torch._C._LinAlgError as error:
        raise np.linalg.LinAlgError(f"{op}: {error}") from error


def svd(x: torch.Tensor, *, full_matrices: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    found = _run("svd", torch.linalg.svd, x, full_matrices=full_matrices)
    if not full_matrices or x.shape[-1] == x.shape[-2] or not _differentiated(x):
        return found
    return _with_rest(*found)


def _with_rest(u: torch.Tensor, s: torch.Tensor, vh: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The vectors beyond the singular values turn with the others; torch takes their derivative for 0."""
    rank = s.shape[-1]
    left, right = _orthogonal(u, rank), _orthogonal(vh.mH, rank)
    return torch.cat([u[..., :rank], left], -1), s, torch.cat([vh[..., :rank, :], right.mH], -2)


def _orthogonal(vectors: torch.Tensor, rank: int) -> torch.Tensor:
    """The columns from `rank` on, orthonormal, orthogonal to those before: b (b^H b)^(-1/2), by the first terms of its series."""
    first, basis = vectors[..., :rank], vectors[..., rank:].detach()
    inside = first.mH @ basis  # 0, but it has derivatives
    missing = inside.mH @ inside
    one = torch.eye(missing.shape[-1], dtype=missing.dtype, device=missing.device)
    return (basis - first @ inside) @ (one + missing @ (one / 2 + 3 / 8 * missing))


def svdvals(x: torch.Tensor) -> torch.Tensor:
    return _run("svdvals", torch.linalg.svdvals, x)


def expm(x: torch.Tensor) -> torch.Tensor:
    return _run("expm", torch.linalg.matrix_exp, x)


def vector_norm(x: torch.Tensor, *, axis: Any, keepdims: bool, ord: float) -> torch.Tensor:
    (x,) = promoted("divide", x)
    if axis == ():
        return torch.abs(x)
    if axis is not None:
        check_rank("vector_norm", x, axis)
    if x.numel() == 0:  # torch refuses the largest of no elements, which is 0 for a norm
        return norms.vector_norm(x, axis=axis, keepdims=keepdims, ord=ord)
    axes = None if axis is None else positive_axes("vector_norm", x, axis)
    return torch.linalg.vector_norm(x, ord, axes, keepdims)
