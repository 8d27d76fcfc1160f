"""Wrong use of gradients: one clear error each, the same class and text on all four backends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import check, make

import trellis as tl

X = np.array([1.0, 2.0, 3.0])

# name -> (call with a native array, error class, what its text must contain)
CASES: dict[str, tuple[Callable[[Any], Any], type[Exception], tuple[str, ...]]] = {
    "a loss that is no scalar": (tl.grad(tl.exp), ValueError, ("scalar", "(3,)")),
    "a loss that is no scalar, with others": (
        lambda x: tl.execute_with_gradients(lambda v: (tl.sum(v), v), x), ValueError, ("scalar", "(3,)"),
    ),
    "integers": (lambda x: tl.grad(tl.sum)(tl.astype(x, tl.int64)), TypeError, ("int64",)),
    "integers of a nest": (
        lambda x: tl.execute_with_gradients(lambda v: tl.sum(v["a"]), {"a": x, "b": tl.astype(x, tl.int64)}),
        TypeError, ("int64",),
    ),
    "no array at all": (tl.grad(lambda x: "nothing"), TypeError, ("str",)),
    "nothing": (tl.grad(lambda x: None), TypeError, ("None",)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_mistake_is_named(backend: str, name: str) -> None:
    function, error, words = CASES[name]
    with pytest.raises(error) as caught:
        function(make(backend, X))
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)


def _changes(constant: Any) -> Callable[[Any], Any]:
    def loss(x: Any) -> Any:
        y = tl.sum(x * constant)
        constant[0] = 5.0
        return y

    return loss


def test_an_array_on_the_tape_is_changed(backend: str) -> None:
    """Arrays of JAX and TensorFlow cannot change, so they refuse at once; NumPy's and torch's must not give a wrong gradient."""
    constant = make(backend, X)
    with pytest.raises(TypeError) as caught:
        tl.grad(_changes(constant))(make(backend, X))
    if backend in ("numpy", "torch"):
        assert "changed in place" in str(caught.value)
        assert "tl.at(x)[key].set(value)" in str(caught.value)
        check(constant, [5.0, 2.0, 3.0])
    else:
        check(constant, X)


def test_an_array_whose_values_no_gradient_needs_may_change(backend: str) -> None:
    constant = tl.asarray(make(backend, X))

    def loss(x: Any) -> Any:
        y = tl.sum(tl.exp(x + constant))
        constant[0] = 5.0
        return y

    check(tl.grad(loss)(tl.asarray(make(backend, X))), np.exp(X + X))
    check(constant, [5.0, 2.0, 3.0])


def _before_the_pullback(change: Callable[[Any], None], size: int) -> None:
    """Run a pullback after `change` has changed an array that it needs."""
    constant = np.arange(float(size))
    _, pull = tl.vjp(lambda x: tl.sum(x * constant), np.ones(size))
    check(pull(np.float64(1.0))[0], constant)
    change(constant)
    pull(np.float64(1.0))


def _set_one(x: Any) -> None:
    x[len(x) // 2] = -1.0


def _reverse(x: Any) -> None:
    x[:] = x[::-1].copy()


def _swap_rows(x: Any) -> None:
    rows = x.reshape(-1, 10)
    rows[[0, 7]] = rows[[7, 0]]


@pytest.mark.parametrize("size", [100, 100_000])
@pytest.mark.parametrize("change", [_set_one, _reverse, _swap_rows])
def test_an_array_is_changed_before_the_pullback_on_numpy(change: Callable[[Any], None], size: int) -> None:
    with pytest.raises(TypeError, match="changed in place"):
        _before_the_pullback(change, size)


def test_operands_and_results_are_changed_before_the_pullback_on_numpy() -> None:
    for changed in range(2):
        x = np.array(X)
        y, pull = tl.vjp(lambda v: tl.exp(tl.reshape(v, (3,)) * v), x)
        (x, y)[changed][0] = 7.0
        with pytest.raises(TypeError, match="changed in place"):
            pull(np.ones(3))
    x = np.array(X)
    y, pull = tl.vjp(lambda v: v + X + v, x)  # it needs the values of neither
    x[0] = y[0] = 7.0
    check(pull(np.ones(3))[0], [2.0, 2.0, 2.0])


@pytest.mark.parametrize("make_constant", [
    lambda: np.broadcast_to(np.arange(3.0), (5000, 3)), lambda: np.ones((300, 500))[::2, ::3],
    lambda: np.ones((300, 500)).T, lambda: np.ones((300, 5, 50)).transpose(2, 0, 1), lambda: np.ones(50_000, bool),
    lambda: tl.to_numpy(tl.ones(50_000, dtype=tl.bfloat16)), lambda: np.ones((0, 5)),
])  # fmt: skip
def test_layouts_of_watched_arrays_on_numpy(make_constant: Callable[[], Any]) -> None:
    constant = make_constant()
    x = np.ones(constant.shape, constant.dtype if constant.dtype.kind != "b" else float)
    gradient = tl.grad(lambda v: tl.sum(v * constant))(x)
    check(gradient, constant.astype(x.dtype))


def test_no_array_of_the_user_is_touched() -> None:
    """A gradient on NumPy leaves every array writeable, while it runs and afterwards, wherever the array comes from."""
    torch = pytest.importorskip("torch")
    whole = np.array([[1.0, 2.0], [3.0, 4.0]])
    borrowed = torch.tensor([5.0, 6.0], dtype=torch.float64)
    arrays = [whole, whole[0], borrowed.numpy(), np.from_dlpack(borrowed), np.asarray(memoryview(bytearray(16)).cast("d"))]
    writeable = [x.flags.writeable for x in arrays]

    def loss(x: Any) -> Any:
        total = tl.sum(tl.grad(lambda y: tl.sum(y * arrays[1] * y))(x * whole))
        for array in arrays:
            total = total + tl.sum(x * array * x)
        assert [array.flags.writeable for array in arrays] == writeable
        return total

    assert tl.grad(loss)(np.ones((2, 2))).shape == (2, 2)
    assert [array.flags.writeable for array in arrays] == writeable
    borrowed.numpy()[0] = 8.0
    whole[0, 0] = 9.0


def test_another_thread_writes_during_gradients_on_numpy() -> None:
    """It may write to its own arrays and to one that the gradient only adds; nobody gets an error, and no gradient changes."""
    size = 2000
    constant, added = np.arange(float(size)), np.zeros(size)
    own = constant.copy()
    done = threading.Event()
    errors: list[BaseException] = []

    def write() -> None:
        try:
            while not done.is_set():
                own[:] += 1.0
                added[:] += 1.0
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(200):
            check(tl.grad(lambda x: tl.sum(x * constant + added))(np.ones(size)), constant)
    finally:
        done.set()
        thread.join()
    assert errors == []


def test_two_threads_share_a_constant_on_numpy() -> None:
    """Gradients in two threads read one array; a third writes to it, and only the gradients may notice."""
    constant = np.ones(2000)
    done = threading.Event()
    refused: list[BaseException] = []
    noticed: list[BaseException] = []

    def differentiate() -> None:
        for _ in range(200):
            try:
                tl.grad(lambda x: tl.sum(x * constant))(np.ones(2000))
            except BaseException as error:
                noticed.append(error)

    def write() -> None:
        try:
            while not done.is_set():
                constant[:] += 1.0
        except BaseException as error:
            refused.append(error)

    threads = [threading.Thread(target=differentiate) for _ in range(2)]
    writer = threading.Thread(target=write)
    for thread in (*threads, writer):
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    writer.join()
    assert refused == []
    assert {(type(error), "changed in place" in str(error)) for error in noticed} <= {(TypeError, True)}
