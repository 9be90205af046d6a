"""Make a profile from another tool's log of allocations and frees.

The whole log is read as one step: the clock advances by one at every allocation and at every free. Of blocks that cross
an end of the log it has only one of the two events::

    log           a f  A        B        f   C         A, B, C: allocations    f: free
    A                  [========================       never freed: escaped
    B                           [============)         planned
    C             ==)                        [=====    freed before it was allocated: wrapped

A free of an address that the log has not allocated belongs to a block from before the log. If a block of the same size
lies at the same address at the end of the log, the two are read as one wrapped block: that is what a log of one step of
a loop shows, and in any log the bytes are occupied at exactly these times. Any other such free is left out.

Time and memory are linear in the number of events.
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...common.errors import FormatError
from ..profile import ESCAPED, UNKNOWN_NS, UNKNOWN_SITE, Profile

_GONE = np.iinfo(np.int64).min
_LARGEST = np.iinfo(np.int64).max


class EventLog:
    """Collects events, checks them, and makes the profile.

    Parameters
    ----------
    path
        The file, for error messages.
    entry
        How an error names the entry number ``at``, with ``{}`` for the number; None if it is a line number.

    Attributes
    ----------
    at
        The entry, or line, that is being read: set before each call.
    failed
        Of each request that was refused, the bytes that it and the log's blocks alive take, and its own.
    """

    def __init__(self, path: str | os.PathLike[str], entry: str | None = None) -> None:
        self.at = 0
        self._path = path
        self._entry = entry
        self._events: list[int] = []  # a block's number: allocated; its complement ~number: freed
        self._size: list[int] = []
        self._bytes = 0  # of the log's blocks that are alive
        self.failed: list[tuple[int, int]] = []
        self._alive: list[int] = []  # after each allocation
        self._stream: list[int] = []
        self._alloc_ns: list[int] = []
        self._free_ns: list[int] = []
        self._site: list[int] = []
        self._sites: dict[str, int] = {}
        self._live: dict[int, int] = {}  # address to block
        self._seen: set[int] = set()
        # Blocks from before the log: address to event, size, ns.
        self._before: dict[int, tuple[int, int, int]] = {}

    def __len__(self) -> int:
        """Count the allocations so far."""
        return len(self._size)

    def refusal(self, message: str) -> FormatError:
        """Return the error that names the file and the place that is being read."""
        if self._entry is None:
            return FormatError(self._path, message, self.at)
        return FormatError(self._path, f"{self._entry.format(self.at)}: {message}")

    def integer(self, entry: Mapping[str, Any], name: str, default: int | None = None) -> int:
        """Return a field of an entry, which must be an integer, 0 or more, of 64 bits.

        Raises
        ------
        FormatError
            It is none.
        """
        value = entry.get(name, default)
        if type(value) is not int or not 0 <= value <= _LARGEST:
            raise self.refusal(f"{name} is {reprlib.repr(value)}; expected an integer, 0 or more, of 64 bits")
        return value

    def allocate(
        self, address: int, size: int, stream: int = 0, ns: int = UNKNOWN_NS, site: str | None = None
    ) -> None:
        """Enter an allocation; one of 0 bytes occupies nothing, and is left out.

        Raises
        ------
        FormatError
            A block is alive at the address already, or a number is out of range.
        """
        for name, value in (("address", address), ("size", size), ("stream", stream)):
            if not 0 <= value <= _LARGEST:
                raise self.refusal(f"the {name} {value} is out of range; expected 0 to 2**63 - 1")
        self._seen.add(address)
        if not size:
            return
        if address in self._live:
            raise self.refusal(
                f"an allocation at {address:#x}, where a block is alive; expected its free before"
            )
        block = len(self._size)
        self._live[address] = block
        self._events.append(block)
        self._size.append(size)
        self._bytes += size
        self._alive.append(self._bytes)
        self._stream.append(stream)
        self._alloc_ns.append(ns)
        self._free_ns.append(UNKNOWN_NS)
        self._site.append(UNKNOWN_SITE if site is None else self._sites.setdefault(site, len(self._sites)))

    def free(self, address: int, ns: int = UNKNOWN_NS, size: int = -1) -> None:
        """Enter a free; ``size`` is that of the block, if the log has it: none if it is 0."""
        if not size:
            return
        block = self._live.pop(address, None)
        if block is not None:
            self._events.append(~block)
            self._free_ns[block] = ns
            self._bytes -= self._size[block]
        elif address not in self._seen:
            self._seen.add(address)
            self._before[address] = len(self._events), size, ns
            self._events.append(_GONE)

    def fail(self, size: int) -> None:
        """Note a request that was refused."""
        self.failed.append((self._bytes + size, size))

    def profile(self, *, is_whole: bool = False) -> Profile:
        """Make the profile of the log; ``is_whole``: unless it frees something else, nothing was alive before it.

        Raises
        ------
        FormatError
            There is no allocation, or all sizes together are more than 64 bits hold.
        """
        if not self._size:
            raise FormatError(self._path, "no allocation in the log; expected one or more")
        if sum(self._size) > _LARGEST:
            raise FormatError(self._path, "the sizes add up to 2**63 bytes or more; expected less")
        for address, (event, size, ns) in self._before.items():
            block = self._live.get(address)
            if block is not None and size in (-1, self._size[block]):
                self._events[event] = ~block
                self._free_ns[block] = ns
        events = np.array(self._events, dtype=np.int64)
        events = events[events != _GONE]
        tick = np.arange(len(events))
        end = np.full(len(self), ESCAPED, dtype=np.int64)
        end[~events[events < 0]] = tick[events < 0]
        start = tick[events >= 0]
        end[(end != ESCAPED) & (end < start)] += len(events)
        return Profile(
            np.array(self._size, dtype=np.int64),
            start,
            end,
            np.array(self._stream, dtype=np.int64),
            np.array(self._alloc_ns, dtype=np.int64),
            np.array(self._free_ns, dtype=np.int64),
            period=len(events),
            site=np.array(self._site, dtype=np.int32),
            sites=tuple(self._sites),
            alive=np.array(self._alive if is_whole and not self._before else [], dtype=np.int64),
        )
