"""The streams, which lie in tests/data/golden.

They were recorded once, from loops of NumPy and with Chainer from steps of three networks: other versions ask
for something else. The soaks and the tasks were drawn at random: steps each request of which may be late, larger,
smaller or missing; results of four workers' tasks that go to tasks of later rounds. What made them all is in the
repository's history (tests/golden).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .stream import Op, Stream, load

DATA = Path(__file__).parents[1] / "data" / "golden"
NAMES = sorted(path.stem for path in DATA.glob("*.npz"))


def find(name: str) -> Stream:
    """Return a stream by its name."""
    return load(DATA / f"{name}.npz")


def grows_in_place(name: str) -> bool:
    """Whether arenas do, as on the host; else another one takes their place, as on a device."""
    return "streams" not in name


def blocks_of(stream: Stream) -> Iterator[tuple[Op, int]]:
    """Yield the operations; frees name their blocks by number of request."""
    requests = 0
    for code, arg in zip(stream.ops.tolist(), stream.args.tolist(), strict=True):
        op = Op(code)
        if op in (Op.FREE, Op.HOLD, Op.LET_GO):
            yield op, requests - arg
            continue
        requests += op is Op.REQUEST
        yield op, arg
