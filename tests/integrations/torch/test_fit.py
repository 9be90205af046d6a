"""``stowplan fit`` of PyTorch's steps: the batch that it names fits when it is recorded, and one more does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from stowplan import Profile, TorchRecorder

from ...stowplan.command_line import figures


class Attention(nn.Module):
    """One layer of a Transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layer(x.view(len(x), -1, 64))
        return found


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(768, 256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 64))


def convolutions() -> nn.Module:
    first, second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
    pixels = nn.Unflatten(1, (3, 16, 16))
    return nn.Sequential(pixels, first, nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), second, nn.Flatten())


def recorded(make: Callable[[], nn.Module], batch: int) -> Profile:
    """Train with Adam, its state made in the first step, and record a later one."""
    recorder = TorchRecorder()
    with recorder:
        model = make()
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(4):
            with recorder.step():
                x = torch.ones(batch, 768)
                loss = model(x).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                del x, loss
    return recorder.profile()


@pytest.mark.parametrize("make", [perceptron, Attention, convolutions])
def test_the_batch_that_is_named_fits_when_it_is_recorded(
    make: Callable[[], nn.Module], tmp_path: Path
) -> None:
    def save(batch: int) -> Path:
        path = tmp_path / f"{batch}.profile"
        recorded(make, batch).save(path)
        return path

    files = [f"{batch}={save(batch)}" for batch in (4, 6, 9)]
    memory = figures("compare", save(40))["with_plan"] + (64 << 10)
    found = figures("fit", *files, "--memory", memory)["largest"]
    taken = [figures("compare", save(found["batch"] + more))["with_plan"] for more in (0, 3)]
    assert taken[0] <= memory < taken[1]
    assert found["total"] == pytest.approx(taken[0], rel=0.005)
