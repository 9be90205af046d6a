"""The plans of one lane: what its next step may follow, what is being made of its records, what takes whose place.

Carries out what the lane's policy decides (lane_policy.py): keeps the record, has the planner make plans of it, and
puts these into use at the next step boundary. Nothing here raises because of what the program did: a plan is an
optimization.

Not synchronized: whoever calls holds the mutex of the lane's step slot, and runs in an empty context, in which NumPy's
handler is the default one, as the arrays that planning needs are no business of the pool's.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..planning.shared import SharedPlans
from ..profiler import StepLog
from ..profiler.steps import overlap_matters
from ._core import Backend, CorePlan, PlanSet
from .cache import Entry, PlanCache
from .lane_policy import Action, Confirmation, LanePolicy
from .plan_maker import PlanMaker, Record, Solved
from .planner import Planner
from .planning_budget import PlanningBudget

if TYPE_CHECKING:
    from ..planning import Plan
    from ..planning.store import PlanStore

MOST_TAKEN = 4096
"""Keys of which a lane remembers that it has looked at the plans of other lanes."""

Outcome = tuple[npt.NDArray[np.void], bool, bool, int]
"""Of a lane's part of a step: (events, complete, clean, tag of the plan followed)."""

LaneStart = tuple[int, CorePlan | None, PlanSet, int, bool, bool]
"""Of a lane's part of a step: (lane, plan expected, all that it may follow, bytes of an arena for them, timestamps,
whether the arena may have guests)."""


