"""Other libraries' own tests on Trellis: `python tests/library_suites.py tensorly torch [tests]`.

TensorLy and POT compute on the backends in examples/adopters, array-api-extra on the namespace of the Arrays of a backend.
`tests` is the folder of the library's tests; TensorLy and array-api-extra install theirs. This file is a plugin of pytest, too:
it puts Trellis in before the tests are imported, and leaves out those that run on another array library.
"""

from __future__ import annotations

import enum
import importlib
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parent
LIBRARY, BACKEND = os.environ.get("TRELLIS_LIBRARY", ""), os.environ.get("TRELLIS_BACKEND", "")
OPTIONS = {
    # Without the tests of POT's build, of its pictures and of its layers for torch.
    "pot": [*(f"--ignore-glob=*test_{name}.py" for name in ("helpers", "plot", "gnn")), "-W", "ignore"],
    "tensorly": ["-W", "ignore"],
    "array-api-extra": ["-W", "error", "-o", "xfail_strict=true"],
}
PACKAGES = {"tensorly": "tensorly", "array-api-extra": "array_api_extra.tests.main"}  # those that bring their tests


def main(library: str, backend: str, *tests: str) -> int:
    own = {f"POT_BACKEND_DISABLE_{name}": "1" for name in ("PYTORCH", "JAX", "TENSORFLOW", "CUPY")}
    paths = [str(TESTS), str(TESTS.parent), str(TESTS.parent / "examples" / "adopters"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | own | {
        "TRELLIS_LIBRARY": library, "TRELLIS_BACKEND": backend, "JAX_ENABLE_X64": "1", "PYTHONPATH": os.pathsep.join(paths),
    }  # fmt: skip
    where = [os.path.abspath(path) for path in tests] or ["--pyargs", PACKAGES[library]]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "library_suites", "-p", "no:cacheprovider", *OPTIONS[library], *where]
    return subprocess.run(command, env=environment, cwd=where[0] if tests else "/").returncode


def tensorly() -> None:
    importlib.import_module("tensorly_backend")
    importlib.import_module("tensorly").set_backend("trellis")


def pot() -> None:
    made, backend = importlib.import_module("pot_backend"), importlib.import_module("ot.backend")
    ours = [backend._get_backend_instance(made.TrellisBackend)]
    backend.get_backend_list = lambda: ours


def array_api_extra() -> None:
    """One more member of the enum of backends. As NumPy's and JAX's, its default float is float64 here."""

    import trellis as tl

    backends = importlib.import_module("array_api_extra._lib._backends")
    tl.set_default_dtype("float64")
    module: Any = types.ModuleType("trellis_arrays")
    module.empty = lambda n: tl.empty(n, backend=BACKEND)
    sys.modules[module.__name__] = module
    before = backends.Backend
    made: Any = enum.Enum("Backend", {member.name: member.value for member in before} | {"TRELLIS": module.__name__})
    made.pytest_param, made.modname = before.pytest_param, before.modname

    def like(self: Any, *others: Any) -> bool:
        """Where a test asks what a write of floats to integers does: array-api-strict refuses it, and so does Trellis."""
        test, _, phase = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")
        strict = self is made.TRELLIS and "test_incompatible_dtype" in test and phase == "(call)"
        return any(self.modname == x.modname for x in others) or (strict and made.ARRAY_API_STRICT in others)

    made.like = like
    backends.Backend = made


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Before the conftest of POT, which asks for the backends when it is imported."""
    if LIBRARY:
        import trellis as tl

        tl.set_backend(BACKEND)
        {"tensorly": tensorly, "pot": pot, "array-api-extra": array_api_extra}[LIBRARY]()


def pytest_configure(config: pytest.Config) -> None:
    for marker in ("skip_xp_backend", "xfail_xp_backend", "thread_unsafe"):  # array-api-extra's
        config.addinivalue_line("markers", marker)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if LIBRARY == "pot" and not any("[trellis" in item.name for item in items):
        raise pytest.UsageError("no test of POT runs on Trellis: its conftest was imported before the backend was put in")
    libraries = ("library", "jnp", "torch", "da")  # the parameters that choose one in the tests of array-api-extra

    def is_ours(item: Any) -> bool:
        chosen = [
            value for name, value in (item.callspec.params if hasattr(item, "callspec") else {}).items() if name in libraries
        ]
        return all(getattr(value, "name", "") == "TRELLIS" for value in chosen)

    if LIBRARY == "array-api-extra":
        config.hook.pytest_deselected(items=[item for item in items if not is_ours(item)])
        items[:] = [item for item in items if is_ours(item)]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
