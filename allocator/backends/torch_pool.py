"""The pool for PyTorch's tensors in host memory."""

from __future__ import annotations

import functools
from typing import Any

from ...errors import PoolError
from ...profiler.torch_library import TorchLibrary, library
from .._core import NativePlace
from ..planning_budget import SHARE
from ..pool import Plans
from .native_pool import NativeHostPool

SMALL = 16384
"""Bytes; smaller tensors carry some percent of the bytes at most, and are what differs from step to step: scalars,
indices, an optimizer's first state."""

DEVICES = ("cpu", "cuda")


class TorchPool(NativeHostPool):
    """Serve PyTorch's CPU tensors, those of repeated steps from a plan.

    PyTorch has one allocator for the whole process, so the pool serves all threads while it is entered or installed,
    and a step is one of all threads. Tensors may leave it, be freed on any thread, and outlive the pool. A forked
    worker, as of a `torch.utils.data.DataLoader`, goes on with a copy of it.

    On first use a small library is compiled against the PyTorch that is there, which takes a C++20 compiler and some
    seconds, and is kept in the user's cache folder.

    Parameters
    ----------
    device
        ``"cpu"``; or ``"cuda"``, which makes a `TorchCudaPool`.
    small
        Requests below this many bytes are neither planned nor counted. None: 16384.
    scope
        ``"process"``: one step at a time, of all threads, as PyTorch asks for memory on threads of its own, too.
        ``"thread"``: each thread runs steps of its own, for programs that call PyTorch on several threads at once; what
        its own threads ask for then goes upstream.
    warmup, planner, max_plans, planning_share, auto_step, limit, plans
        As for `NumpyPool`.

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

    def __new__(cls, device: str = "cpu", **options: Any) -> Any:
        """Make a pool of the kind that the device needs."""
        if device != "cuda":
            return super().__new__(cls)
        from .torch_cuda_pool import TorchCudaPool

        return TorchCudaPool(**options)

    def __init__(
        self,
        device: str = "cpu",
        *,
        warmup: int = 1,
        planner: str = "auto",
        max_plans: int = 32,
        planning_share: float = SHARE,
        auto_step: bool = False,
        small: int | None = None,
        scope: str = "process",
        limit: int | None = None,
        plans: Plans = None,
    ) -> None:
        if device not in DEVICES:
            raise PoolError(f"device is {device!r}; expected 'cpu' or 'cuda'")
        super().__init__(
            scope=scope,
            small=SMALL if small is None else small,
            limit=limit,
            plans=plans,
            auto_step=auto_step,
            planning_share=planning_share,
            warmup=warmup,
            planner=planner,
            max_plans=max_plans,
        )

    def _place(self) -> NativePlace:
        return _place()

    def _take_place(self) -> None:
        _library().install(_place().functions)

    def _leave_place(self) -> None:
        _library().uninstall()

    def _is_out_of_memory(self, error: BaseException) -> bool:
        import torch

        return isinstance(error, (MemoryError, torch.OutOfMemoryError))

    def _backend(self) -> str:
        return "torch: cpu"


@functools.cache
def _place() -> NativePlace:
    _library()  # without it there is nothing to serve
    return NativePlace()


@functools.cache
def _library() -> TorchLibrary:
    return library()
