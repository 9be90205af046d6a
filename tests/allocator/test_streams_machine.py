"""Any program on several streams: no address passes from one to another without an ordering."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from .simulated_device import Event, Stream
from .simulated_pool import COPY, MAIN, OTHER, STREAMS, SimulatedPool


@dataclass(frozen=True)
class Asked:
    """A request of a repeated step: bytes, its stream, and before how many requests from its own it is freed.

    `used_on`: a stream that uses it last; the program either says so to the pool, or, if `joined`, has the block's own
    stream wait for it before the free.
    """

    size: int
    stream: Stream
    life: int
    used_on: Stream | None
    joined: bool


streams = st.sampled_from(STREAMS)
requests = st.builds(
    Asked,
    st.sampled_from([100, 1000, 5000]),
    st.sampled_from([MAIN, MAIN, COPY, OTHER]),
    st.integers(1, 4),
    st.none() | streams,
    st.booleans(),
)


class StreamsMachine(RuleBasedStateMachine):
    """Arbitrary programs on three streams; every kernel looks for races."""

    make_pool: ClassVar[Any] = SimulatedPool

    @initialize(script=st.lists(requests, min_size=1, max_size=7))
    def start(self, script: list[Asked]) -> None:
        self.pool = self.make_pool(warmup=0)
        self.device = self.pool.simulated
        self.script = script
        self.live: list[tuple[int, Asked, Any]] = []  # when it is due
        self.clock = 0
        self.step: Any = None
        self.events: list[Event] = []

    def ask(self, asked: Asked, late: int = 0) -> None:
        due = [entry for entry in self.live if entry[0] <= self.clock]
        self.live = [entry for entry in self.live if entry[0] > self.clock]
        while due:
            _, old, array = due.pop()
            self.free(old, array)
            del array
        array = self.pool.empty(asked.size, asked.stream)
        if asked.used_on is not None:
            self.device.follow(asked.used_on, self.device.event(asked.stream))
            self.device.use(array, asked.used_on)
        self.live.append((self.clock + asked.life + late, asked, array))
        self.clock += 1

    def free(self, asked: Asked, array: Any) -> None:
        if asked.used_on is None or asked.used_on == asked.stream:
            return
        if asked.joined:
            self.device.follow(asked.stream, self.device.event(asked.used_on))
        else:
            self.pool.record_stream(array, asked.used_on)

    def between_steps(self) -> bool:
        return self.step is None

    def in_step(self) -> bool:
        return self.step is not None

    @precondition(between_steps)
    @rule(times=st.integers(1, 5))
    def hot_steps(self, times: int) -> None:
        for _ in range(times):
            self.pool.wait()
            with self.pool.step():
                for asked in self.script:
                    self.ask(asked)

    @precondition(between_steps)
    @rule()
    def begin(self) -> None:
        self.step = self.pool.step()
        self.step.__enter__()

    @precondition(in_step)
    @rule()
    def end(self) -> None:
        self.step.__exit__(None, None, None)
        self.step = None

    @rule(asked=requests, late=st.sampled_from([0, 0, 9]))
    def request(self, asked: Asked, late: int) -> None:
        self.ask(asked, late)

    @precondition(in_step)
    @rule(position=st.integers(0, 6), late=st.sampled_from([0, 9]))
    def planned_request(self, position: int, late: int) -> None:
        self.ask(self.script[position % len(self.script)], late)

    @rule(first=streams, then=streams)
    def the_program_orders_two_streams(self, first: Stream, then: Stream) -> None:
        self.device.follow(then, self.device.event(first))

    @rule(stream=streams)
    def the_program_records_an_event(self, stream: Stream) -> None:
        self.events.append(self.device.event(stream))

    @precondition(lambda self: self.events)
    @rule(data=st.data(), stream=streams)
    def the_program_waits_for_an_event(self, data: st.DataObject, stream: Stream) -> None:
        self.device.follow(stream, data.draw(st.sampled_from(self.events)))

    @rule(count=st.integers(1, 20))
    def the_device_runs(self, count: int) -> None:
        self.device.run(count)

    @rule()
    def the_host_waits(self) -> None:
        self.device.synchronize()

    @precondition(between_steps)
    @rule()
    def all_blocks_are_given_back(self) -> None:
        self.pool.free_all_blocks()

    @precondition(between_steps)
    @rule(script=st.lists(requests, min_size=1, max_size=7))
    def the_step_changes(self, script: list[Asked]) -> None:
        self.script = script

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        if self.step is not None:
            self.step.__exit__(None, None, None)
        while self.live:
            _, asked, array = self.live.pop()
            self.free(asked, array)
            del array
        assert self.pool.stats.live_bytes == 0
        self.pool.free_all_blocks()
        assert self.pool.memory.live_bytes == self.pool.stats.reserved_bytes == 0
        assert not self.pool.memory.races


TestStreams = StreamsMachine.TestCase
TestStreams.settings = settings(settings.get_profile("usual"), stateful_step_count=30)
