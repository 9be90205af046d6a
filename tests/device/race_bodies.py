"""The bodies of the random program (`race_program.py`): which operations a step has, on which streams.

A body is what a program repeats. It numbers its arrays by slots and its streams by the worker's own numbers, so that
each run of it makes the same requests with other values.
"""

from __future__ import annotations

import random
from typing import Literal, NamedTuple

SIZES = (16, 100, 250, 700, 2_000)
"""Elements of arrays."""
SLOTS = 10

LEGACY = 0
"""The number of the legacy default stream. All workers have it, and two streams of their own."""

Way = Literal["tell", "join"]
"""How an array is dropped: the pool is told of the streams that use it, or its own stream waits for them."""


class Op(NamedTuple):
    """One operation of a body; what it does not need is 0."""

    what: Literal["new", "add", "check", "read", "drop", "old", "give", "take"]
    slot: int
    stream: int = 0  # of the worker: 0 is the legacy default stream
    other: int = 0  # a slot, a stream, or a number of an old array
    size: int = 0
    way: Way = "tell"


def random_body(draw: random.Random, length: int, *, for_graph: bool, threads: bool) -> list[Op]:
    """Return a body; one for a graph stays away from the legacy stream, the host, and what is outside of it."""
    streams = (1, 2) if for_graph else (1, 2, 1, 2, LEGACY)
    main = draw.choice(streams)  # has most of the arrays, so that places come again
    filled: list[int] = []
    body: list[Op] = []

    def some_stream() -> int:
        return main if draw.random() < 0.5 else draw.choice(streams)

    while len(body) < length:
        at = draw.random()
        slot = draw.choice(filled) if filled else 0
        if not filled or (at < 0.3 and len(filled) < SLOTS):
            slot = next(slot for slot in range(SLOTS) if slot not in filled)
            home = some_stream()
            first = home if draw.random() < 0.8 else draw.choice(streams)
            body.append(Op("new", slot, home, first, draw.choice(SIZES)))
            filled.append(slot)
        elif at < 0.45:
            body.append(Op("add", slot, some_stream(), draw.choice(filled)))
        elif at < 0.7:
            body.append(Op("check", slot, draw.choice(streams)))
        elif at < 0.9:
            body.append(Op("drop", slot, way="tell" if draw.random() < 0.7 else "join"))
            filled.remove(slot)
        elif for_graph:
            continue
        elif at < 0.92:
            body.append(Op("read", slot, draw.choice(streams)))
        elif at < 0.94 or not threads:
            body.append(Op("old", slot, some_stream(), draw.randrange(SLOTS)))
        elif at < 0.97:
            body.append(Op("give", slot))
            filled.remove(slot)
        elif len(filled) < SLOTS:
            slot = next(slot for slot in range(SLOTS) if slot not in filled)
            body.append(Op("take", slot, draw.choice(streams), size=draw.choice(SIZES)))
            filled.append(slot)
    return body
