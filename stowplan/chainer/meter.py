"""How many bytes each operator of a step has alive beside what it reads and writes: measured once, by a recorder.

The recorder notes every request and free of the step in order, and who asks: the operator that runs. The bytes alive at
an operator's fullest moment, less those at its first request, are what it writes and its *workspace*::

    alive   |        _            conv asks for columns (workspace) and its output, and frees the columns
            |       | |___
            |  _____|    |__
            +-------|conv|--> events
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..profiler._recorder import CallSites
from ..profiler.numpy_recorder import NumpyRecorder
from ..profiler.steps import ALLOCATE, FREE

__all__ = ["HostMeter", "Meter"]


class Meter(Protocol):
    """What a recorded step needs of a meter, which is entered around it."""

    def __enter__(self) -> object: ...

    def __exit__(self, *error: object) -> None: ...

    def runs(self, operator: int) -> None:
        """Count what is asked for from now on as this operator's; -1: nobody's."""

    def rises(self, operators: int) -> npt.NDArray[np.int64]:
        """Return by how many bytes each operator raised what is alive, at its fullest moment, (operators,)."""


class HostMeter:
    """Measure NumPy's requests in this thread, from entry to exit. They pass on to NumPy's default handler.

    Parameters
    ----------
    small
        Requests below this many bytes do not count.
    """

    def __init__(self, small: int) -> None:
        self._sites = CallSites(lambda code: False)
        self._recorder = NumpyRecorder(sites=self._sites, small=small)
        self._events: npt.NDArray[Any] = np.empty(0)
        self._site: npt.NDArray[np.int32] = np.empty(0, dtype=np.int32)

    def __enter__(self) -> HostMeter:
        self._recorder.__enter__()
        self._recorder._watch.begin_step()
        return self

    def __exit__(self, *error: object) -> None:
        self._events, _, self._site = self._recorder._watch.end_step()
        self._recorder.__exit__(*error)

    def runs(self, operator: int) -> None:
        """Count what is asked for from now on as this operator's; -1: nobody's."""
        self._sites.asker = None if operator < 0 else str(operator)

    def rises(self, operators: int) -> npt.NDArray[np.int64]:
        """Return by how many bytes each operator raised what is alive, at its fullest moment, (operators,)."""
        rise = np.zeros(operators, dtype=np.int64)
        names = [int(site) for site in self._sites.sites]
        live = base = 0
        current = -1
        events = self._events
        columns = (events["kind"].tolist(), events["size"].tolist(), events["request"].tolist())
        for kind, size, request in zip(*columns, strict=True):
            if kind == ALLOCATE:
                site = int(self._site[request])
                operator = names[site] if site >= 0 else -1
                if operator != current:
                    current, base = operator, live
                live += size
                if operator >= 0:
                    rise[operator] = max(rise[operator], live - base)
            elif kind == FREE:
                live -= size
        return rise
