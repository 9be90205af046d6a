"""What a step under a budget keeps while no schedule is there: the first steps, whose operators are not known yet.

::

    forward    keep all, until that is KEPT of the room      then drop, and keep one value a SEGMENT
    backward   .......................................      a segment is rebuilt from the value kept before it, and goes

So at most a segment is there beside what is kept, as in T. Chen et al., *Training Deep Nets with Sublinear Memory Cost*
(2016), where the operators are known. Values count that a backward step reads. In a chain an operator runs again once.
O(1) for each operator.
"""

from __future__ import annotations

__all__ = ["Sparing"]

KEPT, SEGMENT = 1 / 6, 1 / 6
"""Shares of the room. The rest is for gradients and for what an operator takes while it runs."""


class Sparing:
    """Decides in order which values of a step are dropped.

    Parameters
    ----------
    room
        Bytes that the step may have alive.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._kept = self._dropped = 0  # bytes; dropped: since a value was kept

    @property
    def begun(self) -> bool:
        """Whether as much is kept as may be."""
        return self._kept >= KEPT * self._room

    def drops(self, size: int) -> bool:
        """Return whether a value of that size goes, if it will be read."""
        return self.begun and (not self._dropped or self._dropped + size <= SEGMENT * self._room)

    def keep(self, size: int) -> None:
        """Count a value that stays for a backward step, or to begin a segment."""
        self._kept += size
        self._dropped = 0

    def drop(self, size: int) -> None:
        """Count a value that goes, and that a backward step reads."""
        self._dropped += size
