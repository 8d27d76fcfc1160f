"""Every model of the zoo as a native module of one framework: does it compute, train, keep its state, come back and save?

    python tests/convert_sweep.py torch
    KERAS_BACKEND=jax python tests/convert_sweep.py keras --only '*tied*'

One process per framework, since Keras chooses once. Each model is compared with the Module itself on NumPy: in evaluation; after
ten steps of the native optimizer, its parameters and buffers; frozen parameters, which stay; the way back; and native files, read
by a second conversion that has the values of the start. Then native modules train inside
a model of Trellis.
"""

from __future__ import annotations

import argparse
import fnmatch
import io
import itertools
import os
import pickle
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import native_modules
import numpy as np
import zoo

import trellis as tl
from trellis.core import tree

os.environ.setdefault("JAX_ENABLE_X64", "1")  # for the models in float64
# XLA compiles thousands of programs that run a few times: quickly.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")

FRAMEWORKS = ("torch", "keras", "haiku", "flax")
STEPS, RATE = 10, 0.02
TOLERANCE = {"float16": 3e-2, "bfloat16": 2e-1, "float64": 1e-4, None: 1e-4}
# Conversions that are refused, with the reason in the error.
REFUSED: dict[tuple[str, str], str] = {}
Values = dict[str, np.ndarray[Any, Any]]


def numbers(state: Any) -> Values:
    flat = state.to_flat_dict() if isinstance(state, tl.Container) else state
    return {path: np.array(tl.to_numpy(tl.stop_gradient(x)), copy=True) for path, x in flat.items()}


def outputs(nest: Any) -> list[np.ndarray[Any, Any]]:
    return [np.array(tl.to_numpy(tl.stop_gradient(x)), copy=True) for x in tree.leaves(nest)]


def near(found: Mapping[Any, Any], expected: Mapping[Any, Any], tolerance: float, what: str) -> None:
    """Equal names, shapes and dtypes; numbers equal relative to the largest of each array, at least 1."""
    assert sorted(map(str, found)) == sorted(map(str, expected)), f"{what}: {sorted(found)}, expected {sorted(expected)}"
    for name, want in expected.items():
        got = found[name]
        assert got.shape == want.shape, f"{what} {name}: shape {got.shape}, expected {want.shape}"
        assert (got.dtype.kind in "iub") == (want.dtype.kind in "iub"), f"{what} {name}: {got.dtype}, expected {want.dtype}"
        a, b = got.astype(np.float64), want.astype(np.float64)
        gap = np.abs(a - b).max(initial=0.0)
        assert gap <= tolerance * max(1.0, np.abs(b).max(initial=0.0)), f"{what} {name}: differs by {gap:.3g}"


# ---- one framework each --------------------------------------------------------------------------------------------------------
class Torch:
    """A model as a torch module."""

    def __init__(self, model: Any, row: zoo.Model, check: bool) -> None:
        import torch

        self.torch, self.native = torch, model.to_torch_module(**_checked(row, check))
        self.inputs = tree.map(lambda x: torch.tensor(x), _cast(row))

    def evaluate(self) -> Any:
        with self.torch.no_grad():
            return zoo.call(self.native.eval(), self.inputs)

    def train(self) -> None:
        trained = [p for p in self.native.train().parameters() if p.requires_grad]
        if not trained:
            return
        optimizer = self.torch.optim.SGD(trained, RATE)
        for _ in range(STEPS):
            optimizer.zero_grad()
            total = zoo.loss(zoo.call(self.native, self.inputs))
            if total.requires_grad:
                total.backward()
            optimizer.step()

    def back(self) -> Any:
        return tl.Module.from_torch_module(self.native)

    def write(self) -> bytes:
        file = io.BytesIO()
        self.torch.save(self.native.state_dict(), file)
        return file.getvalue()

    def read(self, data: bytes) -> None:
        self.native.load_state_dict(self.torch.load(io.BytesIO(data), weights_only=True))


