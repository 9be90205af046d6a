"""The experiments that train models within budgets, on a small model; what they say of rows that are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 (PyTorch's own name for it)

from experiments.torch import budget, compiled, training
from experiments.torch.kept import Kept


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow(F.gelu(self.wide(x)))


MODEL = training.Model(
    lambda: nn.Sequential(*(Block() for _ in range(4))),
    lambda: (torch.randn(256, 16), torch.randn(256, 16)),
    lambda model, x, y: F.mse_loss(model(x), y),
    "Block",
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "TURNS", 1)
    monkeypatch.setattr(training, "PATIENCE", 0.0)
    monkeypatch.setattr(budget, "BUDGETS", 3)
    for module in (budget, compiled):
        monkeypatch.setattr(module, "SETTINGS", (1.0, 0.0))


def test_budgets_and_the_ways_beside_them(tmp_path: Path) -> None:
    file = tmp_path / "blocks.json"
    budget.measure(MODEL, None, Kept("blocks", file))
    rows = Kept("blocks", file).rows
    ours = [row for row in rows if row["way"] == "stowplan"]
    ways = ["plain", *["stowplan"] * len(ours), "checkpoint", "torch", "torch"]
    assert [row["way"] for row in rows] == ways
    assert not any(budget.wrong(row) for row in rows)
    peaks = [row["peak"] for row in ours]
    assert peaks == sorted(peaks, reverse=True)
    assert ours[-1]["setting"] == peaks[-1] == rows[0]["least"] < rows[0]["peak"]
    assert next(row["peak"] for row in rows if row["way"] == "checkpoint") < rows[0]["peak"]
    shown = budget.summary("blocks", rows)
    assert (shown["right"], shown["least"]) == ("yes", peaks[-1] / rows[0]["peak"])


def test_compiled_steps(tmp_path: Path) -> None:
    file = tmp_path / "blocks.json"
    compiled.measure(MODEL, Kept("blocks", file))
    rows = Kept("blocks", file).rows
    assert [row["setting"] for row in rows] == [1.0, 0.0, "80%", "60%", "least"]
    assert not any(compiled.wrong(row) for row in rows)
    assert next(row["share"] for row in compiled.shown("blocks", rows)) == 1.0
