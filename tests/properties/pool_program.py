"""Arbitrary programs through a pool: no live range overlaps another, every byte written is read back, no byte is lost.

A `PoolProgram` repeats steps, one for each key, and does everything that a program may do instead; it knows what must
be true of the blocks that it holds and looks after every change. Which pool it runs on is a `Backend`'s business, and
who chooses the operations is another's: hypothesis in `PoolMachine`, a random generator in soak.py.
"""

from __future__ import annotations

import ctypes
import gc
import threading
from bisect import bisect_left, insort
from collections.abc import Hashable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stowplan.errors import PoolError

SIZES = (0, 1, 7, 64, 65, 200, 1000, 1024, 5000, 40_000)
KEYS: tuple[Hashable, ...] = (None, "a", "b")


@dataclass(frozen=True)
class Planned:
    """One request of a repeated step: bytes, and before how many requests from its own it is freed."""

    size: int
    life: int


Script = Sequence[Planned]


class FailureError(Exception):
    """What a program raises within a step."""


class Backend(Protocol):
    """A pool of one kind, and the arrays that live in it."""

    pool: Any
    resizes: bool
    zeroes: bool
    marks: bool

    def allocate(self, size: int, zeroed: bool) -> Any:
        """Return a new array of bytes. MemoryError where upstream was told to fail."""

    def address(self, array: Any) -> int:
        """Return where its bytes are."""

    def asked(self, size: int) -> int:
        """Return how many bytes the framework asks of its allocator for an array of this size."""

    def resize(self, array: Any, size: int) -> None:
        """Change an array's size, where `resizes`."""

    def fail(self, times: int) -> bool:
        """Let upstream fail that often from now on; False where it cannot."""

    def check(self) -> None:
        """Compare what upstream has given with what the pool says that it holds."""


@dataclass
class Held:
    """A block that the program holds: the array, its bytes' place and number, the value that they all have."""

    array: Any
    begin: int
    size: int
    byte: int

    def write(self) -> None:
        ctypes.memset(self.begin, self.byte, self.size)

    def check(self) -> None:
        found = ctypes.string_at(self.begin, self.size)
        assert found == bytes([self.byte]) * self.size, f"{self.size} bytes of {self.byte} at {self.begin:#x}"


class Cycle:
    """A block that nobody but the garbage collector can free."""

    def __init__(self, program: PoolProgram, block: int, held: Held) -> None:
        self.program, self.block, self.held = program, block, held
        self.me = self

    def __del__(self) -> None:
        try:
            self.held.check()
        except AssertionError as error:
            self.program.broken.append(error)
        self.program.collected.append(self.block)


