"""On JAX, arrays are made and small ones moved without XLA, which compiles for each new shape; and without the private functions
that this stands on, everything is the same, only slower."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import trellis as tl

jax = pytest.importorskip("jax")
pytestmark = [pytest.mark.xdist_group("jax"), pytest.mark.filterwarnings("error")]

VALUES = np.arange(7 * 11 * 13.0, dtype="float32").reshape(7, 11, 13)  # a shape that no other test has


def moves(x: Any) -> dict[str, Any]:
    """What only moves elements, by name."""
    rows, mask = tl.asarray([3, -1, 0], backend="jax"), tl.asarray(VALUES[:, 0, 0] > 300.0, backend="jax")
    return {
        "full": tl.full((7, 11, 13), 2.5, backend="jax", dtype="float32"),
        "zeros_like": tl.zeros_like(x),
        "arange": tl.arange(3, 50, 4, backend="jax", dtype="int16"),
        "reshape": tl.reshape(x, (13, -1)),
        "permute_dims": tl.permute_dims(x, (2, 0, 1)),
        "expand_dims": tl.squeeze(tl.expand_dims(x, (0, 2)), 0),
        "broadcast_to": tl.broadcast_to(x[0, 0], (3, 13)),
        "unstack": tl.stack(tl.unstack(x, axis=1)[2:4], axis=-1),
        "concat": tl.concat([x, x], axis=1),
        "flip": tl.flip(tl.roll(x, (2, 1), axis=(0, 2)), axis=1),
        "repeat": tl.repeat(tl.tile(x, (1, 2, 1)), 2, axis=0),
        "tril": tl.tril(x, k=-1),
        "cast": tl.astype(tl.astype(x[:2, :5], "float64"), "complex128"),
        "element": x[6, -1, 5],
        "slice": x[1:-1, None, 4, ::-2],
        "rows": x[rows, :, 1],
        "number": x[rows[0]],
        "mask": x[mask],
        "take": tl.take(x, rows, axis=1),
        "set": tl.at(x)[rows, 2].set(-1.0),
        "add": tl.at(x)[:, rows].add(x[:, :3]),
        "max": tl.at(x)[mask].max(700.0),
    }


@pytest.fixture
def compilations() -> Iterator[list[str]]:
    """Names of what XLA compiled since the test began."""
    from jax._src import monitoring

    found: list[str] = []

    def listen(event: str, duration: float, **details: Any) -> None:
        if event.endswith("backend_compile_duration"):
            found.append(str(details.get("fun_name", event)))

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield found
    monitoring.unregister_event_duration_listener(listen)


def test_small_arrays_are_made_and_moved_without_compiling(compilations: list[str]) -> None:
    x = tl.asarray(VALUES, backend="jax")
    moves(x)
    assert compilations == []
    assert float(tl.sum(x + x)) > 0
    assert compilations  # the listener hears what is compiled


def test_the_same_without_the_private_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    from trellis.backends.jax import host

    assert host.batched_device_put is not None
    quick = moves(tl.asarray(VALUES, backend="jax"))
    monkeypatch.setattr(host, "batched_device_put", None)
    monkeypatch.setattr(host, "ArrayImpl", None)
    for name, slow in moves(tl.asarray(VALUES, backend="jax")).items():
        assert (quick[name].dtype, quick[name].native.committed) == (slow.dtype, slow.native.committed), name
        np.testing.assert_array_equal(tl.to_numpy(quick[name]), tl.to_numpy(slow), err_msg=name)


def test_arrays_do_not_share_memory_with_what_they_came_from() -> None:
    """A donated array is overwritten, so none may be a view of another; nor of a NumPy array that can change."""
    values = np.zeros(1024 + 16, "float32")
    values = values[-values.ctypes.data % 64 // 4 :][:1024]  # aligned as XLA likes it
    x = tl.asarray(values, backend="jax")
    values[:] = 7
    assert float(tl.sum(x)) == 0
    y = tl.reshape(x, (32, 32))
    double = jax.jit(lambda a: a + 1, donate_argnums=0)
    assert float(double(y.native).sum()) == 1024
    assert float(tl.sum(x)) == 0


def test_results_stay_on_the_device_of_their_array() -> None:
    device = jax.devices("cpu")[0]
    committed = tl.asarray(jax.device_put(VALUES, device))
    assert committed[0, 0].native.committed
    assert tl.reshape(committed, (-1,)).native.committed
    assert not tl.asarray(VALUES, backend="jax")[0, 0].native.committed


def test_a_transfer_guard_lets_arrays_move() -> None:
    x = tl.asarray(VALUES, backend="jax")
    with jax.transfer_guard("disallow"):
        moved = tl.reshape(x, (11, -1))[3, 4]
    assert float(moved) == VALUES.reshape(11, -1)[3, 4]


def test_weak_types_stay_weak() -> None:
    weak = jax.numpy.asarray(2.0)
    assert weak.weak_type
    assert tl.reshape(weak, (1, 1)).weak_type


def test_inside_jit_what_comes_out_is_traced() -> None:
    x = tl.asarray(VALUES, backend="jax")
    seen: list[bool] = []

    @jax.jit
    def function(y: Any) -> Any:
        seen.extend(isinstance(z.native, jax.core.Tracer) for z in (tl.reshape(x, (-1,)), x[0], tl.at(x)[0].set(1.0)))
        return y

    function(1.0)
    assert seen == [True] * 3


def test_inside_jit_a_filled_array_stays_a_broadcast_number() -> None:
    text = jax.jit(lambda x: x + tl.full((7, 11), 2.5, backend="jax", dtype="float32").native).lower(VALUES[..., 0]).as_text()
    assert "broadcast_in_dim" in text
    assert "dense<2.500000e+00> : tensor<f32>" in text
