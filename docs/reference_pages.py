"""The pages of the reference, made from the docstrings when the site is built.

Every public name is on one page, under a heading of its own, with its signature and its docstring. A name without a group fails
the build.
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from pathlib import Path
from types import ModuleType
from typing import Any

import trellis as tl

# Page -> title, and the modules whose public names stand on it; a name goes by the module that defines it.
GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "arrays": ("Arrays", ("core.array", "core.container", "core.shapes", "namespaces", "core.dispatch", "ops.data_types")),
    "creation": ("Creation and conversion", ("ops.creation", "ops.conversion")),
    "elementwise": ("Elementwise functions", ("ops.elementwise", "ops.comparison", "ops.special")),
    "reduction": ("Reductions, sorting and searching", ("ops.reduction", "ops.searching")),
    "shapes": ("Shapes and indexing", ("ops.manipulation", "ops.indexing", "ops.patterns")),
    "products": ("Products", ("ops.products", "ops.linalg")),
    "transforms": (
        "Gradients, control flow and compiling",
        (
            "transforms.gradients", "transforms.recomputation", "transforms.control", "transforms.recurrence", "transforms.vmap",
            "transforms.compile",
        ),
    ),
    "random": ("Random numbers", ("random.samplers", "random.distributions", "random.keys", "random.state")),
    "networks": (
        "Functions of networks",
        (
            "ops.activations", "ops.attention", "ops.convolution", "ops.images", "ops.losses", "ops.normalization", "ops.pooling",
            "ops.recurrent",
        ),
    ),
    "modules": ("Modules", ("nn.module", "nn.functional", "nn.saving", "nn.printing")),
    "layers": (
        "Layers",
        ("nn.linear", "nn.convolution", "nn.attention", "nn.recurrent", "nn.normalization", "nn.functions", "nn.composition"),
    ),
    "initializers": ("Initializers", ("random.initializers",)),
    "optimizers": (
        "Optimizers and schedules",
        ("optim.engine", "optim.rules", "optim.updates", "optim.wrappers", "optim.gradients", "optim.schedules"),
    ),
    "training": (
        "Training",
        ("training.trainer", "data.batches", "training.callbacks", "training.history", "training.steps", "training.plot"),
    ),
    "graphs": ("Graphs and transpilation", ("trace", "trace.graph", "trace.transpile")),
}  # fmt: skip
# Page -> title and module, for modules that are public themselves.
MODULES: dict[str, tuple[str, str]] = {
    "linalg": ("tl.linalg", "Linear algebra"),
    "fft": ("tl.fft", "Fourier transforms"),
    "distributions": ("tl.distributions", "Distributions"),
    "metrics": ("tl.metrics", "Metrics"),
    "convert": ("tl.convert", "Conversion"),
    "data": ("tl.data", "Data from files"),
    "distributed": ("tl.distributed", "Several processes"),
    "tree": ("tl.tree", "Nests"),
}
METHODS = {"arrays": ("Array", "Container"), "modules": ("Module",)}  # classes whose own methods are shown


def public_names() -> dict[str, list[tuple[str, Any]]]:
    """Page -> the names on it and what they stand for."""
    page_of = {f"trellis.{module}": page for page, (_, modules) in GROUPS.items() for module in modules}
    found: dict[str, list[tuple[str, Any]]] = defaultdict(list)
    for name in sorted(set(tl.__all__), key=str.lower):
        value = getattr(tl, name)
        if isinstance(value, ModuleType) or name in MODULES:
            continue
        plain = isinstance(value, (float, tl.DType)) or value is None or getattr(value, "__module__", "") == "trellis.core.dtypes"
        page = "arrays" if plain else page_of.get(getattr(value, "__module__", ""))
        if page is None:
            raise KeyError(f"tl.{name} is defined in {value.__module__}, which no group of the reference names")
        found[page].append((f"tl.{name}", value))
    for page, (prefix, _) in MODULES.items():
        module = getattr(tl, page)
        found[page] = [(f"{prefix}.{name}", getattr(module, name)) for name in module.__all__]
    return found


def rendered(docstring: str) -> str:
    """A docstring as Markdown: its examples become blocks of code."""
    parts, lines = [], docstring.splitlines() + [""]
    code: list[str] = []
    for line in lines:
        if line.startswith(">>> ") or (code and line.strip()):
            code.append(line)
        else:
            if code:
                parts += ["", "```pycon", *code, "```", ""]
                code = []
            parts.append(line)
    return "\n".join(parts)


def entry(name: str, value: Any, level: str = "##") -> str:
    """The heading, the signature and the docstring of one name."""
    docstring = inspect.getdoc(value) or ""
    if isinstance(value, (float, tl.DType)) or value is None:
        return f"{level} {name}\n\n`{value!r}`\n"
    try:
        signature = f"{name.removeprefix('tl.')}{inspect.signature(value)}"
    except (TypeError, ValueError):
        signature = ""
    signature = re.sub(r"(: |-> )'([^']*)'", r"\1\2", signature)  # annotations are strings
    shown = f"\n```python\n{signature}\n```\n" if signature and len(signature) < 1500 else ""
    return f"{level} {name}\n{shown}\n{rendered(docstring)}\n"


def methods(name: str) -> str:
    """The public methods and properties that a class defines itself and that have a docstring of their own."""
    kind, parts = getattr(tl, name), []
    for method, value in sorted(vars(kind).items()):
        raw = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if not method.startswith("_") and callable(raw) and inspect.getdoc(raw) and raw.__qualname__.startswith(f"{name}."):
            parts.append(entry(f"{name}.{method}", raw, "###"))
    return "\n".join(parts)


def pages() -> dict[str, str]:
    """The path of each page of the reference, and its text."""
    found = public_names()
    titles = {page: title for page, (title, _) in GROUPS.items()} | {page: title for page, (_, title) in MODULES.items()}
    made = {}
    for page, title in titles.items():
        shown = METHODS.get(page, ())
        parts = [entry(name, value) + (methods(name[3:]) if name[3:] in shown else "") for name, value in found[page]]
        made[f"reference/{page}.md"] = f"# {title}\n\n" + "\n".join(parts)
    index = "\n".join(f"| [{title}]({page}.md) | {len(found[page])} |" for page, title in titles.items())
    contents = "\n```{toctree}\n:hidden:\n\n" + "\n".join(titles) + "\n```\n"
    top = "# Reference\n\nEvery public name, with its docstring. The examples run in the tests.\n\n| page | names |\n|---|---:|\n"
    made["reference/index.md"] = top + index + "\n" + contents
    return made


def write(folder: Path) -> None:
    """Write the pages that are new or differ, so that a second build reads only these."""
    for path, text in pages().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        if not (folder / path).exists() or (folder / path).read_text() != text:
            (folder / path).write_text(text)
