"""Arbitrary programs through a pool: no live range overlaps another, every byte written is read back, no byte is lost.

A `PoolProgram` repeats steps, one for each key, and does everything that a program may do instead; it knows what must
be true of the blocks that it holds and looks after every change. Which pool it runs on is a `Backend`'s business, and
who chooses the operations is another's: hypothesis in pool_machine.py, a random generator in soak.py.
"""

from __future__ import annotations

import contextvars
import ctypes
import gc
import tempfile
from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from stowplan.errors import PoolError

from ..running import in_threads

SIZES = (0, 1, 7, 64, 65, 200, 1000, 1024, 5000, 30_000)
KEYS: tuple[Hashable, ...] = (None, "a", "b")
Place = Literal["here", "worker", "context", "worker's context"]
PLACES: tuple[Place, ...] = ("here", "worker", "context", "worker's context")
"""Where a request is made: in this thread or the worker's; in its own context, or one in which the pool was left."""


@dataclass(frozen=True)
class Planned:
    """One request of a repeated step: bytes, and before how many requests from its own it is freed."""

    size: int
    life: int


Script = Sequence[Planned]


class FailureError(Exception):
    """What a program raises within a step."""


class Backend:
    """A pool of one kind, and the arrays that live in it. The CPU time of planning must not decide what is planned.

    Its class takes a file of plans, or None, which the pool begins with, and options of the pool. What a pool has most
    often stands here.
    """

    pool: Any
    resizes = False
    zeroes = False
    of_process = False  # a step is one of all threads
    installs = False

    def allocate(self, size: int, zeroed: bool) -> Any:
        """Return a new array of bytes, on any thread. MemoryError where upstream was told to fail."""

    def address(self, array: Any) -> int:
        """Return where its bytes are."""

    def asked(self, size: int) -> int:
        """Return how many bytes the framework asks of its allocator for an array of this size."""
        return size

    def resize(self, array: Any, size: int) -> None:
        """Change an array's size, where `resizes`."""

    def fail(self, times: int) -> bool:
        """Let upstream fail that often from now on; False where it cannot."""
        return False

    def check(self) -> None:
        """Compare what upstream has given with what the pool says that it holds."""


class Block:
    """An array of bytes that all have one value."""

    def __init__(self, backend: Backend, size: int, byte: int = 1) -> None:
        self.array = backend.allocate(size, False)
        self.address, self.expected = int(backend.address(self.array)), bytes([byte]) * size
        ctypes.memset(self.address, byte, size)

    def holds(self) -> bool:
        """Whether its bytes are as they were written."""
        return ctypes.string_at(self.address, len(self.expected)) == self.expected


def make_pool(kind: Any, file: Path | None, /, *args: Any, **options: Any) -> Any:
    """Return a pool of this kind, with the plans of a file, if any."""
    return kind(*args, **options) if file is None else kind.load(file, *args, **options)


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

    Parameters
    ----------
    backend
        What it runs on.

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
        self.worker = ThreadPoolExecutor(1, thread_name_prefix="program")
        self.worker_step: Any = None
        self.context: contextvars.Context | None = None  # in which the pool serves
        self.installed = False  # in the place of the default, where the backend can

    # ------------------------------------------------------------------------------------------- requests and frees

    def allocate(self, size: int, *, zeroed: bool = False, place: Place = "here") -> int | None:
        """Hold a block more; None where upstream had none."""
        self.operations += 1
        try:
            array = self._at(place, self.backend.allocate, size, zeroed)
        except MemoryError:
            self.failures += 1
            return None
        self.blocks += 1
        self._hold(self.blocks, array, size, zeroed and self.backend.zeroes)
        self.of_this_pool[self.blocks] = self.backend.asked(size)
        return self.blocks

    def _at(self, place: Place, work: Callable[..., Any], *args: Any) -> Any:
        """Run something in this thread or the worker's, in its own context or in one that the pool has been left in."""
        if "context" in place:
            if self.context is None:
                with self.backend.pool.serving():
                    self.context = contextvars.copy_context()
            work, args = self.context.run, (work, *args)
        return self.worker.submit(work, *args).result() if "worker" in place else work(*args)

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
        box = [held.array]
        held.array = None
        if elsewhere:
            in_threads(box.clear)
        else:
            box.clear()

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
        """Begin a step; refused in an interrupted part, and where the worker runs the process's."""
        self.operations += 1
        step = self.backend.pool.step(key)
        if self.depth or (self.backend.of_process and self.worker_step is not None):
            try:
                step.__enter__()
            except PoolError:
                return
            raise AssertionError("a step began in an interrupted part, or in another step")
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

    def worker_begins(self, key: Hashable) -> None:
        """Begin a step in the worker's thread, whatever runs in this one; refused as `begin` if it is the process's."""
        self.operations += 1
        step = self.backend.pool.step(key)
        begun = self.worker.submit(step.__enter__)
        if self.backend.of_process and (self.depth or self.step is not None):
            assert isinstance(begun.exception(), PoolError), (
                "a step began in an interrupted part, or in another step"
            )
            return
        begun.result()
        self.worker_step = step

    def worker_ends(self, error: type[BaseException] | None = None) -> None:
        self.operations += 1
        self.worker.submit(self.worker_step.__exit__, error, None, None).result()
        self.worker_step = None

    def worker_hot_step(self, key: Hashable) -> None:
        """Run a whole step in the worker's thread, which frees all that it has asked for."""
        self.worker_begins(key)
        if self.worker_step is None:
            return
        lives: dict[int, int] = {}  # block -> request count of the step before which it is freed
        for number, planned in enumerate(self.scripts[key]):
            for block in [block for block, at in lives.items() if at <= number]:
                del lives[block]
                self.free(block)
            block = self.allocate(planned.size, place="worker")
            if block is not None:
                lives[block] = number + planned.life
        for block in lives:
            self.free(block)
        self.worker_ends()

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

    def install_or_uninstall(self) -> None:
        """Have the pool serve all threads and contexts, or no longer; what it has handed out stays its own."""
        self.operations += 1
        self.installed = not self.installed
        if self.installed:
            self.backend.pool.install()
        else:
            self.backend.pool.uninstall()
            self.context = None  # it may have been left without a pool of its own

    def replace_pool(self, backend: Backend) -> None:
        """Drop the pool; its blocks live on."""
        self.operations += 1
        if self.installed:
            self.install_or_uninstall()
        self._count()
        self.backend, self.depth = backend, 0
        self.of_this_pool = {}
        self.context = None

    def reload(self, backend: Callable[[Path], Backend]) -> None:
        """Save the plans, and go on with a fresh pool that has them from the file; the old one's blocks live on."""
        with tempfile.TemporaryDirectory() as folder:
            self.backend.pool.save(Path(folder) / "plans")
            self.replace_pool(backend(Path(folder) / "plans"))

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
        if self.worker_step is not None:
            self.worker_ends(FailureError)
        self.worker.shutdown()
        self.context = None
        if self.installed:
            self.install_or_uninstall()
        for block in self.droppable():
            self.free(block)
        gc.collect()
        self.check()
        assert not self.live
        assert self.backend.pool.stats.live_bytes == 0
        self._count()
