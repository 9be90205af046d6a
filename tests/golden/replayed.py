"""Drives a stream through a pool's decisions and the replay core, and takes down what becomes of each request.

Plans are ready at the next step boundary (`Lanes.wait`), and packed by one solver that does the same each time; so a
stream has one answer. Nobody backs the addresses with memory: an arena is a range of numbers.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from stowplan.allocator._core import Replay, Scope, Step
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


class RangesBackend:
    """What `Lanes` asks of a backend (`Backend` of _core.pyx), over the bare core."""

    limit = small = 0
    scope = Scope.thread

    def __init__(self, *, grows: bool) -> None:
        self.core = Replay(UNIT, self.scope)
        self.thread, self.stream = 1, 0
        self.grows_in_place = grows
        self.bottom_last = False
        self._arenas: dict[int, tuple[int, int]] = {}  # lane -> base, bytes
        self._next_base = 1 << 40

    def enter(self) -> tuple[int, int, list[int]] | None:
        slot = self.core.enter(self.thread)
        if slot is None:
            return None
        self.core.welcome(slot)
        return slot, 0, self.core.lanes_of(slot)

    def begin(self, starts: list[Any]) -> None:
        for start in starts:
            self.reserve(start.lane, start.arena_bytes)
        self.core.begin(starts)

    def end(self, slot: int, step: int) -> list[Any]:
        return self.core.end(slot)

    def reserve(self, lane: int, size: int) -> bool:
        base, reserved = self._arenas.get(lane, (0, 0))
        if size <= reserved:
            return True
        if not base or not self.grows_in_place:
            base, self._next_base = self._next_base, self._next_base + (1 << 32)
        self._arenas[lane] = base, size
        self.core.reserve(base, size, lane)
        return True

    def arena_bytes(self, lane: int) -> int:
        return self._arenas.get(lane, (0, 0))[1]

    def stayers(self, lane: int) -> npt.NDArray[np.int64]:
        return np.array(self.core.stayers(lane), np.int64).reshape(-1, 2)

    def lanes_of(self, slot: int) -> list[int]:
        return self.core.lanes_of(slot)

    def settle(self) -> None:
        pass

    def counters(self) -> dict[str, Any]:
        return self.core.counters()

    def set_interrupted(self, interrupted: bool) -> None:
        self.core.set_interrupted(interrupted, self.thread)


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
    backend: Any = RangesBackend(grows=grows_in_place(name))
    core: Replay = backend.core
    lanes = Lanes(
        backend, UNIT, PlanningOptions(planning_share=math.inf, planner=planner), lambda error: False
    )
    served, reasons = Served(), _Reasons()
    blocks: list[int] = []
    running: dict[int, Step] = {}  # by thread
    owner: dict[int, int] = {}  # the core's number of a block -> the stream's, that had it last
    gone: set[int] = set()  # held blocks whose place another one took: their numbers may be others' by now
    upstream = 1 << 60
    for op, arg in blocks_of(find(name)):
        if op is Op.REQUEST:
            address, block = core.request(arg, backend.stream, backend.thread)
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
            running[backend.thread] = Step(lanes, KEYS[arg // 2], bool(arg % 2))
            running[backend.thread].__enter__()
        elif op is Op.END:
            running.pop(backend.thread).__exit__(None, Exception() if arg else None, None)
            lanes.wait(None)
            served.end_part()
        elif op is Op.THREAD:
            backend.thread = arg
        elif op is Op.STREAM:
            backend.stream = arg
        elif op is Op.INTERRUPT:
            lanes.interrupt()
        elif op is Op.RESUME:
            lanes.resume()
    served.end_part()
    core.assert_invariants()
    served.stats = _stats(lanes)
    return served
