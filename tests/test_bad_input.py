"""The same mistake is the same error on every backend: class and text, for native arrays and for tl.Array."""

from __future__ import annotations

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
    "list": (lambda x: tl.exp([1.0, 2.0]), (A,), TypeError, ("list", "tl.asarray")),
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
    from trellis.dispatch import UnknownOperand

    return (UnknownOperand,) if error is TypeError else (AxisError,) if error in (ValueError, IndexError) else ()


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 60


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
}


@pytest.mark.parametrize("name", CREATION)
def test_bad_creation(default_backend: str, name: str) -> None:
    run, error, words = CREATION[name]
    with pytest.raises(error) as caught:
        run()
    for word in words:
        assert word in str(caught.value)


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
    from trellis import dispatch

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
