"""Arbitrary programs through NumpyPool: see pool_program and pool_machine."""

from __future__ import annotations

from hypothesis import settings

from .numpy_backend import NumpyBackend, UnmarkedNumpyBackend
from .pool_machine import PoolMachine


class NumpyPoolMachine(PoolMachine):
    backend = NumpyBackend


TestNumpyPoolProgram = NumpyPoolMachine.TestCase
TestNumpyPoolProgram.settings = settings(settings.get_profile("usual"), stateful_step_count=60)


class UnmarkedNumpyPoolMachine(PoolMachine):
    backend = UnmarkedNumpyBackend


TestUnmarkedNumpyPoolProgram = UnmarkedNumpyPoolMachine.TestCase
TestUnmarkedNumpyPoolProgram.settings = settings(settings.get_profile("usual"), stateful_step_count=60)
