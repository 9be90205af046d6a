"""Any program on the replay core: live ranges are disjoint, and each block goes back where it came from."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stowplan.allocator._core import CorePlan, Replay
from stowplan.packing import Problem, pack

pytestmark = pytest.mark.no_cover

ARENA = 1 << 40
ARENA_BYTES = 128  # little enough for guests to be turned away
UPSTREAM = 1 << 50
UNPLANNED = -1


@dataclass
class PlannedRequest:
    requested: int
    capacity: int
    offset: int
    due: int | None
    """Number of the request before which the block is freed; at most its own number: in the following step."""


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


class ReplayMachine(RuleBasedStateMachine):
    """Arbitrary programs: mostly the planned step, with everything that can go wrong in between.

    What is served from where, and why, stands in the golden streams (tests/golden).
    """

    def __init__(self) -> None:
        super().__init__()
        self.core = Replay()
        self.live: dict[int, int] = {}  # block id -> address
        self.held: dict[int, int] = {}  # of these, the ones that the program is rid of
        self.upstream: set[int] = set()  # of both, the ones that upstream has given
        self.next_upstream = UPSTREAM
        self.in_step = self.interrupted = False
        self.plan: list[PlannedRequest] = []
        self.steps = 1  # that take turns on the plan

    @initialize(plan=plans(), steps=st.integers(1, 4))
    def first_plan(self, plan: list[PlannedRequest], steps: int) -> None:
        self.core.reserve(ARENA, ARENA_BYTES)
        self.new_plan(plan, steps)

    def ask(self, size: int, thread: int = 1) -> int:
        address, block = self.core.request(size, thread=thread)
        for held in self.core.take_awaited(block):
            del self.held[held]
        self.upstream.discard(block)  # numbers come again
        if address == 0:
            address = self.next_upstream
            self.next_upstream += size + 1
            self.core.adopt(block, address)
            self.upstream.add(block)
        self.live[block] = address
        return block

    def drop(self, block: int) -> None:
        assert self.core.release(block) == (block in self.upstream)
        del self.live[block]

    @precondition(lambda self: not self.in_step)
    @rule(plan=plans(), steps=st.integers(1, 4))
    def new_plan(self, plan: list[PlannedRequest], steps: int) -> None:
        """Follow this plan from the next step on."""
        assume(all(p.offset + p.capacity <= ARENA_BYTES for p in plan))
        self.steps = steps if len(plan) % steps == 0 else 1
        self.plan, self.core_plan = plan, core_plan(plan, self.steps)

    @precondition(lambda self: not self.in_step)
    @rule()
    def begin(self) -> None:
        assert self.core.begin_step(self.core_plan)
        self.in_step = True

    @precondition(lambda self: self.in_step)
    @rule()
    def end(self) -> None:
        self.core.end_step()
        self.in_step = self.interrupted = False

    @precondition(lambda self: not self.in_step)
    @rule(times=st.integers(1, 3), late=st.sets(st.integers(0, 11), max_size=3))
    def whole_steps(self, times: int, late: set[int]) -> None:
        """The planned steps in full, each block freed when it is due unless it is chosen to be late."""
        born: dict[int, int] = {}
        for k in range(times * len(self.plan)):
            k %= len(self.plan)
            if k % (len(self.plan) // self.steps) == 0:
                self.end() if self.in_step else None
                self.begin()
            for i, block in list(born.items()):
                if self.plan[i].due == k and i not in late and block in self.live:
                    self.drop(block)
            born[k] = self.ask(self.plan[k].requested)
        self.end() if self.in_step else None

    @rule(size=st.sampled_from([0, 1, 2, 3, 5, 8, 13, 21, 34, 55]), thread=st.sampled_from([1, 1, 2]))
    def request(self, size: int, thread: int) -> None:
        block = self.ask(size, thread)
        assert thread == 1 or block in self.upstream

    @precondition(lambda self: self.in_step and self.plan)
    @rule(data=st.data())
    def planned_request(self, data: st.DataObject) -> None:
        self.ask(data.draw(st.sampled_from(self.plan)).requested)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        self.drop(data.draw(st.sampled_from(sorted(self.live))))

    @precondition(lambda self: self.live)
    @rule(data=st.data(), may_wait=st.booleans())
    def hold(self, data: st.DataObject, may_wait: bool) -> None:
        block = data.draw(st.sampled_from(sorted(self.live)))
        self.core.hold(block, may_wait)
        self.held[block] = self.live.pop(block)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.held)))
        assert self.core.let_go(block) == (block in self.upstream)
        del self.held[block]

    @precondition(lambda self: self.in_step)
    @rule(thread=st.sampled_from([1, 1, 1, 2]))
    def interrupt_or_resume(self, thread: int) -> None:
        self.core.set_interrupted(not self.interrupted, thread)
        if thread == 1:  # others change nothing
            self.interrupted = not self.interrupted

    @precondition(lambda self: not self.in_step)
    @rule(size=st.integers(0, 50))
    def upstream_fails(self, size: int) -> None:
        address, block = self.core.request(size)
        assert address == 0
        self.core.cancel(block)

    @invariant()
    def live_ranges_are_disjoint(self) -> None:
        self.core.assert_invariants()
        ranges = self.core.ranges()
        assert {block: begin for block, (begin, _) in ranges.items()} == self.live | self.held
        for (_, end), (begin, _) in pairwise(sorted(ranges.values())):
            assert end <= begin


TestReplay = ReplayMachine.TestCase
TestReplay.settings = settings(settings.get_profile("usual"), stateful_step_count=60)


def test_steps_do_not_nest() -> None:
    core = Replay()
    assert core.begin_step()
    assert not core.begin_step()


def test_a_plan_with_columns_of_different_lengths_is_refused() -> None:
    column = np.zeros(2, dtype=np.int64)
    with pytest.raises(ValueError, match="disagree in length"):
        CorePlan(column, column, column[:1], column, np.zeros(4, dtype=np.int64), column[:0], 0, tag=1)
