"""The log of RMM, the RAPIDS Memory Manager: a CSV line for each allocation and each free. Read only.

::

    Thread,Time,Action,Pointer,Size,Stream
    1979932,14:21:19.998533,allocate,0x30a000000,256,0x2
    1979932,14:21:20.000117,allocate failure,(nil),1099511627776,0
    1980043,14:21:32.661875,free,0x30a000000,256,0x2

=======  ==============================================================================================
Thread   not used: an address is one whichever thread asks
Time     time of day with microseconds, or seconds since the epoch. The time of day lacks the day: the
         profile's timestamps then count from midnight of the first day
Action   ``allocate``; ``free`` (``deallocate`` in RMM's guide); ``allocate failure``, counted
Pointer  hexadecimal
Size     bytes. An allocation of 0 bytes occupies nothing: left out, and so is its free
Stream   hexadecimal or decimal handle of the CUDA stream
=======  ==============================================================================================

Source: RMM's ``logging_resource_adaptor`` (its header and pattern, versions 0.15 to 26.08) and its guide "Logging and
Profiling".
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from decimal import Decimal

from ...common.errors import FormatError
from ..profile import Profile
from ..program_summary import Program
from .event_log import EventLog
from .registry import Format, register
from .text import first_line, lines_of

HEADER = "Thread,Time,Action,Pointer,Size,Stream"
_COLUMNS = HEADER.split(",")
_HANDLE = re.compile(r"0x([0-9a-fA-F]{1,16})|([0-9]{1,19})|\(nil\)")
_SIZE = re.compile(r"[0-9]{1,19}")
_TIME_OF_DAY = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(?:[.:]([0-9]{1,9}))?")
_SECONDS = re.compile(r"[0-9]{1,10}(?:\.[0-9]{1,9})?")
_DAY = 24 * 3600 * 10**9


def read(path: str | os.PathLike[str]) -> Profile:
    """Read a log as the profile of one step; see `event_log` for blocks that cross its two ends.

    Raises
    ------
    FormatError
        Naming file and line: another header, a row of another length, a field that is malformed, an allocation where a
        block is alive.
    OSError
        The file cannot be opened.
    """
    log = EventLog(path)
    rows = lines_of(path)
    header = next(rows, (1, ""))[1]
    if [cell.strip() for cell in header.split(",")] != _COLUMNS:
        raise FormatError(path, f"not a log of RMM; expected the header {HEADER}", 1)
    days = before = 0
    for log.at, row in rows:
        if not row.strip():
            continue
        cells = [cell.strip() for cell in row.split(",")]
        if cells == _COLUMNS:  # of a second log in the same file
            continue
        if len(cells) != len(_COLUMNS):
            raise log.refusal(f"{len(cells)} fields; expected {len(_COLUMNS)}, as in the header")
        _, time, action, pointer, size, stream = cells
        ns = _nanoseconds(log, time)
        if before - ns > _DAY // 2 and ns < _DAY:  # past midnight; less is a thread that logged late
            days += 1
        before = ns
        ns += days * _DAY
        if action not in ("allocate", "free", "deallocate", "allocate failure"):
            raise log.refusal(f"the action {action[:40]!r}; expected allocate, free or allocate failure")
        if _SIZE.fullmatch(size) is None:
            raise log.refusal(f"the size {size[:40]!r}; expected bytes, 0 or more")
        if action == "allocate failure":
            log.fail(int(size))
            continue
        address = _handle(log, "pointer", pointer)
        if action == "allocate":
            log.allocate(address, int(size), _handle(log, "stream", stream), ns)
        else:
            log.free(address, ns, int(size))
    profile = log.profile(is_whole=True)
    peak = profile.live_peak or int(profile.live_bytes().max(initial=0))
    is_known = len(profile.alive) and (profile.alive >= 0).all()
    wanted, refused = max(log.failed if is_known else (), default=(0, 0))
    program = Program(
        "RMM",
        requests=len(profile),
        bytes=int(profile.size.sum()),
        live_peak=peak,
        failed=len(log.failed),
        wanted=wanted,
        refused=refused,
    )
    return replace(profile, program=program)


def _handle(log: EventLog, name: str, text: str) -> int:
    match = _HANDLE.fullmatch(text)
    if match is None:
        raise log.refusal(f"the {name} {text[:40]!r}; expected a hexadecimal number, 0x...")
    return int(match[1], 16) if match[1] else int(match[2] or 0)


def _nanoseconds(log: EventLog, text: str) -> int:
    match = _TIME_OF_DAY.fullmatch(text)
    if match is not None:
        hours, minutes, seconds = (int(match[k]) for k in (1, 2, 3))
        return ((hours * 60 + minutes) * 60 + seconds) * 10**9 + int((match[4] or "").ljust(9, "0"))
    if _SECONDS.fullmatch(text) is None:
        raise log.refusal(f"the time {text[:40]!r}; expected HH:MM:SS.ffffff")
    return int(Decimal(text) * 10**9)


register(
    Format(
        "rmm",
        "the log of RMM, a CSV",
        recognizes=lambda head: "Action" in first_line(head),
        read=lambda path, device: read(path),
    )
)
