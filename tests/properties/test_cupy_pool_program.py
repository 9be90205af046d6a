"""Arbitrary programs through CupyPool, over host memory that fails at times: see pool_program and pool_machine."""

from __future__ import annotations

from hypothesis import settings

from .cupy_backend import CupyBackend, UnmarkedCupyBackend
from .pool_machine import PoolMachine


class CupyPoolMachine(PoolMachine):
    backend = CupyBackend


TestCupyPoolProgram = CupyPoolMachine.TestCase
TestCupyPoolProgram.settings = settings(settings.get_profile("usual"), stateful_step_count=60)


class UnmarkedCupyPoolMachine(PoolMachine):
    backend = UnmarkedCupyBackend


TestUnmarkedCupyPoolProgram = UnmarkedCupyPoolMachine.TestCase
TestUnmarkedCupyPoolProgram.settings = settings(settings.get_profile("usual"), stateful_step_count=60)
