"""An importer: the log of glibc's mtrace, which has a line for each allocation and for each free.

::

    = Start
    @ ./solver:(step+0x1d)[0x55d0f1b2a1d1] + 0x55d0f2c3e2a0 0x400
    @ ./solver:(step+0x2b)[0x55d0f1b2a1df] - 0x55d0f2c3e2a0
    = End

``+ ADDRESS SIZE`` is an allocation, ``- ADDRESS`` a free. ``<`` and ``>`` are the two halves of a realloc that moved
the block; ``!`` is a realloc that failed. An allocation that failed has the address ``(nil)``.
"""

import re

from stowplan.profiler.formats import Format, register
from stowplan.profiler.formats.event_log import EventLog
from stowplan.profiler.formats.text import lines_of

LINE = re.compile(r"(?:@ (?P<caller>.*?) )?(?P<action>[-+<>!]) (?P<address>\S+)(?: (?P<size>\S+))?")
NUMBER = re.compile(r"0x[0-9a-f]{1,16}|0")


def read(path, device=None):
    """Read a log as the profile of one step. Raises FormatError, naming file and line, or OSError."""
    log = EventLog(path)
    for log.at, line in lines_of(path):
        if not line or line.startswith("="):
            continue
        match = LINE.fullmatch(line)
        if match is None:
            raise log.refusal(
                f"the line {line[:40]!r}; expected '@ CALLER + ADDRESS SIZE' or '@ CALLER - ADDRESS'"
            )
        if match["action"] == "!" or match["address"] == "(nil)":
            continue
        address = number(log, "address", match["address"])
        if match["action"] in "+>":
            log.allocate(address, number(log, "size", match["size"]), site=match["caller"])
        else:
            log.free(address)
    return log.profile()


def number(log, name, text):
    """Return a hexadecimal number of the line that is being read."""
    if text is None or NUMBER.fullmatch(text) is None:
        raise log.refusal(f"the {name} {(text or '')[:40]!r}; expected a hexadecimal number, 0x...")
    return int(text, 16)


register(
    Format(
        "mtrace",
        "the log of glibc's mtrace",
        recognizes=lambda head: head.startswith(b"= Start"),
        read=read,
    )
)
