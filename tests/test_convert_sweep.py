"""A part of `make sweep-convert`: some models of the zoo, and some native modules inside a model of Trellis.

Keras has its part in `keras_program.py`, on each of its frameworks.
"""

from __future__ import annotations

import convert_sweep
import native_modules
import pytest
import zoo

# Structures rather than layers: one of each kind of trouble.
MODELS = (
    "layers in nests, frozen in part", "tied and frozen by the second", "tied embedding", "shared and frozen", "buffers",
    "names that look alike", "names that others use", "several inputs, one optional", "keywords", "several outputs", "two dtypes",
    "mlp in bfloat16",
)  # fmt: skip
NATIVE = {
    "torch": ("packed LSTM", "encoder, norm first", "weight norm", "several outputs and a buffer", "frozen in part"),
    "haiku": ("counter",),
    "flax": ("noise", "linen setup"),
}


def test_the_zoo_is_big_enough() -> None:
    assert len(zoo.MODELS) >= 80
    assert set(MODELS) <= set(zoo.MODELS)


@pytest.mark.parametrize(
    ("framework", "name"),
    [
        pytest.param(framework, name, marks=pytest.mark.xdist_group("torch" if framework == "torch" else "jax"))
        for framework in ("torch", "haiku", "flax")
        for name in MODELS
    ],
)
def test_converted(framework: str, name: str) -> None:
    ((_, failure),) = convert_sweep.run(framework, [name], check=framework == "torch")
    assert failure is None, failure


@pytest.mark.parametrize(
    ("framework", "name"),
    [
        pytest.param(framework, name, marks=pytest.mark.xdist_group("torch" if framework == "torch" else "jax"))
        for framework, names in NATIVE.items()
        for name in names
    ],
)
def test_native_module_trains(framework: str, name: str) -> None:
    native_modules.train(native_modules.TABLES[framework]()[name], "torch" if framework == "torch" else "jax")


@pytest.mark.xdist_group("torch")
def test_the_sweep_sees_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversion that is wrong in one number of one parameter is found, and one that raises."""
    back = convert_sweep.Torch.back

    def wrong(self: convert_sweep.Torch) -> zoo.tl.Module:
        made = back(self)
        made.v = made.v.map(lambda x: x + 0.01)
        return made

    monkeypatch.setattr(convert_sweep.Torch, "back", wrong)
    ((_, failure),) = convert_sweep.run("torch", ["mlp"])
    assert failure is not None
    assert "after ten steps" in failure
    monkeypatch.setattr(convert_sweep.Torch, "back", lambda self: 1 / 0)
    ((_, failure),) = convert_sweep.run("torch", ["mlp"])
    assert failure is not None
    assert "ZeroDivisionError" in failure
