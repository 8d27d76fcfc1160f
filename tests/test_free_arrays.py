"""Arrays that belong to no framework yet: beside others they go to their framework, and the result is of the others' kind."""

from __future__ import annotations

import copy
import importlib
import math
import operator
import pickle
import traceback
from typing import Any

import numpy as np
import pytest

import trellis as tl
from tests.helpers import make
from trellis.core.dispatch import TwoFrameworks
from trellis.core.free import Free

VALUES = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75], [2.5, 1.0, 0.125]], np.float32)
EYE, STEPS = tl.eye(3), tl.arange(3)  # made before any framework is known


def written(x: Any) -> Any:
    out = tl.zeros(3)
    out[0] = x[0, 0]
    return out * x[0]


def summed(x: Any) -> Any:
    total = tl.zeros(3)
    for i in range(3):
        total += x[i]
    return total


def in_a_scan(x: Any, w: Any) -> Any:
    return tl.sum(tl.scan(lambda c, row: (c * w + row, None), tl.zeros(3), x)[0])


def in_a_branch(x: Any, w: Any) -> Any:
    """A bool of NumPy belongs to no framework."""
    return tl.sum(tl.cond(np.bool_(True), lambda c: c * w + x[0], lambda c: c, tl.ones(3)))


# What a user writes, with `x` of any framework, and the same in NumPy.
PROGRAMS: dict[str, tuple[Any, Any]] = {
    "x + free": (lambda x: x + tl.ones(3), lambda x: x + 1),
    "free - x": (lambda x: tl.ones(3) - x, lambda x: 1 - x),
    "x @ free": (lambda x: x @ (2 * tl.eye(3, k=1)), lambda x: x @ (2 * np.eye(3, k=1))),
    "free @ x": (lambda x: tl.eye(3, k=1) @ x, lambda x: np.eye(3, k=1) @ x),
    "integers": (lambda x: x + tl.arange(3), lambda x: x + np.arange(3)),
    "closure": (lambda x: x @ EYE + STEPS, lambda x: x + np.arange(3)),
    "where": (lambda x: tl.where(x > tl.zeros(3), x, tl.ones(3)), lambda x: np.where(x > 0, x, 1)),
    "concat": (lambda x: tl.concat([tl.zeros((1, 3)), x]), lambda x: np.concatenate([np.zeros((1, 3)), x])),
    "stack": (lambda x: tl.stack([x, tl.eye(3)]), lambda x: np.stack([x, np.eye(3)])),
    "take": (lambda x: tl.take(x, tl.arange(2), axis=0), lambda x: x[:2]),
    "list": (lambda x: x * tl.asarray([1.0, 2.0, 3.0]), lambda x: x * np.array([1, 2, 3])),
    "mask": (lambda x: tl.where(tl.causal_mask(3), x, 0.0), np.tril),
    "number of NumPy": (lambda x: np.float32(2) * tl.ones(3) * x, lambda x: 2 * x),
    "written to": (written, lambda x: np.array([x[0, 0], 0, 0]) * x[0]),
    "in place": (summed, lambda x: x.sum(0)),
    "grad at free": (lambda x: tl.grad(lambda w: tl.sum(tl.matmul(x, w) ** 2))(tl.ones(3)), lambda x: 2 * x.T @ x.sum(1)),
    "grad at a number": (lambda x: tl.grad(lambda s: tl.sum(x * s))(2.0), np.sum),
    "vmap": (lambda x: tl.vmap(lambda row: row * tl.arange(3))(x), lambda x: x * np.arange(3)),
    "scan": (lambda x: tl.scan(lambda c, row: (c + row, None), tl.zeros(3), x)[0], lambda x: x.sum(0)),
    "scan of free": (lambda x: tl.scan(lambda c, s: (c + x[0] * s, None), tl.zeros(3), tl.ones(2))[0], lambda x: 2 * x[0]),
    "grad in a scan": (lambda x: tl.grad(lambda w: in_a_scan(x, w))(tl.full(3, 2.0)), lambda x: 4 * x[0] + x[1]),
    "vmap of a scan": (lambda x: tl.vmap(lambda w: in_a_scan(x, w))(2 * tl.eye(3)), lambda x: x[2].sum() + 2 * x[1] + 4 * x[0]),
    "grad in a branch": (lambda x: tl.grad(lambda w: in_a_branch(x, w))(tl.zeros(3)), lambda x: x[0] * 0 + 1),
    "matrix of another dtype": (lambda x: x @ (2 * tl.eye(3, dtype=tl.float64)), lambda x: 2 * x),
    "power of another dtype": (lambda x: x ** tl.full(3, 2.0, dtype=tl.float64), lambda x: x**2),
    "loss": (lambda x: tl.mse_loss(x, tl.zeros((3, 3))), lambda x: np.mean(x**2)),
    "classes": (lambda x: tl.nll_loss(x, [0, 1, 2], reduction="sum"), lambda x: -np.trace(x)),
    "container": (lambda x: (tl.Container(a=x) * tl.ones(3))["a"], lambda x: x),
    "x and a list": (lambda x: tl.add(x, [1, 2, 3]), lambda x: x + np.array([1, 2, 3])),
    "a tuple and x": (lambda x: tl.maximum((0.0, 0.5, 1.0), x), lambda x: np.maximum([0, 0.5, 1], x)),
    "a list, free and x": (lambda x: tl.where([True, False, True], x, tl.ones(3)), lambda x: np.where([True, False, True], x, 1)),
    "a list in a container": (lambda x: (tl.Container(a=x) * [1, 2, 3])["a"], lambda x: x * np.array([1, 2, 3])),
    "gradient beside a list": (lambda x: tl.grad(lambda w: tl.sum(tl.multiply(w, [1, 2, 3])))(x), lambda x: x * 0 + [1, 2, 3]),
    "indices of NumPy": (lambda x: tl.take(x, np.array([2, 0]), axis=0), lambda x: x[[2, 0]]),
}  # fmt: skip


