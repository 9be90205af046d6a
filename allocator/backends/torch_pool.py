"""The pool for PyTorch's tensors in host memory."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ...common.errors import PoolError
from ...profiler.torch_library import library
from .._core import NativePlace
from ..options import documented
from .host_pool import HostPool

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..options import Options

SMALL = 16384
"""Bytes; smaller tensors carry some percent of the bytes at most, and are what differs from step to step: scalars,
indices, an optimizer's first state."""

DEVICES = ("cpu", "cuda")


@documented
class TorchPool(HostPool):
    """Serve PyTorch's CPU tensors, those of repeated steps from a plan.

    PyTorch has one allocator for the whole process, so the pool serves all threads while it is entered or installed,
    and a step is one of all threads. Tensors may leave it, be freed on any thread, and outlive the pool. A forked
    worker, as of a ``torch.utils.data.DataLoader``, goes on with a copy of it.

    On first use a small library is compiled against the PyTorch that is installed, which takes a C++20 compiler and
    some seconds, and is kept in the user's cache folder.

    Parameters
    ----------
    device
        ``"cpu"``; or ``"cuda"``, which makes a `.TorchCudaPool`.
    scope
        ``"process"``: one step at a time, of all threads, as PyTorch requests memory on threads of its own, too.
        ``"thread"``: each thread runs steps of its own, for programs that call PyTorch on several threads at once; what
        its own threads request then goes upstream.
    options
        How to plan, as for all pools: `PlanningOptions`.

    Raises
    ------
    PoolError
        An argument is out of range, another `TorchPool` serves already, or a step begins within a step.
    MissingDependencyError
        PyTorch is not installed, or there is no compiler for the library.
    UnknownSolverError
        There is no such solver.

    Examples
    --------
    ::

        pool = stowplan.TorchPool()
        with pool:
            for batch in batches:
                with pool.step():
                    train(batch)
    """

    default_small = SMALL

    def __new__(cls, device: str = "cpu", **options: Any) -> Any:
        """Make a pool of the kind that the device needs."""
        if device != "cuda":
            return super().__new__(cls)
        from .torch_cuda_pool import TorchCudaPool

        return TorchCudaPool(**options)

    def __init__(self, device: str = "cpu", *, scope: str = "process", **options: Unpack[Options]) -> None:
        if device not in DEVICES:
            raise PoolError(f"device is {device!r}; expected 'cpu' or 'cuda'")
        super().__init__(scope=scope, **options)

    def _place(self) -> NativePlace:
        return _place()

    @staticmethod
    def _is_out_of_memory(error: BaseException) -> bool:
        import torch

        return isinstance(error, (MemoryError, torch.OutOfMemoryError))

    def _backend(self) -> str:
        return "torch: cpu"


@functools.cache
def _place() -> NativePlace:
    compiled = library()
    return NativePlace(take=compiled.install, leave=compiled.uninstall)
