"""The log of a CuPy memory hook: a JSON object for each event, one to a line. Read only.

CuPy's own ``cupy.cuda.memory_hooks.DebugPrintHook(file=...)`` writes it::

    {"hook":"alloc","device_id":0,"mem_size":512,"mem_ptr":150496608256}
    {"hook":"malloc","device_id":0,"size":24,"mem_size":512,"mem_ptr":150496608256,"pmem_id":"0x7f39200c5278"}
    {"hook":"free","device_id":0,"mem_size":512,"mem_ptr":150496608256,"pmem_id":"0x7f39200c5278"}

==========  ===========================================================================================
hook        ``malloc``: a request served by the pool; ``free``; ``alloc``: the pool asked the device, left out
device_id   the device; one file may hold several, one is read
size        bytes requested. A request of 0 bytes occupies nothing and has no free: left out
mem_size    bytes as the pool rounds them, to 512
mem_ptr     address; 0 where the request failed: left out
pmem_id     not used: an ``id()``, and ids recur
==========  ===========================================================================================

Two keys that a hook derived from it may add are read, too: ``"time_ns"``, nanoseconds since the epoch,
and ``"site"``, the call site as ``"file:line function"``. For example::

    class Log(cupy.cuda.memory_hooks.DebugPrintHook):
        def _print(self, message):
            super()._print(f'{message[:-1]},"time_ns":{time.time_ns()}}}')

A hook is local to its thread: a block that another thread frees has no ``free``. It ends when its address is handed
out again, or else it counts as escaped. Streams are not logged.

Source: ``cupy/cuda/memory_hooks/debug_print.py`` and ``cupy.cuda.MemoryHook`` of CuPy 12 to 14.2.
"""

from __future__ import annotations

import json
import os
import reprlib
from typing import Any

from ...errors import FormatError
from ..profile import UNKNOWN_NS, Profile
from .event_log import EventLog
from .registry import Format, register
from .text import first_line, lines_of

_HOOKS = ("alloc", "malloc", "free")


def read(path: str | os.PathLike[str], device: int | None = None) -> Profile:
    """Read a log as the profile of one step; see `event_log` for blocks that cross its two ends.

    Parameters
    ----------
    path
        The file.
    device
        Which device; None: the only one in the file.

    Raises
    ------
    FormatError
        Naming file and line: a line that is no event, a field that is missing or malformed, several devices and none
        chosen, no request at all.
    OSError
        The file cannot be opened.
    """
    log = EventLog(path, frees_may_be_missing=True)
    only = device
    for log.at, line in lines_of(path, end=b"}"):
        if not line.strip():
            continue
        event = _parse(log, line)
        hook = event.get("hook")
        if hook not in _HOOKS:
            raise log.refusal(f"the hook {reprlib.repr(hook)}; expected {', '.join(_HOOKS)}")
        found = log.integer(event, "device_id")
        if only is None:
            only = found
        if found != only:
            if device is None:
                raise log.refusal(f"events of the devices {only} and {found}; expected one, or a choice")
            continue
        address, rounded = log.integer(event, "mem_ptr"), log.integer(event, "mem_size")
        ns = log.integer(event, "time_ns") if "time_ns" in event else UNKNOWN_NS
        if hook == "malloc":
            size = log.integer(event, "size")
            site = event.get("site")
            if site is not None and not isinstance(site, str):
                raise log.refusal("the site is not text; expected file:line function")
            if address:  # what was refused has none
                log.allocate(address, size, ns=ns, site=site)
        elif hook == "free" and rounded:
            log.free(address, ns)
    if not len(log):
        of = "" if device is None else f" of device {device}"
        raise FormatError(
            path, f'no request{of}; expected lines {{"hook":"malloc",...}} of a memory hook of CuPy'
        )
    return log.profile()


def _parse(log: EventLog, line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise log.refusal(f"not JSON ({str(error)[:80]}); expected an event of a memory hook") from None
    if not isinstance(event, dict):
        raise log.refusal("not an object; expected an event of a memory hook")
    return event


register(
    Format(
        "cupy",
        "the log of a CuPy memory hook, JSON by line",
        recognizes=lambda head: first_line(head).startswith("{"),
        read=read,
    )
)
