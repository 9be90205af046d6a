"""Find out whether a program writes on arrays that operators make or read: then none may run again.

An operator that runs again reads what its inputs hold by then. Chainer's own backward pass reads less, and nothing
twice. So arrays are looked at when an operator makes or reads them, and when a backward pass begins::

                   from outside (a batch, a parameter)    made by operators
    first step     checksums                              checksums, as the program may do as it likes
    later steps    checksums, of parameters where an      on the host read-only in between: a write is an error
                   operator that reads them may run again

A checksum reads an array once, at the speed of memory: a dot product of its words with odd random numbers, which one
changed word changes for certain, and other changes, a permutation for instance, with the odds of 64 bits.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import chainer
import numpy as np
from chainer.backend import get_array_module

from ..common.errors import ScheduleError
from ..profiler.unbroken import WeakKeys
from .parameter_swap import in_memory

WORDS = np.random.default_rng(0).integers(0, 1 << 63, 1 << 14, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
"""The odd numbers of a piece of an array."""

LATE = (
    "the program writes on an array when an operator has made or read it, as the steps before did not, and the "
    "schedule runs operators again; expected no such write before the backward pass, or step(schedule=False) for such "
    "a step"
)


class Written:
    """What the arrays of one step held.

    Parameters
    ----------
    refuses
        Whether a write is an error, as in steps whose schedule runs operators again: arrays that operators make are
        read-only until the backward pass. Else it is `found`.

    Attributes
    ----------
    found
        Whether an array was written on, or a variable was given another, after an operator had made or read it.
    """

    def __init__(self, refuses: bool) -> None:
        self.refuses = refuses
        self.found = False
        self._seen: WeakKeys[tuple[Any, Any]] = WeakKeys()
        """By node: a weak reference to its array, and the checksum; None: that is not looked at."""
        self._locked: list[weakref.ref[Any]] = []

    def saw(
        self, inputs: Iterable[tuple[Any, Any]], outputs: Iterable[tuple[Any, Any]], again: bool = True
    ) -> None:
        """Note what an operator has read and made: nodes and arrays.

        Parameters
        ----------
        again
            Whether the operator may run again; else its parameters count only where it makes views of them.
        """
        inputs = [(node, array) for node, array in inputs if array is not None]
        outputs = list(outputs)
        given = {id(array) for _, array in inputs}
        again = again or not self.refuses or any(array.base is not None for _, array in outputs)
        for node, array in inputs:
            reference, known = self._seen.get(node, (None, None))
            if not self.refuses:
                now = _checksum(array)
                self.found |= known is not None and not bool(known == now)
                self._seen[node] = weakref.ref(array), now
            elif node.creator_node is not None:
                self.found |= reference is not None and reference() is not array
            elif known is None and (again or not isinstance(node._variable(), chainer.Parameter)):
                self._seen[node] = weakref.ref(array), _checksum(array)
        for node, array in outputs:
            self._seen[node] = weakref.ref(array), None if self.refuses else _checksum(array)
            lockable = type(array) is np.ndarray and array.flags.writeable and id(array) not in given
            if self.refuses and lockable:
                array.flags.writeable = False
                self._locked.append(weakref.ref(array))

    def knows(self, node: Any) -> bool:
        """Whether a change of what comes from outside would be seen."""
        return node in self._seen

    def forget(self, node: Any) -> None:
        """Note that a parameter's array was updated, or that a schedule has made an array again."""
        self._seen.pop(node, None)

    def look(self) -> None:
        """Compare the arrays that are there with what they were; a backward pass begins."""
        self.unlock()
        for node, (reference, before) in list(self._seen.items()):
            array, holder = reference(), node._variable()
            now = node._data if holder is None else in_memory(holder)
            if array is None:  # out of memory, and here again; or the program has put another in its place
                self.found |= now is not None and (before is None or not bool(_checksum(now) == before))
                continue
            self.found |= now is not None and now is not array
            self.found |= before is not None and not bool(_checksum(array) == before)
            if node.creator_node is not None:
                del self._seen[node]  # from here on a schedule makes it again
        if self.found and self.refuses:
            raise ScheduleError(LATE)

    def require_same(self, node: Any, array: Any) -> None:
        """Raise, or note, if an array that leaves memory, or comes back, is not what an operator has read."""
        known = self._seen.get(node, (None, None))[1]
        self.found |= known is not None and not bool(_checksum(array) == known)
        if self.found and self.refuses:
            raise ScheduleError(LATE)

    def explain(self, error: BaseException) -> None:
        """Raise the error of the step in the place of NumPy's for a write on what is read-only."""
        if isinstance(error, ValueError) and "read-only" in str(error) and self._locked:
            raise ScheduleError(LATE) from error

    def unlock(self) -> None:
        """Make arrays writeable again, what is viewed before the views."""
        for reference in self._locked:
            array = reference()
            if array is not None:
                array.flags.writeable = True
        self._locked.clear()

    def close(self) -> None:
        """Forget the step's nodes."""
        self.unlock()
        self._seen.clear()


def _checksum(array: Any) -> Any:
    """Return a number of 64 bits, on the array's device."""
    xp = get_array_module(array)
    data = xp.ascontiguousarray(array).reshape(-1).view(np.uint8)
    whole = data.size // 8 * 8
    words, odd = data[:whole].view(np.uint64), xp.asarray(WORDS)
    pieces = [words[start : start + odd.size] for start in range(0, words.size, odd.size)]
    if whole < data.size or not pieces:
        pieces.append(data[whole:].astype(np.uint64))
    sums = [xp.dot(piece, odd[: piece.size]) for piece in pieces]
    return sums[0] if len(sums) == 1 else _checksum(xp.stack(sums))
