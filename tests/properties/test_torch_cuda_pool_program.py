"""Arbitrary programs through TorchCudaPool's C functions, over a simulated device that fails at times."""

from __future__ import annotations

from hypothesis import settings

from .pool_machine import PoolMachine
from .torch_cuda_backend import ProcessTorchCudaBackend, TorchCudaBackend, UnorderedTorchCudaBackend


class TorchCudaPoolMachine(PoolMachine):
    backend = TorchCudaBackend


TestTorchCudaPoolProgram = TorchCudaPoolMachine.TestCase
TestTorchCudaPoolProgram.settings = settings(settings.get_profile("dear"), stateful_step_count=60)


class ProcessTorchCudaPoolMachine(PoolMachine):
    backend = ProcessTorchCudaBackend


TestProcessTorchCudaPoolProgram = ProcessTorchCudaPoolMachine.TestCase
TestProcessTorchCudaPoolProgram.settings = settings(settings.get_profile("dear"), stateful_step_count=60)


class UnorderedTorchCudaPoolMachine(PoolMachine):
    backend = UnorderedTorchCudaBackend


TestUnorderedTorchCudaPoolProgram = UnorderedTorchCudaPoolMachine.TestCase
TestUnorderedTorchCudaPoolProgram.settings = settings(settings.get_profile("dear"), stateful_step_count=60)
