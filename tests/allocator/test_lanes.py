"""Lanes and step slots against their plain Python reference: a request goes to its lane's arena, or upstream."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stowplan.allocator._core import LaneStart, Replay, Scope

from .bare_core import BareCore
from .reference.lanes import LaneReference, LanesReference, StepSlotsReference

ARENA_BITS = 40
ARENA_BYTES = 64
UPSTREAM = 1 << 60

threads = st.integers(1, 4)
streams = st.integers(0, 10)


class LanesAgainstReference(RuleBasedStateMachine):
    """Threads that run steps and ask on streams, in any order; the arena that serves a request tells the lane."""

    @initialize(scope=st.sampled_from(list(Scope)))
    def start(self, scope: Scope) -> None:
        self.core = Replay(1, scope)
        self.reference = LanesReference(scope)
        self.live: list[int] = []
        self.reasons: dict[str, int] = {}
        self.reserved: set[int] = set()
        self.steps: dict[int, int] = {}  # by step slot: the number of its last one
        self.next_upstream = UPSTREAM

    def number(self, step_slot: StepSlotsReference) -> int:
        return next(i for i, other in enumerate(self.reference.step_slots) if other is step_slot)

    @rule(thread=threads)
    def begin(self, thread: int) -> None:
        expected = self.reference.enter(thread)
        self.core.run_on(thread)
        entered = self.core.enter()
        if expected is None or entered is None:
            assert expected is entered
            return
        found, self.steps[found], lanes = entered
        assert (found, lanes) == (self.number(expected), [lane.number for lane in expected.lanes])
        for lane in lanes:
            if lane not in self.reserved:
                self.reserved.add(lane)
                self.core.place_arena((lane + 1) << ARENA_BITS, ARENA_BYTES, lane)
            self.core.begin([LaneStart(lane)])

    @rule(thread=threads)
    def end(self, thread: int) -> None:
        step_slot = self.reference.step_slot_of(thread)
        if step_slot is None:
            return
        number = self.number(step_slot)
        self.core.end(number, self.steps[number])
        self.reference.leave(step_slot)

    @rule(thread=threads, times=st.integers(1, 10))
    def steps_on_one_stream(self, thread: int, times: int) -> None:
        """So that the others stay away."""
        self.end(thread)
        for _ in range(times):
            self.begin(thread)
            self.request(0, thread, 1)
            self.end(thread)

    @rule(stream=streams, thread=threads, size=st.integers(0, 20))
    def request(self, stream: int, thread: int, size: int) -> None:
        where = self.reference.request(stream, thread)
        self.core.run_on(thread)
        address, block = self.core.request(size, stream)
        if address == 0:
            self.core.adopt(block, self.next_upstream)
            self.next_upstream += size + 1
        else:
            assert isinstance(where, LaneReference)
            assert address >> ARENA_BITS == where.number + 1
        reason = where if isinstance(where, str) else "no_plan"
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        self.live.append(block)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), held=st.booleans())
    def free(self, data: st.DataObject, held: bool) -> None:
        block = data.draw(st.sampled_from(self.live))
        self.live.remove(block)
        if held:
            self.core.hold(block)
            self.core.assert_invariants()
            self.core.let_go(block)
        else:
            self.core.release(block)

    @rule(thread=threads, on=st.booleans())
    def interrupt_or_resume(self, thread: int, on: bool) -> None:
        self.core.run_on(thread)
        self.core.set_interrupted(on)
        step_slot = self.reference.step_slot_of(thread)
        if step_slot is not None:
            step_slot.interrupted = on

    @invariant()
    def each_is_where_it_belongs(self) -> None:
        if not hasattr(self, "core"):
            return
        self.core.assert_invariants()
        ranges = self.core.ranges()
        assert set(ranges) == set(self.live)
        for (_, end), (begin, _) in pairwise(sorted(ranges.values())):
            assert end <= begin
        counted = self.core.counters()["requests"]
        assert {reason: n for reason, n in counted.items() if n} == self.reasons


TestLanesAgainstReference = LanesAgainstReference.TestCase
TestLanesAgainstReference.settings = settings(settings.get_profile("usual"), stateful_step_count=40)


def test_a_step_that_does_not_end_keeps_no_log() -> None:
    core = BareCore()
    for requests, is_whole in ((1 << 19, True), ((1 << 19) + 1, False), (3, True)):
        core.begin_step()
        for _ in range(requests):
            _, block = core.request(8)
            core.adopt(block, 1 << 50)
            core.release(block)
        log, complete, *_ = core.end_step()
        assert (len(log), complete) == (2 * requests if is_whole else 0, is_whole)
