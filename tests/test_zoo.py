"""The zoo of models through everything that works on a Module: calls, moving, saving, freezing, and the Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zoo
from helpers import to_numpy

import trellis as tl
from trellis.core import tree


def gradients(model: tl.Module, inputs: Any) -> dict[str, Any]:
    """Path -> gradient of the loss, in evaluation."""
    model.eval()
    grads = tl.grad(lambda v: zoo.loss(zoo.call(lambda *args, **kwargs: model(*args, v=v, **kwargs), inputs)))(model.v)
    return {path: to_numpy(g) for path, g in grads.to_flat_dict().items()}


def test_every_layer_is_in_the_zoo() -> None:
    assert set(zoo.LAYERS) == zoo.layers_of_trellis()
    assert len(zoo.STRUCTURES) >= 70


SHARED_AND_NESTED = (
    "parameters in nests",
    "layers in nests",
    "created",
    "tied",
    "tied in nests",
    "shared",
    "a child with its parent",
)


@pytest.mark.parametrize("name", SHARED_AND_NESTED)
def test_all_is_frozen_and_unfrozen(backend: str, name: str) -> None:
    model, inputs = zoo.make(name, backend), zoo.placed(name, backend)
    free = gradients(model, inputs)
    assert all(g.any() for g in free.values())
    assert model.freeze().frozen == set(model.v.to_flat_dict())
    assert not any(g.any() for g in gradients(model, inputs).values())
    assert not any(x is not None for x in model.trainable_v.to_flat_dict().values())
    for path in free:
        model.unfreeze(path)
        assert path not in model.frozen
    assert {path: g.tolist() for path, g in gradients(model, inputs).items()} == {path: g.tolist() for path, g in free.items()}


@pytest.mark.parametrize(
    ("name", "path", "frozen"),
    [
        ("parameters in nests", "deep", {"deep/a/v0/b"}),
        ("parameters in nests", "table/pair/v1", {"table/pair/v1"}),
        ("created", "nest", {"nest/w", "nest/pair/v0", "nest/pair/v1"}),
        ("tied", "second", {"first/w", "second/b"}),
        ("tied in nests", "inner/table/w", {"w"}),
        ("tied in nests", "rows", {"w", "rows/v1"}),
        ("shared", "right/v0/b", {"left/v0/b"}),
        ("variables of a layer", "line/w", {"x/w"}),
        ("underscores", "gain", {"gain"}),
        ("names with dots", "layers/a.b", {"layers/a.b/w", "layers/a.b/b"}),
    ],
)
def test_a_path_is_frozen_at_every_place(backend: str, name: str, path: str, frozen: set[str]) -> None:
    model, inputs = zoo.make(name, backend), zoo.placed(name, backend)
    model.freeze(path)
    assert model.frozen == frozen
    assert {path for path, g in gradients(model, inputs).items() if not g.any()} == frozen
    assert not model.unfreeze(path).frozen


def test_a_shared_parameter_is_frozen_by_whichever_owner(backend: str) -> None:
    model: Any = zoo.make("tied", backend)
    model.second.freeze("w")
    assert model.frozen == {"first/w"}
    assert not gradients(model, zoo.placed("tied", backend))["first/w"].any()
    model.unfreeze("first/w")
    assert not model.second.frozen


def test_a_model_without_parameters_is_frozen() -> None:
    """As each of the first layers of a model is, activations among them."""
    for layer in (tl.ReLU(), tl.Dropout(0.5), tl.Sequential(tl.Flatten())):
        assert not layer.freeze().frozen
        layer.unfreeze()
    with pytest.raises(ValueError, match="freeze: no parameter is at 'w'"):
        tl.ReLU().freeze("w")


def test_a_part_that_is_not_built_is_not_frozen_in_silence() -> None:
    class Two(tl.Module):
        def __init__(self) -> None:
            self.first, self.second = tl.Linear(4, 4), tl.Linear(4, 3, build_mode="on_call")

        def forward(self, x: Any) -> Any:
            return self.second(self.first(x))

    model = Two()
    assert model.freeze("first").frozen == {"first/w", "first/b"}
    for path in ("", "second"):
        with pytest.raises(RuntimeError, match=r"freeze: Linear is not built; call it once, or model\.build\(\)"):
            model.freeze(path)
    model.second.build()
    assert len(model.freeze().frozen) == 4


def test_a_child_may_know_its_unfinished_parent(backend: str) -> None:
    model: Any = zoo.make("a child with its parent", backend)
    assert list(model.v.to_flat_dict()) == ["child/line/w", "child/line/b", "line/w", "line/b", "scale"]
    assert model.built
    assert model.child.built


# ---- everything that takes a Module --------------------------------------------------------------------------------------------
# `make sweep-models` runs all; `make test` every fifth structure, and of the layers every sixteenth.
_HALVES = ("float16", "bfloat16", "float64")
QUICK = [name for name in zoo.STRUCTURES if not name.endswith(_HALVES)][::5] + ["mlp in float16", "tied in float64"]
QUICK += [name for name in zoo.MODELS if name not in zoo.STRUCTURES][::16]
_TOLERANCE = {"float16": 2e-2, "bfloat16": 1e-1, "float64": 1e-9}


def _models() -> list[Any]:
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.sweep) for name in zoo.MODELS]


def losses_of(name: str, backend: str, frozen: str | None = None) -> tuple[tl.Module, list[float]]:
    """A model after two steps of the Trainer, and their losses."""
    model, inputs = zoo.make(name, backend), zoo.MODELS[name].inputs
    data = [((inputs if isinstance(inputs, dict) or len(inputs) > 1 else inputs[0]),)] * 2
    if frozen is not None:
        model.freeze(frozen)
    if not [x for x in model.trainable_v.to_flat_dict().values() if x is not None]:
        return model, []
    trainer = tl.Trainer(progress=False, compile=False)
    return model, trainer.fit(model, data, zoo.loss, tl.SGD(0.05, momentum=0.9), 1).losses


@pytest.mark.parametrize("name", _models())
def test_calls_training_freezing_and_files(backend: str, name: str, tmp_path: Path) -> None:
    """A call and two steps of training are those of NumPy; what is frozen stays; a file and another backend keep all of it."""
    row = zoo.MODELS[name]
    tolerance = _TOLERANCE.get(row.dtype or "", 1e-2 if name == "two dtypes" else 2e-4)
    start = zoo.make(name, backend)
    before = {path: to_numpy(x).copy() for path, x in start.v.to_flat_dict().items()}
    model, losses = losses_of(name, backend)
    _, expected = losses_of(name, "numpy")
    np.testing.assert_allclose(losses, expected, rtol=tolerance, atol=tolerance)
    frozen = {path for path, x in model.v.to_flat_dict().items() if np.array_equal(to_numpy(x), before[path])}
    assert model.frozen <= frozen
    assert len(frozen) < max(len(before), 1) or not losses

    path = tmp_path / "model.safetensors"
    model.save(path)
    other = tl.load(path, start).to_backend("numpy").to_backend(backend).eval()
    assert other.state().all_equal(model.state())
    inputs = zoo.placed(name, backend)
    results = [_seeded(one.eval(), inputs) for one in (model, other)]
    for a, b in zip(*results, strict=True):  # kernels may round by the alignment of memory
        np.testing.assert_allclose(a, b, rtol=tolerance / 10, atol=tolerance / 10)

    if before:
        first = next(iter(before))
        one, _ = losses_of(name, backend, first)
        assert first in one.frozen
        np.testing.assert_array_equal(to_numpy(one.v[first]), before[first])


def _seeded(model: tl.Module, inputs: Any) -> list[Any]:
    args, kwargs = ((), inputs) if isinstance(inputs, dict) else (inputs, {})
    result, _ = tl.functional_call(model, model.v, model.buffers, *args, seed=5, **kwargs)
    return [to_numpy(x) for x in tree.leaves(result)]
