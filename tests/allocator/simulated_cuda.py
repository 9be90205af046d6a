"""CUDA's runtime as C functions over a simulated device and real host memory: what a `TorchCudaPool` needs of a GPU.

The functions are Python's, by ctypes. The order of things is `SimulatedDevice`'s: a kernel that touches an address
which another block's kernel may still touch raises, and so does memory that goes back too early.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from ctypes import CFUNCTYPE, c_bool, c_char_p, c_int, c_size_t, c_uint, c_void_p
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from stowplan.allocator import _core
from stowplan.allocator.backends.torch_cuda_pool import TorchCudaPool

from .simulated_device import Event, RaceError, SimulatedDevice, Stream

OK, OUT_OF_MEMORY, UNKNOWN, NOT_READY, CAPTURED = 0, 2, 400, 600, 900
ALIGNMENT = 512
GUARD = b"\xee" * 64  # behind each block
HEADER = next((Path(__file__).resolve().parents[2] / "allocator" / "core").rglob("cuda_api.hpp"))


class Table(ctypes.Structure):
    """The table of core/device/cuda_api.hpp: a pointer for each function, in its order; null for contexts."""

    NAMES: ClassVar[list[str]] = [
        *re.findall(
            r"^ +function\(\w+, (\w+), [A-Z]", HEADER.read_text(encoding="utf-8"), flags=re.MULTILINE
        ),
        "error_string",
    ]
    _fields_ = [
        *((name, c_void_p) for name in NAMES),
        ("has_virtual_memory", c_bool),
    ]


SIGNATURES: dict[str, tuple[Any, ...]] = {
    "malloc": (c_void_p, c_size_t),
    "free": (c_void_p,),
    "count_devices": (c_void_p,),
    "can_access_peer": (c_void_p, c_int, c_int),
    "memory_info": (c_void_p, c_void_p),
    "event_create": (c_void_p, c_uint),
    "event_record": (c_size_t, c_size_t),
    "event_query": (c_size_t,),
    "event_synchronize": (c_size_t,),
    "event_destroy": (c_size_t,),
    "stream_wait_event": (c_size_t, c_size_t, c_uint),
    "stream_query": (c_size_t,),
    "stream_is_capturing": (c_size_t, c_void_p),
    "exchange_capture_mode": (c_void_p,),
    "device_synchronize": (),
    "get_device": (c_void_p,),
    "set_device": (c_int,),
    "get_last_error": (),
    "error_string": (c_int,),
}


REFUSABLE = ("event_create", "event_record", "event_query", "device_synchronize")


class SimulatedCuda:
    """A table of functions, and what they have done.

    Attributes
    ----------
    live_bytes
        Given out and not given back.
    calls
        Names of the functions called.
    fails
        ``f(name, size) -> bool``: which requests find no memory, and which calls of `REFUSABLE` (of size 0) fail.
    errors
        What a call has found wrong; to be empty.
    """

    def __init__(self) -> None:
        self.device = SimulatedDevice()
        self.live_bytes = 0
        self.calls: list[str] = []
        self.fails: Callable[[str, int], bool] = lambda name, size: False
        self.errors: list[BaseException] = []
        self.now = 0  # CuPy's current stream
        self._blocks: dict[int, tuple[Any, int]] = {}  # address: memory, bytes
        self._events: dict[int, Event] = {}
        self._last = 0
        functions = {name: self._function(name) for name in Table.NAMES if name in SIGNATURES}
        pointers = {name: ctypes.cast(function, c_void_p) for name, function in functions.items()}
        self.table = Table(**pointers)
        self._current_stream = CFUNCTYPE(c_size_t)(lambda: self.now)
        # For ever: neither garbage collection nor the interpreter's end may take them before the pools that call them.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object((functions, self._current_stream)))

    @property
    def races(self) -> list[BaseException]:
        return self.errors

    @property
    def address(self) -> int:
        return ctypes.addressof(self.table)

    @property
    def current_stream(self) -> int:
        """Address of a C function, as CuPy's."""
        return ctypes.cast(self._current_stream, c_void_p).value or 0

    def _function(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            self.calls.append(name)
            try:
                if name == "error_string":
                    return b"simulated"
                if name in REFUSABLE and self.fails(name, 0):
                    return UNKNOWN
                return getattr(self, "_" + name, lambda *_: OK)(*args) or OK
            except Exception as error:  # there is nobody above to catch it
                self.errors.append(error)
                return UNKNOWN

        return CFUNCTYPE(c_char_p if name == "error_string" else c_int, *SIGNATURES[name])(call)

    # ---------------------------------------------------------------------------------------------------- memory

    def _malloc(self, to: int, size: int) -> int:
        if self.fails("malloc", size):
            return OUT_OF_MEMORY
        try:
            memory = ctypes.create_string_buffer(size + ALIGNMENT + len(GUARD))
        except MemoryError:
            return OUT_OF_MEMORY
        address = -(-ctypes.addressof(memory) // ALIGNMENT) * ALIGNMENT
        ctypes.memmove(address + size, GUARD, len(GUARD))
        self._blocks[address] = memory, size
        self.live_bytes += size
        c_void_p.from_address(to).value = address
        return OK

    def _free(self, address: int) -> None:
        _, size = self._blocks.pop(address)
        self.live_bytes -= size
        assert ctypes.string_at(address + size, len(GUARD)) == GUARD, "somebody wrote behind a block"
        assert self.device.captured is None, "not while a stream is being captured"
        waiting = [k for k in self.device._kernels if not k.precedes(self.device._seen)]
        if any(k.begin < address + size and address < k.end for k in waiting):
            raise RaceError("memory went back while it was used")
        # What comes here later is other memory: of that the device takes care.
        self.device._kernels = [
            replace(k, begin=0, end=0) if k.begin < address + size and address < k.end else k
            for k in self.device._kernels
        ]

    def _count_devices(self, to: int) -> None:
        c_int.from_address(to).value = 1

    def _can_access_peer(self, to: int, device: int, peer: int) -> None:
        c_int.from_address(to).value = 0

    def _memory_info(self, free: int, total: int) -> None:
        c_size_t.from_address(free).value = 1 << 30
        c_size_t.from_address(total).value = 1 << 32

    # --------------------------------------------------------------------------------------------------- streams

    def _event_create(self, to: int, flags: int) -> int:
        self._last += 1
        c_void_p.from_address(to).value = self._last
        return OK

    def _event_record(self, event: int, stream: int) -> None:
        assert stream != self.device.captured
        self._events[event] = self.device.event(Stream(stream))

    def _event_query(self, event: int) -> int:
        return OK if self.device.done(self._events[event]) else NOT_READY

    def _event_synchronize(self, event: int) -> None:
        self.device.await_event(self._events[event])

    def _event_destroy(self, event: int) -> None:
        self._events.pop(event, None)

    def _stream_wait_event(self, stream: int, event: int, flags: int) -> None:
        self.device.wait(stream, self._events[event])

    def _stream_query(self, stream: int) -> int:
        return NOT_READY

    def _stream_is_capturing(self, stream: int, to: int) -> None:
        c_int.from_address(to).value = stream == self.device.captured

    def _device_synchronize(self) -> int:
        if self.device.captured is not None:
            return CAPTURED
        self.device.synchronize()
        return OK

    def _get_device(self, to: int) -> None:
        c_int.from_address(to).value = 0


class SimulatedTorchCudaPool(TorchCudaPool):
    """A TorchCudaPool on a simulated device, which CuPy's C functions ask: all else is real."""

    def __init__(self, **options: Any) -> None:
        self.cuda = SimulatedCuda()
        super().__init__(**options)
        self._pools.follow_stream(self.cuda.current_stream)

    def _table(self) -> int:
        return self.cuda.address

    def _current_device(self) -> int:
        return 0

    def _backend(self) -> str:
        return "torch: simulated"

    def _serves_here(self) -> bool:
        return True


FUNCTIONS = ctypes.CDLL(_core.__file__)
FUNCTIONS.stow_cupy_malloc.restype = c_void_p
FUNCTIONS.stow_cupy_malloc.argtypes = [c_void_p, c_size_t, c_int]
FUNCTIONS.stow_cupy_free.argtypes = [c_void_p, c_void_p, c_int]
FUNCTIONS.stow_cupy_free.restype = None


class Address(int):
    """A block's address; the block is freed when it dies."""

    def __del__(self) -> None:
        owner = OWNERS.pop(int(self), None)
        if owner is not None:
            FUNCTIONS.stow_cupy_free(owner, int(self), 0)


OWNERS: dict[int, int] = {}
"""What a block is freed by: as CuPy's arrays, blocks do not keep it."""


class Tensor:
    """A block of a pool's, asked for by C functions that know nothing of Python.

    Raises
    ------
    MemoryError
        The pool has none.
    """

    def __init__(self, pool: SimulatedTorchCudaPool, size: int, stream: int = 0) -> None:
        self.nbytes = size
        before, pool.cuda.now = pool.cuda.now, stream
        address = FUNCTIONS.stow_cupy_malloc(pool._pools.address, size, 0) or 0
        pool.cuda.now = before
        if address == 0 and size > 0:
            raise MemoryError(size)
        if address != 0:
            OWNERS[address] = pool._pools.address
        # The garbage collector does not look into it, to finalize what is there.
        self._kept = np.empty((), dtype=object)
        self._kept[()] = Address(address)

    @property
    def ptr(self) -> int:
        return int(self._kept[()])

    @property
    def data(self) -> Any:  # what SimulatedDevice takes for an array
        return self

    @property
    def mem(self) -> Any:
        return self


class StreamsTorchCudaPool(SimulatedTorchCudaPool):
    """What the tests of streams do with a `SimulatedPool`, by C functions."""

    @property
    def simulated(self) -> SimulatedDevice:
        return self.cuda.device

    @property
    def memory(self) -> SimulatedCuda:
        return self.cuda

    def empty(self, size: int, stream: Stream = Stream(0), *, use: bool = True) -> Tensor:  # noqa: B008
        tensor = Tensor(self, size, stream.ptr)
        self.cuda.device.admit(tensor)
        if use:
            self.cuda.device.use(tensor, stream)
        return tensor

    def free_all_blocks(self) -> None:
        self.free_all()
