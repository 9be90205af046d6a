"""Every experiment's command starts: what it imports is there. What they measure is not a test's business."""

from __future__ import annotations

from importlib import import_module

import pytest
from click.testing import CliRunner

from ..children import ROOT

FILES = sorted(path for path in (ROOT / "experiments").rglob("*.py") if "@click.command" in path.read_text())


@pytest.mark.parametrize("name", [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in FILES])
def test_a_command_starts(name: str) -> None:
    if name.startswith("experiments.torch."):
        pytest.importorskip("torch", reason="PyTorch is not installed; expected: make torch-test")
    assert CliRunner().invoke(import_module(name).main, ["--help"]).exit_code == 0
