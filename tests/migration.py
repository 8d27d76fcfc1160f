"""Write `docs/migration.md` from the table of hints: `python tests/migration.py`."""

from __future__ import annotations

from pathlib import Path

from trellis.core.hints import Row, lines

PAGE = Path(__file__).resolve().parent.parent / "docs" / "migration.md"
OWNERS = {
    "tl": "Functions, layers and optimizers", "linalg": "Linear algebra", "fft": "Fourier transforms",
    "Array": "Methods of arrays", "Container": "Methods of Containers", "Module": "Methods of modules",
    "Optimizer": "Methods of optimizers", "Metric": "Methods of metrics", "Distribution": "Methods of distributions",
    "argument": "Arguments",
}  # fmt: skip
# These come first, in this order; then the others by name.
FIRST = ("NumPy", "torch", "JAX", "Keras", "TensorFlow", "Ivy")
TOP = """# From other libraries

The tables say what the names of other libraries are called here: {links}.

The tables hold the names that differ. Any other name is the same in Trellis (`tl.sum`, `tl.softmax`, `tl.Sequential`), in
`tl.linalg` or in `tl.fft`. Names that differ only in capital letters or underscores (`Conv2d`, `BatchNorm1d`) are left out. An
error says the same where a program uses such a name:

```
>>> tl.cat
AttributeError: module 'trellis' has no attribute 'cat';
cat of torch is `tl.concat(arrays, axis=0)` here
```

In the tables `x` is a `tl.Array`, `c` a `tl.Container`, `model` a `tl.Module` and `normal` a distribution; other names stand for
arguments. `python tests/migration.py` writes this page from `trellis/core/hints.tsv`, the table of the errors.
"""


def place(library: str) -> tuple[int, str]:
    return FIRST.index(library) if library in FIRST else len(FIRST), library.lower()


def in_trellis(row: Row) -> str:
    """What to write, and a note."""
    return "; ".join(text for text in (f"`{row.here}`" if row.here else "", row.note) if text)


def page() -> str:
    """The text of the page."""
    rows = [Row(*line.split("\t")) for line in lines()]
    libraries = sorted({name for row in rows for name in row.library.split(", ")}, key=place)
    parts = [TOP.format(links=", ".join(f"[{library}](#{library.lower()})" for library in libraries))]
    for library in libraries:
        parts.append(f"\n## {library}\n")
        for owner, title in OWNERS.items():
            own = [row for row in rows if row.owner == owner and library in row.library.split(", ")]
            if own:
                parts.append(f"\n### {title} of {library}\n\n| {library} | Trellis |\n|---|---|\n")
                parts += [f"| `{row.name}` | {in_trellis(row)} |\n" for row in own]
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
