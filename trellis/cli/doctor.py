"""`trellis doctor`: what is installed, what it can do, what does not fit together, and how to mend it.

Each check is a function that yields problems. A problem is one sentence that says what is wrong, and one that says what to do.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Any, NamedTuple

import trellis as tl
from trellis.cli.info import align
from trellis.core.dispatch import BACKENDS

# Distributions that Trellis uses or works with, and what each is for.
OPTIONAL = {
    "keras": "to_keras_module, from_keras_module",
    "dm-haiku": "to_haiku_module, from_haiku_module",
    "flax": "to_flax_module, from_flax_module",
    "optree": "tl.Array and tl.Container as nodes of its trees",
    "einops": "tl.rearrange, tl.reduce, tl.repeat_axes",
    "mpi4py": "NumPy on several processes",
    "tensorboard": "tl.TensorBoard",
    "matplotlib": "pictures of curves as PNG",
}
# Two distributions with the same files: the one that was installed last overwrites the other.
SAME_FILES = [("tensorflow", "tensorflow-cpu"), ("keras", "keras-nightly"), ("jax", "jax-nightly")]
# Distributions that one release publishes together, and that work in equal versions.
TOGETHER = [("jax", "jaxlib")]


class Problem(NamedTuple):
    what: str
    fix: str


def doctor(arguments: argparse.Namespace) -> int:
    """Versions, devices and dtypes of what is there, what does not fit together, and its fix; status 1 if something is wrong."""
    print(f"trellis {tl.__version__} on Python {platform.python_version()}, {platform.platform()}\n")
    rows = [("backend", "version", "devices", "dtypes", "computes and differentiates")]
    problems = [*below_minimum(), *same_files(), *unequal_versions(), *keras_backend()]
    for backend in tl.backends():
        if backend.installed:
            cells, found = examine(backend.name)
            rows.append((backend.name, backend.version or "", *cells))
            problems += found
        else:
            rows.append((backend.name, "-", "-", "-", f"not installed: pip install '{BACKENDS[backend.name][2]}'"))
    print(align(rows) + "\n")
    print(align([("optional", "version", "for"), *((name, version(name) or "-", use) for name, use in OPTIONAL.items())]))
    for problem in problems:
        print(f"\nproblem: {problem.what}\n    fix: {problem.fix}")
    print(f"\n{len(problems)} problem{'s' * (len(problems) != 1)} found" if problems else "\nno problem found")
    return int(bool(problems))


def version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def examine(name: str) -> tuple[tuple[str, str, str], list[Problem]]:
    """Devices, dtypes and a verdict of a backend, which computes a value and a gradient here, and its problems."""
    try:
        x = tl.asarray([1.0, 2.0], dtype="float32", backend=name)
        slope = tl.to_numpy(tl.grad(lambda x: tl.sum(tl.exp(x) * x))(x))
        expected = tl.to_numpy(tl.exp(tl.asarray([1.0, 2.0]))) * [2.0, 3.0]
        if abs(slope - expected).max() > 1e-4:
            return ("", "", "wrong"), [Problem(f"a gradient on {name} is {slope}, not {expected}", f"install {name} anew")]
        have = tl.namespace(name).__array_namespace_info__()
        dtypes, devices = have.dtypes(), ", ".join(have.devices())
    except Exception as error:  # whatever a broken installation raises
        first = str(error).strip().partition("\n")[0]
        problem = Problem(f"{name} does not work: {type(error).__name__}: {first}", f"pip install --force-reinstall {name}")
        return ("-", "-", "fails"), [problem]
    narrow = [wide for wide in ("float64", "int64") if wide not in dtypes]
    note = f"{len(dtypes)}, without {' and '.join(narrow)}" if narrow else str(len(dtypes))
    return (devices, note + (": JAX_ENABLE_X64=1 adds them" if narrow else ""), "yes"), []


def minimum_versions() -> dict[str, str]:
    """The least version of each distribution that the metadata of Trellis names."""
    lines = (metadata.requires("trellis") if version("trellis") else None) or ()
    found = (re.match(r"([\w.-]+)(?:\[[^]]*\])?\s*>=\s*([\d.]+)", line) for line in lines)
    return {match[1]: match[2] for match in found if match}


def below_minimum() -> Iterator[Problem]:
    if version("trellis") is None:
        yield Problem("trellis is not installed, and runs from its sources: what it needs is unknown", "pip install .")
    for name, least in minimum_versions().items():
        have = version(name)
        if have is not None and numbers(have) < numbers(least):
            yield Problem(f"{name} is {have}; Trellis needs {least} or later", f"pip install --upgrade '{name}>={least}'")


def numbers(text: str) -> tuple[int, ...]:
    """The release of a version: 2.13.0+cpu is (2, 13, 0)."""
    return tuple(map(int, re.findall(r"\d+", re.split(r"[+a-z]", text)[0])))


def same_files() -> Iterator[Problem]:
    for first, second in SAME_FILES:
        if version(first) and version(second):
            what = f"{first} {version(first)} and {second} {version(second)} are both installed, and share their files"
            yield Problem(what, f"pip uninstall {first} {second}, then install one of them")


def unequal_versions() -> Iterator[Problem]:
    for first, second in TOGETHER:
        a, b = version(first), version(second)
        if a and b and numbers(a) != numbers(b):
            yield Problem(f"{first} is {a}, and {second} is {b}", f"pip install --upgrade {first}=={a} {second}=={a}")


def keras_backend() -> Iterator[Problem]:
    """Keras fixes its backend when it is imported, and fails there if that framework is missing."""
    chosen: Any = os.environ.get("KERAS_BACKEND") or "tensorflow"
    module = BACKENDS[chosen][0] if chosen in BACKENDS else chosen
    if version("keras") and module not in sys.modules and importlib.util.find_spec(module) is None:
        installed = [b.name for b in tl.backends() if b.installed and b.name != "numpy"]
        fix = f"set KERAS_BACKEND to one of {', '.join(installed)}" if installed else f"pip install {chosen}"
        yield Problem(f"Keras is set to the backend {chosen!r}, which is not installed", fix)
