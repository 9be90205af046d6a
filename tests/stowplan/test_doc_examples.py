"""The examples of the documentation run as they stand there. The one that needs a CUDA device: tests/gpu."""

from __future__ import annotations

import importlib.util
import re
import runpy
from pathlib import Path

import pytest

from stowplan.compat import enable_chainer
from stowplan.errors import MissingDependencyError

DOCS = Path(__file__).resolve().parents[2] / "docs"
NEEDS_A_DEVICE = {"cupy_training.py"}
RUN_HERE = sorted(path.name for path in (DOCS / "examples").glob("*.py") if path.name not in NEEDS_A_DEVICE)


@pytest.mark.parametrize("name", RUN_HERE)
def test_an_example_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if name.startswith("chainer"):
        try:
            enable_chainer()
        except MissingDependencyError as error:
            pytest.skip(str(error))
    if name.startswith("cupy") and importlib.util.find_spec("cupy") is None:
        pytest.skip("CuPy is not installed; expected: pip install 'stowplan[cupy]'")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(DOCS / "examples" / name), run_name="__main__")
    assert "replayed" in capsys.readouterr().out


def test_each_example_is_on_a_page() -> None:
    shown = {
        name
        for page in DOCS.glob("*.rst")
        for name in re.findall(r"literalinclude:: examples/(\S+)", page.read_text(encoding="utf-8"))
    }
    assert shown == {path.name for path in (DOCS / "examples").glob("*.py")}
    assert shown >= NEEDS_A_DEVICE
