"""What every scheduling solver must do. To test one, name it in a subclass in any module that pytest collects."""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from stowplan.errors import BudgetError, MissingDependencyError
from stowplan.scheduling import (
    Answer,
    NotApplicable,
    Rates,
    Schedule,
    SchedulingOptions,
    StepGraph,
    Way,
    bound_schedules,
    check,
    lean,
    require_valid,
    schedule,
    simulate,
)
from stowplan.scheduling.registry import solvers
from stowplan.scheduling.unsafe_recomputation import without_hazards

from ..scheduling.graphs import random_graph

SEEDS = st.integers(0, 10**6)
RATES = Rates(swap=20.0, pack=50.0)
inherited = settings(suppress_health_check=[HealthCheck.differing_executors, HealthCheck.filter_too_much])


class ScheduleSolverContract:
    """Valid schedules, within the budget wherever one is found, the same each time."""

    solver: ClassVar[str]

    def solve(self, graph: StepGraph, options: SchedulingOptions) -> Schedule:
        """What the solver itself returns; hypothesis draws another graph where this one is not for it."""
        try:
            answer = solvers[self.solver](graph, options)
        except NotApplicable:
            assume(False)
            raise
        except MissingDependencyError as error:
            pytest.skip(str(error))
        return answer.schedule if isinstance(answer, Answer) else answer

    @inherited
    @given(SEEDS, st.floats(0, 1), st.booleans())
    @example(13117, 0.0, False)
    def test_every_schedule_is_valid(self, seed: int, share: float, swap: bool) -> None:
        """Simulator and checker, which share no code, agree on its peak.

        Reruns that would read what has changed since are taken out by the caller, as `schedule` does.
        """
        graph = random_graph(seed)
        budget = int(share * simulate(graph, lean(graph)).peak)
        found = without_hazards(graph, self.solve(graph, SchedulingOptions(budget, rates=RATES, swap=swap)))
        require_valid(graph, found)
        assert check(graph, found, RATES) == simulate(graph, found, RATES).peak
        if not swap:
            assert not (found.way >= Way.SWAPPED).any()

    @inherited
    @given(SEEDS, st.floats(0, 1))
    def test_a_solution_keeps_to_its_budget(self, seed: int, share: float) -> None:
        """Or an error says the least that was found."""
        graph = random_graph(seed)
        budget = int(share * simulate(graph, lean(graph)).peak)
        self.solve(graph, SchedulingOptions(budget))
        kept = True
        try:
            peak = schedule(graph, budget, self.solver).peak
        except BudgetError as error:
            peak, kept = error.least, False
        assert bound_schedules(graph) <= peak
        assert (peak <= budget) == kept

    @inherited
    @given(SEEDS, st.floats(0, 1))
    def test_equal_calls_have_equal_answers(self, seed: int, share: float) -> None:
        graph = random_graph(seed)
        options = SchedulingOptions(int(share * simulate(graph, lean(graph)).peak), rates=RATES)
        first, second = self.solve(graph, options), self.solve(graph, options)
        assert first.order.tolist() == second.order.tolist()
        assert first.way.tolist() == second.way.tolist()
