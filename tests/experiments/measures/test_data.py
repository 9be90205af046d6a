"""Reading the user's images and sentences, and what stands in for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from experiments.measures import data
from experiments.models import MODELS


def write(path: Path, *lines: str) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def test_synthetic_lengths_are_log_normal_and_cut() -> None:
    pairs = data.synthetic_pairs(np.random.default_rng(0), 5000)
    lengths = np.array([len(side) for pair in pairs for side in pair])
    assert (lengths.min(), lengths.max()) == (data.SHORTEST, data.LONGEST)
    within = lengths[(lengths > data.SHORTEST) & (lengths < data.LONGEST)]
    assert abs(np.median(lengths + 0.5) - data.MEDIAN) < 0.7
    assert 0.5 < np.log(within).std() < data.SIGMA


def test_the_users_sentences_are_used_with_their_lengths(tmp_path: Path) -> None:
    source = write(tmp_path / "a", "the cat", " ".join(["long"] * 80), "", "the dog barks")
    target = write(tmp_path / "b", "le chat", "un deux", "vide", "le chien aboie ici")
    found = data.load(source=source, target=target)
    assert [tuple(map(len, pair)) for pair in found.pairs] == [(2, 2), (50, 2), (3, 4)]
    assert found.pairs[0][0][0] == found.pairs[2][0][0]  # the same word has the same number
    batches = found.mini_batches(2, 2)
    assert [[len(pair[0]) for pair in batch] for batch in batches] == [[2, 50], [3, 2]]


@pytest.mark.usefixtures("chainer")
def test_the_users_images_are_read_and_repeated(tmp_path: Path) -> None:
    for i, side in enumerate((40, 300)):
        Image.fromarray(np.full((side, side), 255 * i, np.uint8)).save(tmp_path / f"{i}.png")
    (tmp_path / "notes.txt").write_text("no image")
    examples = data.load(images=str(tmp_path)).examples(MODELS["alexnet"], 3)
    assert [x.shape for x, _ in examples] == [(3, 227, 227)] * 3
    assert [float(x.mean()) for x, _ in examples] == pytest.approx([-1, 255 / 128 - 1, -1])
    tile, classes = data.load(images=str(tmp_path)).examples(MODELS["unet"], 1)[0]
    assert (tile.shape, classes.shape) == ((1, 284, 284), (100, 100))
