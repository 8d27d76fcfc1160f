"""The page on training shows what runs, on every backend."""

from __future__ import annotations

import pytest
from test_docs import _PYTHON_BLOCK, ROOT, printed

import trellis as tl


def test_the_page_on_training(backend: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if backend == "torch":
        from trellis.backends.torch import control

        monkeypatch.setattr(control, "OPTIONS", {"backend": "eager"})  # inductor takes minutes for Dropout, as the page says
    code = "\n".join(_PYTHON_BLOCK.findall((ROOT / "docs" / "training.md").read_text()))
    tl.seed(0)
    with tl.using(backend):
        exec(compile(code, "docs/training.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == printed(code)
