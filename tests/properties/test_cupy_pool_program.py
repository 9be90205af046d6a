"""Arbitrary programs through CupyPool, over host memory that fails at times: see pool_program."""

from __future__ import annotations

from hypothesis import settings

from .cupy_backend import CupyBackend, UnmarkedCupyBackend
from .pool_program import PoolMachine


class CupyPoolMachine(PoolMachine):
    backend = CupyBackend


TestCupyPoolProgram = CupyPoolMachine.TestCase
TestCupyPoolProgram.settings = settings(max_examples=300, stateful_step_count=60, deadline=None)


class UnmarkedCupyPoolMachine(PoolMachine):
    backend = UnmarkedCupyBackend


TestUnmarkedCupyPoolProgram = UnmarkedCupyPoolMachine.TestCase
TestUnmarkedCupyPoolProgram.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
