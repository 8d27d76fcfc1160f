"""What the documentation shows works: Python examples run, links lead somewhere."""

from __future__ import annotations

import contextvars
import doctest
import importlib.util
import inspect
import io
import os
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path
from typing import Any

import pytest

import trellis as tl

ROOT = Path(__file__).resolve().parent.parent
# Pages that the build of the site makes: from docstrings, which doctest runs, and from examples, which test_gallery.py runs.
PAGES = sorted(p for p in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")) if p.parent.name not in ("programs", "reference"))

_PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^(`{3,}).*?^\1$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)[^`\n].*?\1")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def anchors(page: Path) -> set[str]:
    """The names that the headings of a page can be linked by, as GitHub makes them."""
    headings = _HEADING.findall(_FENCED.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    """Links of a page to files or headings that do not exist."""
    broken = []
    for link in _LINK.findall(_CODE.sub("", _FENCED.sub("", page.read_text()))):
        if re.match(r"[a-z]+:", link):
            continue  # another site: not looked up, so that tests need no network
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if target.parent.name == "reference":
            continue  # made when the site is built, which finds links that lead nowhere
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Two words\n[a](#two-words) [b](nowhere.md) [c](#nothing) [d](https://example.org) `x[0](y)`\n")
    assert broken_links(page) == ["nowhere.md", "#nothing"]


def printed(code: str) -> list[str]:
    """What an example says it prints: the comment lines right after a line that prints."""
    return re.findall(r"^# (.*)$", "".join(re.findall(r"^ *print\(.*\n((?:# .*\n)*)", code, re.MULTILINE)), re.MULTILINE)


def output_of(*arguments: str | Path) -> str:
    """What a fresh interpreter prints, from a checkout as from an installed package."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_readme_examples_run() -> None:
    for framework in ("torch", "jax", "tensorflow"):
        if importlib.util.find_spec(framework) is None:
            pytest.skip(f"README's example runs on four frameworks; {framework} is not installed")
    code = "\n".join(_PYTHON_BLOCK.findall((ROOT / "README.md").read_text()))
    assert printed(code)
    assert output_of("-c", code).splitlines() == printed(code)


# Pages whose examples other tests run on every backend, or in processes of their own.
ELSEWHERE = {"docs/training.md": "test_training_docs.py", "docs/converters.md": "test_convert_weights.py"}
GUIDES = [page for page in PAGES if _PYTHON_BLOCK.search(page.read_text()) and page_name(page) not in {*ELSEWHERE, "README.md"}]


@pytest.mark.xdist_group("torch")  # most pages show torch beside NumPy
@pytest.mark.parametrize("page", GUIDES, ids=page_name)
def test_examples_of_a_page_run(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "\n".join(_PYTHON_BLOCK.findall(page.read_text()))

    def run() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the libraries that a page shows
            exec(compile(code, page_name(page), "exec"), {"__name__": "page"})

    contextvars.copy_context().run(run)  # a backend that a page chooses stays there
    assert capsys.readouterr().out.splitlines() == printed(code)


def test_demo_runs() -> None:
    output = output_of(ROOT / "examples" / "demo.py")
    names = [backend.name for backend in tl.backends() if backend.installed]
    assert [line.split()[0] for line in output.splitlines() if line.startswith(tuple(names))] == names
    differences = re.findall(r"largest difference .*: (\S+)$", output, re.MULTILINE)
    assert [float(d) < 1e-3 for d in differences] == [True] * (len(names) > 1)


def test_readme_is_short_and_reads_right_on_a_package_index() -> None:
    """An index shows the README without the repository around it: pictures and links inside of it would be dead there."""
    text = (ROOT / "README.md").read_text()
    assert len(text.encode()) < 6200
    assert len(re.findall(r"!\[[^]]*\]\(docs/_static/", text)) == 1
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    hook = project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    assert hook["fragments"] == [{"path": "README.md"}]
    for rule in hook["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    assert "[Arrays]" not in text
    assert [line for line in text.splitlines() if line in ("All cells, with their evidence", "Gradients", "Scale")] == []
    assert [link for link in re.findall(r"\]\(([^)]*)\)", text) if not link.startswith("https://")] == []


def reference_maker() -> Any:
    """The module that makes the pages of the reference."""
    spec = importlib.util.spec_from_file_location("reference_pages", ROOT / "docs" / "reference_pages.py")
    assert spec is not None
    assert spec.loader is not None
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    return maker


def test_the_reference_has_every_public_name() -> None:
    maker = reference_maker()
    pages = maker.pages()  # raises for a name that no page is for
    headings = {line.removeprefix("## ") for text in pages.values() for line in text.splitlines() if line.startswith("## ")}
    missing = {f"tl.{name}" for name in tl.__all__ if not inspect.ismodule(getattr(tl, name))} - headings
    assert missing <= {f"tl.{name}" for name in maker.MODULES}
    assert headings >= {f"tl.linalg.{name}" for name in tl.linalg.__all__}


@pytest.mark.xdist_group("torch")
def test_every_public_name_has_an_example_that_runs_alone() -> None:
    """What the reference shows can be copied: it begins with its imports, and needs nothing of the file that it stands in."""
    shown = [(name, value) for names in reference_maker().public_names().values() for name, value in names]
    documented = {
        name: inspect.getdoc(value) or "" for name, value in shown if callable(value) and not isinstance(value, tl.DType)
    }
    assert len(documented) > 500
    assert [name for name, text in documented.items() if ">>> import" not in text and ">>> from" not in text] == []
    runner, complaints = (
        doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS, verbose=False),
        io.StringIO(),
    )
    for name, text in documented.items():
        example = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            contextvars.copy_context().run(runner.run, example, out=complaints.write)
    assert complaints.getvalue() == ""


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/*.md")), ids=page_name)
def test_code_of_a_page_fits_beside_the_menu(page: Path) -> None:
    lines = "\n".join(_PYTHON_BLOCK.findall(page.read_text())).splitlines()
    assert [line for line in lines if len(line) > 100] == []
