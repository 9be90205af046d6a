"""Measure by a recorder how many bytes each operator of a step has alive besides the values that it reads and writes.

The recorder logs every request and free of the step in order, with the operator that runs. The bytes alive at an
operator's fullest moment, less those at its first request, are the values that it writes and its *workspace*::

    alive   |        _            conv requests columns (workspace) and its output, and frees the columns
            |       | |___
            |  _____|    |__
            +-------|conv|--> events

Seconds are read from a *clock*; on a device, where kernels run asynchronously, it waits for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import chainer
import numpy as np
import numpy.typing as npt

from ..profiler._recorder import CallSites, current_handler
from ..profiler.events import ALLOCATE, FREE
from ..profiler.recorders.numpy_recorder import NumpyRecorder
from .parameter_swap import swapped

__all__ = ["CupyMeter", "HostMeter", "Meter", "clock_for", "meter_for"]


class Meter(Protocol):
    """A meter, as a recorded step uses it: entered around the step."""

    def __enter__(self) -> object: ...

    def __exit__(self, *error: object) -> None: ...

    def runs(self, operator: int) -> None:
        """Count the next requests as this operator's; -1: as none's."""

    def rises(self, operators: int) -> npt.NDArray[np.int64]:
        """Return by how many bytes each operator raised the live bytes, at its fullest moment, (operators,)."""


def meter_for(parameters: Iterable[Any], small: int) -> Meter:
    """Return a meter for a step that updates these parameters, by the device that they are on.

    Parameters
    ----------
    parameters
        Objects of `chainer.Parameter`; the first that has an array counts.
    small
        For `HostMeter`.
    """
    device = _device_of(parameters)
    return HostMeter(small) if device is None else CupyMeter(device.id)


def clock_for(parameters: Iterable[Any]) -> Callable[[], float]:
    """Return a clock in seconds for a step that updates these parameters; reading it waits for all work so far."""
    device = _device_of(parameters)
    if device is None:
        return time.perf_counter

    def read() -> float:
        device.synchronize()
        return time.perf_counter()

    return read


def _device_of(parameters: Iterable[Any]) -> Any:
    """Return the `cupy.cuda.Device` of the first parameter that has an array; None if that is NumPy's."""
    parameters = list(parameters)
    if any(map(swapped, parameters)):
        return None  # not to be fetched for this
    arrays = (param.array for param in parameters)
    array = next((array for array in arrays if array is not None), None)
    device = chainer.backend.get_device_from_array(array)
    return device.device if isinstance(device, chainer.backends.cuda.GpuDevice) else None


class _RecordingMeter:
    """Measure by a recorder, with operators as its call sites."""

    def __init__(self, sites: CallSites, recorder: Any) -> None:
        self._sites, self._recorder = sites, recorder
        self._events: npt.NDArray[Any] = np.empty(0)
        self._site: npt.NDArray[np.int32] = np.empty(0, dtype=np.int32)

    def __enter__(self) -> _RecordingMeter:
        self._recorder.__enter__()
        self._recorder._watch.begin_step()
        return self

    def __exit__(self, *error: object) -> None:
        self._events, _, self._site, *_ = self._recorder._watch.end_step()
        self._recorder.__exit__(*error)

    def runs(self, operator: int) -> None:
        """Count the next requests as this operator's; -1: as none's."""
        self._sites.asker = None if operator < 0 else str(operator)

    def rises(self, operators: int) -> npt.NDArray[np.int64]:
        """Return by how many bytes each operator raised the live bytes, at its fullest moment, (operators,)."""
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


class HostMeter(_RecordingMeter):
    """Measure NumPy's requests in this thread, from entry to exit. They pass on to what serves now: a pool, maybe.

    Parameters
    ----------
    small
        Requests below this many bytes do not count.
    """

    def __init__(self, small: int) -> None:
        sites = CallSites(_never_users)
        super().__init__(sites, NumpyRecorder(sites=sites, small=small, upstream=current_handler()))


class CupyMeter(_RecordingMeter):
    """Measure CuPy's requests in this thread, from entry to exit: those that its memory hooks are told of.

    These are the requests to CuPy's own pools and to a `stowplan.CupyPool`. Small ones count, too: they are planned.

    Parameters
    ----------
    device
        Number of the device whose requests count.
    """

    def __init__(self, device: int) -> None:
        from ..profiler.recorders.cupy_recorder import CupyRecorder

        sites = CallSites(_never_users)
        super().__init__(sites, CupyRecorder(device, sites=sites))


def _never_users(code: object) -> bool:
    """Call no code the user's: the call site is the operator alone."""
    return False
