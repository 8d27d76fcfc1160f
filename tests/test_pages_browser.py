"""The site, the demo and the matrix in a real browser. `make test-pages` builds them and runs these.

axe-core, the checker of accessibility, comes from npm.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from browser import Browser

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "site"
AXE = ROOT / "build" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
SITE_PAGES = (
    "index", "start", "arrays", "gradients", "gallery", "programs/tiny_gpt", "reference/training", "migration", "performance",
    "genindex",
)  # fmt: skip
PAGES = {
    "demo": ROOT / "build" / "demo.html",
    "matrix": ROOT / "docs" / "matrix" / "index.html",
    **{name: SITE / f"{name}.html" for name in SITE_PAGES},
}
SCREENS = {"desktop": (1280, 900, False), "phone": (390, 844, False), "dark": (1280, 900, True)}

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = Browser()
    yield found
    found.close()


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("name", PAGES)
def test_page_is_accessible_and_fits(browser: Browser, name: str, screen: str) -> None:
    width, height, dark = SCREENS[screen]
    browser.screen(width, height, dark=dark)
    browser.open(PAGES[name])
    browser.run(AXE.read_text() + "; window.axe = axe;")
    script = """const done = arguments[arguments.length - 1];
    axe.run(document, {preload: false})
      .then((found) => done(found.violations.map((v) => [v.impact, v.id, v.nodes[0].html.slice(0, 200)])));"""
    found = browser.send("POST", "/execute/async", script=script, args=[])
    assert [each for each in found if each[0] in ("serious", "critical")] == []
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.complaints() == []


def test_the_demo_shows_the_losses_of_a_step(browser: Browser) -> None:
    browser.screen(1280, 900)
    browser.open(PAGES["demo"])
    curves = json.loads(browser.run("return document.getElementById('data').textContent"))["curves"]
    browser.run("document.querySelector('#plot svg').focus()")
    browser.press("Left", "Left")
    step = len(next(iter(curves.values()))) - 2
    text = browser.text("#values")
    assert text.startswith(f"step {step}: ")
    assert [f"{name} {losses[step - 1]:.6f}" for name, losses in curves.items()] == text.partition(": ")[2].split(" · ")
    assert browser.run("return document.querySelectorAll('#plot polyline').length") == len(curves)
    assert browser.run("return document.querySelectorAll('#digits img').length") == 10


def test_the_search_needs_no_server(browser: Browser) -> None:
    browser.screen(1280, 900)
    browser.open(SITE / "search.html", "?q=cross_entropy")
    script = """const done = arguments[arguments.length - 1], links = () => document.querySelectorAll("#search-results li a");
    const look = () => { links().length ? done([...links()].map((link) => link.href)) : setTimeout(look, 100); };
    look();"""
    found = browser.send("POST", "/execute/async", script=script, args=[])
    assert any("reference/networks.html" in link for link in found)


class Links(HTMLParser):
    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors |= {value for key in ("id", "name") if (value := found.get(key))}
        self.links += [value for key in ("href", "src") if (value := found.get(key)) and tag != "base"]


def test_no_link_of_the_site_is_dead() -> None:
    """Files and anchors; addresses of other sites are not opened."""
    pages = {path.resolve(): Links(path) for path in SITE.rglob("*.html")}
    assert len(pages) > 30
    dead = []
    for page, found in pages.items():
        for link in found.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = Path(os.path.normpath(page.parent / unquote(parts.path))) if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            anchors = pages[target].anchors if target in pages else {"", unquote(parts.fragment)}
            if not target.exists() or unquote(parts.fragment) not in anchors:
                dead.append(f"{page.relative_to(SITE)}: {link}")
    assert dead == []
