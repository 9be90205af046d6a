"""Workers' answers become rows, tables and verdicts; what is not installed is said."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from click.testing import CliRunner

from experiments.measures import peers
from experiments.torch import __main__ as command


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(peers, "LIBRARIES", {"jemalloc": ("libno.so",)})
    done = CliRunner().invoke(command.main, ["--quick", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "jemalloc is left out: expected libno.so" in done.output
    assert "ResNet-18: left out: no torch; expected: pip install 'stowplan[torch]'" in done.output
    text = (tmp_path / "torch.md").read_text()
    assert "no torch; expected" in text
    assert "jemalloc is left out" in text
