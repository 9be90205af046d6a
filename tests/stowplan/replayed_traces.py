"""Random traces, in the formats of other tools; and what they come to, replayed event by event in plain Python."""

from __future__ import annotations

import copy
import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from stowplan.insight.pool_models import POOL_MODELS

from ..profiler.formats.snapshots import ARENA, CachingAllocator

ALIGNMENT = 512
MIB = 1 << 20


class Event(NamedTuple):
    """An allocation or a free, as a log has it."""

    allocates: bool
    address: int
    size: int
    stream: int = 0
    site: str = ""


@dataclass
class Trace:
    """A log; what was alive before it, by address, and the snapshot that it is from, where these are known."""

    events: list[Event]
    older: dict[int, int] | None = None
    snapshot: dict[str, Any] = field(default_factory=dict)
    reserved: int = 0


def drawn(seed: int) -> Trace:
    """Draw what a caching allocator logs of a program, from some moment on."""
    draw, pool = random.Random(seed), CachingAllocator()
    sizes = [draw.randrange(1, 9 * MIB) for _ in range(4)] + [draw.randrange(1, 5000) for _ in range(2)]
    held: dict[int, int] = {}
    older: dict[int, int] = {}
    length = draw.randrange(10, 90)
    begin = draw.randrange(length // 2)
    for number in range(length):
        if number == begin:
            pool.trace()
            older = {ARENA + address: size for address, size in held.items()}
        chance = draw.random()
        if chance < 0.5 or not held or number == length - 1:
            size = draw.choice(sizes)
            held[pool.alloc(size, draw.randrange(5), draw.choice([0, 0, 0, 7]))] = size
        elif chance < 0.97:
            address = draw.choice(list(held))
            del held[address]
            pool.free(address)
        else:
            pool.empty_cache()
    snapshot = pool.snapshot()
    events = []
    for entry in snapshot["device_traces"][0]:
        line = entry["frames"][2]["line"]
        entry["frames"] = [{"filename": "/home/me/train.py", "line": line, "name": f"f{line}"}]
        if entry["action"] in ("alloc", "free_completed"):
            site = f"/home/me/train.py:{line} f{line}"
            events.append(
                Event(entry["action"] == "alloc", entry["addr"], entry["size"], entry["stream"], site)
            )
    return Trace(events, older, snapshot, pool.most_reserved)


def drawn_step(seed: int) -> tuple[list[Event], list[int], list[int]]:
    """Draw a step that a program repeats, what it has besides, and what it asks for between steps, for a moment.

    Some blocks are freed by the next step: the step begins with frees of blocks that it ends with.
    """
    draw = random.Random(seed)
    sizes = [draw.randrange(2000, 200_000) for _ in range(draw.randrange(3, 40))]
    events, held, wraps = [], list[int](), list[int]()
    for number, size in enumerate(sizes):
        events.append(Event(True, number, size))
        (wraps if draw.random() < 0.2 else held).append(number)
        while held and draw.random() < 0.5:
            number = held.pop(draw.randrange(len(held)))
            events.append(Event(False, number, sizes[number]))
    events += [Event(False, number, sizes[number]) for number in held]
    for number in wraps:  # before it is asked for again
        first = next(k for k, event in enumerate(events) if event.address == number)
        events.insert(draw.randrange(first + 1), Event(False, number, sizes[number]))
    others = [[draw.randrange(2000, 10**6) for _ in range(draw.randrange(4))] for _ in range(2)]
    return events, *others


def times(trace: Trace, batch: int) -> Trace:
    """Return a trace with sizes so many times as large."""
    events = [event._replace(size=event.size * batch) for event in trace.events]
    older = None if trace.older is None else {at: size * batch for at, size in trace.older.items()}
    snapshot = copy.deepcopy(trace.snapshot)
    for entry in snapshot["device_traces"][0]:
        entry["size"] *= batch
    for segment in snapshot["segments"]:
        segment["total_size"] *= batch
        for block in segment["blocks"]:
            block["requested_size"] *= batch
    return Trace(events, older, snapshot, trace.reserved * batch)


def as_torch(trace: Trace, path: Path) -> Trace:
    path.write_bytes(pickle.dumps(trace.snapshot))
    return trace


def as_rmm(trace: Trace, path: Path) -> Trace:
    rows = ["Thread,Time,Action,Pointer,Size,Stream"]
    for second, e in enumerate(trace.events):
        action = "allocate" if e.allocates else "free"
        rows.append(
            f"1,00:{second // 60:02d}:{second % 60:02d}.0,{action},{e.address:#x},{e.size},{e.stream}"
        )
    path.write_text("\n".join(rows) + "\n")
    asked = set[int]()  # a log that frees nothing else is a whole program's
    is_whole = all(e.address in asked or (e.allocates and asked.add(e.address) is None) for e in trace.events)
    return Trace([event._replace(site="") for event in trace.events], {} if is_whole else None)


def as_minimalloc(trace: Trace, path: Path) -> Trace:
    """Write the planned blocks alone; return a log of them."""
    told = Replay(as_rmm(trace, path))
    rows, events = ["id,lower,upper,size,gaps"], []
    for number in sorted(told.planned):
        block = told.blocks[number]
        wraps = block.end < block.start
        when = (0, told.period + 2) if wraps else (block.start + 1, block.end + 1)
        gap = f"{block.end + 1}-{block.start + 1}" if wraps else ""
        rows.append(f"{number},{when[0]},{when[1]},{block.size},{gap}")
        events += [
            (block.start, Event(True, number, block.size)),
            (block.end, Event(False, number, block.size)),
        ]
    path.write_text("\n".join(rows) + "\n")
    return Trace([event for _, event in sorted(events)])


FORMATS: dict[str, Callable[[Trace, Path], Trace]] = {
    "torch": as_torch,
    "rmm": as_rmm,
    "minimalloc": as_minimalloc,
}


@dataclass
class Block:
    size: int
    stream: int
    site: str
    start: int = -1
    end: int = -1  # never, if it escapes; before the start, if it wraps
    escapes: bool = True


class Moment(NamedTuple):
    """What is alive just after an event: bytes of blocks from before the log, and numbers of the log's own."""

    tick: int
    after_request: bool
    older: int
    alive: frozenset[int]


class Replay:
    """A trace, replayed once: its blocks, and its moments from before the first event on."""

    def __init__(self, trace: Trace) -> None:
        self.of_log_alone = trace.older is None
        self.blocks: list[Block] = []
        live: dict[int, int] = {}
        seen: set[int] = set()
        first_frees: dict[int, int] = {}
        for number, event in enumerate(trace.events):
            if event.allocates:
                live[event.address] = len(self.blocks)
                self.blocks.append(Block(event.size, event.stream, event.site))
            elif event.address not in seen:
                first_frees[event.address] = number
            else:
                live.pop(event.address, None)
            seen.add(event.address)
        wraps = {}
        for address, number in first_frees.items():
            if address in live:
                block = self.blocks[live[address]]
                if block.size == trace.events[number].size:
                    wraps[number] = live[address]
        older = dict(trace.older or {})
        for number in wraps:
            older.pop(trace.events[number].address, None)
        tick, asked, where = -1, 0, dict[int, int]()
        alive = set(wraps.values())
        self.moments = [Moment(-1, False, sum(older.values()), frozenset(alive))]

        def gone(number: int) -> None:
            nonlocal tick
            tick += 1
            alive.remove(number)
            self.blocks[number].end, self.blocks[number].escapes = tick, False
            self.moments.append(Moment(tick, False, sum(older.values()), frozenset(alive)))

        for number, event in enumerate(trace.events):
            if event.allocates:
                if event.address in where:
                    gone(where.pop(event.address))
                tick += 1
                where[event.address] = asked
                self.blocks[asked].start = tick
                alive.add(asked)
                asked += 1
                self.moments.append(Moment(tick, True, sum(older.values()), frozenset(alive)))
            elif event.address in where:
                gone(where.pop(event.address))
            elif number in wraps:
                gone(wraps[number])
            else:
                older.pop(event.address, None)
        self.period = tick + 1
        by_stream = Counter[int]()
        for block in self.blocks:
            by_stream[block.stream] += block.size
        main = min(by_stream, key=lambda stream: (-by_stream[stream], stream), default=0)
        self.planned = {k for k, b in enumerate(self.blocks) if not b.escapes and b.stream == main}
        self.wrapped = sum(0 <= block.end < block.start for block in self.blocks)
        self.escaped = sum(block.escapes for block in self.blocks)

    def bytes_of(self, numbers: Any, unit: int = 1) -> int:
        """Add up blocks, rounded up to a unit."""
        return sum(-(-self.blocks[number].size // unit) * unit for number in numbers)

    def total(self, moment: Moment) -> int:
        return moment.older + self.bytes_of(moment.alive)

    @property
    def planned_peak(self) -> int:
        return max(self.bytes_of(moment.alive & self.planned) for moment in self.moments)

    @property
    def lower_bound(self) -> int:
        return max(self.bytes_of(moment.alive & self.planned, ALIGNMENT) for moment in self.moments)

    @property
    def fullest(self) -> Moment:
        """The first request after which the program has most alive; as the log begins, if that is more."""
        return max([*(m for m in self.moments if m.after_request), self.moments[0]], key=self.total)

    def unplanned(self, moment: Moment) -> int:
        return moment.older + self.bytes_of(moment.alive - self.planned)

    @property
    def unplanned_peak(self) -> int:
        return max(map(self.unplanned, self.moments))

    def parts(self) -> dict[str, int]:
        """Return what `Profile.at_live_peak` does."""
        at = self.fullest
        escaped = self.bytes_of(k for k in at.alive if self.blocks[k].escapes)
        planned = self.bytes_of(at.alive & self.planned)
        older = self.total(at) - escaped - planned
        return {"tick": at.tick, "older": older, "escaped": escaped, "planned": planned}

    def at_planned_peak(self) -> Moment:
        begun = self.moments[1:] or self.moments
        return max(begun, key=lambda moment: self.bytes_of(moment.alive & self.planned))

    def held(self) -> tuple[int, dict[str, list[int]]]:
        """Return the bytes at the fullest moment, and what each call site holds of them: bytes and blocks."""
        at = max(self.moments[1:], key=self.total) if self.of_log_alone else self.fullest
        sites: dict[str, list[int]] = {}
        for number in at.alive:
            held = sites.setdefault(self.blocks[number].site, [0, 0])
            held[0] += self.blocks[number].size
            held[1] += 1
        if at.older:
            sites[""] = [at.older, 0]
        return self.total(at), sites

    def script(self) -> Iterator[tuple[bool, int]]:
        """Yield the allocations and frees of planned blocks in one step: whether it is allocated, and its number."""
        events = [(self.blocks[k].start, True, k) for k in self.planned]
        events += [(self.blocks[k].end, False, k) for k in self.planned]
        for _, allocates, number in sorted(events):
            yield allocates, number

    def whole(self, pool: str) -> int:
        """Replay the log through a pool's model, with what was alive before it; return the most that it reserves."""
        model, held = POOL_MODELS[pool](), dict[int, int]()
        first = self.moments[0]
        before = {number: model.malloc(self.blocks[number].size) for number in sorted(first.alive)}
        if first.older:
            model.malloc(first.older)
        events = [(b.start, k, True) for k, b in enumerate(self.blocks)]
        events += [(b.end, k, False) for k, b in enumerate(self.blocks) if not b.escapes]
        for _, number, allocates in sorted(events):
            if allocates:
                held[number] = model.malloc(self.blocks[number].size)
            else:
                model.free(before.pop(number) if number in before else held[number])
        return model.peak_reserved

    def reserved(self, pool: str, steps: int) -> int:
        """Replay so many steps through a pool's model; return the most that it reserves."""
        model, held = POOL_MODELS[pool](), dict[int, int]()
        for _ in range(steps):
            for allocates, number in self.script():
                if allocates:
                    held[number] = model.malloc(self.blocks[number].size)
                elif number in held:
                    model.free(held.pop(number))
        return model.peak_reserved
