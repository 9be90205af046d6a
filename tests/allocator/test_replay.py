"""The replay core against its plain Python reference, and against the promise: live ranges are disjoint."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stowplan.allocator._core import CorePlan, Replay
from stowplan.packing import Problem, pack

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
    core = CorePlan(
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
    if plan[0].least is not None:
        core.merge(
            column(p.least for p in plan), np.array([p.landmark for p in plan]), column(p.sign for p in plan)
        )
    return core


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
    plan = [
        PlannedRequest(requested[i], -(-requested[i] // 4) * 4, offsets.get(i, UNPLANNED), dues[i])
        for i in range(n)
    ]
    if draw(st.booleans()):
        for planned in plan:
            planned.least = draw(st.integers(1, planned.requested))
            planned.landmark = draw(st.booleans())
            planned.sign = draw(st.sampled_from([0, 0, 0, 1, 2, 256]))
    return plan


class ReplayAgainstReference(RuleBasedStateMachine):
    """Arbitrary programs: mostly the planned step, with everything that can go wrong in between."""

    def __init__(self) -> None:
        super().__init__()
        self.core = Replay()
        self.reference = ReplayReference()
        self.live: dict[int, int] = {}  # block id -> address
        self.held: dict[int, int] = {}  # of these, the ones that the program is rid of
        self.next_upstream = UPSTREAM
        self.plan: list[PlannedRequest] = []
        self.steps = 1  # that take turns on the plan
        self.born: dict[int, int] = {}  # by planned request: the block of a whole step

    @initialize(plan=plans(), steps=st.integers(1, 4))
    def first_plan(self, plan: list[PlannedRequest], steps: int) -> None:
        self.core.reserve(ARENA, ARENA_BYTES)
        self.use(plan, steps)

    def use(self, plan: list[PlannedRequest], steps: int) -> None:
        """Follow this plan from the next step on."""
        assume(all(p.offset + p.capacity <= ARENA_BYTES for p in plan))
        self.born.clear()
        self.steps = steps if len(plan) % steps == 0 and plan[0].least is None else 1
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
        assert self.core.begin_step(self.core_plan)
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
        address, block = self.core.request(size, thread=2)
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
        self.core.set_interrupted(on, thread)
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
        assert self.core.counters()["elsewhere"] == self.reference.elsewhere_count
        assert counted["replayed"] == self.reference.reasons.get("replayed", 0)
        for reason in ("escaped", "late", "mismatch", "interrupted"):
            assert counted[reason] == self.reference.reasons.get(reason, 0)


TestReplayAgainstReference = ReplayAgainstReference.TestCase
TestReplayAgainstReference.settings = settings(settings.get_profile("usual"), stateful_step_count=60)


def test_steps_do_not_nest() -> None:
    core = Replay()
    assert core.begin_step()
    assert not core.begin_step()


def test_a_plan_with_columns_of_different_lengths_is_refused() -> None:
    column = np.zeros(2, dtype=np.int64)
    with pytest.raises(ValueError, match="disagree in length"):
        CorePlan(column, column, column[:1], column, np.zeros(4, dtype=np.int64), column[:0], 0, tag=1)


# ---------------------------------------------------------------------------------------------------- merged plans


def loops_plan(iterations: int, body: int) -> list[PlannedRequest]:
    """A loop forth, whose blocks the same loop back frees, one iteration each; temporaries in both."""
    sizes: list[int] = []
    dues: list[int] = []
    for i in range(iterations):
        first = len(sizes)
        sizes += [100, *[4 * (iterations - i)] * body]
        dues += [2 * iterations * (body + 1) - first, *range(first + 3, first + 3 + body)]
    for i in range(iterations):
        first = len(sizes)
        sizes += [50, *[4 * (i + 1)] * body]
        dues += [first + 2, *range(first + 3, first + 3 + body)]
    n = len(sizes)
    dues = [min(due, n) for due in dues]
    capacity = np.array([-(-size // 4) * 4 for size in sizes], dtype=np.int64)
    start, end = 2 * np.arange(n) + 1, 2 * np.array(dues)
    offsets = pack(Problem(capacity, start, np.maximum(end, start + 1))).offsets.tolist()
    signs = [sum(1 << (k - i - 1) for i in range(max(k - 64, 0), k) if dues[i] == k) for k in range(n)]
    return [
        PlannedRequest(size, int(c), offset, due, size if size in (50, 100) else 4, landmark=True, sign=sign)
        for size, c, offset, due, sign in zip(sizes, capacity, offsets, dues, signs, strict=True)
    ]


def play(
    core: Replay,
    reference: ReplayReference,
    plan: list[PlannedRequest],
    rng: np.random.Generator,
    holds: bool,
    thread: int,
) -> Iterator[None]:
    """A step of the plan's program with shorter loops, 30 sentences of which fewer and fewer go on.

    Stops after each request, for other threads.
    """
    body, full = 5, len(plan) // 12
    iterations = int(rng.integers(2, full + 1))
    step_slot = core.enter(thread)
    assert step_slot is not None
    [lane] = core.lanes_of(step_slot)
    arena = ARENA + (thread << 20)
    core.reserve(arena, 1 << 20, lane)
    core.begin_lane(lane, core_plan(plan))
    reference.begin_step(plan, arena, 1 << 20)
    live: list[int] = []
    temporaries: list[int] = []
    held: set[int] = set()

    def ask(bytes_: int) -> int:
        if rng.random() < 0.01:
            bytes_ = int(rng.integers(1, 200))  # something else
        address, block = core.request(bytes_, thread=thread)
        reference.request(block, bytes_, address)
        assert set(core.take_awaited(block)) == reference.awaited
        held.difference_update(reference.awaited)
        if held and rng.random() < 0.5:
            let_go(min(held))
        if address == 0:
            core.adopt(block, UPSTREAM + (block << 20))
        core.assert_invariants()
        return block

    def drop(block: int) -> None:
        if holds and rng.random() < 0.1:
            core.hold(block)
            reference.hold(block, may_wait=True)
            held.add(block)
        else:
            core.release(block)
            reference.release(block)

    def let_go(block: int) -> None:
        core.let_go(block)
        reference.let_go(block)
        held.discard(block)

    running = np.sort(rng.integers(1, 31, iterations))[::-1].tolist()
    for i, n in enumerate(running + running[::-1]):
        if i < iterations:
            live.append(ask(100))
        else:
            temporaries.append(ask(50))
        yield
        for _ in range(body):
            temporaries.append(ask(4 * n))
            yield
            while len(temporaries) > 1:
                drop(temporaries.pop(0))
        if i >= iterations and live:
            drop(live.pop())
    for block in live + temporaries:
        drop(block)
    for block in sorted(held):
        let_go(block)
    core.end_lane(lane)
    core.leave(step_slot)
    reference.end_step()


@pytest.mark.parametrize("holds", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_a_merged_plan_is_followed_as_by_its_reference(seed: int, threads: int, holds: bool) -> None:
    rng = np.random.default_rng(seed)
    plan = loops_plan(30, 5)
    core, references = Replay(), [ReplayReference() for _ in range(threads)]
    for _ in range(4):
        running = [
            play(core, reference, plan, rng, holds, thread) for thread, reference in enumerate(references, 1)
        ]
        while running:
            chosen = running[int(rng.integers(len(running)))]
            if next(chosen, "ended") == "ended":
                running.remove(chosen)
    counted = core.counters()["requests"]
    for reason in ("replayed", "mismatch", "late"):
        assert counted[reason] == sum(reference.reasons.get(reason, 0) for reference in references)
    assert counted["replayed"] > sum(counted.values()) / 2
    assert core.counters()["elsewhere"] == sum(reference.elsewhere_count for reference in references) > 0
