"""A worker of the random program (`race_program.py`): arrays on several streams, in the order that their use needs.

    read     comes after the last write, wherever that was
    write    comes after the last write, and after all reads since
    drop     the pool is told of the other streams that use the array, or its own stream waits for them

So there is an event behind each kernel, and another stream that needs it waits for it, and for nothing else.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import cupy

from stowplan import CupyPool

from .c_pool import CPool
from .race_bodies import LEGACY, SIZES, SLOTS, Op, Way, random_body

KERNELS = r"""
extern "C" __global__ void fill(float* to, int n, float number) {
  for (int i = 0; i < n; ++i) to[i] = number;
}
extern "C" __global__ void add(float* to, const float* from, int n) {
  for (int i = 0; i < n; ++i) to[i] += from[i];
}
extern "C" __global__ void check(const float* of, int n, float number, float* wrong) {
  for (int i = 0; i < n; ++i) {
    if (of[i] == number) continue;
    if (atomicAdd(wrong, 1.0f) == 0.0f) { wrong[1] = number; wrong[2] = of[i]; }
    return;
  }
}
"""

LARGE = SIZES[-1] * 8
"""Elements of an array as large as most arenas."""

LARGEST = 1 << 20
"""Sums stay below it: a float holds them exactly."""

WORKERS = 3
HANDED = 4
"""Arrays on their way from thread to thread, at the most."""


class WrongValueError(Exception):
    """An array did not hold what was written to it."""


Mark = tuple[int, Any]
"""A stream's number, and an event on it."""


@dataclass
class Value:
    """An array, what it holds, and what has used it last."""

    array: Any
    home: int  # the number of its own stream
    number: float
    written: Mark
    reads: dict[int, Any] = field(default_factory=dict)  # stream -> event, since it was written

    def others(self) -> dict[int, Any]:
        """Return the other streams that use it: their numbers, and events."""
        uses = {**self.reads, self.written[0]: self.reads.get(self.written[0], self.written[1])}
        uses.pop(self.home, None)
        return uses


class Wrong:
    """What kernels found: how many arrays were wrong, and the first one's expected and found numbers."""

    def __init__(self) -> None:
        self._pool = (
            cupy.cuda.MemoryPool()
        )  # CuPy 12 frees a pool's memory with the pool, whatever lives in it
        with cupy.cuda.using_allocator(self._pool.malloc):
            self.array = cupy.zeros(3, cupy.float32)
        cupy.cuda.Device().synchronize()

    def raise_for_any(self) -> None:
        """Wait for the device, and raise an error if a kernel found something."""
        cupy.cuda.Device().synchronize()
        count, expected, found = self.array.get().tolist()
        if count:
            raise WrongValueError(
                f"{count:.0f} arrays: {expected:.0f} expected, {found:.0f} found in the first"
            )


@dataclass
class Counts:
    """What the program did."""

    operations: int = 0
    replayed: int = 0
    told: int = 0
    graphs: int = 0
    handed: int = 0
    given_back: int = 0

    def __str__(self) -> str:
        return (
            f"{self.operations:,} operations, {self.replayed:,} requests replayed, "
            f"{self.told:,} arrays dropped in use, "
            f"{self.graphs:,} graphs, {self.handed:,} arrays handed on, {self.given_back:,} times all given back"
        )


class Machine:
    """What all rounds share: streams, kernels, and what was found."""

    def __init__(self) -> None:
        # All but the last worker's second one do not wait for the legacy stream.
        own = [cupy.cuda.Stream(non_blocking=number < 2 * WORKERS - 1) for number in range(2 * WORKERS)]
        self.streams = [cupy.cuda.Stream.null, *own]
        module = cupy.RawModule(code=KERNELS)
        self.fill, self.add, self.check = (module.get_function(name) for name in ("fill", "add", "check"))
        self.wrong = Wrong()


