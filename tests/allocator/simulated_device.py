"""A device of which only the order of things is simulated: streams, events, and who may see what done.

It keeps the books of happens-before by itself, with vector clocks, and knows nothing of how a pool does: what a stream
is given comes after all that it was given before, after the events that it was told to wait for (and all that came
before these), and after all that the host had seen done by then. A kernel that touches an address which another
block's kernel touched before, and does not come after it, is a race, and raises.

What it still shows beside the simulated device of tests/device: an order that is missing raises in every run, whatever
the schedule, so Hypothesis shrinks a program to the few operations that lack it; and it has CUDA's C functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .cupy_host import ALIGNMENT, cupy

Clock = dict[int, int]
"""For each stream, how many of its kernels come before."""


class RaceError(Exception):
    """Memory was given away while somebody may still use it."""


class CaptureError(RuntimeError):
    """What a stream that is being captured does not allow; like CuPy's error of CUDA's functions, it has a status."""

    status = 900


def join(a: Clock, b: Clock) -> Clock:
    return {stream: max(a.get(stream, 0), b.get(stream, 0)) for stream in a.keys() | b.keys()}


@dataclass(frozen=True)
class Stream:
    """What CuPy's streams are to a pool: an address."""

    ptr: int


@dataclass(frozen=True)
class Event:
    """What comes before it; None where it was recorded in a capture."""

    before: Clock


@dataclass(frozen=True)
class Kernel:
    """One use of a block's addresses."""

    stream: int
    number: int  # of its stream's kernels, from 1
    before: Clock  # itself included
    block: int
    begin: int
    end: int

    def precedes(self, clock: Clock) -> bool:
        return clock.get(self.stream, 0) >= self.number


class SimulatedDevice:
    """Streams for `CupyPool`, and kernels for its blocks.

    Attributes
    ----------
    now
        Address of the current stream.
    captured
        Address of the stream that is being captured, or None.
    ordering
        Whether a stream that is told to wait does so: the switch that shows that the books can find a race.
    calls
        Names of what the pool asked for: ``"synchronize"``, ``"done"``, ``"wait"``.
    """

    def __init__(self) -> None:
        self.now = 0
        self.captured: int | None = None
        self.ordering = True
        self.calls: list[str] = []
        self._streams: dict[int, Clock] = {}  # what the next kernel of a stream comes after
        self._seen: Clock = {}  # what the host knows to be done
        self._done: Clock = {}
        self._kernels: list[Kernel] = []
        self._blocks: dict[int, int] = {}  # id of CuPy's object for a block's memory -> the block's number
        self._born = 0

    # ----------------------------------------------------------------------------------- what a pool asks of streams

    def synchronize(self) -> None:
        self.calls.append("synchronize")
        self._refuse(self.captured is not None)
        self.run_all()
        self._seen = dict(self._done)

    def done(self, event: Event) -> bool:
        self.calls.append("done")
        self._refuse(self.captured is not None)
        done = all(self._done.get(stream, 0) >= number for stream, number in event.before.items())
        if done:
            self._seen = join(self._seen, event.before)
        return done

    def await_event(self, event: Event) -> None:
        self.calls.append("synchronize")
        self._done = join(self._done, event.before)
        self._seen = join(self._seen, event.before)

    def wait(self, stream: int, event: Event) -> None:
        self.calls.append("wait")
        self._refuse(stream == self.captured)
        if self.ordering:
            self.follow(Stream(stream), event)

    def _refuse(self, wrong: bool) -> None:
        if wrong:
            raise CaptureError

    # -------------------------------------------------------------------------------------- what a program does itself

    def event(self, stream: Stream) -> Event:
        return Event(self._before(stream.ptr))

    def follow(self, stream: Stream, event: Event) -> None:
        self._streams[stream.ptr] = join(self._before(stream.ptr), event.before)

    def _before(self, stream: int) -> Clock:
        return join(self._streams.get(stream, {}), self._seen)

    def admit(self, array: Any) -> None:
        """Note that an array is a new block, which is not kept alive by that."""
        self._born += 1
        self._blocks[id(array.data.mem)] = self._born

    def use(self, array: Any, stream: Stream) -> None:
        """Give a stream a kernel that uses an array's memory.

        Raises
        ------
        RaceError
            Another block's kernel may be at the same addresses at the same time.
        """
        before = self._before(stream.ptr)
        number = before.get(stream.ptr, 0) + 1
        begin, block = array.data.mem.ptr, self._blocks[id(array.data.mem)]
        kernel = Kernel(
            stream.ptr, number, {**before, stream.ptr: number}, block, begin, begin + max(array.nbytes, 1)
        )
        for other in self._kernels:
            overlaps = other.begin < kernel.end and kernel.begin < other.end
            if overlaps and other.block != block and not other.precedes(before):
                raise RaceError(f"{kernel} does not come after {other}")
        self._streams[stream.ptr] = kernel.before
        self._kernels.append(kernel)

    def run(self, count: int) -> None:
        """Run the oldest kernels, in an order that the device might choose."""
        waiting = [k for k in self._kernels if not k.precedes(self._done)]
        for kernel in waiting[:count]:
            self._done = join(self._done, kernel.before)

    def run_all(self) -> None:
        self.run(len(self._kernels))

    def give_back(self, begin: int, size: int, stream: int) -> None:
        """Give memory back to an allocator that serves the same stream with it again, as CuPy's pool does.

        Raises
        ------
        RaceError
            Another stream may be at it.
        """
        for kernel in self._kernels:
            overlaps = kernel.begin < begin + size and begin < kernel.end
            if overlaps and kernel.stream != stream and not kernel.precedes(self._before(stream)):
                raise RaceError(f"memory of stream {stream} went back while {kernel} may use it")


class Owner:
    """Memory of upstream's, as long as it lives."""

    def __init__(self, upstream: SimulatedUpstream, begin: int, size: int) -> None:
        self.upstream, self.begin, self.size, self.stream = upstream, begin, size, upstream.device.now
        upstream.live_bytes += size

    def __del__(self) -> None:
        self.upstream.live_bytes -= self.size
        try:
            self.upstream.device.give_back(self.begin, self.size, self.stream)
        except RaceError as error:
            self.upstream.races.append(error)


class SimulatedUpstream:
    """A CuPy allocator of addresses that nobody ever looks at, none of them given out twice.

    Attributes
    ----------
    races
        Found when memory came back; to be empty.
    requests
        How many there were.
    limit
        Bytes that it has.
    """

    def __init__(self, device: SimulatedDevice) -> None:
        self.device = device
        self.next = 1 << 40
        self.live_bytes = self.requests = 0
        self.limit = 1 << 62
        self.races: list[RaceError] = []

    def __call__(self, size: int) -> Any:
        if self.device.captured is not None:
            raise CaptureError
        if self.live_bytes + size > self.limit:
            raise cupy.cuda.memory.OutOfMemoryError(size, self.live_bytes)
        self.requests += 1
        begin = self.next
        self.next += -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
        owner = Owner(self, begin, size)
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(begin, size, owner, 0), 0)
