"""The steps that a recorder finds, and how much of the program each covers."""

from __future__ import annotations

from itertools import repeat

import numpy as np

from stowplan import NumpyRecorder
from stowplan.profiler.candidates import StepCandidate

from ...allocator.programs import perceptron, phases, solver

SMALL = 1033


def candidates(program) -> list[StepCandidate]:
    recorder = NumpyRecorder(auto_step=True, small=SMALL)
    with recorder:
        program()
    found = recorder.candidates()
    (chosen,) = [candidate for candidate in found if candidate.chosen]
    assert recorder.profile() == chosen.profile
    assert all(0 < candidate.requests <= 1 and 0 < candidate.bytes <= 1 for candidate in found)
    return found


def test_each_phase_has_its_step() -> None:
    found = candidates(lambda: phases(40))
    assert [candidate.times >= 37 for candidate in found] == [True] * 3
    assert [candidate.start for candidate in found] == sorted(candidate.start for candidate in found)
    assert sum(candidate.requests for candidate in found) > 0.95


def test_the_iteration_of_an_epoch_is_the_step() -> None:
    (step,) = candidates(lambda: perceptron(8))
    assert 8 * 8 <= step.times <= 8 * 9
    assert step.bytes > 0.7


def test_an_enclosing_loop_that_covers_more_is_the_step() -> None:
    inner, outer = candidates(lambda: solver(repeat(5, 40), parts=12))
    assert outer.chosen
    assert outer.times >= 38
    assert outer.requests > 0.95 > inner.requests > 0.3


def test_marked_steps_leave_no_candidates() -> None:
    recorder = NumpyRecorder(auto_step=True, small=SMALL)
    with recorder:
        solver(repeat(5, 4), recorder.step)
    assert recorder.candidates() == []
    assert len(recorder.profile()) > 0


def test_blocks_of_equal_sizes_that_outlive_a_step_are_planned() -> None:
    def program() -> None:
        for _ in range(40):
            a = np.ones(1_000)
            b = a * 2 + 1
        assert b.sum() == 3_000

    (step,) = candidates(program)
    assert step.times >= 37
    assert (
        step.profile.planned_peak == 32_000
    )  # both arrays of one iteration and, while the next is computed, two more
    assert not step.profile.escaped.any()
