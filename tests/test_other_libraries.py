"""Other libraries hold `tl.Array`s: einops, pandas, polars, xarray, dask, and torch's data loaders."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from helpers import make

import trellis as tl

VALUES = np.random.default_rng(0).normal(size=(2, 6, 4))


def array(backend: str, value: Any = VALUES) -> tl.Array:
    return tl.Array(make(backend, value))


def check_array(out: Any, expected: Any, backend: str) -> None:
    assert isinstance(out, tl.Array)
    assert out.backend == backend
    np.testing.assert_allclose(tl.to_numpy(out), expected, rtol=1e-6)


# ---- einops --------------------------------------------------------------------------------------------------------------------
def test_einops_as_on_numpy(backend: str):
    einops = pytest.importorskip("einops")
    for function in (
        lambda x: einops.rearrange(x, "b (h t) w -> t b (h w)", t=2),
        lambda x: einops.reduce(x, "b (h t) w -> b h", "mean", t=2),
        lambda x: einops.reduce(x, "b h w -> h", "max"),
        lambda x: einops.reduce(x, "b h w -> b 1 w", "prod"),
        lambda x: einops.reduce(x > 0, "b h w -> w", "any"),
        lambda x: einops.repeat(x, "b h w -> b (h k) w j", k=2, j=3),
        lambda x: einops.rearrange([x, x], "n b h w -> b n h w"),
        lambda x: einops.einsum(x, x, "b h w, b k w -> b h k"),
        lambda x: einops.pack([x, x[:, 0, :]], "b * w")[0],
    ):
        check_array(function(array(backend)), function(VALUES), backend)
    assert einops.parse_shape(array(backend), "b h w") == {"b": 2, "h": 6, "w": 4}


def test_einops_by_our_names(backend: str):
    einops = pytest.importorskip("einops")
    x = array(backend)
    check_array(tl.rearrange(x, "b h w -> w b h"), einops.rearrange(VALUES, "b h w -> w b h"), backend)
    check_array(tl.reduce(x, "b h w -> b", "sum"), einops.reduce(VALUES, "b h w -> b", "sum"), backend)
    check_array(tl.repeat_axes(x, "b h w -> b h w k", k=2), einops.repeat(VALUES, "b h w -> b h w k", k=2), backend)
    assert type(tl.rearrange(x.native, "b h w -> w b h")) is type(x.native)  # native arrays have einops's own backends
    assert tl.rearrange(tl.Container(a=x), "b h w -> w b h").a.shape == (4, 2, 6)
    with pytest.raises(einops.EinopsError, match="b h -> h b"):
        tl.rearrange(x, "b h -> h b")


def test_gradients_through_einops(backend: str):
    """On NumPy the tape records the ops that einops calls."""

    def loss(x: Any) -> Any:
        return tl.sum(tl.reduce(tl.rearrange(x, "b h w -> w (b h)") ** 2, "w (n t) -> n", "sum", t=2) * 2.0)

    check_array(tl.grad(loss)(array(backend)), 4 * VALUES, backend)
    np.testing.assert_allclose(tl.to_numpy(tl.grad(loss)(make(backend, VALUES))), 4 * VALUES, rtol=1e-6)


@pytest.mark.parametrize("first", ["einops", "trellis"])
def test_einops_is_not_imported_by_trellis(first: str):
    code = (
        f"import {first}, sys; import trellis as tl; assert ('einops' in sys.modules) is {first == 'einops'}; import einops; "
        "assert einops.rearrange(tl.zeros((2, 3)), 'a b -> b a').shape == (3, 2)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_our_names_without_einops(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "einops", None)
    for name in ("rearrange", "repeat_axes"):
        with pytest.raises(ImportError, match=rf"^tl\.{name} needs einops, which is not installed; pip install einops$"):
            getattr(tl, name)(tl.zeros(2), "a -> a")
    with pytest.raises(ImportError, match=r"^tl\.reduce needs einops"):
        tl.reduce(tl.zeros(2), "a ->", "sum")


# ---- methods -------------------------------------------------------------------------------------------------------------------
METHODS = {
    "sum": lambda x: x.sum(axis=1), "mean": lambda x: x.mean(axis=(0, 2)),
    "std": lambda x: x.std(axis=0), "var": lambda x: x.var(),
    "max": lambda x: x.max(axis=0), "min": lambda x: x.min(), "prod": lambda x: x.prod(axis=2), "all": lambda x: (x > -9).all(),
    "any": lambda x: (x > 1).any(axis=0), "argmax": lambda x: x.argmax(axis=1), "reshape": lambda x: x.reshape(4, -1),
    "reshape tuple": lambda x: x.reshape((12, 4)), "ravel": lambda x: x.ravel(), "flatten": lambda x: x.flatten(),
    "transpose": lambda x: x.transpose(2, 0, 1), "transpose all": lambda x: x.transpose(), "copy": lambda x: x.copy(),
    "transpose tuple": lambda x: x.transpose((1, 0, 2)), "astype": lambda x: x.astype("float32"), "real": lambda x: x.real,
    "imag": lambda x: x.imag, "T of a vector": lambda x: x[0, 0, :].T, "conj": lambda x: x.conj(), "round": lambda x: x.round(),
    "clip": lambda x: x.clip(-1, 1), "squeeze": lambda x: x[:1].squeeze(axis=0), "argsort": lambda x: x.argsort(axis=1),
    "repeat": lambda x: x.repeat(2, axis=0), "take": lambda x: x.take(x[0, 0, :].argsort(), axis=2),
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_numpys_methods(backend: str, name: str):
    check_array(METHODS[name](array(backend)), METHODS[name](VALUES), backend)


def test_tolist_and_format(backend: str):
    assert array(backend, np.float64([[1.5, 2.0]])).tolist() == [[1.5, 2.0]]
    assert array(backend, np.int64(3)).tolist() == 3
    assert f"{array(backend, np.float64(2.0)):.3f}" == "2.000"
    with pytest.raises(TypeError, match="unsupported format string"):
        f"{array(backend):.3f}"


# ---- columns and batches -------------------------------------------------------------------------------------------------------
def test_pandas_and_polars_columns(backend: str):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    column, expected = array(backend, VALUES[0, 0]), VALUES[0, 0]
    np.testing.assert_array_equal(pandas.Series(column).to_numpy(), expected)
    frame = pandas.DataFrame({"a": column, "b": range(4)})
    frame["c"] = column
    np.testing.assert_array_equal(frame[["a", "c"]].to_numpy(), np.stack([expected, expected], axis=1))
    assert str(frame.dtypes["a"]) == "float64"
    for made in (polars.Series("a", column), polars.DataFrame({"a": column})["a"]):
        assert made.dtype == polars.Float64
        np.testing.assert_array_equal(made.to_numpy(), expected)
    numbers = polars.Series(array(backend, np.int32([1, 2, 3, 4])))  # polars drops the name it is given beside an Arrow stream
    frame = polars.DataFrame({"b": range(4)}).with_columns(numbers.alias("a"))
    assert frame["a"].to_list() == [1, 2, 3, 4]
    assert frame["a"].dtype == polars.Int32


def test_arrow_without_polars(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "polars", raising=False)
    with pytest.raises(TypeError, match="for polars only; elsewhere pass"):
        tl.zeros(2).__arrow_c_stream__()


def test_torch_collates_arrays(backend: str):
    data = pytest.importorskip("torch.utils.data")
    rows = [{"x": array(backend, row), "y": i} for i, row in enumerate(VALUES)]
    batch = data.default_collate(rows)
    check_array(batch["x"], VALUES, backend)
    assert batch["y"].tolist() == [0, 1]
    (x, _), *_ = data.DataLoader([(row["x"], row["y"]) for row in rows], batch_size=2)
    check_array(x, VALUES, backend)


# ---- xarray and dask -----------------------------------------------------------------------------------------------------------
XARRAY: dict[str, Any] = {
    "mean": lambda d: d.mean("t"),
    "std": lambda d: d.std("x", ddof=1),
    "median": lambda d: d.median("t"),
    "quantile": lambda d: d.quantile(0.3, "t"),
    "round": lambda d: d.round(),
    "shift": lambda d: d.shift(t=1),
    "roll": lambda d: d.roll(t=1, roll_coords=False),
    "rolling mean": lambda d: d.rolling(t=2).mean(),
    "rolling windows": lambda d: d.rolling(t=2, x=3).construct(t="u", x="v"),
    "where": lambda d: d.where(d > 0),
    "missing": lambda d: d.where(d > 0).mean("t"),
    "fillna": lambda d: d.where(d > 0).fillna(1.0),
    "select": lambda d: d.sel(t=[10, 30]).isel(x=slice(None, None, -1)),
    "transpose": lambda d: d.transpose("x", "t"),
    "concat": lambda d: d.pad(t=1),
    "cumsum": lambda d: d.cumsum("t"),
    "any": lambda d: (d > 0).any("t"),
    "arithmetic": lambda d: np.sin(d - d.mean("t")) * 2,
    "groupby": lambda d: d.groupby("t").sum(),
    "dot": lambda d: d.dot(d, "x"),
}


@pytest.mark.parametrize("name", XARRAY)
def test_xarray_holds_arrays(backend: str, name: str) -> None:
    xarray = pytest.importorskip("xarray")
    given, wanted = (
        xarray.DataArray(x, dims=("t", "x"), coords={"t": [10, 20, 30]}) for x in (array(backend, VALUES[0, :3]), VALUES[0, :3])
    )
    got, expected = XARRAY[name](given), XARRAY[name](wanted)
    assert got.dims == expected.dims
    check_array(got.data, expected.data, backend)


def test_dask_computes_on_arrays(backend: str) -> None:
    dask = pytest.importorskip("dask.array")
    x = dask.from_array(array(backend, VALUES[0]), chunks=(3, 2))
    check_array((x + 1).sum(axis=0).compute(scheduler="synchronous"), (VALUES[0] + 1).sum(0), backend)
    check_array((x.T * 2).mean().compute(scheduler="synchronous"), (VALUES[0] * 2).mean(), backend)
    check_array(x.T.dot(x).compute(scheduler="synchronous"), VALUES[0].T @ VALUES[0], backend)
