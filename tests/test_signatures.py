"""Functions that share a name with NumPy's take NumPy's arguments, in NumPy's order; each difference has its reason here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import check, make

import trellis as tl

# Parameters of NumPy's that no function here has.
NOWHERE = {
    "casting": "promotion has one table",
    "initial": "combine the result with the number",
    "kind": "the choice of an algorithm does not change the result; `stable` does",
    "mean": "a shortcut of NumPy that saves a pass",
    "order": "memory has no order here",
    "out": "results are new arrays; assign with x[...] = result",
    "overwrite_input": "no function changes its operands",
    "subok": "there is one class of arrays",
    "where": "use tl.where on the operand",
    "weights": "of quantiles only; elsewhere it has the same name",
    "compute_uv": "use tl.linalg.svdvals",
    "hermitian": "use eigh",
    "optimize": "einsum always optimizes",
    "assume_unique": "it does not change the result",
    "max_header_size": "of files",
}
# Functions that take some of NumPy's parameters in another way.
DIFFERENT = {
    "array": {"ndmin": "use tl.expand_dims", "ndmax": "use tl.asarray of a nest of arrays"},
    "can_cast": {"casting": "one rule"},
    "clip": {"a_min": "the standard's name is min", "a_max": "the standard's name is max", "kwargs": "of a ufunc"},
    "concat": {"dtype": "use tl.astype"},
    "corrcoef": {"y": "stack the variables", "rowvar": "use x.T", "dtype": "use tl.astype"},
    "cov": dict.fromkeys(("y", "rowvar", "bias", "ddof", "fweights", "aweights", "dtype"), "correction= and weights= say it all"),
    "diagonal": {"axis1": "the last two axes, as in the standard", "axis2": "as axis1"},
    "einsum": {"kwargs": "of a ufunc"},
    "empty_like": {"shape": "use tl.empty"},
    "full_like": {"shape": "use tl.full"},
    "interp": {"period": "use x % period"},
    "linalg.eigh": {"UPLO": "the lower half is read"},
    "linalg.eigvalsh": {"UPLO": "the lower half is read"},
    "linalg.matrix_rank": {"tol": "an absolute limit; rtol is relative"},
    "linspace": {"retstep": "the second element minus the first", "dtype": "keyword only, after retstep", "axis": "as dtype"},
    "meshgrid": {"copy": "results are new arrays", "sparse": "give the arrays their axes with x[:, None]"},
    "nan_to_num": {"copy": "results are new arrays", **dict.fromkeys(("nan", "posinf", "neginf"), "keyword only, after copy")},
    "ones_like": {"shape": "use tl.ones"},
    "pad": {"kwargs": "constant_values= is here; the others belong to modes that are not"},
    "stack": {"dtype": "use tl.astype"},
    "take": {"mode": "an index out of range is an error"},
    "zeros_like": {"shape": "use tl.zeros"},
    "fft.fftfreq": {"device": "keyword only, as in the standard"},
    "fft.rfftfreq": {"device": "keyword only, as in the standard"},
}
OTHER_FUNCTIONS = {  # of the same name: they do something else
    "load": "of weights",
    "resize": "of images",
    "save": "of weights",
    "trace": "tl.linalg.trace sums a diagonal, tl.trace records a graph",
}


def shared() -> list[tuple[str, Callable[..., Any], Callable[..., Any]]]:
    rooms = (("", tl, np), ("linalg.", tl.linalg, np.linalg), ("fft.", tl.fft, np.fft))
    return [
        (f"{room}{name}", getattr(ours, name), getattr(theirs, name))
        for room, ours, theirs in rooms
        for name in ours.__all__
        if inspect.isfunction(getattr(ours, name)) and callable(getattr(theirs, name, None))
    ]


def parameters(function: Any) -> list[inspect.Parameter]:
    if isinstance(function, np.ufunc):
        return [inspect.Parameter(f"x{i}", inspect.Parameter.POSITIONAL_ONLY) for i in range(function.nin)]
    return list(inspect.signature(function).parameters.values())


def differences(ours: Any, theirs: Any) -> list[str]:
    """The parameters of NumPy's function that a caller cannot give to ours by the same position, or by the same name.

    Arrays come first, by position only, so their names do not count.
    """
    mine, found = parameters(ours), []
    given = [p for p in mine if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in mine)
    by_name = {p.name for p in mine if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    position = 0
    for p in parameters(theirs):
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            at_place = given[position] if position < len(given) else None
            fits = at_place is not None and (at_place.kind is at_place.POSITIONAL_ONLY or at_place.name == p.name)
            if fits or (at_place is not None and p.default is p.empty) or (variadic and p.default is p.empty):
                position += 1
                continue
            if p.name in by_name and any(n in NOWHERE for n in before(theirs, p.name)):
                continue  # by name; positions end at a parameter that does not exist here
        elif p.name in by_name or (p.kind is p.VAR_POSITIONAL and (variadic or given)):
            continue
        found.append(p.name)
    return found


def before(function: Any, name: str) -> list[str]:
    names = [p.name for p in parameters(function)]
    return names[: names.index(name)]


@pytest.mark.parametrize(("name", "ours", "theirs"), shared(), ids=lambda x: x if isinstance(x, str) else "")
def test_signatures(name: str, ours: Any, theirs: Any) -> None:
    if name in OTHER_FUNCTIONS:
        return
    listed = NOWHERE.keys() | DIFFERENT.get(name, {}).keys()
    assert [p for p in differences(ours, theirs) if p not in listed] == []


def test_each_reason_is_needed() -> None:
    found = {name: set(differences(ours, theirs)) for name, ours, theirs in shared()}
    assert OTHER_FUNCTIONS.keys() <= found.keys()
    extra = {name: listed.keys() - found[name] for name, listed in DIFFERENT.items() if listed.keys() - found[name]}
    assert extra == {}
    assert NOWHERE.keys() - set().union(*found.values()) == set()


# ---- the calls mean what NumPy's mean ------------------------------------------------------------------------------------------
A = np.array([[3.0, 1.25, np.nan], [2.0, -7.35, 5.0]])
B = np.array([[3, 1, 2], [25, -15, 5]])
C = np.arange(12.0).reshape(2, 3, 2)
CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "sum axis": (lambda xp, x: xp.sum(x, 1), (B,)),
    "sum dtype": (lambda xp, x: xp.sum(x, 0, "float64"), (B,)),
    "mean dtype": (lambda xp, x: xp.mean(x, 0, dtype="float64"), (B,)),
    "nanmean dtype": (lambda xp, x: xp.nanmean(x, 1, "float32"), (A,)),
    "nanstd dtype ddof": (lambda xp, x: xp.nanstd(x, 1, dtype="float32", ddof=1), (A,)),
    "var ddof": (lambda xp, x: xp.var(x, ddof=2), (C,)),
    "std correction": (lambda xp, x: xp.std(x, 0, correction=1), (C,)),
    "max axis": (lambda xp, x: xp.max(x, 0), (B,)),
    "argmax axis": (lambda xp, x: xp.argmax(x, 1), (B,)),
    "cumsum": (lambda xp, x: xp.cumsum(x), (B,)),
    "cumsum axis": (lambda xp, x: xp.cumsum(x, 1, "float64"), (B,)),
    "cumprod": (lambda xp, x: xp.cumprod(x, axis=0), (B,)),
    "diff": (lambda xp, x: xp.diff(x, 2, 1), (C,)),
    "sort": (lambda xp, x: xp.sort(x, None), (B,)),
    "sort axis": (lambda xp, x: xp.sort(x, 0), (B,)),
    "argsort": (lambda xp, x: xp.argsort(x, axis=None), (B,)),
    "squeeze": (lambda xp, x: xp.squeeze(x[None, :, None]), (A,)),
    "round": (lambda xp, x: xp.round(x, 1), (A,)),
    "round tens": (lambda xp, x: xp.round(x, -1), (B,)),
    "round tens of floats": (lambda xp, x: xp.round(x, -1), (C,)),
    "where": (lambda xp, x: xp.where(x > 1), (B,)),
    "dot of vectors": (lambda xp, x: xp.dot(x[0, 0], x[1, 1]), (C,)),
    "dot of a matrix and a vector": (lambda xp, x: xp.dot(x, x[0, 0]), (C,)),
    "dot by a number": (lambda xp, x: xp.dot(x, 2.0), (C,)),
    "dot of many axes": (lambda xp, x: xp.dot(x[0], xp.permute_dims(x, (1, 2, 0))), (C,)),
    "transpose": (lambda xp, x: xp.transpose(x), (C,)),
    "transpose axes": (lambda xp, x: xp.transpose(x, (1, 0, 2)), (C,)),
    "permute_dims": (lambda xp, x: xp.permute_dims(x), (C,)),
    "searchsorted": (lambda xp, x, v: xp.searchsorted(x, v, "right"), (np.array([1.0, 2, 2, 5]), C)),
    "lstsq": (lambda xp, x, y: xp.linalg.lstsq(x, y, rcond=None)[0], (np.arange(6.0).reshape(3, 2), np.arange(3.0))),
    "lstsq cut": (lambda xp, x, y: xp.linalg.lstsq(x, y, 0.5)[0], (np.arange(6.0).reshape(3, 2), np.arange(3.0))),
    "pinv": (lambda xp, x: xp.linalg.pinv(x, 0.2), (np.arange(6.0).reshape(3, 2),)),
    "qr": (lambda xp, x: xp.linalg.qr(x, "complete")[0].shape, (np.eye(3)[:, :2],)),
    "svd": (lambda xp, x: xp.linalg.svd(x, False)[1], (C,)),
    "fft": (lambda xp, x: xp.fft.fft(x, 4, 1, None), (C,)),
    "tensordot": (lambda xp, x: xp.tensordot(x, x, ((1, 2), (1, 2))), (C,)),
    "concat": (lambda xp, x: xp.concat([x, x], 1), (C,)),
    "stack": (lambda xp, x: xp.stack([x, x], -1), (C,)),
    "repeat": (lambda xp, x: xp.repeat(x, 2, 1), (C,)),
    "roll": (lambda xp, x: xp.roll(x, 1, 0), (C,)),
    "take": (lambda xp, x: xp.take(x, [1, 0], 1), (C,)),
    "tril": (lambda xp, x: xp.tril(x, 1), (C,)),
    "isclose": (lambda xp, x: xp.isclose(x, x + 0.5, 0.0, 0.6), (C,)),
    "quantile": (lambda xp, x: xp.quantile(x, 0.3, 1), (C,)),
    "bincount": (lambda xp, x: xp.bincount(x, None, 6), (np.array([1, 1, 3]),)),
    "histogram": (lambda xp, x: xp.histogram(x, 4, (0.0, 10.0), True)[0], (C,)),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(backend: str, name: str) -> None:
    function, arrays = CALLS[name]
    wanted = function(np, *arrays)
    got = function(tl, *(tl.Array(make(backend, x)) for x in arrays))
    for x, y in zip(got, wanted, strict=True) if isinstance(wanted, tuple) else [(got, wanted)]:
        if isinstance(y, int):
            assert x == y
        else:
            check(x, np.asarray(y), tolerance=1e-6 if np.asarray(y).dtype == np.float32 else 1e-12)


def test_two_names_of_one_argument() -> None:
    with pytest.raises(ValueError, match=r"std: correction=1 and ddof=0 are two names of one argument; give one of them"):
        tl.std(A, correction=1, ddof=0)
    with pytest.raises(ValueError, match=r"lstsq: rcond=0\.1 and rtol=0\.2 are two names of one argument"):
        tl.linalg.lstsq(C[0], C[0], rcond=0.1, rtol=0.2)


def test_methods_take_numpys_arguments(backend: str) -> None:
    x, y = tl.Array(make(backend, C)), C
    pairs = [
        (x.sum(0), y.sum(0)),
        (x.std(1, ddof=1), y.std(1, ddof=1)),
        (x.cumsum(), y.cumsum()),
        (x.dot(x[0, 0]), y.dot(y[0, 0])),
        (x.round(1), y.round(1)),
        (x.argsort(None), y.argsort(None)),
        (x[None].squeeze(), y),
        (x.repeat(2, 0), y.repeat(2, 0)),
        (x.transpose(2, 0, 1), y.transpose(2, 0, 1)),
    ]
    for got, wanted in pairs:
        check(got, wanted, tolerance=1e-12)
