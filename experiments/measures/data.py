"""What the networks read: the user's images and sentences, or synthetic ones.

Synthetic sentences have log-normal lengths (median `MEDIAN` words, sigma `SIGMA`, cut to `SHORTEST` to `LONGEST`
words; about what news text has), images and tiles normally distributed pixels. The user's sentences are split at
blanks and cut at `LONGEST`, as in Sekiyama et al. 2018, section 5; a word counts as the number of its place in the
order of frequency.

In a step that repeats, a batch of sentences has the longest pair and the median pair in turns, so that batches of 2, 4
and 8 differ in nothing but their number of rows. In steps that differ, sentences come in the order of the files.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from stowplan.errors import FormatError, MissingDependencyError

from ..models import Model

MEDIAN, SIGMA, SHORTEST, LONGEST = 16.4, 0.6, 3, 50
WORDS = 2000
"""Size of a vocabulary; rarer words count as its last one."""
SAMPLE = 1000
"""Number of synthetic pairs from which the longest and the median one are taken."""
PHOTOGRAPHS = 16
"""Most images of a folder that are read; a larger batch repeats them."""

Words = npt.NDArray[np.int32]
Pair = tuple[Words, Words]
Example = tuple[npt.NDArray[Any], ...]


@dataclass(frozen=True)
class Data:
    """Makes examples, from the user's files or synthetic; see `load`.

    Attributes
    ----------
    seed
        The seed of everything synthetic.
    images
        RGB, uint8 (height, width, 3) of any size; none: synthetic.
    pairs
        Sentences by number of word; none: synthetic.
    """

    seed: int = 0
    images: tuple[npt.NDArray[np.uint8], ...] = ()
    pairs: tuple[Pair, ...] = field(default=(), repr=False)

    def examples(self, model: Model, batch: int) -> list[Example]:
        """Return `batch` examples for a step that repeats."""
        rng = np.random.default_rng(self.seed)
        if model.kind in ("sentences", "padded"):
            longest, median = _typical(self.pairs or synthetic_pairs(rng, SAMPLE))
            return [(median, longest)[i % 2 == 0] for i in range(batch)]
        network = model.network
        if model.kind == "words":
            rows = rng.integers(0, WORDS, (batch, network.length + 1)).astype(np.int32)
            return [(row[:-1], row[1:]) for row in rows]
        side = network.insize
        channels = 1 if model.kind == "tiles" else 3
        if self.images:
            pixels = [_resized(image, side, channels) for image in self.images]
            inputs = [pixels[i % len(pixels)] for i in range(batch)]
        else:
            inputs = list(rng.standard_normal((batch, channels, side, side), dtype=np.float32))
        if model.kind == "tiles":
            return [
                (x, rng.integers(0, 2, (network.outsize, network.outsize)).astype(np.int32)) for x in inputs
            ]
        # Labels are arrays without a dimension: Chainer makes a view of one, and a block of a scalar.
        labels = rng.integers(0, 1000, batch).astype(np.int32)
        return [(x, np.array(label)) for x, label in zip(inputs, labels, strict=True)]

    def mini_batches(self, batch: int, steps: int) -> list[list[Pair]]:
        """Return pairs of sentences for steps that differ, in the order in which the files have them."""
        rng = np.random.default_rng(self.seed)
        if not self.pairs:
            return [synthetic_pairs(rng, batch) for _ in range(steps)]
        rows = np.arange(steps * batch).reshape(steps, batch) % len(self.pairs)
        return [[self.pairs[i] for i in row] for row in rows.tolist()]


def synthetic_pairs(rng: np.random.Generator, count: int) -> list[Pair]:
    """Draw pairs of sentences of log-normal lengths."""
    lengths = np.clip(rng.lognormal(np.log(MEDIAN), SIGMA, (2, count)).astype(int), SHORTEST, LONGEST)
    source, target = ([rng.integers(0, WORDS, n).astype(np.int32) for n in row] for row in lengths)
    return list(zip(source, target, strict=True))


class Files(TypedDict, total=False):
    """The arguments of `load`, as JSON can hold them."""

    images: str | None
    source: str | None
    target: str | None
    seed: int


def load(
    images: str | None = None, source: str | None = None, target: str | None = None, seed: int = 0
) -> Data:
    """Read the user's files.

    Parameters
    ----------
    images
        A folder; its first images, in the order of their names, are used.
    source, target
        Two text files in UTF-8, a sentence on each line, line by line translations of each other (WMT15's format).
    seed
        The seed of everything synthetic.

    Raises
    ------
    FormatError
        The folder holds no image, or one that cannot be read; the text files have different numbers of lines, no
        sentence, or are not UTF-8; one of them is missing.
    MissingDependencyError
        Images are given, and Pillow is not installed.
    OSError
        Something cannot be opened.
    """
    if (source is None) != (target is None):
        raise FormatError(source or target or "", "one text file; expected --source and --target together")
    pairs = read_pairs(Path(source), Path(target)) if source is not None and target is not None else ()
    return Data(seed, read_images(Path(images)) if images is not None else (), pairs)


def read_images(folder: Path) -> tuple[npt.NDArray[np.uint8], ...]:
    """Read the first images of a folder as RGB; see `load`."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingDependencyError(
            f"Pillow cannot be imported ({error}); expected for images: pip install pillow"
        ) from error
    if not folder.is_dir():
        raise FormatError(folder, "no folder; expected one with images")
    known = Image.registered_extensions()
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in known)
    if not files:
        raise FormatError(folder, "no image in this folder; expected JPEG, PNG or another format of Pillow's")
    found = []
    for path in files[:PHOTOGRAPHS]:
        try:
            with Image.open(path) as image:
                found.append(np.asarray(image.convert("RGB")))
        except (OSError, ValueError, Image.DecompressionBombError) as error:
            raise FormatError(path, f"not an image that can be read ({error})") from None
    return tuple(found)