@pytest.mark.parametrize("wrapped", [False, True], ids=["native", "Array"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(backend: str, name: str, wrapped: bool) -> None:
    ours, reference = PROGRAMS[name]
    x = make(backend, VALUES)
    found = ours(tl.asarray(x, backend=backend) if wrapped else x)
    assert isinstance(found, tl.Array) is wrapped
    assert tl.asarray(found).backend == backend
    assert not isinstance(found, Free)
    np.testing.assert_allclose(tl.to_numpy(found), reference(VALUES), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("default", ["torch", "jax", "tensorflow"])
def test_other_default_backends(backend: str, default: str) -> None:
    """A gradient by a free array on the default backend follows it to the framework of the data."""
    pytest.importorskip(default)
    with tl.using(default):
        for name in ("x + free", "grad at free", "scan of free", "vmap", "grad in a scan", "vmap of a scan", "grad in a branch"):
            ours, reference = PROGRAMS[name]
            np.testing.assert_allclose(tl.to_numpy(ours(make(backend, VALUES))), reference(VALUES), rtol=1e-5)


def test_compiled_in_one_graph() -> None:
    torch = pytest.importorskip("torch")
    x = torch.asarray(VALUES)
    for name in ("closure", "free @ x", "list", "mask", "written to", "in place", "scan"):
        ours, reference = PROGRAMS[name]
        found = torch.compile(ours, fullgraph=True, backend="eager")(x)
        np.testing.assert_allclose(found.numpy(), reference(VALUES), rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("wrapped", [False, True], ids=["native", "Array"])
def test_scalars_that_numpy_computes_inside_a_compiled_function(wrapped: bool) -> None:
    """torch.compile reads them as arrays of NumPy without dimensions."""
    torch = pytest.importorskip("torch")
    x = tl.asarray(VALUES, backend="torch") if wrapped else torch.asarray(VALUES)
    functions = [
        lambda x: np.sqrt(0.5) * x + tl.ones(3),
        lambda x: tl.multiply(np.log(2.0), x),
        lambda x: x - tl.ones(3) * np.float32(2),
    ]
    for function in functions:
        found = torch.compile(function, fullgraph=True, backend="eager")(x)
        assert isinstance(found, tl.Array) is wrapped
        np.testing.assert_allclose(tl.to_numpy(found), tl.to_numpy(function(x)), rtol=1e-6)


def test_free_arrays_stay_free() -> None:
    x = tl.ones((2, 3))
    parts = [x + x, -x, tl.exp(x), tl.sum(x), x[0], x[0, 1], x.T, tl.concat([x, x]), x * np.float64(2), x == x, *x, tl.argmax(x)]
    parts += [copy.copy(x), copy.deepcopy(x[1:]), pickle.loads(pickle.dumps(x)), tl.random_normal(shape=2, seed=tl.Key(0))]
    assert [isinstance(part, Free) for part in parts] == [True] * len(parts)
    assert isinstance(x, tl.Array)
    assert repr(tl.ones(1)) == "Array([1.], dtype=float32, backend='numpy', device='cpu')"


def test_what_commits(backend: str) -> None:
    x = tl.zeros(2)
    model = tl.Linear(2, 2, device=None)
    made = [
        tl.zeros(2, backend=backend), tl.to_backend(x, backend), tl.asarray(x, backend=backend), tl.zeros(2, device="cpu"),
        tl.to_device(x, "cpu"), tl.asarray(make(backend, VALUES)), *model.v.to_flat_dict().values(),
    ]  # fmt: skip
    assert [type(part) for part in made] == [tl.Array] * len(made)

    class Scale(tl.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.more = tl.ones(2), [tl.ones(2)]

        def forward(self, x: Any) -> Any:
            return x * self.w * self.more[0]

    assert [type(w) for w in Scale().v.to_flat_dict().values()] == [tl.Array] * 2


def test_numpy_data_of_a_compiled_function(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch fails to filter its guards if a NumPy array is among them; the function compiles without the filter."""
    if backend == "torch":
        control = importlib.import_module("trellis.backends.torch.control")
        monkeypatch.setattr(control, "OPTIONS", {"backend": "eager"})
    loss = tl.compile(lambda x: tl.mse_loss(x, VALUES))
    for _ in range(2):
        assert float(loss(make(backend, VALUES + 2))) == pytest.approx(4.0, rel=1e-5)


def test_autograph_does_not_warn(caplog: pytest.LogCaptureFixture) -> None:
    """Functions that refuse arguments of other libraries have no source that AutoGraph could read."""
    tf = pytest.importorskip("tensorflow")
    with caplog.at_level("WARNING", logger="tensorflow"):
        found = tf.function(lambda x: tl.softmax(x + tl.ones(3), axis=0) + tl.mean(x, axis=0) + tl.zeros(3))(tf.zeros(3))
    np.testing.assert_allclose(found, np.full(3, 1 / 3), rtol=1e-6)
    assert "AutoGraph" not in caplog.text


def test_autograph_leaves_the_package_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """It converts the user's function; to convert ours takes many times as long as to trace it."""
    tf = pytest.importorskip("tensorflow")
    tl.to_backend(tl.ones(1), "tensorflow")  # loads the backend
    model, files = tl.Sequential(tl.Linear(3, 3, backend="tensorflow"), tl.Tanh()), []

    def total(carry: Any, row: Any) -> Any:
        files.extend(frame.filename for frame in traceback.extract_stack())
        return carry + tl.sum(row * tl.ones(3)), row

    def loss(v: Any, x: Any) -> Any:
        return tl.scan(total, tl.zeros(()), model(x, v=v))[0]

    with caplog.at_level("WARNING", logger="tensorflow"):
        value, _ = tf.function(lambda v, x: tl.value_and_grad(loss)(v, x))(model.v, tf.ones((2, 3)))
    np.testing.assert_allclose(value, float(loss(model.v, tf.ones((2, 3)))), rtol=1e-5)
    assert "AutoGraph" not in caplog.text
    assert len({name for name in files if "autograph_generated" in name}) == 1  # the function that tf.function was given


LISTS: dict[str, tuple[Any, Any]] = {
    "sum": (lambda: tl.sum([1, 2]), 3),
    "mean": (lambda: tl.mean([[1.0, 2.0]], axis=0), [1.0, 2.0]),
    "exp": (lambda: tl.exp([0.0]), [1.0]),
    "two lists": (lambda: tl.matmul([[1.0, 2.0]], (3.0, 4.0)), [11.0]),
    "empty": (lambda: tl.sum([]), 0.0),
    "scalars of NumPy": (lambda: tl.sum([np.float64(1), np.float64(2)]), 3.0),
    "reshape": (lambda: tl.reshape([1, 2, 3, 4], (2, 2)), [[1, 2], [3, 4]]),
    "take": (lambda: tl.take([1, 2, 3], [2]), [3]),
    "operator": (lambda: tl.ones(2) + [1, 2], [2.0, 3.0]),
    "reflected": (lambda: (1, 2) * tl.ones(2), [1.0, 2.0]),
    "comparison": (lambda: tl.ones(2) == [1, 2], [True, False]),
    "list as index": (lambda: tl.arange(3)[[2, 0]], [2, 0]),
    "index of NumPy": (lambda: tl.arange(3)[np.array([2, 0])], [2, 0]),
    "mask of NumPy": (lambda: tl.arange(3)[np.array([True, False, True])], [0, 2]),
    "index of a view": (lambda: tl.ones((2, 3))[0][[0, 1]], [1.0, 1.0]),
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_of_numbers_are_free(backend: str, name: str) -> None:
    call, expected = LISTS[name]
    with tl.using(backend):
        found = call()
    assert isinstance(found, Free)
    assert found.backend == backend
    assert found.tolist() == expected


def test_lists_of_arrays_are_refused(backend: str) -> None:
    """An array in a list may hold a gradient, which would be lost."""
    x = make(backend, VALUES)
    for given in ([x, x], [tl.ones(2)], ["a"]):
        with pytest.raises(TypeError, match=r"expected an array or a list of numbers, got a list that holds .*tl\.stack"):
            tl.sum(given)
    with pytest.raises(TypeError, match="unsupported operand"):
        _ = tl.ones(2) + ["a"]
    with pytest.raises(ValueError, match=r"add: shapes \(3, 3\) and \(2,\) do not broadcast"):
        tl.add(x, [1, 2])


def test_transposed_of_any_rank(backend: str) -> None:
    """`x.T` reverses the axes, as NumPy's does, and is a view."""
    for shape in ((), (3,), (2, 3), (2, 3, 4)):
        values = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
        np.testing.assert_array_equal(tl.to_numpy(tl.asarray(values, backend=backend).T), values.T)
    x = tl.zeros((2, 3, 4), backend=backend)
    x.T[3, 2, 1] = 5.0
    assert float(x[1, 2, 3]) == 5


def test_two_frameworks_stay_an_error() -> None:
    pytest.importorskip("torch")
    with pytest.raises(TypeError, match="the arrays are from two frameworks, numpy and torch"):
        tl.concat([make("numpy", VALUES), tl.ones((1, 3)), make("torch", VALUES)])


@pytest.mark.parametrize("other", ["jax", "torch", "tensorflow"])
def test_two_frameworks_are_named_under_a_gradient(other: str) -> None:
    """A 0-d value of NumPy is a scalar, which goes anywhere; one that is differentiated may not."""
    x = make(other, VALUES[0])
    functions = {
        "scalar * x": lambda p: tl.sum(tl.multiply(tl.sum(p), x)),
        "where": lambda p: tl.sum(tl.where(x > 0, p[0], x)),
        "operators": lambda p: tl.sum(tl.asarray(p)[0] ** 2 * tl.asarray(x)),
        "concat": lambda p: tl.sum(tl.concat([p, x])),
    }
    for function in functions.values():
        for p in (VALUES[0], tl.asarray(VALUES[0])):
            with pytest.raises(TwoFrameworks, match="two frameworks, numpy and"):
                tl.grad(function)(p)


def drawn(carry: Any, scale: Any) -> Any:
    q, key = carry
    key, own = tl.split_key(key, 2)
    q = q + tl.random_normal(shape=(3,), seed=own) * scale
    return q, key


# A free array and a key as arguments: the key says nothing of the framework. And the operators of a free carry are ours in every
# step, also where the carry of step 2 is a native tensor, which has no product with a vector and no promotion of its own.
WITH_KEYS: dict[str, Any] = {
    "scan": lambda x, start, key: tl.scan(lambda c, row: (drawn(c, row), c[0]), (start, key), x),
    "fori_loop": lambda x, start, key: tl.fori_loop(0, 3, lambda i, c: drawn(c, x[0]), (start, key)),
    "while_loop": lambda x, start, key: tl.while_loop(
        lambda c: tl.sum(c[0]) < 9, lambda c: (c[0] + 1 + tl.abs(drawn(c, x[0])[0]), c[1]), (start, key)
    ),
    "cond": lambda x, start, key: tl.cond(
        tl.sum(x) > 0, lambda q, k: drawn((q, k), x[0]), lambda q, k: (q * x[0], k), start, key
    ),
    "compile": lambda x, start, key: tl.compile(lambda x, q, k: (drawn((q, k["a"]), x[0])[0], q, k))(x=x, q=start, k={"a": key}),
    "vmap": lambda x, start, key: tl.vmap(lambda k, row: drawn((start, k), row)[0])(tl.split_key(key, 3), x),
    "grad": lambda x, start, key: tl.grad(lambda q, k: tl.sum(drawn((q, k), x[0])[0] ** 2))(start, key),
    "linear system": lambda x, start, key: tl.scan(lambda m, row: (x @ m + row, None), start, x)[0],
    "two dtypes": lambda x, start, key: tl.fori_loop(0, 2, lambda i, c: 1 + c + tl.astype(x[0], tl.float16) * c, start),
}


@pytest.mark.parametrize("wrapped", [False, True], ids=["native", "Array"])
@pytest.mark.parametrize("name", WITH_KEYS)
def test_free_arguments_beside_keys(backend: str, name: str, wrapped: bool) -> None:
    x = make(backend, VALUES)
    result = WITH_KEYS[name](tl.asarray(x) if wrapped else x, tl.zeros(3), tl.Key(5))
    expected = WITH_KEYS[name](tl.asarray(VALUES), tl.zeros(3), tl.Key(5))
    arrays, goals = ([x for x in tl.tree.leaves(nest) if tl.to_numpy(x).dtype != np.uint32] for nest in (result, expected))
    for leaf, goal in zip(arrays, goals, strict=True):
        assert tl.asarray(leaf).backend == backend
        assert type(leaf) is (tl.Array if wrapped else type(x)) or backend == "numpy", (name, type(leaf))
        np.testing.assert_allclose(tl.to_numpy(leaf), tl.to_numpy(goal), rtol=1e-5, atol=1e-6)


def test_an_optimizer_of_free_parameters(backend: str) -> None:
    x = make(backend, VALUES[0])
    v = tl.Container(a=tl.ones(3), b=tl.Container(w=tl.eye(3)))
    gradient = tl.grad(lambda v: tl.sum(v.a * x) + tl.sum(v.b.w * x))(v)
    for optimizer in (tl.Adam(0.1), tl.SGD(0.1, momentum=0.9)):
        new, state = optimizer.update(v, gradient, optimizer.init(v))
        new, state = optimizer.update(new, gradient, state)
        stepped = optimizer.step(optimizer.step(v, gradient), gradient)
        for leaf in tl.tree.leaves([new, state, stepped]):
            assert type(leaf) is type(x) or (type(leaf) is np.ndarray and backend == "numpy"), type(leaf)
        np.testing.assert_allclose(tl.to_numpy(new.a), tl.to_numpy(stepped.a), rtol=1e-6)


def test_a_free_array_moves_once_and_again_after_a_write(backend: str) -> None:
    if backend == "numpy":
        backend, default = "numpy", "torch"
        pytest.importorskip("torch")
    else:
        default = "numpy"
    with tl.using(default):
        free, x = tl.ones(3), make(backend, np.zeros(3, np.float32))
    found = tl.add(x, free)
    moved = list(free._copies.values())
    assert len(moved) == 1
    assert np.all(tl.to_numpy(found) == 1)
    tl.add(x, free)
    assert list(map(id, free._copies.values())) == list(map(id, moved))
    free[0] = 5.0
    assert tl.to_numpy(tl.add(x, free)).tolist() == [5.0, 1.0, 1.0]


def test_dtypes_are_kept(backend: str) -> None:
    x = make(backend, np.ones(3, np.float16))
    assert tl.asarray(tl.add(x, tl.ones(3))).dtype is tl.float32
    assert tl.asarray(tl.add(x, tl.arange(3))).dtype is tl.float16


LIKE = {
    "zeros": lambda x: tl.zeros(2, like=x), "ones": lambda x: tl.ones(2, like=x), "empty": lambda x: tl.empty(2, like=x),
    "full": lambda x: tl.full(2, 3, like=x), "arange": lambda x: tl.arange(2, like=x), "eye": lambda x: tl.eye(2, like=x),
    "linspace": lambda x: tl.linspace(0, 1, 2, like=x), "asarray": lambda x: tl.asarray([1, 2], like=x),
    "fftfreq": lambda x: tl.fft.fftfreq(4, like=x), "random_uniform": lambda x: tl.random_uniform(shape=2, like=x, seed=0),
    "random_normal": lambda x: tl.random_normal(shape=2, like=x), "exponential": lambda x: tl.exponential(shape=2, like=x),
    "gamma": lambda x: tl.gamma(tl.ones(2), like=x), "truncated_normal": lambda x: tl.truncated_normal(shape=2, like=x),
}  # fmt: skip


@pytest.mark.parametrize("name", LIKE)
def test_like(backend: str, name: str) -> None:
    native = make(backend, np.ones(3, np.float16))
    found = LIKE[name](native)
    assert not isinstance(found, tl.Array)
    assert tl.asarray(found).backend == backend
    assert (tl.asarray(found).dtype is tl.float16) or name == "gamma"
    assert type(LIKE[name](tl.asarray(native))) is tl.Array
    with pytest.raises(TypeError, match="like must be an array, got str"):
        LIKE[name]("float16")


def test_masks_and_integers_keep_their_dtype_beside_like(backend: str) -> None:
    native = make(backend, VALUES)
    assert tl.asarray(tl.causal_mask(2, like=native)).dtype is tl.bool
    assert tl.asarray(tl.randint(0, 3, shape=2, like=native)).dtype.kind == "i"
    assert tl.asarray(tl.permutation(3, like=native)).backend == backend


@pytest.mark.parametrize("op", [operator.add, operator.lt, operator.eq, operator.pow, operator.truediv, operator.mod])
def test_operators_of_native_arrays(backend: str, op: Any) -> None:
    x = make(backend, np.abs(VALUES) + 1)
    for found, expected in ((op(x, 2 * EYE + 1), op(np.abs(VALUES) + 1, 2 * np.eye(3) + 1)), (op(EYE + 1, x), None)):
        assert not isinstance(found, tl.Array)
        if expected is not None:
            np.testing.assert_allclose(tl.to_numpy(found), expected, rtol=1e-5)
