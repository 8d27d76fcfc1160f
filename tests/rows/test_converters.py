"""A row of the conformance matrix: native modules of each framework as Modules."""

from __future__ import annotations

import importlib

from converter_cases import TARGET, X, train_ten_steps

FRAMEWORKS = {"numpy": ("numpy",), "torch": ("torch",), "tensorflow": ("keras",), "jax": ("haiku", "flax")}


def test_from_backend_module(backend: str) -> None:
    for framework in FRAMEWORKS[backend]:
        cases = importlib.import_module(f"converter_cases_{framework}").tanh_networks(X, TARGET)
        assert len(cases) >= 2  # of a class and of an instance
        for module, native in cases:
            train_ten_steps(backend, module, native)
