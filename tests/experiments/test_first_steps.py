"""The table of the first steps: its command for a small network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from experiments import first_steps

from .tables import rows_of

pytestmark = pytest.mark.usefixtures("chainer")


def small() -> Any:
    import chainer
    import chainer.functions as F  # noqa: N812
    import chainer.links as L  # noqa: N812
    import numpy as np

    layers = [link for _ in range(12) for link in (L.Linear(128, 128, nobias=True), F.sigmoid)]
    model = chainer.Sequential(*layers)
    optimizer = chainer.optimizers.SGD().setup(model)
    x = np.ones((512, 128), np.float32)
    return optimizer, lambda: optimizer.update(lambda: F.sum(model(x)))


def test_the_first_step_is_lean_without_a_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(first_steps.NETWORKS, "vgg", (small, "small"))
    result = CliRunner().invoke(first_steps.main, ["--out", str(tmp_path), "--model", "vgg", "--steps", "3"])
    assert result.exit_code == 0, result.output
    rows = rows_of(tmp_path / "first_steps.csv")
    plain, lean, unwatched, *budgets = ([int(row[f"step {n}"]) for n in (1, 2, 3)] for row in rows)
    assert lean[0] == pytest.approx(plain[0], rel=0.02)
    assert lean[2] < 0.95 * plain[2]
    assert unwatched[0] < 0.98 * plain[0]  # it still has the gradients that Chainer made with the parameters
    assert unwatched[1] == pytest.approx(lean[2], rel=0.02)
    kept_to = [int(row["budget"]) for row in rows if row["budget"]]
    assert len(kept_to) == len(budgets) == 3
    assert all(
        max(peaks[1:]) <= 1.01 * budget for peaks, budget in zip(budgets[:2], kept_to[:2], strict=True)
    )
    assert unwatched[2] > kept_to[0] > kept_to[1] > kept_to[2]
    assert "| small | watch=False |" in (tmp_path / "first_steps.md").read_text()
