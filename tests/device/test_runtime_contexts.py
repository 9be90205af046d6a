"""Contexts of the simulated device: the first call that needs one makes it, and it takes memory."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable

import pytest

from tests.device.hip_process import Hip, on_device

MIB = 1 << 20
FIRST_CALLS: dict[str, Callable[[Hip], object]] = {
    "set device": lambda hip: hip("SetDevice", 0),
    "malloc": lambda hip: hip.malloc(1),
    "free": lambda hip: hip("Free", 0),
    "memory": lambda hip: hip.free_bytes(),
    "stream": lambda hip: hip.stream(),
    "event": lambda hip: hip.new("EventCreateWithFlags", 0),
    "fill": lambda hip: hip("MemsetAsync", 0, 0, 0, hip.legacy),
    "synchronize": lambda hip: hip("DeviceSynchronize"),
}


@pytest.mark.parametrize("call", FIRST_CALLS)
def test_the_first_call_makes_a_context(call: str) -> None:
    on_device(SIMHIP_DEVICES="2", CALL=call)(first_call)()


def first_call(hip: Hip) -> None:
    hip.number("GetDeviceCount")
    hip.number("GetDevice")
    hip.number("DeviceGetAttribute", 0, 1)
    assert hip.library.simhip_contexts() == 0
    FIRST_CALLS[os.environ["CALL"]](hip)
    assert hip.library.simhip_contexts() == 1


@on_device(SIMHIP_DEVICES="3", SIMHIP_CONTEXT="300MiB")
def test_a_context_takes_memory_of_its_device(hip: Hip) -> None:
    hip("SetDevice", 1)
    assert hip.free_bytes() == (8 << 30) - 300 * MIB
    assert (hip.library.simhip_used(1), hip.library.simhip_contexts()) == (0, 0b010)
    hip("DeviceEnablePeerAccess", 2, 0)
    active = ctypes.c_int()
    found = []
    for device in range(3):
        hip("DevicePrimaryCtxGetState", device, ctypes.byref(ctypes.c_uint()), ctypes.byref(active))
        found.append(active.value)
    assert found == [0, 1, 1]


@on_device(SIMHIP_CONTEXT="2MiB", SIMHIP_MEMORY="1MiB")
def test_a_context_needs_room(hip: Hip) -> None:
    assert hip.error("SetDevice", 0) == "hipErrorOutOfMemory"


@on_device(SIMHIP_DEVICES="2")
def test_a_thread_that_puts_its_device_back_makes_a_context_there(hip: Hip) -> None:
    def use_the_other() -> None:
        before = hip.number("GetDevice")
        hip("SetDevice", 1)
        made.append(hip.library.simhip_contexts())
        hip("SetDevice", before)
        made.append(hip.library.simhip_contexts())

    made: list[int] = []
    thread = threading.Thread(target=use_the_other)
    thread.start()
    thread.join()
    assert made == [0b10, 0b11]
