"""Names of other libraries: each row of the table raises its own message, and what it tells to write is real."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import migration
import numpy as np
import pytest

import trellis as tl
from trellis.core.hints import Row, lines

EVERY = [Row(*line.split("\t")) for line in lines()]
ROWS = [row for row in EVERY if row.owner != "argument"]
ARGUMENTS = [row for row in EVERY if row.owner == "argument"]
NAMES = Path(__file__).with_name("ivy_names.txt").read_text().split()


@functools.cache
def owners() -> dict[str, Any]:
    """What the names of an owner are looked for on."""
    array, model = tl.ones((2, 2)), tl.Linear(2, 2)
    return {
        "tl": tl, "linalg": tl.linalg, "fft": tl.fft, "Array": array, "Container": tl.Container(a=array), "Module": model,
        "Optimizer": tl.Adam(), "Metric": tl.metrics.Accuracy(),
        "Distribution": tl.distributions.Normal(0.0, 1.0),
    }  # fmt: skip


def test_the_rows_are_sorted_and_each_is_there_once() -> None:
    order = [*owners(), "argument"]
    keys = [(order.index(row.owner), row.name.lower(), row.name) for row in EVERY]
    assert keys == sorted(set(keys))
    assert all(row.library and (row.here or row.note) for row in EVERY)
    assert {row.owner for row in EVERY} == {*order}


def test_each_row_raises_its_own_message() -> None:
    wrong = []
    for row in ROWS:
        try:
            getattr(owners()[row.owner], row.name)
            wrong.append(f"{row.owner}.{row.name} exists: take the row out")
        except AttributeError as error:
            if row.text() not in str(error) or repr(row.name) not in str(error):
                wrong.append(f"{row.owner}.{row.name}: {error}")
    assert wrong == []


@pytest.mark.parametrize(
    ("owner", "name", "text"),
    [
        ("tl", "cat", "module 'trellis' has no attribute 'cat'; cat of torch is `tl.concat(arrays, axis=0)` here"),
        ("tl", "inv", "module 'trellis' has no attribute 'inv'; it is tl.linalg.inv"),
        ("tl", "item", "module 'trellis' has no attribute 'item'; it is x.item, of arrays"),
        ("tl", "view", "module 'trellis' has no attribute 'view'; view of NumPy, torch, JAX is `x.reshape(shape)` here"),
        ("tl", "Conv2d", "module 'trellis' has no attribute 'Conv2d'; did you mean 'Conv2D'?"),
        ("tl", "lineer", "module 'trellis' has no attribute 'lineer'; did you mean 'linear'?"),
        ("tl", "qwertz", "module 'trellis' has no attribute 'qwertz'"),
        ("linalg", "invv", "module 'trellis.ops.linalg' has no attribute 'invv'; did you mean 'inv'?"),
        ("Array", "view", "'Array' object has no attribute 'view'; view of NumPy, torch, JAX is `x.reshape(shape)` here"),
        ("Array", "acos", "'Array' object has no attribute 'acos'; it is tl.acos"),
        ("Array", "diagonal", "'Array' object has no attribute 'diagonal'; it is tl.diagonal"),
        ("Array", "pinv", "'Array' object has no attribute 'pinv'; it is tl.linalg.pinv"),
        ("Array", "cat", "'Array' object has no attribute 'cat'; cat of torch is `tl.concat(arrays, axis=0)` here"),
        ("Array", "qwertz", "'Array' object has no attribute 'qwertz'"),
        (
            "Distribution",
            "rsample",
            "'Normal' object has no attribute 'rsample'; rsample of torch is `normal.sample(shape)` here",
        ),
        (
            "Optimizer",
            "zero_grad",
            "'Adam' object has no attribute 'zero_grad'; zero_grad of torch has no counterpart: gradients",
        ),
    ],
)
def test_the_message_of_a_missing_name(owner: str, name: str, text: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(owners()[owner], name)
    assert str(caught.value).startswith(text)


_PATHS = {
    "nn.relu": "it is tl.relu", "nn.functional.softmax": "it is tl.softmax", "random.randn": "tl.random_normal",
    "optim.StepLR": "tl.step_schedule", "distributions.Mixture": "did you mean 'MixtureSameFamily'?",
    "distributions.Linear": "it is tl.Linear",
}  # fmt: skip


@pytest.mark.parametrize(("path", "here"), _PATHS.items())
def test_the_paths_of_other_libraries_lead_to_the_flat_names(path: str, here: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(here)):
        functools.reduce(getattr, path.split("."), tl)


def parsed(row: Row) -> list[ast.AST]:
    """The code of a row: the expression, and what the note names."""
    noted = re.findall(r"\b(?:tl|x|c|model|optimizer|normal)\.[\w.]+", row.note)
    return [node for text in (row.here, *noted) if text for node in ast.walk(ast.parse(text.removesuffix(".")))]


STANDS_FOR = {
    "x": "Array",
    "c": "Container",
    "model": "Module",
    "optimizer": "Optimizer",
    "metric": "Metric",
    "normal": "Distribution",
    "tl": "tl",
}


def resolved(node: ast.AST) -> Any:
    """What an expression such as `tl.linalg.inv` or `x.shape` is; None for anything else."""
    if isinstance(node, ast.Name):
        return owners()[STANDS_FOR[node.id]] if node.id in STANDS_FOR else None
    if isinstance(node, ast.Attribute):
        found = resolved(node.value)
        return None if found is None else getattr(found, node.attr)
    return None


def test_what_a_row_tells_to_write_is_real() -> None:
    """Every name resolves, and every call of a function fits its parameters."""
    wrong = []
    for row in ROWS:
        for node in parsed(row):
            try:
                resolved(node)
                if isinstance(node, ast.Call) and callable(called := resolved(node.func)):
                    bind(called, node)
            except (AttributeError, TypeError) as error:
                wrong.append(f"{row.owner}.{row.name}: {ast.unparse(node)}: {error}")
    assert wrong == []


def bind(called: Callable[..., Any], node: ast.Call) -> None:
    try:
        signature = inspect.signature(called)
    except ValueError:  # a method of a built-in class
        return
    if any(isinstance(x, ast.Starred) for x in node.args):
        return
    signature.bind(*node.args, **{keyword.arg or "": keyword.value for keyword in node.keywords})


def test_a_wrong_row_is_found() -> None:
    for text in ("tl.summ(x)", "x.sshape", "tl.sum(x, dim=1)", "tl.tile(x)"):
        node = ast.parse(text, mode="eval").body
        with pytest.raises((AttributeError, TypeError)):
            bind(resolved(node.func), node) if isinstance(node, ast.Call) else resolved(node)


_X, _Y = np.array([0.3, 1.2, 2.5, 0.7]), np.array([1.1, 0.4, 3.0, 2.2])
_I, _J, _B = np.array([3, 1, 6, 1]), np.array([1, 5, 6, 0]), np.array([True, False, True, False])
_M = np.array([[2.0, 0.5, 1.0], [0.5, 3.0, -1.0], [1.0, -1.0, 4.0]])
# A row, what its variables are, and what the library gives for it.
FORMULAS: dict[str, tuple[dict[str, Any], Callable[[], Any]]] = {
    "bartlett": ({"n": 7}, lambda: np.bartlett(7)),
    "hamming": ({"n": 7}, lambda: np.hamming(7)),
    "bitwise_count": ({"x": _I}, lambda: np.bitwise_count(_I)),
    "block": ({"rows": [[_M, _M], [_M, _M]]}, lambda: np.block([[_M, _M], [_M, _M]])),
    "diag_indices_from": ({"x": _M}, lambda: np.diag_indices_from(_M)),
    "tril_indices_from": ({"x": _M}, lambda: np.tril_indices_from(_M)),
    "triu_indices_from": ({"x": _M}, lambda: np.triu_indices_from(_M)),
    "mask_indices": ({"n": 3, "f": tl.triu}, lambda: np.mask_indices(3, np.triu)),
    "histogram_bin_edges": ({"x": _X, "bins": 4}, lambda: np.histogram_bin_edges(_X, 4)),
    "matvec": ({"x1": _M, "x2": _X[:3]}, lambda: _M @ _X[:3]),
    "vecmat": ({"x1": _X[:3], "x2": _M}, lambda: _X[:3] @ _M),
    "polyder": ({"x": _X, "n": 4}, lambda: np.polyder(_X)),
    "polyint": ({"x": _X, "n": 4}, lambda: np.polyint(_X)),
    "setxor1d": ({"x": _I[:3], "y": _J}, lambda: [3, 5, 0]),
    "spacing": ({"x": _X}, lambda: np.spacing(_X)),
    "unwrap": ({"x": _X * 4 % 6}, lambda: np.unwrap(_X * 4 % 6)),
    "nancumprod": ({"x": np.array([2.0, np.nan, 3.0])}, lambda: [2.0, 2.0, 6.0]),
    "nanpercentile": ({"x": np.array([2.0, np.nan, 3.0, 7.0]), "q": 30}, lambda: np.nanpercentile([2.0, 3.0, 7.0], 30)),
    "ediff1d": ({"x": _M}, lambda: np.ediff1d(_M)),
    "trapezoid": ({"x": np.sort(_X), "y": _Y}, lambda: np.trapezoid(_Y, np.sort(_X))),
    "vander": ({"x": _X, "n": 3}, lambda: np.vander(_X, 3, increasing=True)),
    "sinc": ({"x": _X}, lambda: np.sinc(_X)),
    "fmod": ({"x1": -_X, "x2": _Y}, lambda: np.fmod(-_X, _Y)),
    "rem": ({"x1": -_X, "x2": _Y}, lambda: np.fmod(-_X, _Y)),
    "cholesky_inverse": ({"factor": np.linalg.cholesky(_M), "n": 3}, lambda: np.linalg.inv(_M)),
    "nuclear_norm": ({"x": _M}, lambda: np.linalg.norm(_M, "nuc")),
    "polygamma": ({"x": tl.asarray(_X)}, lambda: special().polygamma(1, _X)),
    "mvlgamma": ({"x": _X + 2, "p": 3}, lambda: [special().multigammaln(a + 2, 3) for a in _X]),
    "renorm": ({"x": _M, "max_norm": 1.0}, lambda: _M / np.maximum(np.linalg.norm(_M, axis=1, keepdims=True), 1.0)),
    "betaln": ({"a": 1.5, "b": _Y}, lambda: special().betaln(1.5, _Y)),
    "comb": ({"n": 5.0, "k": 2.0}, lambda: 10.0),
    "factorial": ({"n": _X}, lambda: special().factorial(_X)),
    "poch": ({"x": _X, "n": 2.5}, lambda: special().poch(_X, 2.5)),
    "boxcox": ({"x": _X, "lmbda": 0.5}, lambda: special().boxcox(_X, 0.5)),
    "boxcox1p": ({"x": _X, "lmbda": 0.5}, lambda: special().boxcox1p(_X, 0.5)),
    "entr": ({"x": _X}, lambda: special().entr(_X)),
    "rel_entr": ({"x": _X, "y": _Y}, lambda: special().rel_entr(_X, _Y)),
    "erfcx": ({"x": _X}, lambda: special().erfcx(_X)),
    "i0e": ({"x": _X}, lambda: special().i0e(_X)),
    "ndtr": ({"x": _X}, lambda: special().ndtr(_X)),
    "ndtri": ({"x": _X / 3}, lambda: special().ndtri(_X / 3)),
    "log_ndtr": ({"x": _X}, lambda: special().log_ndtr(_X)),
    "log1mexp": ({"x": _X}, lambda: np.log1p(-np.exp(-_X))),
    "xlog1py": ({"x": _X, "y": _Y}, lambda: special().xlog1py(_X, _Y)),
    "reduce_xor": ({"x": _I}, lambda: np.bitwise_xor.reduce(_I)),
    "divide_no_nan": ({"x1": _X, "x2": np.array([0.0, 1.0, 2.0, 0.0])}, lambda: [0.0, 1.2, 1.25, 0.0]),
    "logmeanexp": ({"x": _X, "axis": 0, "n": 4}, lambda: np.log(np.mean(np.exp(_X)))),
    "view_as_real": ({"x": _X + 2j}, lambda: np.stack([_X, 0 * _X + 2], axis=-1)),
    "view_as_complex": ({"x": _M[:, :2]}, lambda: _M[:, 0] + 1j * _M[:, 1]),
    "TruePositives": ({"prediction": _X, "target": _B}, lambda: 1),
    "FalsePositives": ({"prediction": _X, "target": _B}, lambda: 2),
    "FalseNegatives": ({"prediction": _X, "target": _B}, lambda: 1),
    "IoU": ({"x": _B, "y": _X > 1}, lambda: 1 / 3),
    "PearsonCorrelation": ({"x": _X, "y": _Y}, lambda: np.corrcoef(_X, _Y)[0, 1]),
    "in_top_k": ({"predictions": _M, "target": np.array([0, 0, 1]), "k": 2}, lambda: [True, True, False]),
    "multi_hot": ({"indices": _I[:2], "num_classes": 5}, lambda: [0, 1, 0, 1, 0]),
}  # fmt: skip


def special() -> Any:
    return pytest.importorskip("scipy.special")


@pytest.mark.parametrize("name", FORMULAS)
def test_the_formula_of_a_row_gives_what_the_library_gives(name: str) -> None:
    (row,) = [row for row in ROWS if (row.owner, row.name) == ("tl", name)]
    values, expected = FORMULAS[name]
    np.testing.assert_allclose(eval(row.here, {"tl": tl, **values}), expected(), rtol=1e-6, atol=1e-12)


def test_every_public_name_of_ivy_is_here_or_has_a_hint() -> None:
    """`ivy_names.txt` lists its functions, the classes of its layers and the like, and the methods of its Container."""
    bare = []
    for name in NAMES:
        owner, _, short = name.rpartition(".")
        place = owners()[owner or "tl"]
        try:
            getattr(place, short)
        except AttributeError as error:
            if "; " not in str(error):
                bare.append(name)
    assert len(NAMES) > 700
    assert bare == []


# Where the libraries keep the names that are looked for on each owner; "module:Class" for those of a class.
PLACES = {
    "NumPy": {
        "tl": "numpy numpy.random numpy.random:Generator numpy.random:RandomState", "linalg": "numpy.linalg",
        "fft": "numpy.fft", "Array": "numpy:ndarray",
    },
    "torch": {
        "tl": "torch torch.nn torch.nn.functional torch.optim torch.optim.lr_scheduler torch.nn.init torch.nn.utils torch:Tensor "
              "torch.nn.utils.rnn torch.utils.data torch.special torch.autograd torch.autograd.functional torch.func "
              "torch.distributions torch.distributions.transforms",
        "linalg": "torch.linalg", "fft": "torch.fft", "Array": "torch:Tensor", "Module": "torch.nn:Module",
        "Optimizer": "torch.optim:Optimizer", "Distribution": "torch.distributions:Distribution",
    },
    "JAX": {
        "tl": "jax jax.numpy jax.lax jax.nn jax.random jax.scipy.special jax.tree_util jax.numpy:ndarray "
              "jax.tree jax.sharding",
        "linalg": "jax.numpy.linalg jax.scipy.linalg", "fft": "jax.numpy.fft", "Array": "jax:Array",
        "Container": "jax.tree_util",
    },
    "Keras": {
        "tl": "keras keras.layers keras.ops keras.losses keras.optimizers keras.optimizers.schedules keras.callbacks keras.utils "
              "keras.random keras.models keras.initializers keras.backend keras.activations keras.metrics",
        "linalg": "keras.ops", "fft": "keras.ops", "Module": "keras:Model", "Optimizer": "keras.optimizers:Optimizer",
        "Array": "keras:Variable", "Metric": "keras.metrics:Metric",
    },
    "optax": {"tl": "optax optax.schedules optax.losses"},
    "Flax": {"tl": "flax.linen flax.nnx", "Module": "flax.linen:Module"},
    "Haiku": {"tl": "haiku"},
}  # fmt: skip


@pytest.mark.parametrize("library", PLACES)
def test_the_libraries_have_the_names_of_their_rows(library: str) -> None:
    places = PLACES[library]
    for place in {path.partition(":")[0].partition(".")[0] for path in " ".join(places.values()).split()}:
        if importlib.util.find_spec(place) is None:
            pytest.skip(f"{place} is not installed")

    def has(path: str, name: str) -> bool:
        module, _, kind = path.partition(":")
        found = importlib.import_module(module)
        return hasattr(getattr(found, kind) if kind else found, name)

    instance = ("block_until_ready", "param_groups", "weight", "bias", "kernel")  # set in an __init__, or by a subclass
    rows = [row for row in ROWS if library in row.library.split(", ") and row.name not in instance]
    assert [row.name for row in rows if not any(has(path, row.name) for path in places.get(row.owner, "").split())] == []


def test_the_tables_of_the_docs_are_current() -> None:
    assert migration.PAGE.read_text() == migration.page(), "run python tests/migration.py"


def test_dir_shows_the_public_names_and_no_hints() -> None:
    shown = {name for name in dir(tl) if not name.startswith("_")}
    assert shown == set(tl.__all__)
    assert {"Module", "Linear", "Adam", "Trainer", "convert", "array", "split_key"} <= shown
    modules = {name for name in shown if inspect.ismodule(getattr(tl, name))}
    assert modules == {"convert", "data", "distributed", "distributions", "fft", "initializers", "linalg", "metrics", "tree"}
    assert tl.array is tl.asarray
    for part in (tl.linalg, tl.fft, tl.tree, tl.nn, tl.optim, tl.random, tl.distributions):
        assert set(dir(part)) == set(part.__all__)
    for owner in ("Array", "Module", "Optimizer"):
        assert not {row.name for row in ROWS if row.owner == owner} & set(dir(owners()[owner]))


_PUBLIC = (
    "convert",
    "distributions",
    "metrics",
    "nn",
    "ops",
    "optim",
    "random",
    "training",
    "transforms",
    "trace",
    "trace.transpile",
    "core.tree",
)


@pytest.mark.parametrize("name", _PUBLIC)
def test_every_room_says_what_is_public(name: str) -> None:
    room = importlib.import_module(f"trellis.{name}")
    assert len(set(room.__all__)) == len(room.__all__)
    assert [public for public in room.__all__ if not hasattr(room, public)] == []


def test_a_subclass_may_have_the_name_of_a_hint() -> None:
    class Net(tl.Module):
        def __init__(self) -> None:
            self.weights = tl.ones(2)
            self.layers = [tl.Linear(2, 2)]

        def parameters(self) -> list[Any]:
            return [self.weights]

    net = Net()
    assert sorted(net.v.to_flat_dict()) == ["layers/v0/b", "layers/v0/w", "weights"]
    assert net.parameters()[0] is net.weights


# ---- arguments -----------------------------------------------------------------------------------------------------------------
@functools.cache
def callables() -> dict[str, tuple[Any, set[str]]]:
    """The functions and classes that tell other names of their arguments, and the names that they have."""
    found = {}
    for name in (*dir(tl), *(f"linalg.{name}" for name in tl.linalg.__all__)):
        public = functools.reduce(getattr, name.split("."), tl)
        if inspect.isclass(public) and issubclass(public, (tl.Module, tl.Optimizer)):
            start = public.__init__ if issubclass(public, tl.Module) else public
            found[name] = public, {*inspect.signature(start).parameters}
        elif inspect.isfunction(public):
            known = {*inspect.signature(public).parameters}
            code = public.__code__
            if code.co_name in ("lifted", "<lambda>") or {"unknown", "renamed"}.intersection(code.co_varnames):
                found[name] = public, known
    trainer, distributions = tl.Trainer(), (getattr(tl.distributions, name) for name in tl.distributions.__all__)
    named = [tl.Trainer, tl.Batches, tl.Checkpoint, tl.EarlyStopping, tl.ReduceLROnPlateau]
    named += [kind for kind in distributions if inspect.isclass(kind) and issubclass(kind, tl.distributions.Distribution)]
    for public in (*named, trainer.fit, tl.distributions.Normal(0.0, 1.0).sample):
        found[public.__name__] = public, {*inspect.signature(public).parameters}
    return found


def test_every_array_says_that_it_is_an_array() -> None:
    """Views and free arrays have classes of their own, which errors leave out."""
    for x in (tl.ones((2, 2)), tl.ones((2, 2))[0], tl.ones((2, 2), backend="numpy"), tl.ones((2, 2), backend="numpy")[0]):
        with pytest.raises(AttributeError, match=r"^'Array' object has no attribute 'qwertz'$"):
            _ = x.qwertz
        with pytest.raises(TypeError, match="concat: expected a list or tuple of arrays, got Array"):
            tl.concat(x, x)
    assert [method for method in dir(tl.ones(2)) if method in ("acos", "cat", "pinv")] == []


@pytest.mark.parametrize("row", ARGUMENTS, ids=lambda row: row.name)
def test_another_name_of_an_argument_raises_its_own_message(row: Row) -> None:
    takes = {name: f for name, (f, known) in callables().items() if (row.here or "axis") in known and row.name not in known}
    assert takes, f"no function or class has the argument {row.here!r}: take the row out"
    for name, public in takes.items():
        function = inspect.isfunction(public)
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)[: 1 + function]
        required = [p for p in inspect.signature(public).parameters.values() if p.kind in kinds and p.default is p.empty]
        with pytest.raises(TypeError) as caught:
            public(*[tl.ones((2, 2))] * len(required), **{row.name: 1})
        assert str(caught.value) == f"{name.removeprefix('linalg.')}: there is no argument {row.name!r}; {row.text()}"


def test_dim_and_keepdim_of_every_function_that_has_axis_and_keepdims() -> None:
    """Positional parameters are given, so that `dim` is what the error is about."""
    found = {name for name, (_, known) in callables().items() if {"axis", "keepdims"} & known}
    public = {
        name for name in tl.__all__ if inspect.isfunction(f := getattr(tl, name)) and "axis" in inspect.signature(f).parameters
    }
    assert public - found == set()
    assert len(found) > 60
    with pytest.raises(TypeError, match="dim of torch, Keras, TensorFlow is `axis` here"):
        tl.ones((2, 2)).mean(dim=0)
    with pytest.raises(TypeError, match="keepdim of torch is `keepdims` here"):
        tl.sum(np.ones(3), keepdim=True)
    with pytest.raises(TypeError, match="in_dims of torch is `in_axes` here"):
        tl.vmap(tl.exp, in_dims=0)


def test_an_unknown_argument_is_still_an_error() -> None:
    for public in (tl.sum, tl.mean, tl.layer_norm, tl.Adam):
        with pytest.raises(TypeError, match="'qwertz'"):
            public(tl.ones(2), qwertz=1) if public is not tl.Adam else public(qwertz=1)
    with pytest.raises(ValueError, match="'qwertz'"):
        tl.Linear(2, 3, qwertz=1)  # type: ignore[call-arg]


def test_arguments_of_ivy_that_work() -> None:
    tl.seed(seed_value=3)
    drawn = tl.random_normal(shape=4)
    tl.seed(3)
    assert tl.array_equal(drawn, tl.random_normal(shape=4))
    dropped = tl.dropout(tl.ones(200, dtype=tl.float32), 0.5, dtype=tl.float64, seed=1)
    assert dropped.dtype is tl.float64
    assert set(dropped.tolist()) == {0.0, 2.0}
    assert tl.dropout(tl.ones(2), 0.5, training=False, dtype="float16").dtype is tl.float16
    leaf = tl.ones(2)
    nested = tl.Container(a={"b": leaf})
    assert leaf in nested
    assert tl.ones(2) not in nested
    assert "a/b" in nested


WORDS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda x: tl.ones(2, 3), "dtype=3 is not a dtype; a shape is a tuple, such as (2, 3), and options"),
    (
        lambda x: x.sum(0, True),
        "dtype=True is not a dtype; a shape is a tuple, such as (2, 3), and options such as",
    ),
    (lambda x: tl.random_normal((3, 3)), "random_normal() takes 0 positional arguments, got 1; give mean=, std=, shape=, "),
    (lambda x: tl.randint(0, 10, (3,)), "randint() takes 2 positional arguments, got 3; give shape=, "),
    (lambda x: tl.argmax(x, 0, True), "argmax() takes 2 positional arguments, got 3; give keepdims= by name"),
    (lambda x: tl.softmax(x, 0), "softmax() takes 1 positional argument, got 2; give axis= by name"),
    (lambda x: tl.linspace(0, 1, steps=5), "linspace: there is no argument 'steps'; steps of torch is `num` here"),
    (lambda x: tl.tril(x, diagonal=1), "tril: there is no argument 'diagonal'; diagonal of torch is `k` here"),
    (
        lambda x: tl.compile(tl.exp, fullgraph=True),
        "compile: there is no argument 'fullgraph'; fullgraph of torch has no",
    ),
    (
        lambda x: tl.while_loop(lambda i, c: i < 3, lambda i, c: (i + 1, c), (tl.asarray(0), x)),
        "while_loop: cond_fun is called with 1 argument, (carry), but it takes (i, c)",
    ),
    (
        lambda x: tl.while_loop(lambda c: c[0] < 3, lambda i, c: (i + 1, c), (tl.asarray(0), x)),
        "while_loop: body_fun is called with 1 argument, (carry), but it takes (i, c)",
    ),
    (
        lambda x: tl.fori_loop(0, 3, lambda c: c, x),
        "fori_loop: body_fun is called with 2 arguments, (i, carry), but it",
    ),
    (lambda x: tl.scan(lambda c: c, x, x), "scan: f is called with 2 arguments, (carry, x), but it takes (c)"),
    (lambda x: tl.save("x.safetensors", x), "Container: expected a dict of arrays, got a tl.Array; name the arrays: {"),
    (lambda x: tl.save({"x": x}, "x.safetensors"), "Container: expected a dict of arrays, got a str; name the arrays: {"),
    (
        lambda x: tl.Trainer(progress=False).fit(tl.Linear(2, 2), (x, x), tl.mse_loss, tl.SGD(0.1), validation_data=(x, x)),
        "fit: there is no argument 'validation_data'; validation_data of Keras is `validation` here",
    ),
    (lambda x: tl.Adam(tl.Linear(2, 2).v), "Adam: lr is a Container; parameters are given to optimizer.step(v, grads)"),
    (
        lambda x: tl.Linear(2, 2)(x, training=True),
        "Linear: there is no argument 'training'; training of Keras has no counterpart: model.train() and model.eval() choose",
    ),
    (lambda x: tl.Linear(2, 2)(x, qwertz=True), "Linear.forward() got an unexpected keyword argument 'qwertz'"),
    (lambda x: tl.MaxPool2D(2, stride=2), "MaxPool2D: there is no argument 'stride'; stride of torch is `strides` here"),
    (lambda x: tl.Softmax(dim=-1), "Softmax: there is no argument 'dim'; dim of torch, Keras, TensorFlow is `axis` here"),
    (
        lambda x: tl.linalg.solve_triangular(x, x, upper=False),
        "solve_triangular: there is no argument 'upper'; upper of torch is",
    ),
    (
        lambda x: tl.random_uniform(minval=0.0),
        "random_uniform: there is no argument 'minval'; minval of JAX, Keras is `low` here",
    ),
    (lambda x: tl.EarlyStopping(restore_best_weights=True), "EarlyStopping: there is no argument 'restore_best_weights'; rest"),
    (lambda x: tl.distributions.Gamma(alpha=1.0, beta=1.0), "Gamma: there is no argument 'alpha'; alpha of NumPy, Keras is `con"),
    (
        lambda x: tl.distributions.kl_divergence,
        "module 'trellis.distributions' has no attribute 'kl_divergence'; kl_",
    ),
]


@pytest.mark.parametrize("call", WORDS, ids=lambda row: row[1][:40])
def test_wrong_calls_of_the_first_hour_say_what_to_write(call: tuple[Callable[[Any], Any], str]) -> None:
    function, text = call
    with pytest.raises((TypeError, AttributeError)) as caught:
        function(tl.ones((2, 2)))
    assert str(caught.value).startswith(text)


def test_a_type_error_of_another_cause_stays_as_it_is() -> None:
    def broken(i: Any, c: Any) -> Any:
        return c + "text"

    with pytest.raises(TypeError, match="str"):
        tl.fori_loop(0, 3, broken, tl.ones(2))
    with pytest.raises(TypeError, match="got 3") as caught:
        tl.argmax(tl.ones(2), 0, True)
    assert isinstance(caught.value.__cause__, TypeError) or caught.value.__cause__ is None


def test_dir_of_the_public_modules_shows_their_public_names() -> None:
    for module in (tl.metrics, tl.distributions, tl.linalg, tl.fft, tl.tree, tl.random):
        assert sorted(dir(module)) == sorted(module.__all__)
