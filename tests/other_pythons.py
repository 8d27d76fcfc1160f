"""The tests that need NumPy alone on another Python: `python tests/other_pythons.py 3.13`. `make test-python` calls it.

A Python that is not on this machine is an error, not a skip. pyenv's are found too.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What the tests need on top of the package. Those below import no framework.
NEEDED = [
    "pytest<9.2",
    "pytest-timeout",
    "pytest-xdist",
    "hypothesis",
    "safetensors",
    "array-api-strict",
    "scipy",
    "mpmath",
    "autograd",
    "einops",
]
NAMES = (
    "corners default_dtype gradients_of_ops hints import initializers module_files ops promotion properties tape threads views"
)
TESTS = [f"test_{name}.py" for name in NAMES.split()]


def find(version: str) -> str:
    root = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    found = [shutil.which(f"python{version}"), *sorted(glob.glob(f"{root}/versions/{version}.*/bin/python"))]
    for python in filter(None, found):
        works = subprocess.run([python, "-c", ""], capture_output=True, check=False)  # pyenv's shims may lead nowhere
        if works.returncode == 0:
            return python
    sys.exit(f"Python {version} is not on this machine: install it, or leave it out with PYTHONS=")


def main(version: str) -> None:
    folder = ROOT / "build" / f"python-{version}"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([find(version), "-m", "venv", folder], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt"]
    subprocess.run([*pip, "-e", ROOT, *NEEDED], check=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    tests = [ROOT / "tests" / name for name in TESTS]
    modules = [ROOT / "trellis" / room for room in ("core", "ops", "random", "transforms", "nn", "optim", "training")]
    options = ["-q", "--backend", "numpy", "-p", "no:cacheprovider"]
    for command in (["-m", "pytest", *options, *tests, *modules], [ROOT / "examples" / "demo.py"]):
        done = subprocess.run([python, *command], check=False, env=environment, cwd=ROOT)
        if done.returncode:
            sys.exit(f"failed on Python {version}")


if __name__ == "__main__":
    main(sys.argv[1])
