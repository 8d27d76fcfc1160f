"""Optimizers against torch.optim and optax, schedules against torch.optim.lr_scheduler, and what goes with them."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import check, compiled, make, to_numpy

import trellis as tl
from trellis.core.dispatch import load

STEPS = 50
SHAPES: dict[str, tuple[int, ...]] = {"a": (4, 3), "b": (5,), "c": (2, 3, 4)}

# Optimizer, our options, those of torch.optim where they are called otherwise.
TORCH: list[tuple[str, dict[str, Any], dict[str, Any] | None]] = [
    ("SGD", {}, None),
    ("SGD", {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}, None),
    ("SGD", {"momentum": 0.9, "nesterov": True}, None),
    ("Adam", {}, None),
    ("Adam", {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-4, "weight_decay": 0.1},
     {"betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.1}),
    ("Adam", {"amsgrad": True}, None),
    ("AdamW", {"weight_decay": 0.1}, None),
    ("Adamax", {"weight_decay": 0.1}, None),
    ("NAdam", {"weight_decay": 0.1}, None),
    ("RAdam", {"weight_decay": 0.1}, None),
    ("Adagrad", {"lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator": 0.2},
     {"lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.2}),
    ("Adadelta", {"weight_decay": 0.1}, None),
    ("RMSprop", {}, None),
    ("RMSprop", {"centered": True, "momentum": 0.5, "weight_decay": 0.1}, None),
    ("Adafactor", {"weight_decay": 0.1}, None),
]  # fmt: skip
OPTAX: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("Lion", {"weight_decay": 0.1}, {"weight_decay": 0.1}),
    ("LARS", {"weight_decay": 0.1, "trust_coefficient": 0.5}, {"weight_decay": 0.1, "trust_coefficient": 0.5}),
    ("LARS", {"nesterov": True, "momentum": 0.7}, {"nesterov": True, "momentum": 0.7}),
    ("LAMB", {"weight_decay": 0.1, "max_trust_ratio": None}, {"weight_decay": 0.1}),
]
CASES = [("torch", *row) for row in TORCH] + [("optax", *row) for row in OPTAX]


def _values(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {key: rng.normal(size=shape) for key, shape in SHAPES.items()}


def _container(backend: str, values: dict[str, Any], dtype: str = "float64") -> tl.Container:
    return tl.Container({key: tl.asarray(make(backend, value.astype(dtype))) for key, value in values.items()})


@functools.cache
def _gradients(backend: str) -> list[tl.Container]:
    return [_container(backend, _values(100 + i)) for i in range(STEPS)]


@functools.cache
def _by_torch(name: str, options: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    import torch

    parameters = {key: torch.tensor(value, requires_grad=True) for key, value in _values(1).items()}
    optimizer = getattr(torch.optim, name)(parameters.values(), lr=0.05, **dict(options))
    for i in range(STEPS):
        for key, value in _values(100 + i).items():
            parameters[key].grad = torch.tensor(value)
        optimizer.step()
    return {key: p.detach().numpy() for key, p in parameters.items()}


@functools.cache
def _by_optax(name: str, options: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    import jax
    import optax

    parameters: Any = {key: jax.numpy.asarray(value) for key, value in _values(1).items()}
    optimizer = getattr(optax, name.lower())(0.05, **dict(options))
    state = optimizer.init(parameters)
    step = jax.jit(optimizer.update)
    for i in range(STEPS):
        updates, state = step({key: jax.numpy.asarray(value) for key, value in _values(100 + i).items()}, state, parameters)
        parameters = optax.apply_updates(parameters, updates)
    return {key: np.asarray(value) for key, value in parameters.items()}


def _expected(reference: str, name: str, options: dict[str, Any], theirs: dict[str, Any] | None) -> dict[str, Any]:
    given = tuple(sorted((options if theirs is None else theirs).items()))
    return (_by_torch if reference == "torch" else _by_optax)(name, given)


def _compare(found: Any, expected: dict[str, Any], tolerance: float = 1e-6) -> None:
    for key, value in expected.items():
        check(found[key], value, tolerance=tolerance)


def _names(case: Any) -> str:
    return f"{case[1]}-{'-'.join(case[2]) or 'plain'}"


# ---- the optimizers ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("case", CASES, ids=_names)
def test_fifty_steps(backend: str, case: Any) -> None:
    reference, name, options, theirs = case
    optimizer = getattr(tl, name)(0.05, **options)
    v = _container(backend, _values(1))
    for g in _gradients(backend):
        v = optimizer.step(v, g)
    assert isinstance(v, tl.Container)
    assert v.a.backend == backend
    _compare(v, _expected(reference, name, options, theirs))
    assert int(optimizer.state.step) == STEPS


COMPILED = [c for c in CASES if c[1:3] in [("SGD", TORCH[1][1]), ("Adam", {}), ("RAdam", TORCH[9][1]), ("LAMB", OPTAX[3][1])]]


@pytest.mark.parametrize("case", COMPILED, ids=_names)
def test_pure_and_compiled(backend: str, case: Any) -> None:
    """`update` on native arrays in a plain dict, as it is and compiled: traced once for all steps."""
    reference, name, options, theirs = case
    optimizer = getattr(tl, name)(0.05, **options)
    traces = []

    def update(v: Any, g: Any, state: Any) -> Any:
        if backend != "torch":  # which compiles again for a list that has grown, and fails after eight times
            traces.append(1)
        new_v, new_state = optimizer.update(v, g, state)
        return new_v, new_state.to_dict()

    start = {key: make(backend, value) for key, value in _values(1).items()}
    grads = [{key: make(backend, value) for key, value in _values(100 + i).items()} for i in range(STEPS)]
    expected = _expected(reference, name, options, theirs)
    for function in (update, compiled(backend, update)):
        v, state = start, optimizer.init(start).to_dict()
        for i in range(STEPS):
            v, state = function(v, grads[i], state)
        _compare(v, expected)
        assert type(v["a"]) is type(load(backend).asarray(start["a"], dtype=None, device=None, copy=True))
        assert int(to_numpy(state["step"])) == STEPS
    assert len(traces) <= (2 * STEPS if backend == "numpy" else STEPS + 2)
    _compare(start, _values(1), 1e-12)


def test_a_schedule_in_a_compiled_loop(backend: str) -> None:
    schedule = tl.warmup_schedule(tl.cosine_schedule(0.1, 6), 3, initial=0.01)
    optimizer = tl.SGD(schedule)
    traces = []

    def update(v: Any, g: Any, state: Any) -> Any:
        if backend != "torch":
            traces.append(1)
        return optimizer.update(v, g, state)

    function = compiled(backend, update)
    v = _container(backend, {"a": np.zeros(2)})
    g = _container(backend, {"a": np.ones(2)})
    state, total = optimizer.init(v), 0.0
    eager = v
    for i in range(8):
        v, state = function(v, g, state)
        eager = optimizer.step(eager, g)
        total -= schedule(i)
        check(v.a, np.full(2, total), tolerance=1e-7)
        check(eager.a, np.full(2, total), tolerance=1e-7)
    assert len(traces) <= (8 if backend == "numpy" else 2)


def test_lr_may_be_changed_between_steps(backend: str) -> None:
    optimizer = tl.SGD(0.1)
    v, g = make(backend, np.zeros(2)), make(backend, np.ones(2))
    v = optimizer.step(v, g)
    optimizer.lr = 0.5
    v = optimizer.step(v, g)
    optimizer.lr = tl.constant_schedule(1.0)
    v = optimizer.step(v, g)
    optimizer.lr = tl.constant_schedule(2.0)
    optimizer.weight_decay = 1.0
    check(v, np.full(2, -1.6), tolerance=1e-7)
    check(optimizer.step(v, g), np.full(2, -1.6 - 2 * (1 - 1.6)), tolerance=1e-7)


# ---- state ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["SGD", "Adam", "NAdam", "Adafactor"])
def test_state_is_saved_and_restored_exactly(backend: str, name: str, tmp_path: Path) -> None:
    """Ten steps at once, and ten with a file, another framework and another optimizer in between: the same bits."""

    def make_optimizer() -> Any:
        return tl.SGD(0.1, momentum=0.9) if name == "SGD" else getattr(tl, name)(0.1)

    grads = [tl.Container(layers=[*g.values()]) for g in (_container(backend, _values(i), "float32") for i in range(10))]
    start = tl.Container(layers=[*_container(backend, _values(77), "float32").values()])

    def run(optimizer: Any, v: Any, steps: Any) -> Any:
        for g in steps:
            v = optimizer.step(v, g)
        return v

    whole = run(make_optimizer(), start, grads)
    first, second = make_optimizer(), make_optimizer()
    half = run(first, start, grads[:5])
    tl.save(tmp_path / "state.safetensors", first.state)
    second.set_state(tl.load(tmp_path / "state.safetensors", backend="numpy"))
    assert int(second.state.step) == 5
    assert run(second, half, grads[5:]).all_equal(whole)
    assert second.state.step.backend == backend
    third = make_optimizer()
    third.set_state(first.state)
    assert run(third, half, grads[5:]).all_equal(whole)
    assert run(first, half, grads[5:]).all_equal(whole)  # the state that was given away was not written into


def test_what_is_given_stays_as_it_is(backend: str) -> None:
    optimizer = tl.Adam(0.1)
    v, g = _container(backend, _values(1)), _container(backend, _values(2))
    new = optimizer.step(v, g)
    state, again = optimizer.state, new.deep_copy()
    kept = state.deep_copy()
    for _ in range(3):
        optimizer.step(new, g)
    assert state.all_equal(kept)
    assert new.all_equal(again)
    _compare(v, _values(1), 1e-15)
    _compare(g, _values(2), 1e-15)
    assert len(tl.Adam().state) == 0
    optimizer.set_state(tl.Container())
    assert optimizer.step(v, g).all_close(tl.Adam(0.1).step(v, g), rtol=1e-12)


def test_the_state_follows_the_model_to_another_framework(backend: str) -> None:
    optimizer, single = tl.Adam(0.1), tl.Adam(0.1)
    v = _container("numpy", _values(1))
    expected = single.step(single.step(v, _container("numpy", _values(2))), _container("numpy", _values(3)))
    v = tl.to_backend(optimizer.step(v, _container("numpy", _values(2))), backend)
    _compare(optimizer.step(v, _container(backend, _values(3))), {k: to_numpy(x) for k, x in expected.items()}, 1e-12)


def test_one_optimizer_serves_every_framework() -> None:
    """Compiled updates are kept by framework: the same optimizer goes on wherever its weights are."""
    names = [info.name for info in tl.backends() if info.installed]
    optimizer, single = tl.Adam(0.1, lr_factors={"a": 0.5}), tl.Adam(0.1, lr_factors={"a": 0.5})
    v = expected = _container("numpy", _values(1))
    for i, name in enumerate([*names, *reversed(names), "tensorflow", "jax"]):
        v = optimizer.step(tl.to_backend(v, name), _container(name, _values(10 + i)))
        assert v.a.backend == name
        expected = single.step(expected, _container("numpy", _values(10 + i)))
        _compare(v, {key: to_numpy(x) for key, x in expected.items()}, 1e-9)
    assert int(optimizer.state.step) == 2 * len(names) + 2


# ---- options -------------------------------------------------------------------------------------------------------------------
def test_filters_by_path(backend: str) -> None:
    w, g = np.full(2, 2.0), np.ones(2)
    v = tl.Container(one=_container(backend, {"w": w, "b": w}), two=_container(backend, {"w": w, "b": w}))
    grads = tl.Container(one=_container(backend, {"w": g, "b": g}), two=_container(backend, {"w": g, "b": g}))
    found = tl.SGD(0.1, weight_decay=0.5, decay=lambda path: not path.endswith("b")).step(v, grads)
    check(found["one/w"], w - 0.1 * (g + 0.5 * w))
    check(found["two/b"], w - 0.1 * g)
    factors = {"one": 0.0, "one/b": 0.5}
    found = tl.AdamW(0.1, weight_decay=0.5, decay=lambda path: path.startswith("two"), lr_factors=factors).step(v, grads)
    check(found["one/w"], w)
    check(found["one/b"], w - 0.05, tolerance=1e-7)
    check(found["two/w"], w * (1 - 0.05) - 0.1, tolerance=1e-7)
    found = tl.SGD(0.1, lr_factors=lambda path: 2.0 if path == "two/w" else 1.0).step(v, grads)
    check(found["two/w"], w - 0.2 * g)
    check(found["two/b"], w - 0.1 * g)


def test_a_weight_without_gradient_stays(backend: str) -> None:
    optimizer = tl.Adam(0.1, weight_decay=0.1)
    v = _container(backend, _values(1))
    grads = tl.Container(a=None, b=_container(backend, _values(2)).b, c=None)
    found = optimizer.step(v, grads)
    check(found.a, _values(1)["a"])
    assert np.abs(to_numpy(found.b) - _values(1)["b"]).max() > 0.09
    assert not to_numpy(optimizer.state.mean.a).any()
    check(found.c, _values(1)["c"])
    nested = tl.SGD(0.1).step(tl.Container(x=v, y=v), tl.Container(x=None, y=v))
    check(nested["x/a"], _values(1)["a"])
    check(nested["y/a"], 0.9 * _values(1)["a"])


def test_clipping(backend: str) -> None:
    import torch

    values = _values(5)
    tensors = [torch.zeros(x.shape, dtype=torch.float64, requires_grad=True) for x in values.values()]
    for limit in (0.5, 1e3):
        for tensor, value in zip(tensors, values.values(), strict=True):
            tensor.grad = torch.tensor(value)
        norm = torch.nn.utils.clip_grad_norm_(tensors, limit)
        expected = {key: t.grad.numpy() for key, t in zip(values, tensors, strict=True) if t.grad is not None}
        grads = _container(backend, values)
        check(tl.global_norm(grads), norm.numpy())
        _compare(tl.clip_by_global_norm(grads, limit), expected)
        zero = _container(backend, {key: np.zeros_like(x) for key, x in values.items()})
        _compare(tl.SGD(1.0, clip_norm=limit).step(zero, grads), {key: -x for key, x in expected.items()})
    _compare(tl.clip_by_value(grads, 0.3), {key: np.clip(x, -0.3, 0.3) for key, x in values.items()})
    _compare(tl.SGD(1.0, clip_value=0.3).step(zero, grads), {key: -np.clip(x, -0.3, 0.3) for key, x in values.items()})
    nothing = make(backend, np.zeros(3))
    check(tl.clip_by_global_norm(nothing, 1.0), np.zeros(3))
    large = make(backend, np.full(4, 300, "float16"))
    check(tl.global_norm(large), np.float32(600))


def test_accumulation(backend: str) -> None:
    """Three small steps are one on the mean of their gradients; in between nothing moves."""
    single, optimizer, pure = tl.Adam(0.1), tl.accumulate(tl.Adam(0.1), 3), tl.accumulate(tl.Adam(0.1), 3)
    v = expected = u = _container(backend, _values(1))
    update = compiled(backend, pure.update)
    state = pure.init(u)
    for i in range(7):
        g = _container(backend, _values(10 + i))
        if i % 3 == 2:
            values = [_values(10 + k) for k in (i - 2, i - 1, i)]
            expected = single.step(expected, _container(backend, {key: sum(x[key] for x in values) / 3 for key in SHAPES}))
        v = optimizer.step(v, g)
        u, state = update(u, g, state)
        _compare(v, {key: to_numpy(x) for key, x in expected.items()}, 1e-9)
        _compare(u, {key: to_numpy(x) for key, x in expected.items()}, 1e-9)
    assert [int(state["count"]), int(state["optimizer/step"])] == [1, 2]
    again = tl.accumulate(tl.Adam(0.1), 3)
    again.set_state(tl.to_backend(optimizer.state, "numpy"))
    g = _container(backend, _values(3))
    for _ in range(2):
        v, u = optimizer.step(v, g), again.step(u, g)
    _compare(u, {key: to_numpy(x) for key, x in v.items()}, 1e-9)


def test_average_of_weights(backend: str) -> None:
    import torch

    for warmup in (False, True):
        ema, pure = tl.EMA(0.9, warmup=warmup), tl.EMA(0.9, warmup=warmup)
        update = compiled(backend, pure.update)
        average = torch.tensor(_values(0)["a"])
        state = pure.init(_container(backend, _values(0)))
        found = ema.step(_container(backend, _values(0)))
        for i in range(1, 12):
            decay = min(0.9, i / (9 + i)) if warmup else 0.9
            average = decay * average + (1 - decay) * torch.tensor(_values(i)["a"])
            found = ema.step(_container(backend, _values(i)))
            state = update(_container(backend, _values(i)), state)
            check(found.a, average.numpy(), tolerance=1e-7)
            check(state.average.a, average.numpy(), tolerance=1e-6)
    other = tl.EMA(0.9, warmup=True)
    other.set_state(tl.to_backend(ema.state, "numpy"))
    v = _container(backend, _values(20))
    check(other.step(v).a, to_numpy(ema.step(v).a))
    assert ema.step(v).a.backend == backend


def test_half_precision_is_computed_in_float32(backend: str) -> None:
    optimizer = tl.Adam(1e-3)
    v = _container(backend, {"a": np.ones(3)}, "float16")
    g = _container(backend, {"a": np.full(3, 1e-4)}, "float16")
    for _ in range(3):
        v = optimizer.step(v, g)
    assert v.a.dtype is tl.float16
    assert optimizer.state.square.a.dtype is tl.float32
    assert to_numpy(optimizer.state.square.a)[0] > 0  # 1e-11, which is nothing in float16
    np.testing.assert_allclose(to_numpy(v.a).astype("float32"), 1 - 3e-3, atol=1e-3)


def test_a_model_learns(default_backend: str) -> None:
    model = tl.Linear(3, 1)
    x = tl.asarray(np.random.default_rng(0).normal(size=(16, 3)).astype("float32"), backend=default_backend)
    y = x @ tl.asarray(np.array([[1.0], [-2.0], [0.5]], "float32"), backend=default_backend)
    optimizer = tl.Adam(tl.cosine_schedule(0.2, 60))
    loss = tl.value_and_grad(lambda v: tl.mean((model(x, v=v) - y) ** 2))
    first = float(loss(model.v)[0])
    for _ in range(60):
        model.v = optimizer.step(model.v, loss(model.v)[1])
    assert float(loss(model.v)[0]) < first / 100


def test_gradients_pass_through_update_and_not_through_step(backend: str) -> None:
    w, optimizer = make(backend, np.array([1.0, 2.0])), tl.SGD(0.1, momentum=0.5)

    def by_update(x: Any) -> Any:
        return tl.sum(optimizer.update({"w": x}, {"w": x * x}, optimizer.init({"w": w}))[0]["w"])

    check(tl.grad(by_update)(w), 1 - 0.2 * np.array([1.0, 2.0]), tolerance=1e-7)
    if backend == "jax":
        with pytest.raises(RuntimeError, match=r"SGD.step was called in a traced function.*opt.update"):
            tl.grad(lambda x: tl.sum(optimizer.step(x, x)))(w)
        return
    check(tl.grad(lambda x: tl.sum(tl.SGD(0.1).step(x, x)) + tl.sum(x))(w), np.ones(2))


# ---- schedules -----------------------------------------------------------------------------------------------------------------
SCHEDULES: dict[str, tuple[Any, Callable[[Any, Any], Any]]] = {
    "constant": (lambda: tl.constant_schedule(0.5), lambda s, o: s.ConstantLR(o, 1.0)),
    "step": (lambda: tl.step_schedule(0.5, 4, factor=0.3), lambda s, o: s.StepLR(o, 4, 0.3)),
    "exponential": (lambda: tl.exponential_schedule(0.5, 0.9), lambda s, o: s.ExponentialLR(o, 0.9)),
    "cosine": (lambda: tl.cosine_schedule(0.5, 20, final=0.1), lambda s, o: s.CosineAnnealingLR(o, 20, 0.1)),
    "polynomial": (lambda: tl.polynomial_schedule(0.5, 15, power=2.5), lambda s, o: s.PolynomialLR(o, 15, 2.5)),
    "linear": (lambda: tl.linear_schedule(0.05, 0.5, 8), lambda s, o: s.LinearLR(o, 0.1, 1.0, 8)),
    "piecewise": (lambda: tl.piecewise_schedule([0.5, 0.1, 0.02], [5, 12]), lambda s, o: s.MultiStepLR(o, [5, 12], 0.2)),
    "warmup": (
        lambda: tl.warmup_schedule(tl.cosine_schedule(0.5, 16), 4, initial=0.05),
        lambda s, o: s.SequentialLR(o, [s.LinearLR(o, 0.1, 1.0, 4), s.CosineAnnealingLR(o, 16)], [4]),
    ),
    "one_cycle": (lambda: tl.one_cycle_schedule(0.5, 20), lambda s, o: s.OneCycleLR(o, 0.5, 20, cycle_momentum=False)),
    "one_cycle_linear": (
        lambda: tl.one_cycle_schedule(0.5, 20, warmup=0.4, linear=True, initial_divisor=10, final_divisor=100),
        lambda s, o: s.OneCycleLR(
            o, 0.5, 20, pct_start=0.4, anneal_strategy="linear", div_factor=10, final_div_factor=100, cycle_momentum=False
        ),
    ),
}  # fmt: skip


@functools.cache
def _torch_rates(name: str) -> list[float]:
    import torch

    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    scheduler = SCHEDULES[name][1](torch.optim.lr_scheduler, optimizer)
    rates = []
    for _ in range(20):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step() if len(rates) < 20 else None
    return rates


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(backend: str, name: str) -> None:
    schedule, expected = SCHEDULES[name][0](), np.array(_torch_rates(name))
    found = [schedule(i) for i in range(20)]
    assert all(type(x) is float for x in found)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    steps = make(backend, np.arange(20.0))
    check(schedule(steps), expected, tolerance=1e-10)
    assert type(schedule(steps)) is type(steps * 1.0)
    whole = make(backend, np.arange(20))
    check(schedule(tl.asarray(whole)), expected.astype("float32"), tolerance=1e-6)
    check(compiled(backend, schedule)(steps), expected, tolerance=1e-10)
    if name not in ("exponential", "step"):  # the others have an end, and stay there; torch's cosine rises again
        ends = {
            "constant": 0.5,
            "cosine": 0.1,
            "linear": 0.5,
            "piecewise": 0.02,
            "one_cycle": 2e-6,
            "one_cycle_linear": 5e-4,
        }
        for after in (20, 23, 40):
            np.testing.assert_allclose(schedule(after), ends.get(name, 0.0), rtol=1e-10, atol=1e-12)
        check(schedule(make(backend, np.array([23.0, 40.0]))), np.full(2, ends.get(name, 0.0)), tolerance=1e-10)


def test_parts_of_a_sequence_are_schedules_or_numbers(backend: str) -> None:
    schedule = tl.sequential_schedule([0.25, tl.linear_schedule(1.0, 0.0, 4), lambda step: step * 0.125], [2, 6])
    expected = [0.25, 0.25, 1.0, 0.75, 0.5, 0.25, 0.0, 0.125]
    assert [schedule(i) for i in range(8)] == expected
    check(schedule(make(backend, np.arange(8.0))), np.array(expected))


# ---- mistakes ------------------------------------------------------------------------------------------------------------------
def test_wrong_weights_and_gradients(backend: str) -> None:
    v, g = _container(backend, _values(1)), _container(backend, _values(2))
    optimizer = tl.Adam()
    with pytest.raises(ValueError, match=r"Adam: weights and gradients: the structures differ at 'c': only in the first"):
        optimizer.step(v, tl.Container(a=g.a, b=g.b))
    with pytest.raises(ValueError, match=r"Adam: the shapes at 'b' differ: weight \(5,\), gradient \(4, 3\)"):
        optimizer.step(v, tl.Container(a=g.a, b=g.a, c=g.c))
    with pytest.raises(TypeError, match=r"Adam: the weight at 'n' is int64; optimizers work on real floating-point arrays"):
        optimizer.step(*[tl.Container(n=make(backend, np.arange(3)))] * 2)
    optimizer.step(v, g)
    with pytest.raises(ValueError, match=r"Adam: the state does not fit the weights: 'mean/c' is only in the state"):
        optimizer.step(tl.Container(a=v.a, b=v.b), tl.Container(a=g.a, b=g.b))
    optimizer.set_state(optimizer.state)
    with pytest.raises(ValueError, match=r"'mean/b' in the state has shape \(5,\); for these weights it must have \(4, 3\)"):
        optimizer.step(tl.Container(a=v.a, b=v.a, c=v.c), tl.Container(a=g.a, b=g.a, c=g.c))
    with pytest.raises(ValueError, match=r"Adam: the weights and mean in the state: the structures differ"):
        optimizer.update(v, g, optimizer.init({"a": v.a}))
    assert len(tl.SGD(momentum=0.9).step(tl.Container(), tl.Container())) == 0


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: tl.Adam(-0.1), ValueError, r"Adam: lr=-0.1 must be 0 or more"),
        (lambda: tl.Adam(float("nan")), ValueError, r"Adam: lr=nan must be 0 or more"),
        (lambda: tl.Adam(beta1=1.0), ValueError, r"Adam: beta1=1.0 must be less than 1"),
        (lambda: tl.SGD(0.1, betas=(0.9, 0.99)), TypeError, r"SGD: unknown option 'betas'; it has lr, weight_decay, .*momentum"),
        (lambda: tl.SGD(0.1, 0.9), TypeError, r"SGD: only lr may stand without its name"),
        (lambda: tl.Adam("fast"), TypeError, r"Adam: lr='fast' must be a number or a schedule"),
        (lambda: setattr(tl.Adam(), "lr", -1), ValueError, r"Adam: lr=-1 must be 0 or more"),
        (lambda: tl.Adam().set_state({"step": 1, "velocity": 2}), ValueError, r"expected \['mean', 'square', 'step'\], got"),
        (lambda: tl.Adam().update(tl.ones(2), tl.ones(2), {}), ValueError, r"the state has \[\]; expected \['step', 'mean"),
        (lambda: tl.accumulate(tl.Adam(), 0), ValueError, r"accumulate: steps=0 must be a whole number, 1 or more"),
        (lambda: tl.EMA(1.0), ValueError, r"EMA: decay=1.0 must be a number from 0 to below 1"),
        (lambda: tl.EMA().set_state({"mean": 1}), ValueError, r"EMA.set_state: expected \['average', 'step'\], got \['mean'\]"),
        (lambda: tl.clip_by_global_norm(tl.ones(2), 0.0), ValueError, r"clip_by_global_norm: max_norm=0.0 must be a number"),
        (lambda: tl.clip_by_value(tl.ones(2), -1), ValueError, r"clip_by_value: limit=-1 must be a number above 0"),
        (lambda: tl.global_norm({}), ValueError, r"global_norm: there is no array"),
        (lambda: tl.cosine_schedule(-0.1, 5), ValueError, r"cosine_schedule: initial=-0.1 must be a number, 0 or more"),
        (lambda: tl.cosine_schedule(0.1, 0), ValueError, r"cosine_schedule: steps=0 must be a whole number, 1 or more"),
        (lambda: tl.one_cycle_schedule(0.1, 10, warmup=1.5), ValueError, r"one_cycle_schedule: warmup=1.5 must lie between"),
        (lambda: tl.one_cycle_schedule(0.1, 3), ValueError, r"one_cycle_schedule: warmup=0.3 of 3 steps is no step"),
        (lambda: tl.piecewise_schedule([0.1, 0.2], [5, 3]), ValueError, r"sequential_schedule: 2 parts and the bou"),
    ],
)  # fmt: skip
def test_wrong_options(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_updates_of_an_empty_nest() -> None:
    assert tl.adam_update({}, {}, 0.1, {}, {}, 1) == ({}, {}, {})
    assert tl.adam_step({}, {}, {}, 1) == ({}, {}, {})
    assert tl.lamb_update({}, {}, 0.1, {}, {}, 1) == ({}, {}, {})
    assert tl.lars_update({}, {}, 0.1) == tl.gradient_descent_update({}, {}, 0.1) == {}


def test_what_an_optimizer_says_of_itself() -> None:
    import inspect

    assert repr(tl.Adam(0.1, weight_decay=0.5)) == "Adam(lr=0.1, weight_decay=0.5)"
    parameters = inspect.signature(tl.AdamW).parameters
    assert next(iter(parameters)) == "lr"
    assert parameters["weight_decay"].default == 1e-2
    assert "amsgrad" in parameters


def test_step_in_a_compiled_function_is_refused(backend: str) -> None:
    optimizer = tl.Adam()
    x = make(backend, np.ones(2))
    if backend == "numpy":  # which compiles nothing
        check(compiled(backend, lambda w: optimizer.step(w, w))(x), np.full(2, 0.999), tolerance=1e-7)
        return
    function: Any = lambda w: optimizer.step(w, w)  # noqa: E731
    if backend == "torch":  # with fullgraph its own error would stand before ours
        import torch

        function = torch.compile(function, backend="eager")
    else:
        function = compiled(backend, function)
    with pytest.raises(RuntimeError, match=r"Adam.step was called in a traced function"):
        function(x)


def test_a_numpy_scalar_as_an_option_leaves_later_compiled_updates_alone(backend: str) -> None:
    """Dynamo reads the kept optimizers of earlier calls; it can't hash a NumPy scalar among their options."""
    w, zero = make(backend, np.ones(3, "float32")), make(backend, np.zeros(3, "float32"))
    expected = tl.adam_update(w, w, 0.1, zero, zero, 1, beta1=0.8)[0]
    given = tl.adam_update(w, w, 0.1, zero, zero, 1, beta1=np.float64(0.8))[0]
    np.testing.assert_array_equal(to_numpy(given), to_numpy(expected))
    fast = compiled(backend, lambda w: tl.gradient_descent_update(w, w, 0.1))
    np.testing.assert_allclose(to_numpy(fast(w)), [0.9] * 3, rtol=1e-6)


def test_an_enum_as_the_decay_of_a_compiled_update(backend: str) -> None:
    """Dynamo calls itself without end in `float` of an enum."""
    decay, w = enum.IntEnum("Decay", {"TWO": 2}), make(backend, np.array([1.0, -2.0]))
    for update in (
        lambda w, decay_lambda: tl.lars_update(w, w, 0.1, decay_lambda=decay_lambda),
        lambda w, decay_lambda: tl.lamb_update(w, w, 0.1, w, w * w, 3, decay_lambda=decay_lambda),
    ):
        found, expected = compiled(backend, functools.partial(update, decay_lambda=decay.TWO))(w), update(w, 2.0)
        for a, b in zip(found, expected):
            check(a, to_numpy(b), tolerance=1e-12)
