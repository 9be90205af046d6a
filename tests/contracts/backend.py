"""What every pool must do, whatever memory it serves: the promises, through arrays of the backend's own.

To test one, write a `Backend` (`tests.properties.pool_program`) whose pool has ``warmup=0`` and plans requests of any
size, and name it in a subclass in any module that pytest collects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from ..properties.pool_machine import PoolMachine
from ..properties.pool_program import Backend, FailureError, Planned, PoolProgram

STEP = (
    Planned(3000, 2),
    Planned(700, 1),
    Planned(5000, 3),
    Planned(900, 1),
    Planned(5000, 5),
    Planned(64, 2),
)


class BackendContract:
    """No overlap, every byte read back, no byte lost, no failure that upstream has not had."""

    backend: ClassVar[Callable[[], Backend]]

    @pytest.fixture
    def program(self) -> PoolProgram:
        program = PoolProgram(type(self).backend())
        program.scripts = dict.fromkeys(program.scripts, STEP)
        return program

    @staticmethod
    def run(program: PoolProgram, steps: int) -> int:
        """Run steps with plans ready when each begins; return how many requests were replayed."""
        before = program.backend.pool.stats.replayed
        for _ in range(steps):
            program.hot_step(None)
            program.wait()
        return int(program.backend.pool.stats.replayed - before)

    def test_a_step_that_repeats_is_replayed(self, program: PoolProgram) -> None:
        self.run(program, 4)  # record, confirm, and the ends of wrapped blocks
        assert self.run(program, 3) == 3 * len(STEP)
        assert program.backend.pool.stats.plans >= 1
        program.finish()

    def test_blocks_outlive_their_pool(self, program: PoolProgram) -> None:
        self.run(program, 5)
        assert program.live  # blocks that are freed in the following step
        program.replace_pool(type(self).backend())
        program.finish()

    def test_what_upstream_refuses_is_refused_and_all_else_goes_on(self, program: PoolProgram) -> None:
        self.run(program, 5)
        if not program.backend.fail(1000):
            pytest.skip(f"upstream of {type(program.backend).__name__} cannot be made to fail")
        assert program.allocate(60_000) is None
        program.backend.fail(0)
        assert program.allocate(60_000) is not None
        self.run(program, 3)
        assert self.run(program, 1) == len(STEP)
        program.finish()

    def test_an_exception_ends_a_step_and_no_more(self, program: PoolProgram) -> None:
        self.run(program, 5)
        program.begin(None)
        program.run_request(STEP[0])
        program.end(FailureError)
        self.run(program, 3)
        assert self.run(program, 1) == len(STEP)
        program.finish()

    def test_an_interrupted_part_is_not_planned(self, program: PoolProgram) -> None:
        self.run(program, 5)
        program.begin(None)
        program.interrupt()
        assert program.allocate(4000) is not None
        program.resume()
        for planned in STEP:
            program.run_request(planned)
        program.end()
        assert program.backend.pool.stats.reasons["interrupted"] == 1
        assert self.run(program, 1) == len(STEP)
        program.finish()

    def test_arbitrary_programs(self) -> None:
        """Hypothesis chooses among all that a program can do; the promises are looked at after every change."""

        class Machine(PoolMachine):
            backend: ClassVar[Any] = type(self).backend

        run_state_machine_as_test(Machine, settings=settings(stateful_step_count=60))
