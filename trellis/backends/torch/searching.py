"""Searching, sorting, sets and counting."""

from __future__ import annotations

from typing import Any

import torch

from trellis.backends.torch.convert import COMPLEX, FLOAT, INTEGER, UNSIGNED, check_rank, promoted, weak
from trellis.backends.torch.reduction import check_not_empty
from trellis.backends.torch.unsigned import ordered

__all__ = ["argmax", "argmin", "argsort", "bincount", "nonzero", "searchsorted", "sort", "unique_all", "unique_values"]


def argmax(x: torch.Tensor, *, axis: int | None, keepdims: bool) -> torch.Tensor:
    return _extreme_position("argmax", torch.argmax, x, axis, keepdims)


def argmin(x: torch.Tensor, *, axis: int | None, keepdims: bool) -> torch.Tensor:
    return _extreme_position("argmin", torch.argmin, x, axis, keepdims)


def _extreme_position(op: str, search: Any, x: torch.Tensor, axis: int | None, keepdims: bool) -> torch.Tensor:
    check_not_empty(op, x, axis)
    _check_order(op, x)
    if axis is not None:
        check_rank(op, x, axis)
        return search(ordered(x), axis, keepdims)
    position = search(ordered(x).reshape(-1), 0)
    return position.reshape([1] * x.dim()) if keepdims else position


def _check_order(op: str, x: torch.Tensor) -> None:
    if x.dtype in COMPLEX:
        raise TypeError(f"{op}: complex numbers have no order; take tl.abs or tl.real first")


def nonzero(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    if x.dim() == 0:
        raise ValueError("nonzero: a 0-d array has no indices; reshape it to (1,) first")
    return tuple(torch.nonzero(x if x.dtype is torch.bool else x != 0, as_tuple=True))


def searchsorted(x1: torch.Tensor, x2: Any, sorter: torch.Tensor | None, *, side: str) -> torch.Tensor:
    if x1.dim() != 1:
        raise ValueError(f"searchsorted: x1 must be 1-d, got shape {tuple(x1.shape)}")
    if weak(x1) is weak(x2):
        edges, values = x1, x2
    else:
        edges, values = promoted("less", x1, x2)
    _check_order("searchsorted", edges)
    order = None if sorter is None else sorter.to(torch.int64).contiguous()
    places = torch.searchsorted(ordered(edges).contiguous(), ordered(values).contiguous(), side=side, sorter=order)
    if side == "right" or edges.dtype not in FLOAT:
        return places
    return torch.where(
        torch.isnan(values), torch.sum(~torch.isnan(edges)), places
    )  # torch puts NaN behind the NaN that are there


def sort(x: torch.Tensor, *, axis: int, descending: bool, stable: bool) -> torch.Tensor:
    check_rank("sort", x, axis)
    _check_order("sort", x)
    return torch.sort(x, dim=axis, descending=descending, stable=stable).values


def argsort(x: torch.Tensor, *, axis: int, descending: bool, stable: bool) -> torch.Tensor:
    check_rank("argsort", x, axis)
    _check_order("argsort", x)
    return torch.sort(x, dim=axis, descending=descending, stable=stable).indices


def unique_values(x: torch.Tensor) -> torch.Tensor:
    values, _, starts = _runs(x)
    return values[starts]


def unique_all(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    values, order, starts = _runs(x)
    group = torch.cumsum(starts, 0) - 1
    inverse = torch.zeros_like(order).scatter(0, order, group).reshape(x.shape)
    begins = torch.nonzero(starts).reshape(-1)
    ends = torch.cat([begins[1:], begins.new_full((min(1, begins.numel()),), values.numel())])
    return values[starts], order[starts], inverse, ends - begins


def _runs(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The elements sorted, where each came from, and where a new value starts. torch.unique gives no indices."""
    flat = x.reshape(-1)
    order = _order(flat)
    values = flat[order]
    starts = torch.ones(flat.shape, dtype=torch.bool, device=x.device)
    starts = torch.cat([starts[:1], values[1:] != values[:-1]])  # NaN differs from NaN
    return values, order, starts


def _order(flat: torch.Tensor) -> torch.Tensor:
    if flat.dtype not in COMPLEX:
        return torch.sort(flat, stable=True).indices
    by_imaginary = torch.sort(flat.imag, stable=True).indices
    return by_imaginary[torch.sort(flat.real[by_imaginary], stable=True).indices]


def bincount(x: torch.Tensor, weights: torch.Tensor | None, *, minlength: int, length: int | None) -> torch.Tensor:
    if x.dtype not in INTEGER and x.dtype not in UNSIGNED:
        raise TypeError(f"bincount: expected an integer dtype, got {weak(x)}; cast it with tl.astype")
    if x.dim() != 1:
        raise ValueError(f"bincount: expected a 1-d array, got shape {tuple(x.shape)}")
    if weights is not None and weights.shape != x.shape:
        raise ValueError(f"bincount: weights have shape {tuple(weights.shape)}, the array {tuple(x.shape)}; they must be equal")
    bins = x.to(torch.int64)
    if length is None:
        try:
            counts = torch.bincount(bins, minlength=minlength)
        except RuntimeError as error:
            if "non-negative" not in str(error):
                raise
            raise ValueError("bincount: the array has negative elements; only 0, 1, 2... can be counted") from error
        if weights is None:
            return counts
        length = counts.shape[0]
    amounts = torch.ones_like(bins) if weights is None else weights
    counted = ordered(amounts) if amounts.dtype is torch.bool else amounts
    dropped = torch.where((bins < 0) | (bins >= length), length, bins)
    if counted.dtype in UNSIGNED:
        return _counted(length, dropped, counted.to(torch.int64)).to(counted.dtype)
    return _counted(length, dropped, counted)


def _counted(length: int, bins: torch.Tensor, amounts: torch.Tensor) -> torch.Tensor:
    """One bin more than asked for takes what is to be dropped."""
    empty = torch.zeros((length + 1,), dtype=amounts.dtype, device=amounts.device)
    return empty.index_add(0, bins, amounts)[:length]
