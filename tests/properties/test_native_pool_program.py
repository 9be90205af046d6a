"""Arbitrary programs through a pool behind C functions: see pool_program and pool_machine."""

from __future__ import annotations

from hypothesis import settings

from .native_backend import NativeBackend, UnmarkedNativeBackend
from .pool_machine import PoolMachine


class NativePoolMachine(PoolMachine):
    backend = NativeBackend


TestNativePoolProgram = NativePoolMachine.TestCase
TestNativePoolProgram.settings = settings(settings.get_profile("usual"), stateful_step_count=60)


class UnmarkedNativePoolMachine(PoolMachine):
    backend = UnmarkedNativeBackend


TestUnmarkedNativePoolProgram = UnmarkedNativePoolMachine.TestCase
TestUnmarkedNativePoolProgram.settings = settings(settings.get_profile("usual"), stateful_step_count=60)
