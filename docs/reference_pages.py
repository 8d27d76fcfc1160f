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
            "transforms.gradients", "transforms.recomputation", "transforms.control", "transforms.vmap",
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
TOP = """# Reference

Every public name has an entry with its signature, its docstring and an example. The examples run in the tests.

In signatures, `AnyArray` is an array of any of the four frameworks or a `tl.Array`. An `Operand` is an `AnyArray`, a
`tl.Container`, a number, or a list of numbers. `Any` stands for nests of arrays, dtypes, devices and functions.

| page | names |
|---|---:|
"""
WIDTH = 92  # of a signature, in characters: what fits beside the menu


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
    """A docstring as Markdown: its examples become blocks of code, its lines `argument: text` a list."""
    docstring = re.sub(r"^(\w+(?:, \w+)*): (?=\S)", r"- `\1`: ", docstring, flags=re.MULTILINE)
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
    if isinstance(value, property):
        return f"{level} {name}\n\nA property. {rendered(docstring)}\n"
    try:
        signature = signature_text(name.removeprefix("tl."), inspect.signature(value))
    except (TypeError, ValueError):
        signature = ""
    shown = f"\n```python\n{signature}\n```\n" if signature and len(signature) < 1500 else ""
    return f"{level} {name}\n{shown}\n{rendered(docstring)}\n"


def signature_text(name: str, signature: inspect.Signature) -> str:
    """A call as Python writes it, in lines that fit; the annotations are strings, and lose their quotes."""
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", f"{name}{signature}")
    if len(text) <= WIDTH:
        return text
    parameters, result = text[len(name) + 1 :].rpartition(")")[::2]
    lines, depth = [""], 0
    for part in re.split(r"(?<=,) ", parameters):
        if depth == 0 and len(lines[-1]) + len(part) > WIDTH - 5:
            lines.append("")
        lines[-1] += f" {part}" if lines[-1] else part
        depth += sum(part.count(c) for c in "([{") - sum(part.count(c) for c in ")]}")
    return "\n".join([f"{name}(", *(f"    {line}" for line in lines), f"){result}"])


def methods(name: str, kind: Any) -> str:
    """The public methods and properties with a docstring that a class has and its base classes have not."""
    parts = []
    for method, value in sorted(vars(kind).items()) if isinstance(kind, type) else ():
        raw = getattr(value, "__func__", value)
        own = callable(raw) and getattr(raw, "__qualname__", "").startswith(f"{kind.__name__}.")
        if method.startswith("_") or any(hasattr(base, method) for base in kind.__mro__[1:]) or not inspect.getdoc(raw):
            continue
        if own or isinstance(value, property):
            parts.append(entry(f"{name.removeprefix('tl.')}.{method}", raw, "###"))
    return "\n".join(parts)


def contents(names: list[str]) -> str:
    """The names of a page in a line, each a link to its entry."""
    return " · ".join(f"[`{name.rpartition('.')[2]}`](#{re.sub('[^a-z0-9_]', '', name.lower())})" for name in names)


def pages() -> dict[str, str]:
    """The path of each page of the reference, and its text."""
    found = public_names()
    titles = {page: title for page, (title, _) in GROUPS.items()} | {page: title for page, (_, title) in MODULES.items()}
    made = {}
    for page, title in titles.items():
        parts = [entry(name, value) + methods(name, value) for name, value in found[page]]
        made[f"reference/{page}.md"] = "\n".join([f"# {title}\n", contents([name for name, _ in found[page]]) + "\n", *parts])
    index = "\n".join(f"| [{title}]({page}.md) | {len(found[page])} |" for page, title in titles.items())
    made["reference/index.md"] = TOP + index + "\n\n```{toctree}\n:hidden:\n\n" + "\n".join(titles) + "\n```\n"
    return made


def write(folder: Path) -> None:
    """Write the pages that are new or differ, so that a second build reads only these."""
    for path, text in pages().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        if not (folder / path).exists() or (folder / path).read_text() != text:
            (folder / path).write_text(text)
