"""Searching, sorting, sets and counting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from trellis.backends.torch.operands import COMPLEX, FLOAT, dtype_of, promoted, weak
from trellis.backends.torch.unsigned import ordered_real, wide
from trellis.core import errors
from trellis.ops.arguments import check_rank


def _extreme_position(op: str, search: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def run(x: torch.Tensor, *, axis: int | None, keepdims: bool) -> torch.Tensor:
        comparable = ordered_real(op, x)
        if axis is not None:
            check_rank(op, x, axis)
            return search(comparable, axis, keepdims)
        position = search(comparable.reshape(-1), 0)
        return position.reshape([1] * x.dim()) if keepdims else position

    return run


argmax, argmin = _extreme_position("argmax", torch.argmax), _extreme_position("argmin", torch.argmin)


def nonzero(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    if x.dim() == 0:
        raise errors.no_dimensions("nonzero")
    return tuple(torch.nonzero(x if x.dtype is torch.bool else x != 0, as_tuple=True))


def searchsorted(x1: torch.Tensor, x2: Any, sorter: torch.Tensor | None, *, side: str) -> torch.Tensor:
    if x1.dim() != 1:
        raise errors.not_vectors("searchsorted", [x1.shape])
    if weak(x1) is weak(x2):
        edges, values = x1, x2
    else:
        edges, values = promoted("less", x1, x2)
    order = None if sorter is None else sorter.to(torch.int64).contiguous()
    edges, values = (ordered_real("searchsorted", x).contiguous() for x in (edges, values))
    if edges.dtype not in FLOAT:
        return torch.searchsorted(edges, values, side=side, sorter=order)
    missing = torch.isnan(edges)  # at the end; torch takes them for the smallest
    places = torch.searchsorted(edges.masked_fill(missing, float("inf")), values, side=side, sorter=order)
    before = torch.minimum(places, torch.sum(~missing))
    return before if side == "left" else torch.where(torch.isnan(values), places, before)


def _sorting(op: str, part: int) -> Callable[..., torch.Tensor]:
    """The values (0) or the indices (1) that torch.sort gives."""

    def run(x: torch.Tensor, *, axis: int, descending: bool, stable: bool) -> torch.Tensor:
        check_rank(op, x, axis)
        if x.dtype in COMPLEX:
            raise errors.no_order(op, dtype_of(x))
        return torch.sort(x, dim=axis, descending=descending, stable=stable)[part]

    return run


sort, argsort = _sorting("sort", 0), _sorting("argsort", 1)


def bincount(x: torch.Tensor, weights: torch.Tensor | None, *, minlength: int, length: int | None) -> torch.Tensor:
    errors.check_counted(dtype_of(x), x.shape, None if weights is None else weights.shape)
    bins = x.to(torch.int64)
    if length is None:
        try:
            counts = torch.bincount(bins, minlength=minlength)
        except RuntimeError as error:
            if "non-negative" not in str(error):
                raise
            raise errors.negative_elements("bincount", "x") from error
        if weights is None:
            return counts
        length = int(counts.shape[0])
    if weights is None:
        weights = torch.ones_like(bins)
    elif weights.dtype is torch.bool:
        weights = weights.to(torch.int64)
    bins = torch.where((bins < 0) | (bins >= length), length, bins)  # one bin more than asked for takes the elements to drop
    counts = wide(weights).new_zeros(length + 1).index_add(0, bins, wide(weights))
    return counts[:length].to(weights.dtype)
