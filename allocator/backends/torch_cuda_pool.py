"""The pool for PyTorch's tensors in CUDA memory; CuPy's arrays may share it."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...common.errors import MissingDependencyError, PoolError
from .. import _core
from .._core import CudaPool, CudaPools, any_cuda_installed
from ..options import documented
from ..pool import EnteredPool
from .cupy_pool import FORKED, PER_THREAD, UNIT
from .host_pool import SCOPES

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..options import Options

HOOKS = {
    "set_reset_fn": "stow_cuda_reset",
    "set_memory_fraction_fn": "stow_cuda_memory_fraction",
    "set_base_alloc_fn": "stow_cuda_base_alloc",
    "set_record_stream_fn": "stow_cuda_record_stream",
    "set_begin_allocate_to_pool": "stow_cuda_begin_pool",
    "set_end_allocate_to_pool_fn": "stow_cuda_end_pool",
    "set_release_pool": "stow_cuda_release_pool",
}
"""What PyTorch lets a pluggable allocator set besides malloc and free: the setter, and the function given to it."""


@documented
class TorchCudaPool(EnteredPool):
    """Serve PyTorch's CUDA tensors, those of repeated steps from a plan: ``TorchPool(device="cuda")``.

    PyTorch's requests come to C functions: none of them runs Python, or needs the GIL. Each device has an arena and
    plans of its own, and a heap for what is not planned.

    PyTorch takes an allocator before its first use of CUDA, and for good: so one pool of a process can be installed,
    and it stays. ``torch.cuda.set_per_process_memory_fraction`` sets the limit of one device.

    Parameters
    ----------
    scope
        ``"process"``: one step at a time, of all threads, as the backward pass runs on PyTorch's threads.
        ``"thread"``: each thread runs steps of its own.
    options
        How to plan, as for all pools: `PlanningOptions`.

    Raises
    ------
    PoolError
        An argument is out of range, this PyTorch is a build without CUDA, or there is no CUDA driver; a step begins
        within a step, or in a fork of a process that has used the pool.
    MissingDependencyError
        PyTorch is not installed.
    UnknownSolverError
        There is no such solver.

    Notes
    -----
    *CUDA graphs*: the memory of a capture belongs to the graph's pool until the graph is gone, and no plan
    has a part in it. `graph_bytes` counts it; ``stats`` does not. *No memory*: the pool first returns all cached
    memory, then retries. Then ``torch.OutOfMemoryError`` is raised (a `RuntimeError` with PyTorch versions that do not
    export that), with what is live and reserved; in a step, also with the largest blocks and what to do.
    ``torch.cuda.empty_cache`` returns idle arenas, too. The next planned step takes its arena again, which waits for
    the device: not in a loop. *CuPy*: `cupy_malloc` is an allocator for ``cupy.cuda.set_allocator``, and
    `record_stream` is for CuPy's arrays, which may outlive the pool. *Forks*: CUDA does not survive them; steps in the
    child are refused.

    Examples
    --------
    ::

        pool = stowplan.TorchPool(device="cuda")
        pool.install()  # before anything is on the GPU
        for batch in batches:
            with pool.step():
                train(batch)
    """

    alignment = UNIT

    def __init__(self, *, scope: str = "process", **options: Unpack[Options]) -> None:
        super().__init__(options)
        self._options.refuse_small("CUDA tensors")
        if scope not in SCOPES:
            raise PoolError(f"scope is {scope!r}; expected one of: {', '.join(SCOPES)}")
        limit = 0 if self._options.limit_share else self._options.limit_bytes(int)
        self._pools = CudaPools(SCOPES[scope], limit, self._table())
        self._on(0)

    # ------------------------------------------------------------------------------------------------------- PyTorch

    def install(self) -> None:
        """Make the pool PyTorch's allocator of CUDA memory, from now on and for good.

        Raises
        ------
        PoolError
            A pool is installed already, or PyTorch has used CUDA before.
        """
        import torch

        if any_cuda_installed():
            which = "this pool" if self._pools.installed else "another pool"
            raise PoolError(f"{which} is PyTorch's CUDA allocator already; expected one in a process")
        functions = ctypes.CDLL(_core.__file__)
        allocator = torch.cuda.memory.CUDAPluggableAllocator(
            _core.__file__, "stow_cuda_malloc", "stow_cuda_free"
        )
        for setter, name in HOOKS.items():
            if hasattr(allocator.allocator(), setter):
                getattr(allocator.allocator(), setter)(_address(functions, name))
        self._pools.install()
        try:
            torch.cuda.memory.change_current_allocator(allocator)
        except RuntimeError as error:
            self._pools.take_back()
            raise PoolError(
                "PyTorch has used CUDA in this process already, and then keeps its allocator "
                f"({str(error).splitlines()[0]}); expected install() before anything is on a GPU"
            ) from error
        _installed.append((self, allocator))
        if self._options.limit is not None:
            for device in range(torch.cuda.device_count()):
                self._on(device)

    def _enter(self) -> None:
        """Install the pool, where it is not installed yet. It stays when the block ends."""
        if not self._pools.installed:
            self.install()

    def _leave(self) -> None:
        """PyTorch keeps its allocator."""

    @staticmethod
    def _is_out_of_memory(error: BaseException) -> bool:
        return "out of memory" in str(error)

    def _serves_here(self) -> bool:
        return self._pools.installed or "cupy_malloc" in vars(self)

    # --------------------------------------------------------------------------------------------------------- CuPy

    @functools.cached_property
    def cupy_malloc(self) -> Callable[[int], Any]:
        """An allocator for ``cupy.cuda.set_allocator``; CuPy's arrays lie in the arena of PyTorch's tensors, then.

        It needs no installation. The pool serves CuPy's requests on CuPy's current stream, and those in a step are
        part of the step. The pool keeps the streams that it has served, so that no new stream gets the handle of one.
        A stream of another library (``cupy.cuda.ExternalStream``), as PyTorch's are, must live as long as the pool.
        """
        import cupy
        from cupy_backends.cuda import stream

        current, kept = cupy.cuda.get_current_stream, self._pools.streams
        self._pools.follow_stream(stream.__pyx_capi__["get_current_stream_ptr"])
        functions = ctypes.CDLL(_core.__file__)
        allocator = cupy.cuda.CFunctionAllocator(
            self._pools.address,
            _address(functions, "stow_cupy_malloc"),
            _address(functions, "stow_cupy_free"),
            self._pools,
        )

        def malloc(size: int) -> Any:
            if (asking := current()).ptr not in kept:
                kept[asking.ptr] = asking
            memory = allocator.malloc(size)
            if memory.ptr == 0 and size > 0:
                error = cupy.cuda.memory.OutOfMemoryError(size, self.stats.reserved_bytes)
                self._lanes().diagnose(error)
                raise error
            return memory

        return malloc

    # ----------------------------------------------------------------------------------------------- streams, memory

    def record_stream(self, array: Any, stream: Any) -> None:
        """Declare that a tensor's or an array's memory is used on another stream than its own, too.

        The same as ``tensor.record_stream(stream)``; for CuPy's arrays there is no other way. See
        `.CupyPool.record_stream`.

        Parameters
        ----------
        array
            A ``torch.Tensor`` or a ``cupy.ndarray``, or a view of one.
        stream
            A ``torch.cuda.Stream`` or a ``cupy.cuda.Stream``.

        Raises
        ------
        PoolError
            The stream is each thread's own.
        """
        handle = stream.cuda_stream if hasattr(stream, "cuda_stream") else stream.ptr
        if handle == PER_THREAD:
            raise PoolError("the stream is each thread's own; expected one that all threads share")
        storage = (
            array.untyped_storage().data_ptr() if hasattr(array, "untyped_storage") else array.data.mem.ptr
        )
        self._pools.streams.setdefault(handle, stream)
        self._pools.record_stream(storage, handle)

    def free_all(self) -> None:
        """Give back to the devices all that nothing lives in; ``torch.cuda.empty_cache`` does the same.

        The next step that has a plan takes its arena again.
        """
        for lanes in self._all_lanes():
            lanes.backend.give_back()

    @property
    def graph_bytes(self) -> int:
        """Bytes of the current device that CUDA graphs have for themselves; ``stats`` has them not."""
        return int(self._lanes().backend.graph_bytes)

    # ------------------------------------------------------------------------------------------------------- devices

    def _table(self) -> int:
        """Return the address of a table of CUDA functions; 0: of the runtime that PyTorch has loaded."""
        try:
            import torch
        except ImportError as error:
            raise MissingDependencyError(
                "TorchPool needs PyTorch, which is not installed; expected: a build for CUDA"
            ) from error
        if torch.version.cuda is None:
            raise PoolError(
                f"PyTorch {torch.__version__} is a build without CUDA; expected one with it, or device='cpu'"
            )
        return 0

    def _current_device(self) -> int:
        import torch

        return int(torch.cuda.current_device()) if torch.cuda.is_initialized() else 0

    def _backend(self) -> str:
        import torch

        return f"torch: {torch.cuda.get_device_name(self._current_device())}"

    def _open(self, device: int) -> CudaPool:
        pool = CudaPool(self._pools, device)
        if (share := self._options.limit_share) is not None:
            pool.set_fraction(share)
        return pool

    def _reset_after_fork(self) -> None:
        if not self._pools.has_served:
            super()._reset_after_fork()
            return
        self._pools.abandon()  # its locks may be held by threads that are not there
        for lanes in self._all_lanes():
            lanes.refuse(FORKED)


_installed: list[tuple[TorchCudaPool, Any]] = []
"""The pool that PyTorch has, and what it was handed over in: PyTorch goes on calling them until the process ends."""


def _address(library: ctypes.CDLL, name: str) -> int:
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    if address is None:
        raise PoolError(f"{_core.__file__} does not export {name}")
    return address
