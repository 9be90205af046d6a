"""A backend: buffers of plain host memory, without NumPy's handler and without a device."""

from contextlib import nullcontext

import numpy as np

from stowplan.allocator._core import DevicePool
from stowplan.allocator.backends.device_memory import UpstreamMemory
from stowplan.allocator.forking import watch
from stowplan.allocator.lanes import Lanes
from stowplan.allocator.pool import Pool

ALIGNMENT = 512
"""Bytes; of every planned offset, and of what upstream returns. `DevicePool` keeps its arena in units of as many."""


class Memory:
    """An address, and the owner that must live as long as it is used. The pool makes one for each block."""

    def __init__(self, ptr, size, owner, device):
        self.ptr, self.size, self.owner = ptr, size, owner


class Pointer:
    """What an allocator returns."""

    def __init__(self, mem, offset):
        self.mem, self.ptr = mem, mem.ptr + offset


class Buffer:
    """A block of bytes; NumPy sees it without a copy: ``numpy.asarray(buffer)``. Its memory is free when it is gone."""

    def __init__(self, pointer, size):
        self.ptr, self._pointer = pointer.ptr, pointer
        self.__array_interface__ = {
            "data": (self.ptr, False),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }


def from_the_heap(size):
    """Upstream: return a pointer to fresh memory, or raise MemoryError."""
    heap = np.empty(size + ALIGNMENT, np.uint8)
    return Pointer(Memory(heap.ctypes.data + -heap.ctypes.data % ALIGNMENT, size, heap, 0), 0)


class BufferPool(Pool):
    """Serve buffers, those of repeated steps from a plan."""

    def __init__(self, upstream=from_the_heap, *, warmup=1, planner="auto", max_plans=32, auto_step=False):
        no_hooks = {}
        memory = UpstreamMemory(upstream, upstream)
        self._device = DevicePool(0, memory, upstream, Pointer, Memory, None, lambda: no_hooks, None, None)
        self._only = Lanes(
            self._device,
            alignment=ALIGNMENT,
            warmup=warmup,
            planner=planner,
            max_plans=max_plans,
            auto_step=auto_step,
        )
        watch(self)  # a fork's child begins with fresh locks

    def buffer(self, size):
        """Return a buffer of this many bytes."""
        return Buffer(self._device.malloc(size), size)

    def serving(self):
        """Return a context manager in which the pool serves this thread: it always does."""
        return nullcontext()

    def _lanes(self):
        return self._only

    def _all_lanes(self):
        return [self._only]

    def _backend(self):
        return "buffers"  # a file of plans of another backend is refused
