"""What every test shares: the `backend` fixture, and an environment in which the frameworks behave the same each time.

A test that takes `backend` runs once for each row of `dispatch.BACKENDS`; one that is not installed is skipped and says so.
`--backend torch` keeps one. With `pytest -n 2 --dist loadgroup` all tests of a backend stay in one process, so that each process
imports the frameworks it needs and not all four.
"""

from __future__ import annotations

import os

# Before any framework is imported: they read these once.
os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
# XLA compiles thousands of programs here that run once: with its quick code generators in half the time. `make matrix`
# and the benchmarks leave it as users have it.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")
if "PYTEST_XDIST_WORKER" in os.environ:  # the processes share the cores already
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import importlib.util
from collections.abc import Iterator

import hypothesis
import pytest

from trellis.dispatch import BACKENDS, using

collect_ignore = ["converter_cases_keras.py", "keras_program.py"]  # they import TensorFlow, for doctests that are not there

hypothesis.settings.register_profile("trellis", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile("trellis")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--backend", action="append", choices=list(BACKENDS), help="only the tests of this backend; may be repeated")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        names = metafunc.config.getoption("--backend") or list(BACKENDS)
        parameters = [pytest.param(name, marks=_marks(name)) for name in names]
        metafunc.parametrize("backend", parameters, indirect=True, scope="session")


def _marks(name: str) -> list[pytest.MarkDecorator]:
    module, _, extra = BACKENDS[name]
    marks = [pytest.mark.xdist_group(name)]
    if importlib.util.find_spec(module) is None:
        marks.append(pytest.mark.skip(reason=f"{name} is not installed; pip install '{extra}'"))
    return marks


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> str:
    """The name of a backend: the test runs once on each."""
    return request.param


@pytest.fixture
def default_backend(backend: str) -> Iterator[str]:
    """The same, and creation functions make their arrays on it."""
    with using(backend):
        yield backend
