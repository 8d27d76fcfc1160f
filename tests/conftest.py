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
# By which backend of torch.compile the tests compile: inductor generates C++ for each function, for minutes in all.
os.environ.setdefault("TRELLIS_TORCH_COMPILER", "eager")
if "PYTEST_XDIST_WORKER" in os.environ:  # the processes share the cores already
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import importlib.util
import secrets
from collections.abc import Iterator

import hypothesis
import pytest

from trellis.core.dispatch import BACKENDS, using

# The first two import TensorFlow, for doctests that are not there; the folder is part of another package.
collect_ignore = ["converter_cases_keras.py", "keras_program.py", "plain_backend"]

# TRELLIS_SEED=random draws other examples; `make test-more` does. Set here, the number reaches the processes of xdist too.
if os.environ.setdefault("TRELLIS_SEED", "0") == "random":
    os.environ["TRELLIS_SEED"] = str(secrets.randbits(32))
SEED = int(os.environ["TRELLIS_SEED"])
hypothesis.settings.register_profile("trellis", deadline=None, database=None, max_examples=50, print_blob=True)
hypothesis.settings.load_profile("trellis")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--hypothesis-seed", None) is None:
        config.option.hypothesis_seed = str(SEED)  # before the plugin of hypothesis reads it


def pytest_report_header() -> str:
    return f"examples of hypothesis: TRELLIS_SEED={SEED}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    if exitstatus:
        terminalreporter.write_line(f"TRELLIS_SEED={SEED} repeats the examples of this run")


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


# Tests that JAX without x64 must fail, with the reason: `helpers.NARROWED` says what all others become there.
NEEDS_64_BITS = {
    "test_native[jax-nan_to_num]": "infinity becomes the largest number of another dtype",
    "test_native[jax-ones_like]": "asks for float64, which is an error",
    "test_native[jax-sum:dtype]": "asks for float64, which is an error",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ["JAX_ENABLE_X64"].lower() in ("0", "false", "off"):
        for item in items:
            if item.name in NEEDS_64_BITS:
                item.add_marker(pytest.mark.xfail(reason=NEEDS_64_BITS[item.name], strict=True))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse a run whose groups are lost: each process would import all frameworks and compile what the other compiles.

    xdist writes the group behind the name of a test. pytest 9.2 makes that name from another attribute: nothing is written.
    """
    if getattr(session.config.option, "loadgroup", False):  # set by xdist in its processes
        lost = [item.nodeid for item in session.items if item.get_closest_marker("xdist_group") and "@" not in item.nodeid]
        if lost:
            fix = "install pytest<9.2 or a later pytest-xdist"
            raise pytest.UsageError(f"{len(lost)} tests have lost their group, such as {lost[0]}: {fix}")


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> str:
    """The name of a backend: the test runs once on each."""
    return request.param


@pytest.fixture
def default_backend(backend: str) -> Iterator[str]:
    """The same, and creation functions make their arrays on it."""
    with using(backend):
        yield backend