class Keras:
    """A model as a Keras model, on the framework that Keras runs on."""

    def __init__(self, model: Any, row: zoo.Model, check: bool) -> None:
        import keras

        self.keras, self.native = keras, model.to_keras_module(**_checked(row, check))
        self.step: Any = None  # of JAX, compiled
        self.inputs = tree.map(keras.ops.convert_to_tensor, _cast(row))

    def evaluate(self) -> Any:
        given = {"training": False}
        return self.native(**self.inputs, **given) if isinstance(self.inputs, dict) else self.native(*self.inputs, **given)

    def train(self) -> None:
        native = self.native
        if not native.trainable_variables:
            return
        optimizer = self.keras.optimizers.SGD(RATE)
        optimizer.build(native.trainable_variables)
        for _ in range(STEPS):
            gradients = getattr(self, f"_{self.keras.backend.backend()}")()
            zeros = [self.keras.ops.zeros_like(x.value) for x in native.trainable_variables]
            optimizer.apply([zero if g is None else g for g, zero in zip(gradients, zeros)])

    def _call(self, function: Callable[..., Any], *first: Any) -> Any:
        if isinstance(self.inputs, dict):
            return function(*first, training=True, **self.inputs)
        return function(*first, *self.inputs, training=True)

    def _tensorflow(self) -> list[Any]:
        import tensorflow as tf

        variables = [x.value for x in self.native.trainable_variables]
        with tf.GradientTape() as tape:
            total = zoo.loss(self._call(self.native))
        found = tape.gradient(total, variables)
        return [tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g for g in found]

    def _torch(self) -> list[Any]:
        self.native.zero_grad()
        total = zoo.loss(self._call(self.native))
        if total.requires_grad:
            total.backward()
        return [x.value.grad for x in self.native.trainable_variables]

    def _jax(self) -> list[Any]:
        import jax

        native = self.native
        if self.step is None:

            def total(trained: Any, others: Any) -> Any:
                result, after = self._call(native.stateless_call, trained, others)
                return zoo.loss(result), after

            self.step = jax.jit(jax.grad(total, has_aux=True))
        values = ([x.value for x in part] for part in (native.trainable_variables, native.non_trainable_variables))
        gradients, after = self.step(*values)
        for variable, value in zip(native.non_trainable_variables, after):
            variable.assign(value)
        return gradients

    def back(self) -> Any:
        return tl.Module.from_keras_module(self.native)

    def write(self) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.weights.h5")
            self.native.save_weights(path)
            with open(path, "rb") as file:
                return file.read()

    def read(self, data: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.weights.h5")
            with open(path, "wb") as file:
                file.write(data)
            self.native.load_weights(path)


class Flax:
    """A model as a module of nnx."""

    def __init__(self, model: Any, row: zoo.Model, check: bool) -> None:
        import jax.numpy as jnp
        from flax import nnx

        self.nnx, self.native, self.frozen = nnx, model.to_flax_module(**_checked(row, check)), model.frozen
        self.inputs = tree.map(jnp.asarray, _cast(row))

    def evaluate(self) -> Any:
        self.native.eval()
        return zoo.call(self.native, self.inputs)

    def train(self) -> None:
        import optax

        nnx = self.nnx
        self.native.train()
        optimizer = nnx.Optimizer(self.native, optax.sgd(RATE), wrt=nnx.Param)

        @nnx.jit
        def step(native: Any, optimizer: Any) -> None:
            gradients = nnx.grad(lambda native: zoo.loss(zoo.call(native, self.inputs)))(native)
            optimizer.update(native, gradients)

        for _ in range(STEPS):
            step(self.native, optimizer)

    def back(self) -> Any:
        return tl.Module.from_flax_module(self.native)

    def write(self) -> bytes:
        from flax import serialization

        state = self.nnx.state(self.native, self.nnx.Any(self.nnx.Param, self.nnx.BatchStat))
        return serialization.to_bytes(self.nnx.to_pure_dict(state))

    def read(self, data: bytes) -> None:
        from flax import serialization

        state = self.nnx.state(self.native, self.nnx.Any(self.nnx.Param, self.nnx.BatchStat))
        pure = serialization.from_bytes(self.nnx.to_pure_dict(state), data)
        self.nnx.replace_by_pure_dict(state, pure)
        self.nnx.update(self.native, state)


class Haiku:
    """A model as a class of Haiku, with its params and state beside."""

    def __init__(self, model: Any, row: zoo.Model, check: bool) -> None:
        import haiku as hk
        import jax
        import jax.numpy as jnp

        self.jax, self.native = jax, model.to_haiku_module(**_checked(row, check))
        self.inputs, self.key = tree.map(jnp.asarray, _cast(row)), jax.random.PRNGKey(0) if row.draws == "always" else None
        native: Any = self.native

        def run(inputs: Any, is_training: bool) -> Any:
            given = {"is_training": is_training}
            return native()(**inputs, **given) if isinstance(inputs, dict) else native()(*inputs, **given)

        self.function = hk.transform_with_state(run)
        self.params, self.state = self.function.init(jax.random.PRNGKey(0), self.inputs, False)

    def evaluate(self) -> Any:
        return self.function.apply(self.params, self.state, self.key, self.inputs, False)[0]

    def train(self) -> None:
        import optax

        optimizer = optax.sgd(RATE)

        @self.jax.jit
        def step(params: Any, state: Any, moments: Any, key: Any) -> Any:
            def total(params: Any) -> Any:
                result, after = self.function.apply(params, state, key, self.inputs, True)
                return zoo.loss(result), after

            gradients, after = self.jax.grad(total, has_aux=True)(params)
            updates, moments = optimizer.update(gradients, moments)
            return optax.apply_updates(params, updates), after, moments

        moments = optimizer.init(self.params)
        for i in range(STEPS):
            self.params, self.state, moments = step(self.params, self.state, moments, self.jax.random.PRNGKey(i))

    def back(self) -> Any:
        return tl.Module.from_haiku_module(self.native, params_hk=self.params, state_hk=self.state)

    def write(self) -> bytes:
        return pickle.dumps(self.jax.device_get((self.params, self.state)))

    def read(self, data: bytes) -> None:
        self.params, self.state = pickle.loads(data)


KINDS: dict[str, Any] = {"torch": Torch, "keras": Keras, "haiku": Haiku, "flax": Flax}


def _cast(row: zoo.Model) -> Any:
    import ml_dtypes

    dtype = {None: np.float32, "bfloat16": ml_dtypes.bfloat16}.get(row.dtype, row.dtype)
    if row.dtype == "bfloat16":  # torch and Keras read no arrays of this dtype; the layers cast
        dtype = np.float32
    return tree.map(lambda x: x.astype(dtype) if x.dtype.kind == "f" else x, row.inputs)


def _checked(row: zoo.Model, check: bool) -> dict[str, Any]:
    return {"inputs": _cast(row)} if check and not isinstance(row.inputs, dict) else {"check": False}


# ---- one model -----------------------------------------------------------------------------------------------------------------
def trained(model: Any, row: zoo.Model) -> Any:
    """The Module after ten steps of plain gradient descent on NumPy."""
    inputs = tree.map(lambda x: tl.asarray(x, backend="numpy"), _cast(row))
    model.train()
    for _ in range(STEPS):

        def total(v: Any, buffers: Any) -> Any:
            args, kwargs = ((), inputs) if isinstance(inputs, dict) else (inputs, {})
            result, after = tl.functional_call(model, v, buffers, *args, **kwargs)
            return zoo.loss(result), after

        if not len(model.v):
            break
        (_, after), gradients = tl.value_and_grad(lambda v: total(v, model.buffers), has_aux=True)(model.v)
        frozen = model.frozen
        moved = tl.gradient_descent_update(model.v, gradients, RATE)
        model.v = moved.map_with_paths(lambda path, x: model.v[path] if path in frozen else x)  # noqa: B023
        model.buffers = after
    return model


def check_model(framework: str, name: str, *, check: bool = True) -> None:
    row = zoo.MODELS[name]
    tolerance = np.inf if row.draws == "always" else TOLERANCE[row.dtype]  # then shapes and dtypes alone are compared
    model = zoo.make(name)
    expected = outputs(zoo.call(zoo.make(name).eval(), tree.map(lambda x: tl.asarray(x, backend="numpy"), _cast(row))))
    native = KINDS[framework](model, row, check)
    near(dict(enumerate(outputs(native.evaluate()))), dict(enumerate(expected)), tolerance, "evaluation")
    start = numbers(model.v)
    native.train()
    back = native.back()
    assert type(back) is type(model)
    found, buffers = numbers(back.v), numbers(back.buffers)
    for path in model.frozen if framework in ("torch", "keras") else ():
        np.testing.assert_array_equal(found[path], start[path], err_msg=f"frozen {path}")
    if framework in ("torch", "keras"):
        assert back.frozen == model.frozen
    reference = trained(zoo.make(name), row)
    if not row.draws:
        wanted = numbers(reference.v)
        if framework not in ("torch", "keras"):  # the optimizer there trains every parameter; frozen ones have gradients of zero
            wanted = {path: start[path] if path in model.frozen else x for path, x in wanted.items()}
        near(found, wanted, tolerance, "after ten steps")
        near(buffers, numbers(reference.buffers), tolerance, "buffers")
    assert all(np.isfinite(x).all() for x in (*found.values(), *buffers.values()))
    now = outputs(native.evaluate())
    near(dict(enumerate(outputs(zoo.call(back.eval(), native.inputs)))), dict(enumerate(now)), tolerance, "back again")
    other = KINDS[framework](zoo.make(name), row, False)
    other.read(native.write())
    second = other.back()
    near(numbers(second.v), found, 0.0, "from a file")
    near(numbers(second.buffers), buffers, 0.0, "buffers from a file")
    near(dict(enumerate(outputs(other.evaluate()))), dict(enumerate(now)), tolerance, "evaluation from a file")


def run(framework: str, names: list[str], *, check: bool = True) -> Iterator[tuple[str, str | None]]:
    """(name, what went wrong or None) of each model; one that is to be refused is wrong if it is not."""
    for name in names:
        refusal = REFUSED.get((framework, name))
        try:
            check_model(framework, name, check=check)
        except Exception as error:
            if refusal is None or refusal not in str(error):
                yield name, traceback.format_exc()
                continue
        else:
            if refusal is not None:
                yield name, "it was not refused"
                continue
        yield name, None


def train_native(framework: str, names: list[str]) -> Iterator[tuple[str, str | None]]:
    """(name, what went wrong or None) of native modules inside a model of Trellis, trained by the Trainer."""
    backends = {"torch": "torch", "keras": os.environ.get("KERAS_BACKEND", "tensorflow")}
    for name, made in native_modules.TABLES[framework]().items():
        if name in names:
            try:
                native_modules.train(made, backends.get(framework, "jax"))
            except Exception:
                yield name, traceback.format_exc()
            else:
                yield name, None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework", choices=FRAMEWORKS)
    parser.add_argument("--only", default="*", help="a pattern of the names of models")
    parser.add_argument("--part", default="1/1", help="2/3: the second third of them")
    parser.add_argument("--no-check", action="store_true", help="convert without the converters' own check")
    given = parser.parse_args()
    part, parts = map(int, given.part.split("/"))
    names = fnmatch.filter(zoo.MODELS, given.only)[part - 1 :: parts]
    native = fnmatch.filter(native_modules.TABLES[given.framework](), given.only)[part - 1 :: parts]
    assert len(zoo.MODELS) >= 80
    assert len(native_modules.TABLES[given.framework]()) >= 30
    where = (
        f"{given.framework} on {os.environ.get('KERAS_BACKEND', 'tensorflow')}" if given.framework == "keras" else given.framework
    )
    failed, done, start = [], 0, time.perf_counter()
    last, seconds = start, {}
    rows = itertools.chain(run(given.framework, names, check=not given.no_check), train_native(given.framework, native))
    for name, failure in rows:
        done += 1
        seconds[name], last = time.perf_counter() - last, time.perf_counter()
        if failure:
            failed.append(name)
            print(f"== {where}: {name}\n{failure}", flush=True)
    print("slowest:", ", ".join(f"{name} {seconds[name]:.1f} s" for name in sorted(seconds, key=lambda x: -seconds[x])[:12]))
    print(f"{where}: {done - len(failed)} of {len(names) + len(native)}, {time.perf_counter() - start:.0f} s; failed: {failed}")
    return bool(failed or done != len(names) + len(native) or not done)


if __name__ == "__main__":
    sys.exit(main())