class PoolProgram:
    """A program with steps that repeat.

    Attributes
    ----------
    live
        Blocks by number, those in cycles too.
    operations
        Requests, frees, and whatever else was done.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.scripts: dict[Hashable, Script] = dict.fromkeys(KEYS, ())
        self.live: dict[int, Held] = {}
        self.in_cycles: set[int] = set()
        self.collected: list[int] = []
        self.broken: list[AssertionError] = []
        self.freed_at: dict[int, int] = {}  # block -> request count before which the program frees it
        self.ranges: list[tuple[int, int, int]] = []  # (begin, end, block), sorted
        self.of_this_pool: dict[int, int] = {}  # block -> bytes asked for
        self.blocks = self.requests = self.operations = self.failures = 0
        self.counts = dict.fromkeys(("replayed", "guests", "upstream", "plans", "reoptimizations"), 0)
        self.step: Any = None
        self.key: Hashable = None
        self.depth = 0  # of interruptions

    # ------------------------------------------------------------------------------------------- requests and frees

    def allocate(self, size: int, *, zeroed: bool = False) -> int | None:
        """Hold a block more; None where upstream had none."""
        self.operations += 1
        try:
            array = self.backend.allocate(size, zeroed)
        except MemoryError:
            self.failures += 1
            return None
        self.blocks += 1
        self._hold(self.blocks, array, size, zeroed and self.backend.zeroes)
        self.of_this_pool[self.blocks] = self.backend.asked(size)
        return self.blocks

    def _hold(self, block: int, array: Any, size: int, zeroed: bool) -> None:
        self._bury()
        held = Held(array, self.backend.address(array), size, block % 251)
        # Two blocks of no bytes may share an address; a block of no bytes may not lie within another.
        entry = (held.begin, held.begin + max(size, 1), block)
        at = bisect_left(self.ranges, entry)
        for other in self.ranges[max(at - 1, 0) : at + 1]:
            assert held.begin == 0 or entry[1] <= other[0] or other[1] <= entry[0], (
                f"{entry} overlaps {other}"
            )
        insort(self.ranges, entry)
        if zeroed:
            assert ctypes.string_at(held.begin, size) == bytes(size)
        held.write()
        self.live[block] = held

    def free(self, block: int, *, elsewhere: bool = False) -> None:
        """Look at a block's bytes for the last time, and drop it, on another thread if so wished."""
        self.operations += 1
        held = self._forget(block)
        held.check()
        if elsewhere:
            box = [held.array]
            held.array = None
            thread = threading.Thread(target=box.clear)
            thread.start()
            thread.join()

    def resize(self, block: int, size: int) -> None:
        """Change a block's size, where the backend can: the bytes that stay are the same."""
        self.operations += 1
        freed_at = self.freed_at.get(block)
        asked = block in self.of_this_pool  # else it goes back where it came from: to an earlier pool
        held = self._forget(block)
        self.backend.resize(held.array, size)
        Held(None, self.backend.address(held.array), min(size, held.size), held.byte).check()
        self._hold(block, held.array, size, zeroed=False)
        if asked:
            self.of_this_pool[block] = self.backend.asked(size)
        if freed_at is not None:
            self.freed_at[block] = freed_at

    def leave_in_a_cycle(self, block: int) -> None:
        """Drop a block so that the garbage collector has to find it, within some later allocation."""
        self.operations += 1
        self.in_cycles.add(block)
        self.freed_at.pop(block, None)
        Cycle(self, block, self.live[block])
        self.live[block] = Held(None, self.live[block].begin, self.live[block].size, self.live[block].byte)

    def _bury(self) -> None:
        while self.collected:
            block = self.collected.pop()
            self.in_cycles.discard(block)
            self._forget(block)
        assert not self.broken, self.broken

    def _forget(self, block: int) -> Held:
        held = self.live.pop(block)
        entry = (held.begin, held.begin + max(held.size, 1), block)
        at = bisect_left(self.ranges, entry)
        assert self.ranges[at] == entry
        del self.ranges[at]
        self.freed_at.pop(block, None)
        self.of_this_pool.pop(block, None)
        return held

    def droppable(self) -> list[int]:
        """Blocks that the program may free."""
        return [block for block in self.live if block not in self.in_cycles]

    # -------------------------------------------------------------------------------------------------------- steps

    def begin(self, key: Hashable) -> None:
        """Begin a step; refused in an interrupted part. Nobody is told of it where the backend marks none."""
        self.operations += 1
        step = self.backend.pool.step(key) if self.backend.marks else nullcontext()
        if self.depth and self.backend.marks:
            try:
                step.__enter__()
            except PoolError:
                return
            raise AssertionError("a step began in an interrupted part")
        step.__enter__()
        self.step, self.key, self.position = step, key, 0

    def end(self, error: type[BaseException] | None = None) -> None:
        self.operations += 1
        self.step.__exit__(error, None, None)
        self.step = None

    def run_request(self, planned: Planned, late: int = 0) -> None:
        """Do what the script says: free what is due, and ask."""
        for block in [block for block, at in self.freed_at.items() if at <= self.requests]:
            self.free(block)
        block = self.allocate(planned.size)
        if block is not None:
            life = min(planned.life, max(len(self.scripts[self.key]), 1))
            self.freed_at[block] = self.requests + life + late
        self.requests += 1

    def planned_request(self, missing: int, late: int, change: int) -> None:
        """Ask for what the script says next, or nearly so."""
        script = self.scripts[self.key]
        self.position = min(self.position + missing, len(script) - 1)
        planned = script[self.position]
        self.run_request(Planned(max(planned.size + change, 0), planned.life), late)
        self.position += 1

    def hot_step(self, key: Hashable) -> None:
        """Run a whole step as its script says."""
        self.begin(key)
        if self.step is not None:
            for planned in self.scripts[key]:
                self.run_request(planned)
            self.end()

    # ------------------------------------------------------------------------------------------------------ the rest

    def interrupt(self) -> None:
        self.operations += 1
        self.backend.pool.interrupt()
        self.depth += 1

    def resume(self) -> None:
        """Resume; refused where nothing is interrupted."""
        self.operations += 1
        if self.depth:
            self.depth -= 1
            self.backend.pool.resume()
            return
        try:
            self.backend.pool.resume()
        except PoolError:
            return
        raise AssertionError("resume without interrupt was not refused")

    def wait(self) -> None:
        self.operations += 1
        assert self.backend.pool.wait()

    def replace_pool(self, backend: Backend) -> None:
        """Drop the pool; its blocks live on."""
        self.operations += 1
        self._count()
        self.backend, self.depth = backend, 0
        self.of_this_pool = {}

    def _count(self) -> None:
        for name in self.counts:
            self.counts[name] += getattr(self.backend.pool.stats, name)

    def check(self) -> None:
        """Look at everything. O(live bytes)."""
        self._bury()
        for block in self.droppable():  # those in cycles say themselves what they held
            self.live[block].check()
        stats = self.backend.pool.stats
        assert stats.upstream + stats.guests == sum(stats.reasons.values())
        assert stats.live_bytes <= stats.peak_live_bytes
        assert stats.arena_bytes <= stats.reserved_bytes <= stats.peak_reserved_bytes
        if not self.in_cycles:  # the garbage collector may be at it
            assert stats.live_bytes == sum(self.of_this_pool.values())
            self.backend.check()

    def finish(self) -> None:
        """Leave the step, and drop all blocks: not a byte is left."""
        if self.step is not None:
            self.end(FailureError)
        for block in self.droppable():
            self.free(block)
        gc.collect()
        self.check()
        assert not self.live
        assert self.backend.pool.stats.live_bytes == 0
        self._count()


