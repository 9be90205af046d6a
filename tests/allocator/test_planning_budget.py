"""What planning may cost: the first orders, the allowance, the share; by clocks that the tests set."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from stowplan import NumpyPool
from stowplan.allocator import lanes
from stowplan.allocator.planning_budget import FIRST, HEAD_START, SHARE, PlanningBudget

from ..running import run


@pytest.fixture(scope="module", autouse=True)
def as_in_programs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stowplan.allocator.planning_budget.FIRST", FIRST)
        yield


class Clocks:
    """CPU time of the planner's thread, and of the process, in seconds."""

    def __init__(self) -> None:
        self.thread = self.process = 1000.0  # they began before the pool did

    def budget(self, share: float = SHARE) -> PlanningBudget:
        return PlanningBudget(share, of_thread=lambda: self.thread, of_process=lambda: self.process)

    def plan(self, seconds: float) -> None:
        self.thread += seconds
        self.process += seconds


def used(clocks: Clocks, budget: PlanningBudget, seconds: float, orders: int = FIRST) -> None:
    """Carry out as many orders, which together take so long."""
    for _ in range(orders):
        budget.takes_order()
        with budget.timed():
            clocks.plan(seconds / orders)


@pytest.mark.parametrize("share", [0.05, SHARE, 1, 3.0])
def test_planning_beyond_its_share_waits_for_the_process(share: float) -> None:
    clocks = Clocks()
    budget = clocks.budget(share)
    used(clocks, budget, share * HEAD_START + 8)
    clocks.process += 7.5 / share
    assert not budget.has_time()
    clocks.process += 1 / share
    assert budget.has_time()


def test_after_a_fork_all_begins_anew_but_what_is_counted() -> None:
    clocks = Clocks()
    budget = clocks.budget(share=1)
    used(clocks, budget, HEAD_START + 1)
    assert not budget.has_time()
    clocks.process = 0.0  # the child's
    budget.reset_after_fork()
    assert budget.has_time()
    used(clocks, budget, HEAD_START)
    assert budget.has_time()
    assert budget.seconds == 2 * HEAD_START + 1


def many_kinds_of_steps(pool: NumpyPool, kinds: int) -> None:
    """Run steps each of which comes three times in a row, so that each is planned if there is time."""
    with pool:
        for number in range(1, kinds + 1):
            for _ in range(3):
                with pool.step():
                    for size in range(number):
                        np.empty(2000 + 3000 * size * number, np.uint8)
                pool.wait()


def test_a_pool_skips_what_is_beyond_its_share_and_counts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks()

    def tick() -> float:
        clocks.thread += 5  # each order takes this long, and each look at steps that have ended
        return clocks.thread

    budgets: list[PlanningBudget] = []

    def budget(share: float) -> PlanningBudget:
        budgets.append(PlanningBudget(share, of_thread=tick, of_process=lambda: clocks.process))
        return budgets[-1]

    monkeypatch.setattr(lanes, "PlanningBudget", budget)
    pool = NumpyPool(warmup=0, small=2000, planning_share=0.5)
    many_kinds_of_steps(pool, 20)
    bounded = pool.stats
    assert bounded.plans == FIRST
    assert bounded.plans_skipped > 10
    clocks.process += 10_000
    many_kinds_of_steps(pool, 20)
    assert pool.stats.plans > bounded.plans


@pytest.mark.parametrize(("share", "solver"), [(SHARE, "best_fit"), (math.inf, "window_repair")])
def test_with_a_bound_plans_are_packed_in_haste(share: float, solver: str) -> None:
    def step() -> None:
        rng, alive = np.random.default_rng(5), []
        for _ in range(2000):
            while alive and rng.random() < 0.45:
                del alive[rng.integers(len(alive))]
            alive.append(np.empty(int(rng.integers(1, 60)) * 640 + 640, np.uint8))
        while alive:
            del alive[0]

    pool = NumpyPool(warmup=0, planning_share=share)
    with pool:
        run(pool, 3, step)
    assert pool.plan().placement.solver == solver


def test_plans_that_are_not_in_use_are_bounded_and_all_are_counted() -> None:
    pool = NumpyPool(warmup=0, planning_share=math.inf, max_plans=2)
    many_kinds_of_steps(pool, 12)
    plan = pool.plan()
    assert pool.stats.planning_bytes > 2 * plan.nbytes > 0
