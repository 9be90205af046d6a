"""Request streams: what programs ask an allocator for, as two columns.

An operation is a code and a number::

    REQUEST   bytes                             BEGIN      a step; 2 * index of its key, + 1 if it keeps its results
    FREE      how many requests ago it was      END        the step; 1: an exception left it
    HOLD      the same: others may still use    THREAD     that does what follows
    LET_GO    the same: they do not any more    STREAM     on which it does it
                                                INTERRUPT, RESUME, MARK (an iteration has ended: nothing)

Frees count backwards, so that equal steps are equal in the file.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Op(IntEnum):
    """What is done."""

    REQUEST = 0
    FREE = 1
    BEGIN = 2
    END = 3
    MARK = 4
    THREAD = 5
    STREAM = 6
    INTERRUPT = 7
    RESUME = 8
    HOLD = 9
    LET_GO = 10


KEYS: tuple[Hashable, ...] = (None, "a", "b", 3)
"""Keys of steps."""


class Stream(NamedTuple):
    """Operations of a program.

    Attributes
    ----------
    ops
        Codes, uint8 (n,).
    args
        Numbers, int64 (n,).
    """

    ops: npt.NDArray[np.uint8]
    args: npt.NDArray[np.int64]


def load(path: Path) -> Stream:
    """Read a stream from a file of NumPy's."""
    with np.load(path) as file:
        return Stream(file["ops"], file["args"])
