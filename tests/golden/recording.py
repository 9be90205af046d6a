"""Records NumPy's requests of this thread as a stream, by a memory handler of ctypes: nothing of ours is in between."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, c_char, c_size_t, c_uint8, c_void_p
from typing import Any

from stowplan.profiler import _recorder

from .stream import Op, Writer

LEAST = 512
"""Bytes; smaller requests are left out: NumPy has a cache for them."""


class _Handler(ctypes.Structure):
    """``PyDataMem_Handler`` of NumPy (NEP 49)."""

    _fields_ = (
        ("name", c_char * 127),
        ("version", c_uint8),
        ("ctx", c_void_p),
        ("malloc", CFUNCTYPE(c_void_p, c_void_p, c_size_t)),
        ("calloc", CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_size_t)),
        ("realloc", CFUNCTYPE(c_void_p, c_void_p, c_void_p, c_size_t)),
        ("free", CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)),
    )


class Recording(Writer):
    """A writer that NumPy's requests go to while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self._alive: dict[int, int] = {}  # address -> block
        libc: Any = ctypes.CDLL(None)
        for name in ("malloc", "calloc", "realloc"):
            getattr(libc, name).restype = c_void_p
        self._libc = libc
        functions = dict(_Handler._fields_)
        self._handler = _Handler(
            b"golden",
            1,
            None,
            functions["malloc"](lambda _, size: self._born(libc.malloc(c_size_t(size)), size)),
            functions["calloc"](
                lambda _, n, size: self._born(libc.calloc(c_size_t(n), c_size_t(size)), n * size)
            ),
            functions["realloc"](self._realloc),
            functions["free"](self._free),
        )
        new: Callable[..., Any] = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (c_void_p, ctypes.c_char_p, c_void_p)  # type: ignore[attr-defined]
        self._name = b"mem_handler"
        self._capsule = new(ctypes.addressof(self._handler), self._name, None)

    def _born(self, address: int, size: int) -> int:
        if size >= LEAST:
            self._alive[address] = self.request(size)
        return address

    def _free(self, _: int | None, address: int, size: int) -> None:
        self._died(address)
        self._libc.free(c_void_p(address))

    def _realloc(self, _: int | None, address: int, size: int) -> int:
        self._died(address)
        return self._born(self._libc.realloc(c_void_p(address), c_size_t(size)), size)

    def _died(self, address: int) -> None:
        block = self._alive.pop(address, None)
        if block is not None:
            self.free(block)

    @contextmanager
    def entered(self) -> Iterator[None]:
        before = _recorder.set_handler(self._capsule)
        try:
            yield
        finally:
            _recorder.set_handler(before)

    @contextmanager
    def step(self, key: Hashable = None) -> Iterator[None]:
        self.begin(key)
        yield
        self.end()

    def mark(self) -> None:
        self.add(Op.MARK)
