"""The programs of the gallery: each in its short form on every backend, with the numbers it has on NumPy."""

from __future__ import annotations

import functools
import importlib
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import trellis as tl

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
PROGRAMS = sorted(p.stem for p in EXAMPLES.glob("*.py") if "gallery.run(main)" in p.read_text())
OWN_PROCESS = {"pipeline"}  # SciPy reads its environment when it is imported


@functools.cache
def program(name: str) -> Any:
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    return importlib.import_module(name)


def numbers(name: str, backend: str) -> dict[str, float]:
    if name in OWN_PROCESS:
        command = [sys.executable, str(EXAMPLES / f"{name}.py"), "--backend", backend, "--short", "--picture", ""]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=EXAMPLES.parent)
        assert done.returncode == 0, done.stderr
        printed = re.findall(r"^(?!picture)(.*): (\S+)$", done.stdout, re.MULTILINE)
        return {label: float(value) for label, value in printed}
    with tl.using(backend), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries that a program shows
        return program(name).main(True)[0]


@functools.cache
def on_numpy(name: str) -> dict[str, float]:
    return numbers(name, "numpy")


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers(name: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if backend == "torch":
        from trellis.backends.torch import control

        monkeypatch.setattr(control, "OPTIONS", {"backend": "eager"})  # inductor takes minutes
    expected = on_numpy(name)
    found = numbers(name, backend) if backend != "numpy" else expected
    assert found == pytest.approx(expected, rel=2e-2, abs=5e-3)
    before = {label.removesuffix(" before"): value for label, value in found.items() if label.endswith(" before")}
    for label, value in before.items():
        better = found[f"{label} after"] - value
        assert better > 0 if label == "bound" else better < 0


def test_every_program_is_short_and_has_its_picture() -> None:
    page = (EXAMPLES.parent / "docs" / "gallery.md").read_text()
    for name in PROGRAMS:
        assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= 120, name
        assert f"_static/gallery/{name}.png" in page, name
        assert (EXAMPLES.parent / "docs" / "_static" / "gallery" / f"{name}.png").exists(), name
