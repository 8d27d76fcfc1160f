"""The page of the matrix in a real browser. `make test-browser` runs these; they need chromium and chromedriver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser
from test_matrix import EVIL, sample

from trellis.matrix import report
from trellis.matrix.records import FAILED, PASSED, STATUSES, Cell, Record, Run, load_runs, save_record

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = Browser()
    yield found
    found.close()


@pytest.fixture
def page(tmp_path: Path, browser: Browser) -> Iterator[Path]:
    """A page with two runs; in the second a row turned red and its names and messages are hostile."""
    sample(tmp_path / "runs", id="a", date="2026-01-01T00:00:00+00:00", rows=5, evil=True)
    second = sample(tmp_path / "runs", id="b", date="2026-01-02T00:00:00+00:00", rows=5, evil=True)
    compared = [{"line": 3, "how": "assert", "text": "assert x == 1", "count": 2, "error": 1e-9, "what": ["float64 (2,)"]}]
    save_record(
        tmp_path / "runs", second, Record("first", "test_1", "two", FAILED, "wrong <i>now</i>", compared=compared, test="t.py::x")
    )
    runs = load_runs(tmp_path / "runs")
    file = tmp_path / "index.html"
    file.write_text(report.page(runs[1], runs))
    browser.screen(1280, 900)
    browser.open(file)
    yield file
    assert browser.complaints() == []


def rows_shown(browser: Browser) -> list[str]:
    return browser.run("return [...document.querySelectorAll('.block:not([hidden]) tbody th')].map(e => e.dataset.row)")


def test_totals_and_tables(page: Path, browser: Browser) -> None:
    assert browser.text("h1") == "<b>Sample</b>"
    assert browser.text(".figure") == "5\nof 10 cells passed"
    assert browser.text("#columns li:nth-child(2) .share") == "4 of 5 passed"
    assert rows_shown(browser) == [EVIL, "test_1", "test_2", "test_3", "test_4"]
    labels = browser.run("return [...document.querySelectorAll('.cell')].map(e => e.querySelector('.word').textContent)")
    assert labels[::2] == list(STATUSES)


def test_hostile_names_and_messages_are_text(page: Path, browser: Browser) -> None:
    browser.click("[data-cell='2']")
    assert EVIL in browser.text(".verdict p")
    assert browser.text("#evidence pre") == EVIL
    assert browser.run("return document.querySelectorAll('#main script, #evidence script, #main i, #main img').length") == 0
    with pytest.raises(RuntimeError, match="no such alert"):
        browser.send("GET", "/alert/text")


def test_filters(page: Path, browser: Browser) -> None:
    browser.click("#statuses [data-name='failed']")
    assert rows_shown(browser) == ["test_1"]
    assert browser.text("#count") == "1 of 5 rows"
    assert browser.run("return document.querySelector(\"[data-name='failed']\").ariaPressed") == "true"
    browser.click("#statuses [data-name='crashed']")
    assert rows_shown(browser) == ["test_1", "test_2"]
    browser.click("#clear")
    browser.type("#search", "TEST_3")
    assert rows_shown(browser) == ["test_3"]
    browser.click("#clear")
    assert browser.run("return document.activeElement.id") == "search"
    browser.type("#search", "<i>now")
    assert rows_shown(browser) == ["test_1"]
    browser.click("#clear")
    browser.click("#backends [data-name='two']")
    heads = "return [...document.querySelectorAll('thead th:not([hidden])')].map(e => e.innerText)"
    assert browser.run(heads) == ["test", "two"]
    browser.type("#search", "nothing like this")
    assert rows_shown(browser) == []
    assert browser.text(".empty") == "No row matches these filters."


def test_evidence_opens_closes_and_has_an_address(page: Path, browser: Browser) -> None:
    browser.click("[data-cell='3']")
    assert browser.text("#evidence-title") == "test_1"
    text = browser.text("#evidence-body")
    for part in ("wrong <i>now</i>", "assert x == 1", "1.0e-9", "t.py::x", "expected float64 (2,)"):
        assert part in text
    history = browser.run("return [...document.querySelectorAll('.past li')].map(e => e.innerText.split('\\n')[0])")
    assert [line.split()[0] for line in history] == ["failed", "passed"]
    browser.press("Escape")
    assert browser.run("return [document.getElementById('evidence').open, document.activeElement.dataset.cell]") == [False, "3"]
    browser.open(page, "#first/test_2/one")
    assert browser.text("#evidence-title") == "test_2"
    assert browser.text(".verdict strong") == "crashed"
    browser.click("#siblings a:nth-child(2)")
    assert browser.text(".verdict strong") == "passed"


def test_two_runs_compared(page: Path, browser: Browser) -> None:
    assert browser.text("#changes summary") == "Compare two runs: 1 turned red"
    browser.click("#changes summary")
    assert browser.text("#changes-list h3") == "Turned red: 1"
    assert browser.text("#changes-list li") == "test_1 on two passed → failed"
    browser.click("#changes-list button")
    assert browser.text("#evidence-title") == "test_1"


def test_keyboard_alone(page: Path, browser: Browser) -> None:
    browser.press("Tab")
    assert browser.run("return document.activeElement.className") == "skip"
    browser.press("/")
    assert browser.run("return document.activeElement.id") == "search"
    browser.run("document.querySelector(\"[data-cell='0']\").focus()")
    browser.press("Right", "Down")
    assert browser.run("return document.activeElement.dataset.cell") == "3"
    browser.press("Enter")
    assert browser.run("return document.activeElement.id") == "close"
    browser.press("Enter")
    assert browser.run("return document.activeElement.dataset.cell") == "3"


def test_screen_readers_find_names_and_roles(page: Path, browser: Browser) -> None:
    nodes = browser.devtools("Accessibility.getFullAXTree")["nodes"]
    found = [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if "role" in n and not n["ignored"]]
    for node in (
        ("heading", "first"),
        ("table", "first"),
        ("columnheader", "one"),
        ("rowheader", "test_1"),
        ("searchbox", "Search rows and reasons"),
    ):
        assert node in found
    assert ("button", "failed 1 comparison, test_1 on two, wrong <i>now</i>") in found
    assert ("status", "") in found
    nameless = [
        node for node in found if node[0] in ("button", "link", "combobox", "textbox", "searchbox", "table") and not node[1]
    ]
    assert nameless == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390], ids=["desktop", "phone"])
def test_it_fits_the_screen_and_can_be_read(page: Path, browser: Browser, width: int, dark: bool) -> None:
    browser.screen(width, 844, dark=dark)
    browser.open(page)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.run(_CONTRAST, ".cell, .chip, .about, h2, tbody th, .figure, .version, .hint, .count") >= 4.5
    small = "return Math.min(...[...document.querySelectorAll('.cell, .chip')].map(e => e.getBoundingClientRect().height))"
    assert browser.run(small) >= (40 if width < 600 else 28)
    browser.click("[data-cell='3']")
    assert browser.run("return document.getElementById('evidence').scrollWidth") <= width
    assert browser.run(_CONTRAST, "dialog p, dialog dt, dialog .by, dialog td, dialog .past span") >= 4.5
    browser.screenshot(page.with_suffix(".png"))
    assert page.with_suffix(".png").stat().st_size > 10_000


# The smallest contrast of the texts that a selector finds, by the formula of WCAG 2. Colours come as rgb() or color(srgb ...).
_CONTRAST = """
const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const parse = (colour) => {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  return canvas.getImageData(0, 0, 1, 1).data;
};
const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
const light = (c) => 0.2126 * linear(c[0] / 255) + 0.7152 * linear(c[1] / 255) + 0.0722 * linear(c[2] / 255);
const behind = (e) => {
  const back = e ? parse(getComputedStyle(e).backgroundColor) : parse('white');
  return back[3] > 250 ? back : behind(e.parentElement);
};
let least = 99;
for (const e of document.querySelectorAll(arguments[0])) {
  if (!e.innerText || !e.innerText.trim()) continue;
  const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
  least = Math.min(least, (a + 0.05) / (b + 0.05));
}
return least;
"""


def test_the_theme_can_be_chosen(page: Path, browser: Browser) -> None:
    back = "return getComputedStyle(document.body).backgroundColor"
    light = browser.run(back)
    browser.click("#theme")
    browser.click("#theme")
    assert browser.text("#theme") == "Theme: dark"
    assert browser.run(back) != light
    browser.click("#theme")
    assert browser.run(back) == light


def milliseconds(browser: Browser) -> float:
    return next(1000 * m["value"] for m in browser.devtools("Performance.getMetrics")["metrics"] if m["name"] == "TaskDuration")


def test_ten_thousand_rows_filter_within_a_tenth_of_a_second(tmp_path: Path, browser: Browser) -> None:
    names = [f"test_operation_{i}" for i in range(10_000)]
    backends = ["numpy", "jax", "torch", "tensorflow"]
    run = Run("a", "Large", "2026-01-01T00:00:00+00:00", "", "3.11", "Linux", backends, {"all": names}, duration=1.0)
    for i, name in enumerate(names):
        for backend in backends:
            status = STATUSES[i % 5] if backend == "jax" else PASSED
            run.records[Cell("all", name, backend)] = Record(
                "all", name, backend, status, "" if status == PASSED else f"reason {i % 7}"
            )
    file = tmp_path / "index.html"
    file.write_text(report.page(run, [run]))
    browser.screen(1280, 900)
    browser.open(file)
    assert browser.text("#count") == "10,000 rows"
    # What the page's own thread took, script, layout and painting: a busy machine does not stretch it as it does the clock.
    browser.devtools("Performance.enable", timeDomain="threadTicks")
    times = []

    def filtered(script: str, expected: str) -> None:
        before = milliseconds(browser)
        browser.run(f"{script}; void document.body.offsetHeight")
        times.append(milliseconds(browser) - before)
        assert browser.text("#count") == expected

    press, search = "document.querySelector(`{}`).click()", "const s = document.getElementById('search'); s.value = '{}'; "
    clear = press.format("#clear")
    for _ in range(3):
        filtered(press.format("#statuses [data-name='failed']"), "2,000 of 10,000 rows")
        filtered(clear, "10,000 rows")
        filtered(search.format("77") + "s.dispatchEvent(new Event('input'))", "280 of 10,000 rows")
        filtered(clear, "10,000 rows")
        filtered(press.format("#backends [data-name='jax']"), "10,000 of 10,000 rows")
        filtered(clear, "10,000 rows")
    assert sorted(times)[len(times) // 2] < 100, times
    browser.click(".more button")
    assert len(rows_shown(browser)) == 560
