"""One lane: what its next step may follow, what is being made of its records, what takes whose place.

::

    end of a step     step log ──policy──> record, confirmed by the next log ──> PlanJob ──> planner's thread
    planner's thread  PlanJob ──> PlanResult, its plan installed: with a tag, in the core's form
    begin of a step   PlanResult ──> the cache of plans ──> LaneStart ──> the core

Carries out what the lane's policy decides (lane_policy.py). A plan is an optimization: where one cannot be made, the
old plan or upstream goes on serving. What a signal or an error cuts off, between any two instructions, is not mended:
the lane is *open* from a step's begin until the step is judged, and while it decides anything else. With what comes
next, a lane that is still open starts over, with its plans alone.

Not synchronized: the caller holds the mutex of the lane's step slot, and runs in an empty context, in which NumPy's
handler is the default one, as the arrays that planning needs are no business of the pool's.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ..packing import pack
from ..planning.co_placement import is_obstructed
from ..planning.plan_maker import Options, plan_record, replan_obstructed
from ..planning.plan_messages import Arena, PlanJob, PlanResult, Verdict
from ..profiler import StepLog
from ..profiler.steps import overlap_matters
from ._core import Backend, LaneStart, StepOutcome
from .cache import Installed, PlanCache
from .lane_policy import Evidence, LanePolicy, Order
from .planner_thread import Planner, let_others_run

if TYPE_CHECKING:
    from ..packing.problem import IntArray
    from ..planning import Plan
    from .options import PlanningOptions
    from .planning_budget import Planning

MOST_TAKEN = 4096
"""Keys of which a lane remembers that it has looked at the plans of other lanes."""

DOUBTED = 4
"""Times in a row that a plan is succeeded before frees that a record lacks are believed."""


@dataclass(frozen=True)
class Record:
    """A step that may become a plan: its key, its log, the plan that it departed from, whether it keeps its results."""

    key: Hashable
    log: StepLog
    departed_from: Installed | None = None
    keeps_results: bool = False

    def confirmed_by(self, following: Record) -> Order:
        """Return the plan that might be made of it, now that the step after it is known."""
        log = self.log
        repeated = self.key == following.key and log.equals(following.log)
        number = hash((self.key, log.requested.tobytes(), log.streams.tobytes()))
        return Order(number, Evidence.REPEATED if repeated else Evidence.DIVERGED)


class Lane:
    """A lane of a pool, by the backend's number for it: its policy, and its plans.

    Attributes
    ----------
    key
        The key of the running step, or of the last one.
    open
        Whether a step of its is running, or was lost, or a decision was cut off.
    latest
        The plan that was made last, or None.
    plans, reoptimizations
        Plans made, and of these the ones that took another's place.
    refused_bytes
        Bytes of the largest arena that upstream had no memory for.
    """

    def __init__(self, backend: Backend, number: int, planning: Planning, options: PlanningOptions) -> None:
        self._backend = backend
        self.number = number
        self._planning = planning
        self._warmup = options.warmup
        self.key: Hashable = None
        self._keeps_results = False  # whether the running step does, or the last one
        self.latest: Plan | None = None
        self.plans = self.reoptimizations = self.refused_bytes = 0
        self._start(())

    def _start(self, plans: Iterable[Installed]) -> None:
        """Begin with plans alone."""
        planning = self._planning
        self._policy: LanePolicy[Record] = LanePolicy(self._warmup, has_time=planning.budget.takes_order)
        self._cache = PlanCache(planning.max_plans, plans)
        self._planner: Planner[tuple[int, PlanResult[Installed]]] = Planner()
        self._taken: dict[Hashable, int] = {}  # number of the last offer that was looked at, by key
        self.open = False

    def _begin_to_decide(self) -> None:
        if self.open:
            self._start(self.held)
        self.open = True

    # ------------------------------------------------------------------------------------------------------- steps

    def next_step(self, key: Hashable, keeps_results: bool = False) -> LaneStart:
        """Take up what is ready, and return how a step begins, which `step_ended` ends; see `Pool.step`."""
        self._begin_to_decide()
        self._adopt_ready_plans()
        if keeps_results:
            self._take_offers(key)
        self.key, self._keeps_results = key, keeps_results
        likely, variants = self._cache.likely(key)
        wants_log = self._policy.wants_log(has_plan=likely is not None)
        return LaneStart(self.number, likely, variants, self._cache.arena_bytes, wants_log, not keeps_results)

    def step_ended(self, outcome: StepOutcome, failed: bool) -> None:
        """Learn from a step; `failed` where an exception left it, so that it tells nothing about the next."""
        events, complete, clean, tag = outcome
        followed = self._cache.get(tag)
        if followed is not None:
            self._cache.follow(followed, in_full=clean)
        before, record, confirms = self._policy.record, None, None
        if complete:
            record = Record(self.key, StepLog(events), followed, self._keeps_results)
        if before is not None and record is not None:
            confirms = before.confirmed_by(record)
        plans = self._policy.step_ended(
            record,
            clean=clean,
            failed=failed,
            revisions=None if followed is None else followed.revisions,
            confirms=confirms,
        )
        if followed is not None and complete and not (clean or failed):
            self._make_way(followed)
        if plans and before is not None and record is not None and confirms is not None:
            self._plan(confirms.number, before, record.log)
        self.open = False

    # ------------------------------------------------------------------------------------------------------ planning

    def _plan(self, number: int, record: Record, following: StepLog) -> None:
        """Have a record planned next to the plans in use."""
        log, old, keeps_results = record.log, record.departed_from, record.keeps_results
        job = PlanJob(
            log,
            # A step that keeps its results leaves nothing in the arena, so its plan has nothing to agree on.
            log.alone() if keeps_results else following,
            old,
            self._cache.variants(record.key),
            () if keeps_results else self._cache.plans(),
            self._arena(self._backend.occupied(self.number)),
            doubted=old is not None and old.revisions < DOUBTED,
        )
        make = partial(plan_record, job, self._planning.shared)
        self._submit(number, record.key, make, offers=keeps_results)

    def _make_way(self, followed: Installed) -> None:
        """Have the blocks of an obstructed plan placed around the blocks that stay in the arena."""
        occupied = self._backend.occupied(self.number)
        if not is_obstructed(followed.plan, occupied):
            return
        if self._policy.orders(Order(followed.tag, Evidence.OBSTRUCTED), followed.revisions):
            neighbours = [used for used in self._cache.plans() if used is not followed]
            make = partial(replan_obstructed, followed, neighbours, self._arena(occupied))
            self._submit(followed.tag, followed.key, make)

    def _arena(self, occupied: IntArray) -> Arena:
        backend = self._backend
        return Arena(backend.arena_bytes(self.number), occupied, backend.grows_in_place, backend.bottom_last)

    def _submit(
        self,
        number: int,
        key: Hashable,
        make: Callable[[Options], PlanResult[Installed]],
        *,
        offers: bool = False,
    ) -> None:
        """Have a plan made, which may be offered to other lanes."""
        planning, cache = self._planning, self._cache
        packer = partial(pack, solver=planning.solver, in_haste=planning.budget.is_bounded)
        options = Options(planning.alignment, packer, let_others_run)
        nothing: PlanResult[Installed] = PlanResult(Verdict.KEEP)

        def job() -> tuple[int, PlanResult[Installed]]:
            with planning.budget.timed():
                try:
                    result = make(options)
                    plan = result.plan
                    if plan is not None and not isinstance(plan, Installed):
                        result = replace(result, plan=cache.install(key, plan))
                        if offers:
                            planning.shared.offer(key, plan)
                except Exception as error:
                    planning.failed(error)
                    result = nothing
            return number, result

        self._planner.submit(job)

    # ------------------------------------------------------------------------------------------------------- plans

    def _adopt_ready_plans(self) -> None:
        """Put the plans that are ready into use."""
        if not self._planner.has_results:
            return
        for number, result in self._planner.collect():
            self._policy.plan_made(number)
            new, old = result.plan, result.replaced
            if isinstance(new, Installed):
                self._use(new, old)
            elif old is not None and (result.verdict is Verdict.KEEP or self._reserve(result.arena_bytes)):
                old.revisions += 1

    def _reserve(self, arena_bytes: int) -> bool:
        is_there = self._backend.reserve(self.number, arena_bytes)
        if not is_there:
            self.refused_bytes = max(self.refused_bytes, arena_bytes)
        return is_there

    def _use(self, new: Installed, old: Installed | None) -> None:
        """Put a plan into use in another one's place, if there is memory for its arena."""
        if not self._reserve(new.plan.arena_bytes):
            return
        if old is not None:
            new.revisions = old.revisions + 1
        is_new = self._cache.get(new.tag) is not new
        self._cache.add(new, replaces=old)
        profile = new.plan.profile
        self._policy.plan_taken_up(overlaps=overlap_matters(profile.escaped, profile.size))
        self.latest = new.plan
        self.plans += is_new
        self.reoptimizations += is_new and old is not None

    def _take_offers(self, key: Hashable) -> None:
        """Put plans into use that other lanes have made for steps of this key."""
        offers = self._planning.shared.offers(key)
        if not offers or offers[-1][0] == self._taken.get(key, 0):
            return
        known = [used.plan.profile for used in self._cache.variants(key)]
        for number, plan in offers:
            is_known = any(plan.profile.same_blocks(profile) for profile in known)
            if number <= self._taken.get(key, 0) or is_known:
                continue
            if self._reserve(plan.arena_bytes):
                self._cache.add(self._cache.install(key, plan))
                self._policy.plan_taken_up(overlaps=False)
        if len(self._taken) >= MOST_TAKEN:
            self._taken.clear()  # they are looked at again
        self._taken[key] = offers[-1][0]

    def wait(self, timeout: float | None) -> bool:
        """Wait until the plans being made are ready, and return whether they are. No mutex is needed for this."""
        return self._planner.wait(timeout)

    def adopt_ready_plans(self) -> None:
        """Put the plans that are ready into use; not while a step runs."""
        if not self.open:
            self._begin_to_decide()
            self._adopt_ready_plans()
            self.open = False

    def planner_lost(self) -> None:
        """Forget the plans being made: a fork has left behind the thread that makes them."""
        self._planner = Planner()
        self._policy.orders_lost()

    def load(self, plans: list[tuple[Hashable, Plan]]) -> bool:
        """Take plans into use, in place of a warm-up; False where there is no memory for their arena.

        The plans serve from the first step on. The first step that is served throughout ends the warm-up; another
        one is no record, as it may allocate blocks that last.
        """
        if not self._reserve(max(plan.arena_bytes for _, plan in plans)):
            return False
        for key, plan in plans:
            self._cache.add(self._cache.install(key, plan))
            self.latest = plan
        return True

    @property
    def held(self) -> list[Installed]:
        """The plans in use, the least recently used first. Needs no mutex."""
        return self._cache.held

    @property
    def lower_bound(self) -> int:
        """The largest of the plans' lower bounds, in bytes; 0 where there is no plan. Needs no mutex."""
        return self._cache.lower_bound
