"""Drives a stream through a pool's decisions and the replay core, and takes down what becomes of each request.

Plans are ready at the next step boundary (`Lanes.wait`), and packed by one solver that does the same each time; so a
stream has one answer. Nobody backs the addresses with memory: an arena is a range of numbers.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass, field
from typing import Any

from stowplan.allocator._core import Replay, Step
from stowplan.allocator.lanes import Lanes
from stowplan.allocator.options import PlanningOptions

from .catalogue import blocks_of, find, grows_in_place
from .stream import KEYS, Op

SOLVER = "best_fit_orders"
UNIT = 64
WHOLE = 1500
"""Requests up to which the full list is kept beside the digests."""

NOT_COMPARED = ("planning_seconds", "planning_bytes", "plans_failed", "kept_bytes")
"""Fields of `Stats` that are about time, about how plans are made, or about memory, which there is none of."""


@dataclass
class Served:
    """What became of a stream.

    Attributes
    ----------
    digests
        A digest for each step, of all its requests and those since the step before.
    rows
        A text for each request: its address (0: upstream's), and the reason; ``+`` before it for a guest.
    stats
        Fields of the final `Stats`.
    """

    digests: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)
    _digested: int = 0

    def end_part(self) -> None:
        text = "\n".join(self.rows[self._digested :]).encode()
        self._digested = len(self.rows)
        self.digests.append(hashlib.blake2b(text, digest_size=4).hexdigest())

    def as_json(self) -> dict[str, Any]:
        kept: dict[str, Any] = {"digests": self.digests, "stats": self.stats}
        return {**kept, "rows": self.rows} if len(self.rows) <= WHOLE else kept


class RangesBackend(Replay):
    """The bare core, with arenas of addresses alone."""

    grows = False

    def __init__(self, unit: int) -> None:
        self._bases: dict[int, int] = {}  # by lane
        self._next_base = 1 << 40

    @property
    def grows_in_place(self) -> bool:
        return self.grows

    def reserve(self, lane: int, size: int) -> bool:
        if size <= self.arena_bytes(lane):
            return True
        if lane not in self._bases or not self.grows:
            self._bases[lane], self._next_base = self._next_base, self._next_base + (1 << 32)
        self.place_arena(self._bases[lane], size, lane)
        return True


class _Reasons:
    """Tells which count of requests has risen."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        self._guests = 0

    def of_last_request(self, counters: dict[str, Any]) -> str:
        now = counters["requests"]
        risen = [name for name, count in now.items() if count != self._before.get(name, 0)]
        guest = counters["guests"] != self._guests
        self._before, self._guests = now, counters["guests"]
        return ("+" if guest else "") + " ".join(risen)


def _stats(lanes: Lanes) -> dict[str, Any]:
    return {name: value for name, value in asdict(lanes.stats()).items() if name not in NOT_COMPARED}


def replay(name: str, *, planner: str = SOLVER) -> Served:
    """Return what becomes of a stream's requests today."""
    core = RangesBackend(UNIT)
    core.grows = grows_in_place(name)
    thread, stream = 1, 0
    lanes = Lanes(core, UNIT, PlanningOptions(planning_share=math.inf, solver=planner), lambda error: False)
    served, reasons = Served(), _Reasons()
    blocks: list[int] = []
    running: dict[int, Step] = {}  # by thread
    owner: dict[int, int] = {}  # the core's number of a block -> the stream's, that had it last
    gone: set[int] = set()  # held blocks whose place another one took: their numbers may be others' by now
    upstream = 1 << 60
    for op, arg in blocks_of(find(name)):
        if op is Op.REQUEST:
            address, block = core.request(arg, stream)
            blocks.append(block)
            served.rows.append(f"{address:x} {reasons.of_last_request(core.counters())}")
            if not address:
                core.adopt(block, upstream)
                upstream += arg + UNIT
            gone.update(owner[held] for held in core.take_awaited(block))
            owner[block] = len(blocks) - 1
        elif op is Op.FREE:
            core.release(blocks[arg])
        elif op is Op.HOLD:
            core.hold(blocks[arg])
        elif op is Op.LET_GO:
            if arg not in gone:
                core.let_go(blocks[arg])
        elif op is Op.BEGIN:
            running[thread] = Step(lanes, KEYS[arg // 2], bool(arg % 2))
            running[thread].__enter__()
        elif op is Op.END:
            running.pop(thread).__exit__(None, Exception() if arg else None, None)
            lanes.wait(None)
            served.end_part()
        elif op is Op.THREAD:
            thread = arg
            core.run_on(thread)
        elif op is Op.STREAM:
            stream = arg
        elif op is Op.INTERRUPT:
            lanes.interrupt()
        elif op is Op.RESUME:
            lanes.resume()
    served.end_part()
    core.assert_invariants()
    served.stats = _stats(lanes)
    return served
