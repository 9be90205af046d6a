"""The steps that a recorder finds, and how much of the program each covers."""

from __future__ import annotations

from itertools import repeat

import numpy as np
import pytest

from stowplan import NumpyRecorder
from stowplan.errors import ProfileError
from stowplan.profiler._recorder import ToldRecorder
from stowplan.profiler.program_log import ProgramLog
from stowplan.profiler.step_candidates import StepCandidate

from ...allocator.programs import perceptron, phases, solver

SMALL = 1033


def candidates(program) -> list[StepCandidate]:
    recorder = NumpyRecorder(auto_step=True, sites=True, small=SMALL)
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
    (step,) = (candidate for candidate in candidates(lambda: perceptron(8)) if candidate.chosen)
    assert 8 * 8 <= step.times <= 8 * 9
    assert step.bytes > 0.7


def test_an_enclosing_loop_that_covers_more_is_the_step() -> None:
    outer, *inner = candidates(lambda: solver(repeat(5, 40), parts=12))
    assert outer.chosen
    assert outer.times >= 38
    assert outer.requests > 0.95 > max(candidate.requests for candidate in inner) > 0.3


def test_marked_steps_leave_no_candidates() -> None:
    recorder = NumpyRecorder(auto_step=True, sites=True, small=SMALL)
    with recorder:
        solver(repeat(5, 4), recorder.step)
    assert recorder.candidates() == []
    assert len(recorder.profile()) > 0


def test_without_call_sites_there_are_no_candidates() -> None:
    recorder = NumpyRecorder(auto_step=True, small=SMALL)
    with recorder:
        solver(repeat(5, 4))
    assert recorder.candidates() == []
    assert len(recorder.whole()) > 0
    with pytest.raises(ProfileError, match="steps are found by their call sites, which are not recorded"):
        recorder.profile()


def test_blocks_of_equal_sizes_that_outlive_a_step_are_planned() -> None:
    def program() -> None:
        for _ in range(40):
            a = np.ones(1_000)
            b = a * 2 + 1
        assert b.sum() == 3_000

    (step,) = candidates(program)
    assert step.times >= 37
    # Both arrays of one iteration and, while the next is computed, two more.
    assert step.profile.planned_peak == step.profile.live_peak == 32_000
    assert not step.profile.escaped.any()


def test_a_long_program_keeps_its_beginning_end_and_peak() -> None:
    """A million of a million and a half requests are kept; what the loops ask for is that of all."""
    segment = 1 << 17
    recorder = ToldRecorder(1)
    recorder.log_all()

    def ask(requests: int, size: int) -> None:
        for _ in range(requests):
            recorder.allocated(64, size, 0)
            recorder.free_postprocess(mem_ptr=64)

    ask(6 * segment, 10)
    recorder.allocated(128, 1_000, 0)
    recorder.free_postprocess(mem_ptr=128)
    ask(6 * segment - 1 + 5, 20)
    log = ProgramLog.of_segments(recorder.segments())
    kept = sorted({number // segment for number in log.before.tolist()})
    assert kept == [0, 1, 5, 6, 7, 9, 10, 11, 12]  # eight, and the running one
    assert log.gaps == (2 * segment, 5 * segment)
    assert len(log) == 8 * segment + 5
    assert log.before[log.alive.argmax()] == 6 * segment
    assert (log.events["kind"] < 2).all()
    assert recorder.asked().tolist() == [[12 * segment + 5, (60 + 120) * segment + 1_000 - 20 + 100]]
    assert len(log.recorded([len(log) - 1, len(log)], len(log)).site) == 0  # nothing follows the last request
