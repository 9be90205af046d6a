"""Chainer on real CuPy arrays over host memory, with NumPy in place of the kernels: no driver, and no device.

Real are the arrays (`cupy.ndarray`: views, bases, counts of references), the allocator below (`stowplan.CupyPool`),
Chainer's graph and its functions, and all of stowplan. In place of CuPy's kernels the same operation of NumPy runs on
the memory under the arrays, and leaves its result in a new array of CuPy's. Of Chainer's is replaced: whether it takes
CUDA for available (it asks for libraries that only a device needs), the switch to an array's device, and copies between
host and device.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from typing import Any

import chainer
import numpy as np
import pytest
from chainer.backends import cuda
from chainer.optimizers.momentum_sgd import MomentumSGDRule
from chainer.optimizers.sgd import SGDRule

from ...allocator.cupy_host import cupy

OPERATORS = "add sub mul truediv pow eq ne lt gt radd rsub rmul iadd isub imul neg bool float int setitem"
METHODS = "sum all any min max argmax astype copy fill dot take"
FUNCTIONS = "add multiply dot exp square maximum concatenate zeros zeros_like ones_like packbits"


def on_host(array: Any) -> Any:
    """Return a NumPy array that shows the memory of a CuPy array; anything else as it is."""
    if not isinstance(array, cupy.ndarray):
        return [on_host(item) for item in array] if isinstance(array, list | tuple) else array
    if array.size == 0:
        return np.empty(array.shape, array.dtype)
    extent = array.itemsize + sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
    memory = (ctypes.c_ubyte * extent).from_address(array.data.ptr)
    return np.ndarray(array.shape, array.dtype, memory, strides=array.strides)


def to_device(values: Any) -> Any:
    """Return a new CuPy array with the values of a NumPy array, from CuPy's current allocator."""
    values = np.asarray(values)
    fortran = values.flags.f_contiguous and not values.flags.c_contiguous
    array = cupy.ndarray(values.shape, values.dtype, order="F" if fortran else "C")
    on_host(array)[...] = values
    return array


def kernel(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Return the operation of NumPy's for arrays of CuPy's."""

    def run(*arguments: Any, out: Any = None, **named: Any) -> Any:
        shown = tuple(map(on_host, arguments))  # beside the arguments, which keep the memory alive
        if out is not None:
            operation(*shown, out=on_host(out), **named)
            return out
        found = operation(*shown, **named)
        return to_device(found) if isinstance(found, np.ndarray | np.generic) else found

    return run


def in_place(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Return the operation of NumPy's that changes its first argument, for arrays of CuPy's."""

    def run(array: Any, *arguments: Any) -> Any:
        operation(on_host(array), *map(on_host, arguments))
        return array

    return run


def _astype(array: Any, dtype: Any, order: str = "K", copy: bool = True, **_: Any) -> Any:
    return array if not copy and array.dtype == dtype else to_device(on_host(array).astype(dtype))


def _ascontiguousarray(array: Any) -> Any:
    return array if array.flags.c_contiguous else to_device(np.ascontiguousarray(on_host(array)))


def replace_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have NumPy compute what CuPy's kernels would."""
    for name in OPERATORS.split():
        operation = getattr(np.ndarray, f"__{name}__")
        changes = name in ("iadd", "isub", "imul", "setitem")
        run = in_place(operation) if changes else kernel(operation)
        monkeypatch.setattr(cupy.ndarray, f"__{name}__", run, raising=False)
    for name in METHODS.split():
        operation = getattr(np.ndarray, name)
        run = in_place(operation) if name == "fill" else kernel(operation)
        monkeypatch.setattr(cupy.ndarray, name, run, raising=False)
    monkeypatch.setattr(cupy.ndarray, "astype", _astype, raising=False)
    monkeypatch.setattr(cupy.ndarray, "get", lambda array, *_, **named: on_host(array).copy(), raising=False)
    for name in FUNCTIONS.split():
        monkeypatch.setattr(cupy, name, kernel(getattr(np, name)))
    monkeypatch.setattr(cupy, "asarray", to_device)
    monkeypatch.setattr(cupy, "ascontiguousarray", _ascontiguousarray)
    for rule in (SGDRule, MomentumSGDRule):
        monkeypatch.setattr(rule, "update_core_gpu", rule.update_core_cpu)


def enable_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Chainer know CuPy's arrays, and switch to no device."""
    for name, value in {
        "available": True,
        "cupy": cupy,
        "cuda": cupy.cuda,
        "ndarray": cupy.ndarray,
        "Device": cupy.cuda.Device,
        "check_cuda_available": lambda: None,
        "get_device_from_array": lambda *arrays: cuda.DummyDevice,
        "_array_to_gpu": lambda array, *_: array if isinstance(array, cupy.ndarray) else to_device(array),
    }.items():
        monkeypatch.setattr(cuda, name, value)
    monkeypatch.setattr(cuda.GpuDevice, "xp", cupy)
    monkeypatch.setattr(cuda.GpuDevice, "supported_array_types", (cupy.ndarray,))
    monkeypatch.setattr(cuda.GpuDevice, "create_context", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(cuda.GpuDevice, "use", lambda device: None)
    monkeypatch.setattr(chainer, "_array_types", None)  # asked for again
    monkeypatch.setattr(chainer, "_cpu_array_types", None)
