"""One seed, four frameworks, one loss curve; and plain torch code gives it too."""

from __future__ import annotations

import numpy as np
import pytest
from training_models import CASES, curve, torch_curve


@pytest.mark.parametrize("name", CASES)
def test_one_curve_in_float64(backend: str, name: str) -> None:
    found, expected = curve(backend, name, "float64"), curve("numpy", name, "float64")
    assert found[-1] < 0.9 * found[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8)
    assert len(set(found)) == 100


@pytest.mark.parametrize("name", CASES)
def test_one_curve_in_float32(backend: str, name: str) -> None:
    found = curve(backend, name, "float32")
    np.testing.assert_allclose(found, curve("numpy", name, "float32"), rtol=0, atol=1e-4)
    assert 0 < np.abs(found - curve("numpy", name, "float64")).max() < 1e-4  # it is float32 that was computed


@pytest.mark.xdist_group("torch")
@pytest.mark.parametrize("name", CASES)
def test_plain_torch_has_the_same_curve(name: str) -> None:
    pytest.importorskip("torch")
    np.testing.assert_allclose(torch_curve(name), curve("torch", name, "float64"), rtol=0, atol=1e-8)
    np.testing.assert_allclose(torch_curve(name), curve("numpy", name, "float64"), rtol=0, atol=1e-8)
