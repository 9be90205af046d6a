"""What every packing solver must do. To test one, name it in a subclass in any module that pytest collects."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from stowplan.errors import InfeasibleError
from stowplan.packing import Answer, PackingOptions, Problem, check, lower_bound, pack, solvers

from ..packing.problems import problems, random_problem, training_step

inherited = settings(suppress_health_check=[HealthCheck.differing_executors])


class PackingSolverContract:
    """Valid placements of every kind of problem, the same each time."""

    solver: ClassVar[str]

    def offsets(self, problem: Problem, options: PackingOptions | None = None) -> np.ndarray | None:
        """What the solver itself returns, before `pack` has looked at it."""
        start = np.array(pack(problem, "best_fit").offsets)  # for solvers that improve an incumbent
        answer = solvers[self.solver](problem, options or PackingOptions(incumbent=start))
        return answer.offsets if isinstance(answer, Answer) else answer

    @inherited
    @given(problems())
    def test_every_placement_is_valid(self, problem: Problem) -> None:
        """With gaps, windows, alignments and fixed offsets; blocks of no bytes; no blocks at all."""
        offsets = self.offsets(problem)
        assert offsets is not None
        check(problem, offsets)

    @pytest.mark.parametrize("seed", range(4))
    def test_hundreds_of_blocks(self, seed: int) -> None:
        for problem in (random_problem(seed, 120), training_step(seed, layers=20)):
            placement = pack(problem, self.solver)
            check(problem, placement.offsets)
            assert lower_bound(problem) <= placement.lower_bound <= placement.peak

    @inherited
    @given(problems())
    def test_equal_problems_have_equal_placements(self, problem: Problem) -> None:
        first, second = self.offsets(problem), self.offsets(problem)
        assert first is not None
        assert second is not None
        assert np.array_equal(first, second)

    def test_blocks_tied_to_each_other_are_placed_by_their_ties(self) -> None:
        """Solvers never see ties: `pack` makes compound blocks of them."""
        problem = Problem([3, 5, 4, 6], [0, 0, 2, 3], [4, 4, 6, 6], contiguous=[[0, 1]], apart=[[2, 3]])
        check(problem, pack(problem, self.solver).offsets)

    @inherited
    @given(problems(plain=True))
    def test_a_capacity_is_kept_to_or_refused_or_open(self, problem: Problem) -> None:
        capacity = lower_bound(problem)
        try:
            placement = pack(problem, self.solver, capacity=capacity)
        except InfeasibleError:
            assert pack(problem, "exact").peak > capacity
        else:
            check(problem, placement.offsets)
            assert placement.peak <= capacity or placement.status == "unknown"

    def test_no_time_is_enough_for_a_placement(self) -> None:
        problem = training_step(1, layers=6)
        check(problem, pack(problem, self.solver, time_limit=0).offsets)

    @inherited
    @given(problems(most=7, plain=True))
    def test_what_it_proves_is_true(self, problem: Problem) -> None:
        """Bounds are compared with what a finished search finds."""
        assert pack(problem, self.solver).lower_bound <= pack(problem, "exact").peak