class Worker:
    """Runs bodies on streams of its own, in one thread.

    Parameters
    ----------
    machine, pool, counts
        What it works with.
    number
        Of the worker; says which streams are its own.
    seed
        Chooses the numbers, and what differs from run to run.
    handed
        Arrays on their way from thread to thread; None where there is one thread.
    """

    def __init__(
        self,
        machine: Machine,
        pool: CupyPool | CPool,
        counts: Counts,
        number: int,
        seed: str,
        handed: list[Value] | None,
    ) -> None:
        self._machine, self._pool, self._counts, self._handed = machine, pool, counts, handed
        self._own = (LEGACY, 2 * number + 1, 2 * number + 2)
        self._draw = random.Random(seed)
        self._slots: dict[int, Value] = {}
        self._late: list[Value] = []
        self._does: dict[str, Callable[[Op], None]] = {
            "new": self._make,
            "add": self._add,
            "check": self._check,
            "read": self._read,
            "drop": self._drop_slot,
            "old": self._use_old,
            "give": self._give,
            "take": self._take,
        }
        self._old = [self._new(self._draw.choice(SIZES), self._own[1], self._own[1]) for _ in range(SLOTS)]

    def run(self, body: Sequence[Op], strays: float = 0.0) -> None:
        """Run a body. `strays`: how likely it is that an operation is done in another way than the last time."""
        for op in body:
            if strays and self._draw.random() < strays:
                self._stray(op)
            else:
                self._does[op.what](op)
        self._counts.operations += len(body)
        while self._late:
            self._drop(self._late.pop(), "tell")

    def drop_all(self) -> None:
        """Drop what is in slots."""
        while self._slots:
            self._drop(self._slots.popitem()[1], "tell" if self._draw.random() < 0.8 else "join")

    def section(self, *, step: str) -> None:
        """Run a body again and again; in the end it may become a graph."""
        draw = self._draw
        alone = self._handed is None
        for_graph = alone and draw.random() < 0.5
        body = random_body(draw, draw.randint(8, 40), for_graph=for_graph, threads=not alone)
        for repetition in range(draw.randint(6, 12)):
            with self._step(step):
                strays = repetition > 4 and not for_graph and draw.random() < 0.3
                self.run(body, strays=0.02 if strays else 0.0)
            if repetition < 4:
                self._pool.wait(10)
            if repetition >= 4 and draw.random() < 0.1:
                self.give_back()
        self.drop_all()
        if for_graph:
            self.capture(body, step)
        if draw.random() < 0.3:
            self.give_back()

    @contextlib.contextmanager
    def _step(self, step: str) -> Iterator[None]:
        """Return a context manager around a step, which begins and ends with any of the streams current."""
        number = self._draw.choice(self._own)
        if self._draw.random() < 0.3:
            self._pass_by(number)
        with self._machine.streams[number], self._pool.step(step):
            yield

    def free_form(self) -> None:
        """Run a body once, in no step."""
        self.run(random_body(self._draw, 30, for_graph=False, threads=self._handed is not None))
        self.drop_all()

    def _pass_by(self, number: int) -> None:
        """Make an array that may get an arena's memory, or leave its own to an arena, while a stream works with it."""
        value = self._new(LARGE, number, number)
        self._launch_check(number, value)
        self._drop(value, "tell")

    def give_back(self) -> None:
        """Give back all that is free, while streams may work with it."""
        self._counts.given_back += 1
        self._pool.free_all_blocks()
        self._pass_by(self._draw.choice(self._own))

    def capture(self, body: Sequence[Op], step: str) -> None:
        """Capture a step, right behind one that streams still work at, and launch it some times.

        Its places are the graph's as long as there are launches to come, so nothing else runs meanwhile. Each launch
        stands for work of both streams, and is ordered with both.
        """
        first, second = (self._machine.streams[number] for number in self._own[1:])
        with self._pool.step(step):
            self.run(body)
            self.drop_all()
        with first:
            first.begin_capture()
            second.wait_event(first.record())
            with self._pool.step(step):
                self.run(body)
                self.drop_all()
            first.wait_event(second.record())
            graph = first.end_capture()
        for _ in range(self._draw.randint(1, 3)):
            first.wait_event(second.record())
            graph.launch(first)
        second.wait_event(first.record())
        self._counts.graphs += 1

    # ------------------------------------------------------------------------------------------------- operations

    def _make(self, op: Op, size: int = 0) -> None:
        if op.slot in self._slots:  # from the last run
            self._drop(self._slots.pop(op.slot), "tell")
        self._slots[op.slot] = self._new(size or op.size, self._own[op.stream], self._own[op.other])

    def _add(self, op: Op) -> None:
        to, from_ = self._slots[op.slot], self._slots[op.other]
        if to.array.size <= from_.array.size and to.number + from_.number < LARGEST and to is not from_:
            self._launch_add(self._own[op.stream], to, from_)

    def _check(self, op: Op) -> None:
        self._launch_check(self._own[op.stream], self._slots[op.slot])

    def _read(self, op: Op) -> None:
        value, number = self._slots[op.slot], self._own[op.stream]
        self._order(number, value.written)
        stream = self._machine.streams[number]
        found = value.array.get(stream=stream)
        value.reads[number] = stream.record()
        if (found != value.number).any():
            raise WrongValueError(f"{value.number:.0f} expected, read back: {found}")

    def _drop_slot(self, op: Op) -> None:
        self._drop(self._slots.pop(op.slot), op.way)

    def _use_old(self, op: Op) -> None:
        old, value, number = self._old[op.other], self._slots[op.slot], self._own[op.stream]
        self._launch_check(number, old)
        if old.array.size <= value.array.size and old.number + value.number < LARGEST:
            self._launch_add(number, old, value)

    def _give(self, op: Op) -> None:
        assert self._handed is not None
        value = self._slots.pop(op.slot)
        if len(self._handed) < HANDED:
            self._handed.append(value)
        else:
            self._drop(value, "tell")

    def _take(self, op: Op) -> None:
        assert self._handed is not None
        if op.slot in self._slots:
            self._drop(self._slots.pop(op.slot), "tell")
        try:
            value = self._handed.pop()  # another thread may have been first
        except IndexError:
            value = self._new(op.size, self._own[op.stream], self._own[op.stream])
        else:
            self._counts.handed += 1
            self._launch_check(self._own[op.stream], value)
        self._slots[op.slot] = value

    def _stray(self, op: Op) -> None:
        """Do an operation in another way, or one more: a plan does not fit then."""
        if op.what == "drop":
            self._late.append(self._slots.pop(op.slot))
        elif op.what == "new" and self._draw.random() < 0.5:
            self._make(op, size=self._draw.choice(SIZES))
        else:
            self._late.append(self._new(self._draw.choice(SIZES), self._own[1], self._own[2]))
            if self._draw.random() < 0.2:
                self.give_back()
            self._does[op.what](op)

    # ------------------------------------------------------------------------------------------- arrays and kernels

    def _new(self, size: int, home: int, first: int) -> Value:
        """Make an array on its own stream, and fill it on a first one."""
        machine = self._machine
        with machine.streams[home] as stream:
            value = Value(cupy.empty(size, cupy.float32), home, self._draw.randint(1, 1000), (home, None))
        if first != home:
            value.written = (home, stream.record())
        self._launch(machine.fill, first, (value.array, size, cupy.float32(value.number)), writes=value)
        return value

    def _launch_add(self, stream: int, to: Value, from_: Value) -> None:
        to.number += from_.number
        self._launch(
            self._machine.add, stream, (to.array, from_.array, to.array.size), reads=from_, writes=to
        )

    def _launch_check(self, stream: int, value: Value) -> None:
        arguments = (value.array, value.array.size, cupy.float32(value.number), self._machine.wrong.array)
        self._launch(self._machine.check, stream, arguments, reads=value)

    def _launch(
        self,
        kernel: Any,
        number: int,
        arguments: tuple[Any, ...],
        reads: Value | None = None,
        writes: Value | None = None,
    ) -> None:
        """Launch a kernel behind all that it has to come after, and note what comes after it."""
        if reads is not None:
            self._order(number, reads.written)
        if writes is not None:
            for mark in (writes.written, *writes.reads.items()):
                self._order(number, mark)
        with self._machine.streams[number] as stream:
            kernel((1,), (1,), arguments)
        event = stream.record()
        if reads is not None:
            reads.reads[number] = event
        if writes is not None:
            writes.written = (number, event)
            writes.reads.clear()

    def _order(self, number: int, mark: Mark) -> None:
        if mark[0] != number:
            self._machine.streams[number].wait_event(mark[1])

    def _drop(self, value: Value, way: Way) -> None:
        """Drop an array that streams may still use: the pool is told of them, or its own stream waits for them."""
        others = value.others()
        for number, event in others.items():
            if way == "tell":
                self._pool.record_stream(value.array, self._machine.streams[number])
            else:
                self._machine.streams[value.home].wait_event(event)
        self._counts.told += way == "tell" and bool(others)
        value.array = None