# -------------------------------------------------------------------------------------------------------- hypothesis

scripts = st.lists(st.builds(Planned, st.sampled_from(SIZES), st.integers(1, 12)), min_size=1, max_size=10)


class PoolMachine(RuleBasedStateMachine):
    """Hypothesis chooses what the program does. A subclass says on which pool.

    A program must do the same when it is run again. So plans are always ready when a step begins, and garbage is
    collected by rule only; what happens when it is not so is for soak.py to see.
    """

    backend: ClassVar[type[Any]]

    @initialize(script=scripts)
    def start(self, script: list[Planned]) -> None:
        gc.disable()
        gc.freeze()  # else every collection walks through all that pytest and hypothesis hold
        self.program = PoolProgram(self.backend())
        self.program.scripts = dict.fromkeys(KEYS, script)

    def in_step(self) -> bool:
        return self.program.step is not None

    def between_steps(self) -> bool:
        return self.program.step is None

    @precondition(between_steps)
    @rule(times=st.integers(1, 4), key=st.sampled_from(KEYS))
    def hot_steps(self, times: int, key: Hashable) -> None:
        for _ in range(times):
            self.program.wait()
            self.program.hot_step(key)

    @precondition(between_steps)
    @rule(key=st.sampled_from(KEYS))
    def begin_step(self, key: Hashable) -> None:
        self.program.wait()
        self.program.begin(key)

    @precondition(
        lambda self: self.in_step() and self.program.position < len(self.program.scripts[self.program.key])
    )
    @rule(
        missing=st.integers(0, 2),
        late=st.sampled_from([0, 0, 0, 3, 50]),
        change=st.sampled_from([0, 0, 0, -60, 500]),
    )
    def planned_request(self, missing: int, late: int, change: int) -> None:
        self.program.planned_request(missing, late, change)

    @rule(size=st.sampled_from(SIZES), zeroed=st.booleans())
    def any_request(self, size: int, zeroed: bool) -> None:
        self.program.allocate(size, zeroed=zeroed)

    @precondition(lambda self: self.program.droppable())
    @rule(data=st.data(), elsewhere=st.sampled_from([False, False, False, True]))
    def any_free(self, data: st.DataObject, elsewhere: bool) -> None:
        self.program.free(data.draw(st.sampled_from(self.program.droppable())), elsewhere=elsewhere)

    @precondition(lambda self: self.program.backend.resizes and self.program.droppable())
    @rule(data=st.data(), size=st.sampled_from(SIZES))
    def resize(self, data: st.DataObject, size: int) -> None:
        self.program.resize(data.draw(st.sampled_from(self.program.droppable())), size)

    @precondition(lambda self: self.program.droppable())
    @rule(data=st.data())
    def leave_in_a_cycle(self, data: st.DataObject) -> None:
        self.program.leave_in_a_cycle(data.draw(st.sampled_from(self.program.droppable())))

    @rule()
    def collect_garbage(self) -> None:
        gc.collect()

    @precondition(in_step)
    @rule()
    def end_step(self) -> None:
        self.program.end()

    @precondition(in_step)
    @rule()
    def step_fails(self) -> None:
        self.program.end(FailureError)

    @rule()
    def interrupt(self) -> None:
        self.program.interrupt()

    @rule()
    def resume(self) -> None:
        self.program.resume()

    @rule()
    def wait_for_plans(self) -> None:
        self.program.wait()

    @rule(times=st.integers(0, 4))
    def upstream_fails(self, times: int) -> None:
        self.program.backend.fail(times)

    @precondition(between_steps)
    @rule(script=scripts, key=st.sampled_from(KEYS))
    def a_step_changes(self, script: list[Planned], key: Hashable) -> None:
        self.program.scripts[key] = script

    @precondition(between_steps)
    @rule()
    def pool_is_dropped(self) -> None:
        self.program.replace_pool(self.backend())

    @invariant()
    def promises_hold(self) -> None:
        if hasattr(self, "program"):
            self.program.check()

    def teardown(self) -> None:
        if hasattr(self, "program"):
            self.program.finish()
        gc.unfreeze()
        gc.enable()
