"""The edits that CONTRIBUTING.md shows, applied to a copy of the package, add a composite, an elementwise op and a backend."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PLAIN = ROOT / "tests" / "plain_backend"
_SECTION = re.compile(r"^## (.*)\n((?:(?!^## ).*\n)*)", re.MULTILINE)
_DIFF = re.compile(r"^```diff\n--- (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def edits(section: str) -> list[tuple[str, str]]:
    """(file, diff) of each edit in a section of CONTRIBUTING.md."""
    sections = dict(_SECTION.findall((ROOT / "CONTRIBUTING.md").read_text()))
    return _DIFF.findall(sections[section])


def apply(section: str, root: Path) -> None:
    """Make the edits of a section. The text that an edit replaces, or stands beside, must be in its file exactly once."""
    for name, diff in edits(section):
        lines = diff.splitlines()
        old = "\n".join(line[1:] for line in lines if line[0] in " -")
        new = "\n".join(line[1:] for line in lines if line[0] in " +")
        source = (root / name).read_text()
        assert source.count(old) == 1, f"{name} has {source.count(old)} times\n{old}"
        (root / name).write_text(source.replace(old, new))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with a copy of the package."""
    shutil.copytree(ROOT / "trellis", tmp_path / "trellis", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def run(folder: Path, *arguments: str) -> str:
    """What Python prints in `folder`, whose package it imports."""
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_edits_are_of_the_files_that_the_page_counts() -> None:
    kernels = [f"trellis/backends/{name}/elementwise.py" for name in ("numpy", "jax", "torch", "tensorflow")]
    assert [name for name, _ in edits("Add an elementwise op")] == [
        "trellis/core/table.py", "trellis/ops/elementwise.py", *kernels, "trellis/backends/numpy/tape/rules.py",
    ]  # fmt: skip
    assert {name for name, _ in edits("Add a composite op")} == {"trellis/ops/special.py", "trellis/composites/elementwise.py"}
    assert [name for name, _ in edits("Add a backend")] == ["trellis/core/dispatch.py"]


# ---- ops -----------------------------------------------------------------------------------------------------------------------
_OPS = """
import math, sys
import numpy as np, scipy.special, trellis as tl
from trellis.core.dispatch import load

backend = sys.argv[1]
assert tl.__file__.startswith(sys.argv[2]), tl.__file__
values = np.array([-1.0, 0.0, 0.5, 3.0], np.float32)
array = tl.asarray(values, backend=backend)
native = array.native
xp = tl.namespace(backend)


def same(x, kind, expected, dtype=tl.float32, rtol=1e-5):
    assert isinstance(x, kind), (type(x), kind)
    assert tl.asarray(x).dtype is dtype, tl.asarray(x).dtype
    np.testing.assert_allclose(tl.to_numpy(x).astype(np.float64), expected, rtol=rtol, atol=1e-7)


root = np.sqrt(values**2 + 4)
results = {
    "exp10": (10.0**values, 10.0**values * math.log(10)),
    "squareplus": ((values + root) / 2, (1 + values / root) / 2),
}
for name, (expected, slope) in results.items():
    op = getattr(tl, name)
    same(op(native), type(native), expected)
    same(op(array), tl.Array, expected)
    container = op(tl.Container(a=array, b={"c": native}))
    same(container["a"], tl.Array, expected)
    same(container["b/c"], type(native), expected)
    same(op(tl.asarray([0, 1], dtype="int32", backend=backend)), tl.Array, op(np.float32([0.0, 1.0])))
    same(op(tl.astype(array, tl.bfloat16)), tl.Array, expected, tl.bfloat16, rtol=3e-2)
    with tl.using(backend):
        same(op(3), tl.Array, op(np.float32(3.0)))
        assert op(3).backend == backend
    assert isinstance(op(np.float32(3.0)), (np.generic, np.ndarray)) and op(np.float32(3.0)).dtype == np.float32
    same(getattr(xp, name)(native), type(native), expected)

    def loss(x):
        return tl.sum(op(x))

    same(tl.grad(loss)(native), type(native), slope)
    same(tl.grad(loss)(array), tl.Array, slope)
    same(tl.jvp(op, (array,), (tl.ones_like(array),))[1], tl.Array, slope)

twice = tl.grad(lambda x: tl.sum(tl.grad(lambda y: tl.sum(tl.exp10(y)))(x)))
same(twice(array), tl.Array, 10.0**values * math.log(10) ** 2)
assert xp.exp10 is load(backend).exp10  # no dispatch between
same(scipy.special.exp10(array), tl.Array, 10.0**values)
assert scipy.special.exp10(array).backend == backend
same(tl.grad(lambda x: tl.sum(scipy.special.exp10(x)))(array), tl.Array, results["exp10"][1])
for x in (xp.asarray([1j]), tl.asarray([1j], backend=backend)):
    try:
        tl.exp10(x)
    except TypeError as error:
        assert str(error) == "exp10: expected a real floating-point dtype, got complex64; cast it with tl.astype", error
    else:
        raise AssertionError("exp10 of a complex array")
print("done")
"""


def test_the_new_ops_work_everywhere(backend: str, copy: Path) -> None:
    apply("Add a composite op", copy)
    apply("Add an elementwise op", copy)
    assert run(copy, "-c", _OPS, backend, str(copy)) == "done\n"


def test_the_examples_of_the_new_ops_are_right(copy: Path) -> None:
    apply("Add a composite op", copy)
    apply("Add an elementwise op", copy)
    code = "import doctest, trellis.ops.{0} as module; print(doctest.run_docstring_examples(module.{1}, {{}}))"
    for module, op in (("special", "squareplus"), ("elementwise", "exp10")):
        assert run(copy, "-c", code.format(module, op)) == "None\n"


# ---- a backend -----------------------------------------------------------------------------------------------------------------
_BACKEND = """
import sys
import numpy as np, plain_arrays, trellis as tl
from plain_arrays import PlainArray

assert tl.__file__.startswith(sys.argv[1]), tl.__file__
native = PlainArray(np.float32([[1.0, 4.0], [9.0, 16.0]]))
roots = tl.sqrt(native)
assert type(roots) is PlainArray and roots.values.tolist() == [[1.0, 2.0], [3.0, 4.0]]

x = tl.asarray([1, 2, 3], backend="plain")
assert x.backend == "plain" and type(x.native) is PlainArray and x.dtype is tl.int64
y = (x + 0.5) * x - x / 2  # promotion and Python numbers
assert y.dtype is tl.float32 and tl.to_numpy(y).tolist() == [1.0, 4.0, 9.0]
assert tl.to_numpy(np.sqrt(y)).tolist() == [1.0, 2.0, 3.0]
assert tl.sum(tl.reshape(y, (3, 1)), axis=0).item() == 14.0

# Composites come for free.
assert tl.relu(tl.asarray([-1.0, 2.0], backend="plain")).native.values.tolist() == [0.0, 2.0]
assert round(tl.expit(tl.asarray(0.0, backend="plain")).item(), 6) == 0.5

container = tl.exp(tl.Container(a=native, b=tl.zeros(2, backend="plain")))
assert type(container.a) is PlainArray and container.b.native.values.tolist() == [1.0, 1.0]

xp = tl.namespace(native)
assert xp is tl.namespace("plain") and type(xp.add(native, native)) is PlainArray and type(xp.zeros(2)) is PlainArray
with tl.using("plain"):
    assert tl.ones(2).backend == "plain"
assert tl.to_backend(x, "numpy").backend == "numpy"
assert tl.to_backend(np.zeros(2), "plain").values.tolist() == [0.0, 0.0]

for make, kind, text in (
    (lambda: tl.floor(PlainArray(np.complex64([1j]))), TypeError, "floor: expected a real numeric dtype, got complex64"),
    (lambda: tl.add(x, tl.zeros(2, backend="plain")), ValueError, "add: shapes (3,) and (2,) do not broadcast"),
    (lambda: tl.add(native, np.zeros(2)), TypeError, "the arrays are from two frameworks, plain and numpy"),
):
    try:
        make()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)
print([b.name for b in tl.backends() if b.installed and b.version == "1.0"])
"""


def test_a_backend_is_one_folder_and_one_row(copy: Path) -> None:
    apply("Add a backend", copy)
    shutil.copytree(PLAIN, copy / "trellis" / "backends" / "plain", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.move(copy / "trellis" / "backends" / "plain" / "plain_arrays.py", copy)
    assert run(copy, "-c", _BACKEND, str(copy)) == "['plain']\n"
    assert "plain       1.0" in run(copy, "-m", "trellis", "info")
