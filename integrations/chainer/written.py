"""Find out whether a program writes on arrays that operators make or read: then none may run again.

An operator that runs again reads what its inputs hold by then. Chainer's own backward pass reads less, and nothing
twice. So the first step takes a checksum of each array when an operator makes or reads it, and another one when the
backward pass begins. It reads each array of the forward pass about three times.
"""

from __future__ import annotations

import weakref
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

__all__ = ["Written"]


class Written:
    """Checksums of the arrays of one step.

    Attributes
    ----------
    found
        Whether an array was written on, or a variable was given another, after an operator had made or read it.
    """

    def __init__(self) -> None:
        self.found = False
        self._sums: weakref.WeakKeyDictionary[Any, tuple[Any, int]] = weakref.WeakKeyDictionary()
        """By node: a weak reference to its array, and the checksum."""

    def saw(self, inputs: Iterable[tuple[Any, Any]], outputs: Iterable[tuple[Any, Any]]) -> None:
        """Note what an operator has read and made: nodes and arrays."""
        for node, array in inputs:
            if array is not None:
                known, now = self._sums.get(node), _checksum(array)
                self.found |= known is not None and known[1] != now
                self._sums[node] = weakref.ref(array), now
        for node, array in outputs:
            self._sums[node] = weakref.ref(array), _checksum(array)

    def forget(self, node: Any) -> None:
        """Note that a parameter's array was updated."""
        self._sums.pop(node, None)

    def look(self) -> None:
        """Compare the arrays that are there with what they were."""
        for reference, before in list(self._sums.values()):
            array = reference()
            self.found |= array is not None and _checksum(array) != before

    def close(self) -> None:
        """Forget the step's nodes."""
        self._sums.clear()


def _checksum(array: Any) -> int:
    there = array if isinstance(array, np.ndarray) else array.get()
    flat: Any = np.ascontiguousarray(there).reshape(-1)
    return zlib.adler32(flat.view(np.uint8))
