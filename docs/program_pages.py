"""The pages of the gallery's programs, made when the site is built: the picture, the command and the source of each."""

from __future__ import annotations

import re
from pathlib import Path

_PROGRAM = re.compile(r"^## (.*)\n\n\[!\[(.*)\]\((.*)\)\]\(\.\./(examples/(\w+)\.py)\)\n\n((?:.+\n)+)", re.MULTILINE)


def write(folder: Path) -> None:
    """Write a page for each program that `gallery.md` names."""
    (folder / "programs").mkdir(exist_ok=True)
    for title, text, picture, source, name, about in _PROGRAM.findall((folder / "gallery.md").read_text()):
        about = about.rpartition("\n[`")[0]
        page = f"""---
orphan: true
---

# {title}

{about} This is one of the programs of the [gallery](../gallery.md).

```
python {source} --backend torch
```

![{text}](../{picture})

```{{literalinclude}} ../../{source}
:language: python
```
"""
        path = folder / "programs" / f"{name}.md"
        if not path.exists() or path.read_text() != page:
            path.write_text(page)


def lead_to_pages(app: object, name: str, source: list[str]) -> None:
    """In the repository `gallery.md` leads to the sources, on the site to their pages."""
    if name == "gallery":
        source[0] = re.sub(r"\(\.\./examples/(\w+)\.py\)", r"(programs/\1.md)", source[0])
