"""The tests that need NumPy alone on another Python: `python tests/other_pythons.py 3.13`. `make test-python` calls it.

The Python is one of this machine, pyenv's too. If there is none, root on Debian gets it from Debian's unstable suite, by
debootstrap, in a folder of its own. A Python that cannot be had is exit status 3, not a skip.
"""

from __future__ import annotations

import glob
import os
import re
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
TESTS = [f"tests/test_{name}.py" for name in NAMES.split()]
MODULES = [f"trellis/{room}" for room in ("core", "ops", "random", "transforms", "nn", "optim", "training")]
COMMANDS = (
    ["-m", "pytest", "-q", "--backend", "numpy", "-p", "no:cacheprovider", *TESTS, *MODULES],
    ["examples/demo.py"],
)
NOT_TO_BE_HAD = 3
DEBIAN_SOURCES = "/etc/apt/sources.list.d/debian.sources"


def find(version: str) -> str | None:
    root = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    found = [shutil.which(f"python{version}"), *sorted(glob.glob(f"{root}/versions/{version}.*/bin/python"))]
    for python in filter(None, found):
        works = subprocess.run([python, "-c", ""], capture_output=True, check=False)  # pyenv's shims may lead nowhere
        if works.returncode == 0:
            return python
    return None


def test_here(python: str, version: str) -> bool:
    """In a virtual environment of that Python."""
    folder = ROOT / "build" / f"python-{version}"
    own = folder / "bin" / "python"
    if not own.exists():
        subprocess.run([python, "-m", "venv", folder], check=True)
    pip = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt"]
    subprocess.run([*pip, "-e", ROOT, *NEEDED], check=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return all(subprocess.run([own, *command], check=False, env=environment, cwd=ROOT).returncode == 0 for command in COMMANDS)


def debian_with(version: str) -> Path | None:
    """A folder with a Debian that has this Python, made by debootstrap from the mirror that this machine uses."""
    folder = ROOT / "build" / f"debian-{version}"
    unfinished = folder / "debootstrap"  # it removes this one at its end
    if (folder / "usr" / "bin" / f"python{version}").exists() and not unfinished.exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    sources = Path(DEBIAN_SOURCES).read_text() if os.path.exists(DEBIAN_SOURCES) else ""
    mirror = re.search(r"^URIs: (\S+/debian)/?$", sources, re.MULTILINE)
    if os.geteuid() or not mirror or not shutil.which("debootstrap"):
        return None
    make = ["debootstrap", "--variant=minbase", f"--include=python{version}", "sid", str(folder), mirror[1]]
    made = subprocess.run(make, stdout=subprocess.DEVNULL, check=False)
    return folder if made.returncode == 0 else None


def test_in_debian(folder: Path, version: str) -> bool:
    """In that folder: wheels come by this machine's pip, so that nothing in there needs a network."""
    packages, sources = folder / "packages", folder / "trellis"
    wheels = ["--only-binary=:all:", "--python-version", version, "--implementation", "cp", "--upgrade", "--target", packages]
    platforms = [f"--platform=manylinux{name}_{os.uname().machine}" for name in ("2014", "_2_17", "_2_27", "_2_28")]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt"]
    subprocess.run([*pip, *wheels, *platforms, "numpy", "ml_dtypes", *NEEDED], check=True)
    shutil.rmtree(sources, ignore_errors=True)
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, files.split("\0")):
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, sources / name)
    environment = {"PYTHONPATH": "/trellis:/packages", "PATH": "/usr/sbin:/usr/bin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
    python = ["chroot", str(folder), "sh", "-c", f'cd /trellis && exec /usr/bin/python{version} "$@"', "sh"]
    return all(subprocess.run([*python, *command], check=False, env=environment).returncode == 0 for command in COMMANDS)


def main(version: str) -> int:
    if python := find(version):
        passed = test_here(python, version)
    elif debian := debian_with(version):
        passed = test_in_debian(debian, version)
    else:
        print(f"Python {version} is not on this machine: install it, or leave it out with PYTHONS=")
        return NOT_TO_BE_HAD
    print(f"Python {version}: {'passed' if passed else 'FAILED'}")
    return not passed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
