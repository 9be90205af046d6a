"""What the heap holds, and how often it calls the driver, in programs of which no step is like another.

The traces are those on which its rules were found, by a model in Python; `MODEL` has what that holds and calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stowplan import CupyPool

from .driver import in_use, page

np = pytest.importorskip("numpy")
pytestmark = [pytest.mark.gpu, pytest.mark.slow]  # on a busy machine streams are behind, and calls are more

STEPS = 40
LEAST = 1 << 20
"""Bytes; smaller blocks share pages, and are left out."""

MODEL = {
    "layers": (1.00, 0.1),
    "lengths": (1.00, 1.0),
    "grow": (1.08, 1.4),
    "random": (1.14, 5.0),
}
"""By trace: bytes held over the most live, and calls of the driver a step in the later half: none for `random`, where
the heap needs five as more is live than was before."""

Event = tuple[object, int]
"""A block's name and its size: a request; 0: its end."""


def layers(draw: Any, kept: dict[Any, int]) -> Iterator[Event]:
    """Forward keeps the activations of a graph of any size; backward frees them."""
    size = int(draw.lognormal(13.5, 0.4)) // 8 * 256
    for layer in range(6):
        yield from [(layer, size), ("temporary", size), ("temporary", 0)]
    yield "gradient", size
    for layer in reversed(range(6)):
        yield from [
            (("gradient", layer), size),
            (("gradient", layer + 1) if layer < 5 else "gradient", 0),
            (layer, 0),
        ]
    yield ("gradient", 0), 0


def lengths(draw: Any, kept: dict[Any, int]) -> Iterator[Event]:
    """A transformer of twelve layers at any length; its weights, gradients and state stay."""
    parts = (1, 1, 3, 1, 1, 1, 4, 4, 1)
    length = int(draw.randint(96, 1024))
    unit = 4 * length * 768 * 2
    if not kept:
        kept.update({("weight", i): int((1, 2.25, 9, 9)[i % 4] * (1 << 20)) for i in range(40)})
        yield from kept.items()
    for layer in range(12):
        yield from (((layer, part), unit * many) for part, many in enumerate(parts))
        yield from [("temporary", unit * 4), ("temporary", 0)]
    logits = 4 * length * 16000
    yield from [("logits", 2 * logits), ("softmax", 4 * logits), ("logits", 0), ("of logits", 2 * logits)]
    yield from [("softmax", 0), ("gradient", unit), ("of logits", 0)]
    for layer in reversed(range(12)):
        for part in reversed(range(len(parts))):
            yield from [("next", unit * parts[part]), ("gradient", 0), ((layer, part), 0)]
            yield from [("gradient", unit), ("next", 0)]
    yield "gradient", 0


def grow(draw: Any, kept: dict[Any, int]) -> Iterator[Event]:
    """Caches of keys and values, each of which is copied to be a little longer."""
    for cache in range(12):
        length = kept[cache] = kept.get(cache, 256) + 1
        yield (cache, length), 16 * length * 4096
        yield (cache, length - 1), 0


def random(draw: Any, kept: dict[Any, int]) -> Iterator[Event]:
    """No order at all: the hardest kind."""
    for _ in range(60):
        while kept and draw.rand() < len(kept) / 60:
            block = list(kept)[draw.randint(len(kept))]
            del kept[block]
            yield block, 0
        block = float(draw.rand())
        kept[block] = 1
        yield block, int(draw.lognormal(16.5, 0.8))


@pytest.mark.parametrize("trace", [layers, lengths, grow, random])
def test_the_heap_holds_what_its_model_does(
    cupy: Any, calls: Callable[[], int], trace: Callable[..., Iterator[Event]]
) -> None:
    if page() < 2 << 20:
        pytest.skip("the model's pages are of 2 MiB")
    held_of_model, calls_of_model = MODEL[trace.__name__]
    before, pool, draw = in_use(cupy), CupyPool(device=0), np.random.RandomState(0)
    alive: dict[object, Any] = {}
    kept: dict[Any, int] = {}
    live = most_live = most = counted = 0
    for step in range(STEPS):
        counted = calls() if step == STEPS // 2 else counted
        for block, size in trace(draw, kept):
            if size > LEAST:
                alive[block] = pool.malloc(size)
                live += alive[block].mem.size
            elif block in alive:
                live -= alive.pop(block).mem.size
            most_live, most = max(most_live, live), max(most, in_use(cupy) - before)
        cupy.cuda.Device().synchronize()
    assert most <= 1.05 * held_of_model * most_live + page()
    assert (calls() - counted) / (STEPS - STEPS // 2) <= 1.05 * calls_of_model + 1
