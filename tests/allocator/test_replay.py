"""The replay core against its plain Python reference, and against the promise: live ranges are disjoint."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stowplan.allocator._core import CorePlan
from stowplan.packing import Problem, pack

from .bare_core import BareCore
from .reference.replay import UNPLANNED, PlannedRequest, ReplayReference

pytestmark = pytest.mark.no_cover

ARENA = 1 << 40
ARENA_BYTES = 128  # little enough for guests to be turned away
UPSTREAM = 1 << 50


def core_plan(plan: list[PlannedRequest], steps: int = 1) -> CorePlan:
    n = len(plan)
    due_lists = [
        [i for i, p in enumerate(plan) if p.offset != UNPLANNED and p.due == k] for k in range(n + 1)
    ]
    column = lambda values: np.array(list(values), dtype=np.int64)  # noqa: E731
    return CorePlan(
        column(p.offset for p in plan),
        column(p.requested for p in plan),
        column(p.capacity for p in plan),
        column(0 for p in plan),
        column([0, *np.cumsum([len(d) for d in due_lists])]),
        column(i for d in due_lists for i in d),
        ARENA_BYTES,
        tag=1,
        steps=steps,
    )


@st.composite
def plans(draw: st.DrawFn) -> list[PlannedRequest]:
    """A valid plan: sizes and free gaps at random, packed by the library, so that what is alive together is apart."""
    n = draw(st.integers(1, 12))
    requested = draw(st.lists(st.sampled_from([1, 2, 3, 5, 8, 13, 21, 34]), min_size=n, max_size=n))
    dues: list[int | None] = [draw(st.none() | st.integers(0, n)) for _ in range(n)]
    rows = [i for i in range(n) if dues[i] is not None]
    start, end, gaps = [], [], []
    for row, i in enumerate(rows):
        due = dues[i]
        assert due is not None
        if due > i:
            start.append(2 * i + 1)
            end.append(2 * due)
        else:
            start.append(0)
            end.append(2 * n)
            gaps.append((row, 2 * due, 2 * i + 1)) if due else None
            if due == 0:
                start[-1] = 2 * i + 1
    capacity = [-(-requested[i] // 4) * 4 for i in rows]
    end = [max(e, s + 1) for s, e in zip(start, end, strict=True)]
    problem = Problem(
        np.array(capacity, dtype=np.int64),
        np.array(start, dtype=np.int64),
        np.array(end, dtype=np.int64),
        gaps=np.array(gaps, dtype=np.int64).reshape(-1, 3),
    )
    offsets = dict(zip(rows, pack(problem).offsets.tolist(), strict=True))
    return [
        PlannedRequest(requested[i], -(-requested[i] // 4) * 4, offsets.get(i, UNPLANNED), dues[i])
        for i in range(n)
    ]


class ReplayAgainstReference(RuleBasedStateMachine):
    """Arbitrary programs: mostly the planned step, with everything that can go wrong in between."""

    def __init__(self) -> None:
        super().__init__()
        self.core = BareCore()
        self.reference = ReplayReference()
        self.live: dict[int, int] = {}  # block id -> address
        self.held: dict[int, int] = {}  # of these, the ones that the program is rid of
        self.next_upstream = UPSTREAM
        self.plan: list[PlannedRequest] = []
        self.steps = 1  # that take turns on the plan
        self.born: dict[int, int] = {}  # by planned request: the block of a whole step

    @initialize(plan=plans(), steps=st.integers(1, 4))
    def first_plan(self, plan: list[PlannedRequest], steps: int) -> None:
        self.core.place_arena(ARENA, ARENA_BYTES)
        self.use(plan, steps)

    def use(self, plan: list[PlannedRequest], steps: int) -> None:
        """Follow this plan from the next step on."""
        assume(all(p.offset + p.capacity <= ARENA_BYTES for p in plan))
        self.born.clear()
        self.steps = steps if len(plan) % steps == 0 else 1
        self.plan, self.core_plan = plan, core_plan(plan, self.steps)

    def ask(self, size: int) -> int:
        address, block = self.core.request(size)
        self.reference.request(block, size, address)
        assert set(self.core.take_awaited(block)) == self.reference.awaited
        for held in self.reference.awaited:
            del self.held[held]
        if address == 0:
            address = self.next_upstream
            self.next_upstream += size + 1
            self.core.adopt(block, address)
        self.live[block] = address
        return block

    def drop(self, block: int) -> None:
        upstream = self.core.release(block)
        assert upstream == (self.reference.blocks[block].address == 0)
        self.reference.release(block)
        del self.live[block]

    @precondition(lambda self: not self.reference.in_step)
    @rule(plan=plans(), steps=st.integers(1, 4))
    def new_plan(self, plan: list[PlannedRequest], steps: int) -> None:
        self.use(plan, steps)

    @precondition(lambda self: not self.reference.in_step)
    @rule()
    def begin(self) -> None:
        self.core.begin_step(self.core_plan)
        self.reference.begin_step(self.plan, ARENA, ARENA_BYTES, len(self.plan) // self.steps)

    @precondition(lambda self: self.reference.in_step)
    @rule()
    def end(self) -> None:
        self.core.end_step()
        self.reference.end_step()

    @precondition(lambda self: not self.reference.in_step)
    @rule(data=st.data(), late=st.sets(st.integers(0, 11), max_size=3))
    def whole_step(self, data: st.DataObject, late: set[int]) -> None:
        """The planned step in full, each block freed when it is due unless it is chosen to be late."""
        self.begin()
        began = self.reference.began
        if began == 0:
            self.born.clear()
        end = began + self.reference.turn
        for k in range(began, end + 1):
            for i, block in list(self.born.items()):
                if self.plan[i].due == k and k > i and i not in late and block in self.live:
                    self.drop(block)
            if k < end:
                self.born[k] = self.ask(self.plan[k].requested)
        self.end()

    @rule(size=st.sampled_from([0, 1, 2, 3, 5, 8, 13, 21, 34, 55]))
    def request(self, size: int) -> None:
        self.ask(size)

    @precondition(lambda self: self.reference.in_step and self.reference.cursor < len(self.plan))
    @rule(skipped=st.integers(0, 3))
    def expected_request(self, skipped: int) -> None:
        k = min(self.reference.cursor + skipped, len(self.plan) - 1)
        self.ask(self.plan[k].requested)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        self.drop(data.draw(st.sampled_from(sorted(self.live))))

    @precondition(lambda self: self.live)
    @rule(data=st.data(), may_wait=st.booleans())
    def hold(self, data: st.DataObject, may_wait: bool) -> None:
        block = data.draw(st.sampled_from(sorted(self.live)))
        self.core.hold(block, may_wait)
        self.reference.hold(block, may_wait)
        self.held[block] = self.live.pop(block)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.held)))
        assert self.core.let_go(block) == (self.reference.blocks[block].address == 0)
        self.reference.let_go(block)
        del self.held[block]

    @rule(size=st.integers(0, 50))
    def request_on_another_thread(self, size: int) -> None:
        in_step = self.reference.in_step
        self.core.run_on(2)
        address, block = self.core.request(size)
        self.core.run_on(1)
        assert address == 0
        self.core.adopt(block, self.next_upstream)
        self.reference.in_step = False  # to the reference the other thread is outside every step
        self.reference.request(block, size, 0)
        self.reference.in_step = in_step
        self.live[block] = self.next_upstream
        self.next_upstream += size + 1

    @precondition(lambda self: self.reference.in_step)
    @rule(thread=st.sampled_from([1, 1, 1, 2]))
    def interrupt_or_resume(self, thread: int) -> None:
        on = not self.reference.interrupted
        self.core.run_on(thread)
        self.core.set_interrupted(on)
        self.core.run_on(1)
        if thread == 1:  # others change nothing
            self.reference.interrupted = on

    @rule(size=st.integers(0, 50))
    def upstream_fails(self, size: int) -> None:
        if self.reference.in_step:
            return
        address, block = self.core.request(size)
        assert address == 0
        self.core.cancel(block)

    @invariant()
    def live_ranges_are_disjoint(self) -> None:
        self.core.assert_invariants()
        ranges = self.core.ranges()
        assert {block: begin for block, (begin, _) in ranges.items()} == self.live | self.held
        ordered = sorted(ranges.values())
        for (_, end), (begin, _) in pairwise(ordered):
            assert end <= begin

    @invariant()
    def reasons_agree(self) -> None:
        counted = self.core.counters()["requests"]
        assert self.core.counters()["guests"] == self.reference.guests
        assert counted["replayed"] == self.reference.reasons.get("replayed", 0)
        for reason in ("escaped", "late", "mismatch", "interrupted"):
            assert counted[reason] == self.reference.reasons.get(reason, 0)


TestReplayAgainstReference = ReplayAgainstReference.TestCase
TestReplayAgainstReference.settings = settings(settings.get_profile("usual"), stateful_step_count=60)


def test_a_plan_with_columns_of_different_lengths_is_refused() -> None:
    column = np.zeros(2, dtype=np.int64)
    with pytest.raises(ValueError, match="disagree in length"):
        CorePlan(column, column, column[:1], column, np.zeros(4, dtype=np.int64), column[:0], 0, tag=1)