class LanePlans:
    """The plans of one lane.

    Parameters
    ----------
    backend
        What serves the requests.
    lane
        Its number for the lane.
    shared
        Plans of all lanes.
    budget
        What planning may cost, in all lanes.
    warmup
        Steps to let pass before recording.
    alignment
        Bytes; of every planned offset.
    planner
        Name of the packing solver.
    max_plans
        Plans to keep.
    auto_step
        Whether steps are found, until one is marked.
    store
        As for `PlanMaker`.

    Attributes
    ----------
    key
        Of the running step, or of the last one.
    lane
        The backend's number for the lane.
    latest
        The plan that was made last, or None.
    plans, reoptimizations
        Plans made, and of these the ones that took another's place.
    """

    def __init__(
        self,
        backend: Backend,
        lane: int,
        shared: SharedPlans,
        budget: PlanningBudget,
        *,
        warmup: int,
        alignment: int,
        planner: str,
        max_plans: int,
        auto_step: bool = False,
        store: PlanStore | None = None,
    ) -> None:
        self._policy = LanePolicy(warmup, found=auto_step)
        self._backend = backend
        self.lane = lane
        self._cache = PlanCache(max_plans)
        self._maker = PlanMaker(
            backend, lane, self._cache, shared, alignment=alignment, solver=planner, store=store
        )
        self._planner: Planner[Solved] = Planner()
        self._budget = budget
        self._record: Record | None = None  # where the policy has one
        self.key: Hashable = None
        self._keeps_results = False  # whether the running step does, or the last one
        self._shared = shared
        self._taken: dict[Hashable, int] = {}  # number of the last offer that was looked at, by key
        self.latest: Plan | None = None
        self.plans = self.reoptimizations = 0

    # ------------------------------------------------------------------------------------------------------- steps

    def next_step(self, key: Hashable, keeps_results: bool = False) -> LaneStart:
        """Take up what is ready, and return how a marked step begins in this lane; see `Pool.step`."""
        if self._policy.found:
            self._policy.steps_are_marked()
            self._record = None
        self._keeps_results = keeps_results
        start = self._start(key)
        self.key = key
        return start

    def _start(self, key: Hashable) -> LaneStart:
        self._take_up()
        if self._keeps_results:
            self._take_offers(key)
        likely, variants = self._cache.likely(key)
        timestamps = self._policy.wants_log(has_plan=likely is not None)
        return self.lane, likely, variants, self._cache.arena_bytes, timestamps, not self._keeps_results

    def step_ended(self, outcome: Outcome, failed: bool) -> None:
        """Learn from a step; `failed` where an exception left it, so that it says nothing about the next."""
        events, complete, clean, tag = outcome
        followed = self._cache.get(tag)
        if followed is not None:
            self._cache.follow(followed, in_full=clean)
        record, self._record = self._record, None
        order = None
        if record is not None and complete:
            order = _Order(record, StepLog(events))
        decision = self._policy.step_ended(
            complete=complete,
            clean=clean,
            failed=failed,
            followed=None if followed is None else followed.standing,
            confirmation=None if order is None else self._confirmation(order),
        )
        # What a step that was found leaves behind may be the enclosing loop's, and go with its iteration.
        if followed is not None and complete and not (clean or failed or self._policy.found):
            self._make_way(followed)
        if order is not None:
            self._carry_out(decision.action, order)
        if decision.record:
            self._record = Record(self.key, StepLog(events), followed, self._keeps_results)

    def _confirmation(self, order: _Order) -> Confirmation:
        """Say what the policy is to know of an order."""
        log, following = order.record.log, order.following
        return Confirmation(
            sequence=order.sequence,
            equal=log.equals(following),
            same_key=order.record.key == self.key,
            affordable=self._budget.allows_order(),
        )

    def steps_found(self, outcomes: Sequence[Outcome]) -> None:
        """Learn from steps that were found and have ended, and say what the next ones may follow; on any thread.

        Plans are taken up as well: little is alive beside a new arena when a step has just ended.
        """
        if not self._policy.found:
            return
        for outcome in outcomes:
            self.step_ended(outcome, failed=False)
        start = self._start(None)
        *_, arena_bytes, timestamps, _ = start
        self._backend.reserve(self.lane, arena_bytes)  # it may have been given back
        self._backend.expect(start, timestamps or self._planner.busy)

    def drop_record(self) -> None:
        """Forget the last step, as the one that follows it is lost."""
        self._record = None
        self._policy.drop_record()

    # ------------------------------------------------------------------------------------------------------- plans

    def _carry_out(self, action: Action, order: _Order) -> None:
        """Do with a record what the policy has decided."""
        record = order.record
        if action is Action.PLAN:
            self._submit(self._maker.solving(order.sequence, record, order.following))
        elif action is Action.SKIP:
            self._budget.skip()

    def _submit(self, job: Callable[[], Solved]) -> None:
        self._planner.submit(self._budget.order(job))

    def _make_way(self, followed: Entry) -> None:
        """Have a plan placed anew that cannot be replayed in full while what stays in the arena stays there."""
        from ..planning.co_placement import is_obstructed

        stayers = self._backend.stayers(self.lane)
        if not is_obstructed(followed.plan, stayers):
            return
        sequence = hash(("placed", followed.tag))
        action = self._policy.obstructed(sequence, followed.standing, affordable=self._budget.allows_order())
        if action is Action.PLAN:
            self._submit(self._maker.placing_anew(sequence, followed, stayers))
        elif action is Action.SKIP:
            self._budget.skip()

    def _take_up(self) -> None:
        """Put the plans that are ready into use."""
        for solved in self._planner.collect():
            self._policy.plan_made(solved.sequence)
            entry, old = solved.entry, solved.replaces
            if entry is None:
                continue
            if not self._backend.reserve(self.lane, max(entry.plan.arena_bytes, solved.arena_bytes)):
                continue
            if old is not None:
                entry.revise(old)
            if entry is old:
                continue
            is_new = self._cache.get(entry.tag) is not entry
            self._cache.add(entry, replaces=old)
            profile = entry.plan.profile
            self._policy.plan_taken_up(overlaps=overlap_matters(profile.escaped, profile.size))
            self.latest = entry.plan
            self.plans += is_new
            self.reoptimizations += is_new and old is not None

    def _take_offers(self, key: Hashable) -> None:
        """Put plans into use that other lanes have made for steps of this key."""
        offers = self._shared.offers(key)
        if not offers or offers[-1][0] == self._taken.get(key, 0):
            return
        known = [entry.plan for entry in self._cache.variants(key)]
        for number, plan in offers:
            if number <= self._taken.get(key, 0) or any(
                plan.profile.same_blocks(own.profile) for own in known
            ):
                continue
            if self._backend.reserve(self.lane, plan.arena_bytes):
                self._cache.add(self._cache.entry(key, plan))
                self._policy.plan_taken_up(overlaps=False)
        if len(self._taken) >= MOST_TAKEN:
            self._taken.clear()  # they are looked at again
        self._taken[key] = offers[-1][0]

    def wait(self, timeout: float | None) -> bool:
        """Wait until the plans being made are ready, and return whether they are. No mutex is needed for this."""
        return self._planner.wait(timeout)

    def take_up(self) -> None:
        """Put the plans that are ready into use, wherever steps are."""
        self._take_up()
        self.steps_found(())

    def planner_lost(self) -> None:
        """Forget the plans being made: a fork has left behind who makes them."""
        self._planner = Planner()
        self._policy.orders_lost()

    # ------------------------------------------------------------------------------------------------------- files

    def in_use(self) -> list[Entry]:
        """Return the plans in use, the least recently used first."""
        return self._cache.entries()[::-1]

    @property
    def lower_bound(self) -> int:
        """The largest of the plans' lower bounds, in bytes; 0 where there is no plan. Needs no mutex."""
        return self._cache.lower_bound

    @property
    def packed(self) -> int:
        """Plans for which something had to be packed. Needs no mutex."""
        return self._maker.packed

    def use_store(self, store: PlanStore) -> None:
        """Have the plans to come looked for there."""
        self._maker.store = store

    def load(self, plans: list[tuple[Hashable, Plan]]) -> bool:
        """Take plans into use, in place of a warm-up; False where there is no memory for their arena."""
        if not self._backend.reserve(self.lane, max(plan.arena_bytes for _, plan in plans)):
            return False
        for key, plan in plans:
            self._cache.add(self._cache.entry(key, plan))
            self.latest = plan
        self._policy.plans_loaded()
        self.steps_found(())
        return True


class _Order:
    """A record, and the log of the step that followed it.

    Attributes
    ----------
    sequence
        A number for what the record asked for.
    """

    def __init__(self, record: Record, following: StepLog) -> None:
        self.record, self.following = record, following
        log = record.log
        self.sequence = hash((record.key, log.requested.tobytes(), log.streams.tobytes()))
