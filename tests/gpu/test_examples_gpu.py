"""Chainer's MNIST example on the GPU, and the example of the documentation's page on CuPy."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "cupy_training.py"


def test_the_documentation_s_example(cupy: Any, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert "replayed" in capsys.readouterr().out
