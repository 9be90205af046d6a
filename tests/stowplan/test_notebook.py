"""``%%stowplan`` in IPython's own shell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stowplan.cli.notebook import run_cell
from stowplan.errors import ScriptError

InteractiveShell: Any = pytest.importorskip(
    "IPython.core.interactiveshell",
    reason="IPython is not installed; expected: pip install 'stowplan[notebook]'",
).InteractiveShell


@pytest.fixture
def shell() -> Iterator[Any]:
    shell = InteractiveShell()
    shell.run_line_magic("load_ext", "stowplan")
    shell.run_cell("import numpy as np\ndef train(x):\n    return float((np.full(5000, x) * 2).sum())")
    yield shell
    shell.history_manager.end_session()


def test_a_cell_is_served(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell_magic("stowplan", "--step-function train", "for x in range(100):\n    last = train(x)")
    said = capsys.readouterr().out
    assert said.startswith("stowplan: numpy: 100 steps; "), said
    assert said.count("\n") == 1
    assert shell.user_ns["last"] == 99 * 2 * 5000
    assert not hasattr(shell.user_ns["train"], "__wrapped__")


def test_a_cell_that_marks_nothing_is_the_heap_s(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell_magic("stowplan", "", "kept = np.ones(30_000)\nfor x in range(20): train(x)")
    assert "allocations from the pool's heap" in capsys.readouterr().out
    assert float(shell.user_ns["kept"].sum()) == 30_000  # it lives on without the pool


def test_what_a_cell_raises_is_shown(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell_magic("stowplan", "", "1 / 0")
    out = capsys.readouterr().out
    assert "ZeroDivisionError" in out
    assert "no request for a block" in out


@pytest.mark.parametrize("line", ["--steps 3", "--step-function", "--step-function nobody"])
def test_wrong_options_are_refused(line: str, shell: Any) -> None:
    with pytest.raises(ScriptError, match="expected"):
        run_cell(shell, line, "")
