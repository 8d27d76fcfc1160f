"""How Sphinx builds the site: `make docs`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import program_pages  # noqa: E402
import reference_pages  # noqa: E402

import trellis  # noqa: E402

reference_pages.write(HERE)
program_pages.write(HERE)

project, author, release = "Trellis", "The Trellis authors", trellis.__version__
extensions = ["myst_parser", "sphinx_copybutton"]
exclude_patterns = ["matrix/README.md", "matrix/evidence/**", "_build"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
copybutton_exclude = ".linenos, .gp, .go"
html_theme, html_title = "furo", "Trellis"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = []
html_theme_options = {"source_edit_link": "", "top_of_page_buttons": []}
html_show_sphinx = html_show_copyright = False


def mend(app, error: Exception | None) -> None:
    """Give headings without a level one, and let keys scroll what is wider than the screen: the theme does neither."""
    for page in [] if error else Path(app.outdir).rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        mended = text.replace('role="heading">', 'role="heading" aria-level="2">').replace("<pre>", '<pre tabindex="0">')
        page.write_text(mended.replace('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'), encoding="utf-8")


def setup(app) -> None:
    app.connect("source-read", program_pages.lead_to_pages)
    app.connect("build-finished", mend)
