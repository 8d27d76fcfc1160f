"""The same mistake is the same error on every backend: class and text, for native arrays and for tl.Array."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import BACKENDS, make

import trellis as tl

AxisError = np.exceptions.AxisError
LinAlgError = np.linalg.LinAlgError

A = np.arange(6.0).reshape(2, 3)
M = np.eye(3)
N = np.arange(6).reshape(2, 3)
B = np.array([[True, False, True], [False, True, True]])
C = A + 1j
V = np.arange(3.0)
E = np.zeros((2, 0))
U = np.array([1, 2], dtype="uint64")
W = np.array([1, 2], dtype="uint8")
I = np.array([0, 1])  # noqa: E741
Z = np.array(1.0)

# name -> (call, arrays, error class, what its text must contain)
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], type[Exception], tuple[str, ...]]] = {
    # shapes
    "add shapes": (lambda x, y: tl.add(x, y), (A, np.zeros(2)), ValueError, ("add", "(2, 3)", "(2,)", "broadcast")),
    "less shapes": (lambda x, y: tl.less(x, y), (A, np.zeros((3, 3))), ValueError, ("less", "(2, 3)", "(3, 3)")),
    "pow shapes": (lambda x, y: tl.pow(x, y), (A, np.zeros(2)), ValueError, ("pow", "broadcast")),
    "atan2 shapes": (lambda x, y: tl.atan2(x, y), (A, np.zeros(2)), ValueError, ("atan2",)),
    "bitwise_and shapes": (lambda x, y: tl.bitwise_and(x, y), (N, np.zeros(2, int)), ValueError, ("bitwise_and",)),
    "where shapes": (lambda c, x, y: tl.where(c, x, y), (B, A, np.zeros(2)), ValueError, ("where", "broadcast")),
    "clip shapes": (lambda x, y: tl.clip(x, y), (A, np.zeros(2)), ValueError, ("clip",)),
    "isclose shapes": (lambda x, y: tl.isclose(x, y), (A, np.zeros(2)), ValueError, ()),
    "matmul inner": (lambda x, y: tl.matmul(x, y), (A, A), ValueError, ("matmul", "(2, 3)", "3", "2")),
    "matmul vector": (lambda x, y: tl.matmul(x, y), (A, np.zeros(2)), ValueError, ("matmul",)),
    "matmul 0-d": (lambda x, y: tl.matmul(x, y), (A, np.array(2.0)), ValueError, ("matmul", "0-d")),
    "matmul batch": (lambda x, y: tl.matmul(x, y), (np.zeros((2, 3, 3)), np.zeros((4, 3, 3))), ValueError, ("matmul",)),
    "tensordot sizes": (lambda x, y: tl.tensordot(x, y, axes=1), (A, A), ValueError, ("tensordot",)),
    "tensordot axes": (lambda x, y: tl.tensordot(x, y, axes=3), (A, A), ValueError, ("tensordot", "axes=3")),
    "vecdot sizes": (lambda x, y: tl.vecdot(x, y), (A, np.zeros(4)), ValueError, ("vecdot",)),
    "outer ranks": (lambda x, y: tl.outer(x, y), (A, V), ValueError, ("outer", "1-d")),
    "cross size": (lambda x: tl.linalg.cross(x, x, axis=0), (A,), ValueError, ("cross", "3")),
    "reshape size": (lambda x: tl.reshape(x, (4, 2)), (A,), ValueError, ("reshape", "(2, 3)", "(4, 2)")),
    "reshape two open": (lambda x: tl.reshape(x, (-1, -1)), (A,), ValueError, ("reshape", "-1")),
    "reshape negative": (lambda x: tl.reshape(x, (-2, 3)), (A,), ValueError, ("reshape", "negative")),
    "reshape open size": (lambda x: tl.reshape(x, (4, -1)), (A,), ValueError, ("reshape",)),
    "concat sizes": (lambda x, y: tl.concat([x, y]), (A, np.zeros((2, 4))), ValueError, ("concat", "(2, 3)", "(2, 4)")),
    "concat ranks": (lambda x, y: tl.concat([x, y]), (A, V), ValueError, ("concat", "dimensions")),
    "concat nothing": (lambda x: tl.concat([]), (A,), ValueError, ("concat", "empty")),
    "stack shapes": (lambda x, y: tl.stack([x, y]), (A, np.zeros((2, 4))), ValueError, ("stack",)),
    "squeeze size": (lambda x: tl.squeeze(x, 1), (A,), ValueError, ("squeeze", "size 3")),
    "broadcast_to": (lambda x: tl.broadcast_to(x, (4, 3)), (A,), ValueError, ("broadcast_to", "(4, 3)")),
    "permute short": (lambda x: tl.permute_dims(x, (0,)), (A,), ValueError, ("permute_dims", "(0,)")),
    "permute twice": (lambda x: tl.permute_dims(x, (0, 0)), (A,), ValueError, ("permute_dims",)),
    "pad length": (lambda x: tl.pad(x, ((1, 1),)), (np.zeros((2, 2)),), ValueError, ("pad", "2 dimensions")),
    "pad negative": (lambda x: tl.pad(x, -1), (A,), ValueError, ("pad", "negative")),
    "pad mode": (lambda x: tl.pad(x, 1, mode="mirror"), (A,), ValueError, ("pad", "'mirror'", "'reflect'")),
    "roll lengths": (lambda x: tl.roll(x, (1, 2), axis=(0,)), (A,), ValueError, ("roll",)),
    "split uneven": (lambda x: tl.split(x, 4), (A,), ValueError, ("split", "4 does not divide", "tl.array_split")),
    "split missing": (lambda x: tl.split(x), (A,), TypeError, ("split", "number of parts")),
    "split no parts": (lambda x: tl.split(x, 0), (A,), ValueError, ("split: sections=0",)),
    "split axis": (lambda x: tl.split(x, 1, axis=2), (A,), AxisError, ("split", "axis")),
    "array_split axis": (lambda x: tl.array_split(x, [1], axis=2), (A,), AxisError, ("split", "axis")),
    "array_split parts": (lambda x: tl.array_split(x, 2.5), (A,), TypeError, ("array_split: sections", "2.5")),
    "chunk parts": (lambda x: tl.chunk(x, 0), (A,), ValueError, ("chunk: chunks=0",)),
    "swapaxes axis": (lambda x: tl.swapaxes(x, 0, 2), (A,), AxisError, ("swapaxes", "axis")),
    "moveaxis lengths": (lambda x: tl.moveaxis(x, (0, 1), (0,)), (A,), ValueError, ("moveaxis",)),
    "repeat negative": (lambda x: tl.repeat(x, -1), (V,), ValueError, ("repeat", "-1")),
    # axes
    "sum axis": (lambda x: tl.sum(x, axis=2), (A,), AxisError, ("sum", "axis=2", "-2 to 1")),
    "mean axis": (lambda x: tl.mean(x, axis=-3), (A,), AxisError, ("mean", "axis=-3")),
    "max axis": (lambda x: tl.max(x, axis=(0, 5)), (A,), AxisError, ("max", "axis=5")),
    "sum twice": (lambda x: tl.sum(x, axis=(0, -2)), (A,), ValueError, ("sum", "twice")),
    "argmax axis": (lambda x: tl.argmax(x, axis=4), (A,), AxisError, ("argmax", "axis=4")),
    "sort axis": (lambda x: tl.sort(x, axis=2), (A,), AxisError, ("sort", "axis=2")),
    "cumulative_sum axis": (lambda x: tl.cumulative_sum(x), (A,), ValueError, ("cumulative_sum", "axis")),
    "expand_dims axis": (lambda x: tl.expand_dims(x, 4), (A,), AxisError, ("expand_dims", "axis=4")),
    "squeeze axis": (lambda x: tl.squeeze(x, 3), (A,), AxisError, ("squeeze", "axis=3")),
    "flip axis": (lambda x: tl.flip(x, axis=2), (A,), AxisError, ("flip",)),
    "roll axis": (lambda x: tl.roll(x, 1, axis=2), (A,), AxisError, ("roll",)),
    "concat axis": (lambda x: tl.concat([x, x], axis=2), (A,), AxisError, ("concat",)),
    "stack axis": (lambda x: tl.stack([x, x], axis=3), (A,), AxisError, ("stack",)),
    "unstack axis": (lambda x: tl.unstack(x, axis=2), (A,), AxisError, ("unstack",)),
    "moveaxis axis": (lambda x: tl.moveaxis(x, 2, 0), (A,), AxisError, ("moveaxis", "source")),
    "take axis": (lambda x, k: tl.take(x, k, axis=2), (A, np.array([0])), AxisError, ("take",)),
    "softmax axis": (lambda x: tl.softmax(x, axis=2), (A,), AxisError, ("softmax",)),
    "fft axis": (lambda x: tl.fft.fft(x, axis=2), (C,), AxisError, ("fft",)),
    "axis float": (lambda x: tl.sum(x, axis=0.5), (A,), TypeError, ("sum", "axis", "0.5")),
    # dtypes
    "bitwise float": (lambda x: tl.bitwise_and(x, x), (A,), TypeError, ("bitwise_and", "float64")),
    "shift bool": (lambda x: tl.bitwise_left_shift(x, x), (B,), TypeError, ("bitwise_left_shift", "bool")),
    "invert float": (lambda x: tl.bitwise_invert(x), (A,), TypeError, ("bitwise_invert", "float64")),
    "subtract bool": (lambda x: tl.subtract(x, x), (B,), TypeError, ("subtract", "bool", "astype")),
    "negative bool": (lambda x: tl.negative(x), (B,), TypeError, ("negative", "bool")),
    "floor complex": (lambda x: tl.floor(x), (C,), TypeError, ("floor", "complex128")),
    "less complex": (lambda x: tl.less(x, x), (C,), TypeError, ("less", "complex128")),
    "maximum complex": (lambda x: tl.maximum(x, x), (C,), TypeError, ("maximum", "complex128")),
    "atan2 complex": (lambda x: tl.atan2(x, x), (C,), TypeError, ("atan2", "complex128")),
    "erf complex": (lambda x: tl.erf(x), (C,), TypeError, ("erf", "complex128")),
    "uint64 with int64": (lambda x, y: tl.add(x, y), (U, np.array([1, 2])), TypeError, ("uint64", "int64", "astype")),
    "too large a number": (lambda x: tl.add(x, 300), (W,), OverflowError, ("add", "300", "uint8")),
    "negative into unsigned": (lambda x: tl.multiply(x, -1), (W,), OverflowError, ("multiply", "-1", "uint8")),
    "complex to real": (lambda x: tl.astype(x, tl.float32), (C,), TypeError, ("complex",)),
    "unknown dtype": (lambda x: tl.astype(x, "float33"), (A,), TypeError, ("float33", "float32")),
    "string": (lambda x: tl.add(x, "a"), (A,), TypeError, ("str",)),
    "list": (lambda x: tl.exp([1.0, "a"]), (A,), TypeError, ("list", "tl.stack")),
    # indices
    "int out of range": (lambda x: tl.asarray(x)[2], (A,), IndexError, ("index 2", "size 2")),
    "too many indices": (lambda x: tl.asarray(x)[0, 0, 0], (A,), IndexError, ("3 indices", "2 dimensions")),
    "two ellipses": (lambda x: tl.asarray(x)[..., ...], (A,), IndexError, ("Ellipsis",)),
    "float index": (lambda x, k: tl.asarray(x)[k], (A, np.array([0.5])), IndexError, ("float64",)),
    "mask shape": (lambda x, m: tl.asarray(x)[m], (A, np.array([True, False, True])), IndexError, ("mask", "(3,)")),
    "take out of range": (lambda x, k: tl.take(x, k, axis=0), (A, np.array([5])), IndexError, ()),
    "array index out of range": (lambda x, k: tl.asarray(x)[k], (A, np.array([0, 7])), IndexError, ()),
    "at without key": (lambda x: tl.at(x).set(0.0), (A,), TypeError, ("at", "key")),
    "at out of range": (lambda x: tl.at(x)[5].set(0.0), (A,), IndexError, ("5",)),
    # empty, singular
    "max of nothing": (lambda x: tl.max(x, axis=1), (E,), ValueError, ("max", "empty")),
    "argmin of nothing": (lambda x: tl.argmin(x, axis=1), (E,), ValueError, ("argmin", "empty")),
    "inv singular": (lambda x: tl.linalg.inv(x), (np.ones((2, 2)),), LinAlgError, ()),
    "solve singular": (lambda x, y: tl.linalg.solve(x, y), (np.zeros((2, 2)), np.ones(2)), LinAlgError, ()),
    "cholesky indefinite": (lambda x: tl.linalg.cholesky(x), (-np.eye(2),), LinAlgError, ()),
    "inv not square": (lambda x: tl.linalg.inv(x), (A,), ValueError, ("inv", "(2, 3)")),
    "det vector": (lambda x: tl.linalg.det(x), (V,), ValueError, ("det", "(3,)")),
    "solve rows": (lambda x, y: tl.linalg.solve(x, y), (M, np.ones((2, 2))), ValueError, ("solve",)),
    "svd vector": (lambda x: tl.linalg.svd(x), (V,), ValueError, ("svd",)),
    "trace vector": (lambda x: tl.linalg.trace(x), (V,), ValueError, ("trace",)),
    "matrix_norm ord": (lambda x: tl.linalg.matrix_norm(x, ord=3), (A,), ValueError, ("matrix_norm", "ord=3")),
    "qr mode": (lambda x: tl.linalg.qr(x, mode="full"), (A,), ValueError, ("qr", "'full'", "'reduced'")),
    "searchsorted rank": (lambda x: tl.searchsorted(x, x), (A,), ValueError, ("searchsorted", "1-d")),
    "searchsorted side": (lambda x: tl.searchsorted(x, x, side="up"), (V,), ValueError, ("searchsorted", "'up'")),
    "fft norm": (lambda x: tl.fft.fft(x, norm="unit"), (C,), ValueError, ("fft", "'unit'")),
    "fft n": (lambda x: tl.fft.fft(x, n=0), (C,), ValueError, ("fft", "n=0")),
    "quantile method": (lambda x: tl.quantile(x, 0.5, method="best"), (A,), ValueError, ("quantile", "'best'")),
    "meshgrid indexing": (lambda x: tl.meshgrid(x, x, indexing="xz"), (V,), ValueError, ("meshgrid", "'xz'")),
    "unknown device": (lambda x: tl.to_device(x, "tpu:7"), (A,), ValueError, ("tpu:7",)),
    "einsum sizes": (lambda x, y: tl.einsum("ij,jk->ik", x, y), (A, A), ValueError, ()),
    "in place dtype": (lambda x: tl.asarray(x).__iadd__(0.5), (N,), TypeError, ("in-place", "int64")),
    "bool of many": (lambda x: bool(tl.asarray(x)), (A,), TypeError, ("bool", "(2, 3)")),
    "index of a float": (lambda x: range(3)[tl.asarray(x)], (np.array(1.0),), TypeError, ("float64",)),
    # operands that one framework or another takes without a word
    "clip float bound": (lambda x: tl.clip(x, 0.5), (N,), TypeError, ("clip", "float", "int64", "astype")),
    "clip complex": (lambda x: tl.clip(x, 0, 1), (C,), TypeError, ("clip", "complex128")),
    "clip bool": (lambda x: tl.clip(x, 0, 1), (B,), TypeError, ("clip", "bool")),
    "clip too large": (lambda x: tl.clip(x, 0, 300), (W,), OverflowError, ("clip", "300", "uint8")),
    "set float into int": (lambda x: tl.at(x)[0].set(0.5), (N,), TypeError, ("at", "set", "float", "int64", "astype")),
    "set complex into float": (lambda x: tl.at(x)[0].add(1j), (A,), TypeError, ("at", "add", "complex", "float64")),
    "set an array into int": (lambda x, y: tl.at(x)[0].set(y), (N, np.array(0.5)), TypeError, ("float64", "int64")),
    "set too large": (lambda x: tl.at(x)[0].set(300), (W,), OverflowError, ("at", "300", "uint8")),
    "add to bool": (lambda x: tl.at(x)[0].add(True), (B,), TypeError, ("at", "add", "bool")),
    "set shape": (lambda x, y: tl.at(x)[0].set(y), (A, np.zeros(2)), ValueError, ("(2,)", "(3,)")),
    "set array index": (lambda x, k: tl.at(x)[k].set(0.0), (A, np.array([7])), IndexError, ("index 7", "size 2")),
    "take needs axis": (lambda x, k: tl.take(x, k), (A, np.array([0])), ValueError, ("take", "axis", "2 dimensions")),
    "take float": (lambda x, k: tl.take(x, k, axis=0), (A, np.array([0.5])), TypeError, ("take", "float64", "integer")),
    "take_along_axis range": (
        lambda x, k: tl.take_along_axis(x, k, axis=1),
        (A, np.array([[5], [0]])),
        IndexError,
        ("5", "size 3"),
    ),
    "take_along_axis ranks": (
        lambda x, k: tl.take_along_axis(x, k, axis=1),
        (A, np.array([0])),
        ValueError,
        ("take_along_axis",),
    ),
    "segment range": (lambda x, k: tl.segment_sum(x, k, num_segments=2), (A, np.array([0, 2])), IndexError, ("segment_sum", "2")),
    "segment negative": (
        lambda x, k: tl.segment_max(x, k, num_segments=2),
        (A, np.array([0, -1])),
        IndexError,
        ("segment_max", "-1"),
    ),
    "segment shapes": (
        lambda x, k: tl.segment_sum(x, k),
        (A, np.array([0, 0, 0])),
        ValueError,
        ("segment_sum", "(3,)", "(2, 3)"),
    ),
    "segment float": (lambda x, k: tl.segment_min(x, k), (A, np.array([0.0, 1.0])), TypeError, ("segment_min", "float64")),
    "top_k too many": (lambda x: tl.top_k(x, 4), (A,), ValueError, ("top_k", "k=4", "3")),
    "nonzero 0-d": (lambda x: tl.nonzero(x), (np.array(1.0),), ValueError, ("nonzero", "0-d")),
    "bincount negative": (lambda x: tl.bincount(x), (np.array([0, -1]),), ValueError, ("bincount", "negative")),
    "bincount 2-d": (lambda x: tl.bincount(x), (N,), ValueError, ("bincount", "1-d", "(2, 3)")),
    "bincount float": (lambda x: tl.bincount(x), (V,), TypeError, ("bincount", "integer", "float64")),
    "bincount weights": (
        lambda x, w: tl.bincount(x, weights=w),
        (np.array([0, 1]), V),
        ValueError,
        ("bincount", "weights", "(3,)"),
    ),
    "repeat negative counts": (lambda x, k: tl.repeat(x, k), (V, np.array([1, -1, 1])), ValueError, ("repeat", "negative")),
    "max complex": (lambda x: tl.max(x), (C,), TypeError, ("max", "complex128", "order")),
    "argmax complex": (lambda x: tl.argmax(x), (C,), TypeError, ("argmax", "complex128", "order")),
    "sort complex": (lambda x: tl.sort(x), (C,), TypeError, ("sort", "complex128", "order")),
    "searchsorted complex": (lambda x: tl.searchsorted(x, x), (C[0],), TypeError, ("complex128",)),
    "top_k complex": (lambda x: tl.top_k(x, 1), (C,), TypeError, ("complex128",)),
    "matmul bool": (lambda x: tl.matmul(x, x), (np.eye(2, dtype=bool),), TypeError, ("matmul", "bool", "astype")),
    "einsum bool": (lambda x: tl.einsum("ij,jk->ik", x, x), (np.eye(2, dtype=bool),), TypeError, ("einsum", "bool")),
    "rfft complex": (lambda x: tl.fft.rfft(x), (C,), TypeError, ("rfft", "complex128", "real")),
    "rfftn complex": (lambda x: tl.fft.rfftn(x), (C,), TypeError, ("rfftn", "complex128", "real")),
    "tril vector": (lambda x: tl.tril(x), (V,), ValueError, ("tril", "matrix", "(3,)")),
    "matrix_transpose vector": (lambda x: tl.matrix_transpose(x), (V,), ValueError, ("matrix_transpose", "(3,)")),
    "sum drops": (lambda x: tl.sum(x, dtype=tl.float64), (C,), TypeError, ("complex128", "float64", "imaginary")),
    "asarray drops": (lambda x: tl.asarray(x, dtype=tl.float64), (C,), TypeError, ("complex128", "float64", "imaginary")),
    "asarray copy": (
        lambda x: tl.asarray(x, dtype=tl.float64, copy=False),
        (N,),
        ValueError,
        ("asarray", "copy=False", "float64"),
    ),
    "item of many": (lambda x: tl.asarray(x).item(), (A,), ValueError, ("(2, 3)",)),
    "sum of 0-d": (lambda x: tl.sum(x, axis=0), (np.array(1.0),), AxisError, ("sum", "axis=0", "0-d")),
    "mean of 0-d": (lambda x: tl.mean(x, axis=0), (np.array(1.0),), AxisError, ("mean", "axis=0", "0-d")),
    "max of 0-d": (lambda x: tl.max(x, axis=-1), (np.array(1.0),), AxisError, ("max", "axis=-1", "0-d")),
    "sort of 0-d": (lambda x: tl.sort(x), (np.array(1.0),), AxisError, ("sort", "axis=-1", "0-d")),
    "unstack of 0-d": (lambda x: tl.unstack(x), (np.array(1.0),), AxisError, ("unstack", "axis=0", "0-d")),
    "concat of 0-d": (lambda x: tl.concat([x, x]), (np.array(1.0),), ValueError, ("concat", "0-d", "tl.stack")),
    "flip of 0-d": (lambda x: tl.flip(x, axis=0), (np.array(1.0),), AxisError, ("flip", "0-d")),
    "squeeze twice": (lambda x: tl.squeeze(x, (0, 0)), (np.zeros((1, 2)),), ValueError, ("squeeze", "twice")),
    "expand_dims twice": (lambda x: tl.expand_dims(x, (0, 0)), (A,), ValueError, ("expand_dims", "twice")),
    "expand_dims axes": (lambda x: tl.expand_dims(x, (0, 9)), (A,), AxisError, ("expand_dims", "axis=9")),
    "moveaxis twice": (lambda x: tl.moveaxis(x, (0, 1), (1, 1)), (A,), ValueError, ("moveaxis", "destination", "twice")),
    "flip twice": (lambda x: tl.flip(x, axis=(0, 0)), (A,), ValueError, ("flip", "twice")),
    "roll of 0-d": (lambda x: tl.roll(x, 1, axis=0), (np.array(1.0),), AxisError, ("roll", "0-d")),
    "cumulative_prod axis": (lambda x: tl.cumulative_prod(x, axis=2), (A,), AxisError, ("cumulative_prod", "axis=2")),
    "eigh not square": (lambda x: tl.linalg.eigh(x), (A,), ValueError, ("eigh", "(2, 3)")),
    "cholesky vector": (lambda x: tl.linalg.cholesky(x), (V,), ValueError, ("cholesky", "(3,)")),
    "cholesky_solve": (lambda x, y: tl.cholesky_solve(x, y), (A, V), ValueError, ("cholesky_solve", "(2, 3)")),
    "solve_triangular": (lambda x, y: tl.linalg.solve_triangular(x, y), (A, V), ValueError, ("solve_triangular", "(2, 3)")),
    "solve number": (lambda x, y: tl.linalg.solve(x, y), (M, np.array(1.0)), ValueError, ("solve",)),
    "full_like complex": (lambda x: tl.full_like(x, 1j), (A,), TypeError, ("full_like", "1j", "float64")),
    "full_like too large": (lambda x: tl.full_like(x, 300), (W,), OverflowError, ("full_like", "300", "uint8")),
    "pad too large": (lambda x: tl.pad(x, 1, constant_values=300), (W,), OverflowError, ("pad", "300", "uint8")),
    "pad float into int": (lambda x: tl.pad(x, 1, constant_values=0.5), (N,), TypeError, ("pad", "float", "int64")),
    "pad nothing": (lambda x: tl.pad(x, ((0, 0), (1, 1)), mode="reflect"), (E,), ValueError, ("pad", "reflect")),
    "gather range": (lambda x, k: tl.gather(x, k), (A, np.array([[5]])), IndexError, ("5",)),
    "einsum terms": (lambda x: tl.einsum("ij,jk->ik", x), (A,), ValueError, ("einsum", "terms")),
    "vmap out_axes": (lambda x: tl.vmap(lambda v: v, out_axes=None)(x), (A,), ValueError, ("vmap", "out_axes")),
    "diff axis": (lambda x: tl.diff(x, axis=2), (A,), AxisError, ("diff",)),
    "quantile range": (lambda x: tl.quantile(x, 1.5), (A,), ValueError, ("quantile",)),
    "kron bool": (lambda x: tl.kron(x, x), (np.eye(2, dtype=bool),), TypeError, ("bool",)),
    "vecdot bool": (lambda x: tl.vecdot(x, x), (B,), TypeError, ("bool",)),
    "prod drops": (lambda x: tl.prod(x, dtype=tl.int32), (C,), TypeError, ("imaginary",)),
    "isin dtypes": (lambda x, y: tl.isin(x, y), (U, np.array([1, 2])), TypeError, ("uint64", "int64")),
    "concat dtypes": (lambda x, y: tl.concat([x, y]), (U, np.array([1, 2])), TypeError, ("uint64", "int64")),
    "where dtypes": (
        lambda c, x, y: tl.where(c, x, y),
        (np.array([True, False]), U, np.array([1, 2])),
        TypeError,
        ("where", "uint64"),
    ),
    "matmul dtypes": (lambda x, y: tl.matmul(x, y), (U, np.array([1, 2])), TypeError, ("uint64", "int64")),
    "one_hot float": (lambda x: tl.one_hot(x, 3), (V,), TypeError, ("one_hot", "float64")),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("wrapped", [False, True], ids=["native", "Array"])
def test_bad_input(backend: str, name: str, wrapped: bool) -> None:
    run, arrays, error, words = CASES[name]
    operands = [make(backend, a) for a in arrays]
    if wrapped:
        operands = [tl.asarray(x) for x in operands]
    with pytest.raises(error) as caught:
        run(*operands)
    assert issubclass(caught.type, error)
    assert caught.type in (error, *_subclasses(error)), f"{caught.type} is not exactly {error}"
    for word in words:
        assert word in str(caught.value), f"{word!r} is not in: {caught.value}"


def _subclasses(error: type[Exception]) -> tuple[type[Exception], ...]:
    """Ours: an unknown operand is a TypeError, an axis error a ValueError and an IndexError."""
    from trellis.core.dispatch import UnknownOperand

    return (UnknownOperand,) if error is TypeError else (AxisError,) if error in (ValueError, IndexError) else ()


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 160


def _text(run: Callable[..., Any], *operands: Any) -> str:
    """The class and text of the error, without the devices of the backend: a machine has different ones for each framework."""
    with pytest.raises(Exception) as caught:
        run(*operands)
    return f"{caught.type.__name__}: {re.sub(r'; [a-z]+ has .*', '; it has devices', str(caught.value))}"


def test_texts_are_the_same_on_every_backend() -> None:
    """For native arrays and for tl.Array, of every installed backend; so a text is written once."""
    different = []
    for name, (run, arrays, _, _) in CASES.items():
        texts: dict[str, list[str]] = {}
        for backend in BACKENDS:
            natives = [make(backend, a) for a in arrays]
            texts.setdefault(_text(run, *natives), []).append(backend)
            texts.setdefault(_text(run, *map(tl.asarray, natives)), []).append(f"Array on {backend}")
        if len(texts) > 1:
            different.append(f"{name}: {texts}")
    assert different == []


# ---- creation and backends -------------------------------------------------------------------------------------------------
CREATION: dict[str, tuple[Callable[[], Any], type[Exception], tuple[str, ...]]] = {
    "negative size": (lambda: tl.zeros((2, -1)), ValueError, ("zeros", "-1")),
    "float size": (lambda: tl.ones(2.5), TypeError, ("ones", "2.5")),
    "huge size": (lambda: tl.zeros((2**40, 2**40)), (ValueError, MemoryError), ()),  # type: ignore[dict-item]
    "unknown dtype": (lambda: tl.zeros(2, dtype="int7"), TypeError, ("int7",)),
    "unknown device": (lambda: tl.zeros(2, device="gpu:9"), ValueError, ("gpu:9",)),
    "zero step": (lambda: tl.arange(0, 5, 0), ValueError, ("arange", "step=0")),
    "range too wide": (lambda: tl.arange(300, dtype=tl.int8), OverflowError, ("arange", "299", "int8", "wider")),
    "range below zero": (lambda: tl.arange(-3, 3, dtype=tl.uint8), OverflowError, ("arange", "-3", "uint8")),
    "negative num": (lambda: tl.linspace(0, 1, -3), ValueError, ("linspace", "-3")),
    "ragged": (lambda: tl.asarray([[1.0, 2.0], [3.0]]), ValueError, ("asarray", "shape")),
    "text": (lambda: tl.asarray(["a", "b"]), TypeError, ("asarray",)),
    "too large": (lambda: tl.asarray(2**70), OverflowError, ("asarray",)),
    "copy of a list": (lambda: tl.asarray([1.0], copy=False), ValueError, ("asarray", "copy=False")),
    "object": (lambda: tl.asarray(object()), TypeError, ("asarray", "object")),
    "fill complex": (lambda: tl.full(2, 1j, dtype=tl.float32), TypeError, ("full", "1j", "float32")),
    "fill too large": (lambda: tl.full(2, 300, dtype=tl.uint8), OverflowError, ("full", "300", "uint8")),
    "no frequencies": (lambda: tl.fft.fftfreq(0), ValueError, ("fftfreq", "n=0")),
    "endless range": (lambda: tl.arange(0.0, float("inf")), ValueError, ("arange", "inf", "finite")),
}


@pytest.mark.parametrize("name", CREATION)
def test_bad_creation(default_backend: str, name: str) -> None:
    run, error, words = CREATION[name]
    with pytest.raises(error) as caught:
        run()
    for word in words:
        assert word in str(caught.value)


def test_texts_of_creation_are_the_same_on_every_backend() -> None:
    different = []
    for name, (run, _, _) in CREATION.items():
        texts = set()
        for backend in BACKENDS:
            with tl.using(backend):
                texts.add(_text(run))
        if len(texts) > 1:
            different.append(f"{name}: {sorted(texts)}")
    assert different == []


def test_unknown_backend() -> None:
    for run in (
        lambda: tl.zeros(2, backend="mxnet"),
        lambda: tl.set_backend("mxnet"),
        lambda: tl.to_backend(A, "mxnet"),
        lambda: tl.namespace("mxnet"),
    ):
        with pytest.raises(ValueError, match="'mxnet' is unknown; use one of 'numpy', 'jax', 'torch', 'tensorflow'"):
            run()


def test_missing_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    from trellis.core import dispatch

    monkeypatch.setitem(dispatch.BACKENDS, "nowhere", ("a_module_that_is_not_there", ("Array",), "trellis[nowhere]"))
    with pytest.raises(
        ImportError, match=r"a_module_that_is_not_there, which is not installed; pip install 'trellis\[nowhere\]'"
    ):
        tl.zeros(2, backend="nowhere")


@pytest.mark.skipif(len(BACKENDS) < 2, reason="needs two installed backends")
@pytest.mark.parametrize("second", BACKENDS[1:])
def test_two_frameworks_in_one_call(second: str) -> None:
    """Native arrays and Arrays alike, in functions of two and of many arrays, and in operators."""
    x, y = make("numpy", A), make(second, A)
    for run in (
        lambda: tl.add(x, y),
        lambda: tl.add(tl.asarray(x), y),
        lambda: tl.concat([x, y]),
        lambda: tl.asarray(x) * tl.asarray(y),
    ):
        with pytest.raises(TypeError, match=f"numpy and {second}.*tl.to_backend"):
            run()


def test_framework_error_stays_visible(backend: str) -> None:
    """Our error is raised from the framework's own."""
    with pytest.raises(ValueError) as caught:
        tl.matmul(make(backend, A), make(backend, A))
    assert caught.value.__cause__ is not None


def test_nothing_is_imported_to_report_an_error() -> None:
    before = set(sys.modules) & {"torch", "jax", "tensorflow"}
    with pytest.raises(TypeError):
        tl.add(A, object())
    assert set(sys.modules) & {"torch", "jax", "tensorflow"} == before
