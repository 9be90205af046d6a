"""The command that makes the pictures of README and docs, on a small profile."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from stowplan.profiler import Profile

from ..children import printed

ROOT = Path(__file__).resolve().parents[2]
MISSING = [name for name in ("bokeh", "selenium", "PIL") if find_spec(name) is None] + [
    name for name in ("chromium", "chromedriver") if shutil.which(name) is None
]


@pytest.mark.slow  # a browser draws whole pages on the processor
@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
def test_all_pictures_are_made(tmp_path: Path) -> None:
    Profile([4000, 8000], [0, 1], [3, 5], period=4).save(tmp_path / "step.profile")
    printed("-m", "tools.screenshots", tmp_path / "step.profile", "--to", tmp_path)
    for name in ("report.png", "report-dark.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "terminal.svg").read_text()
    assert text.startswith("<svg")
    assert "planned&#160;peak" in text
    assert "url(" not in text.replace("url(#", "")