def read_pairs(source: Path, target: Path) -> tuple[Pair, ...]:
    """Read pairs of sentences by number of word; a pair with an empty sentence is left out. See `load`."""
    texts = [_lines(path) for path in (source, target)]
    if len(texts[0]) != len(texts[1]):
        raise FormatError(
            target,
            f"{len(texts[1])} lines, but {source} has {len(texts[0])}; expected translations line by line",
        )
    languages = []
    for text in texts:
        frequent = Counter(word for line in text for word in line).most_common(WORDS - 1)
        number = {word: i for i, (word, _) in enumerate(frequent)}
        languages.append([np.array([number.get(w, WORDS - 1) for w in line], np.int32) for line in text])
    pairs = tuple((a, b) for a, b in zip(*languages, strict=True) if len(a) and len(b))
    if not pairs:
        raise FormatError(source, "no sentence in this file; expected one on each line")
    return pairs


def _lines(path: Path) -> list[list[str]]:
    found = []
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                found.append(line.decode("utf-8").split()[:LONGEST])
            except UnicodeDecodeError as error:
                raise FormatError(path, f"not UTF-8 ({error.reason})", number) from None
    return found


def _typical(pairs: list[Pair] | tuple[Pair, ...]) -> tuple[Pair, Pair]:
    """Return the longest and the median pair."""
    ranked = sorted(pairs, key=lambda pair: len(pair[0]) + len(pair[1]))
    return ranked[-1], ranked[len(ranked) // 2]


def _resized(image: npt.NDArray[np.uint8], side: int, channels: int) -> npt.NDArray[np.float32]:
    from PIL import Image

    picture = Image.fromarray(image).convert("L" if channels == 1 else "RGB").resize((side, side))
    pixels = np.asarray(picture, dtype=np.float32).reshape(side, side, channels)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1) / 128 - 1)
