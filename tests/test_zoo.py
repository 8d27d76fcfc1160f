"""The zoo of models through everything that works on a Module: calls, moving, saving, freezing, and the Trainer."""

from __future__ import annotations

from typing import Any

import pytest
import zoo
from helpers import to_numpy

import trellis as tl


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


def test_a_child_may_know_its_unfinished_parent(backend: str) -> None:
    model: Any = zoo.make("a child with its parent", backend)
    assert list(model.v.to_flat_dict()) == ["child/line/w", "child/line/b", "line/w", "line/b", "scale"]
    assert model.built
    assert model.child.built
