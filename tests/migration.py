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
TOP = """# From other libraries

What the names of other libraries are called here. The tables hold the names that differ; a name that is not in them has the same
name in Trellis (`tl.sum`, `tl.softmax`, `tl.Sequential`), in `tl.linalg` or in `tl.fft`. Names that differ in capital letters or
underscores only (`Conv2d`, `BatchNorm1d`) are left out. The errors tell the same:

```
>>> tl.cat
AttributeError: module 'trellis' has no attribute 'cat'; cat of torch is `tl.concat(arrays, axis=0)` here
```

`x` is a `tl.Array`, `c` a `tl.Container`, `model` a `tl.Module`, `normal` a distribution; other names stand for arguments.
`trellis/core/hints.tsv` is the source of this page: `python tests/migration.py` writes it.
"""


def page() -> str:
    """The text of the page."""
    rows = [Row(*line.split("\t")) for line in lines()]
    libraries = dict.fromkeys(name for row in rows for name in row.library.split(", "))
    parts = [TOP]
    for library in sorted(libraries, key=str.lower):
        parts.append(f"\n## {library}\n")
        for owner, title in OWNERS.items():
            own = [row for row in rows if row.owner == owner and library in row.library.split(", ")]
            if own:
                parts.append(f"\n### {title} of {library}\n\n| {library} | Trellis | |\n|---|---|---|\n")
                parts += [f"| `{row.name}` | {f'`{row.here}`' if row.here else ''} | {row.note} |\n" for row in own]
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
