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
from functools import partial
from typing import Any

import chainer
import numpy as np
import numpy.typing as npt

from ..profiler._recorder import CallSites, current_handler
from ..profiler.events import ALLOCATE, FREE
from ..profiler.recorders.numpy_recorder import NumpyRecorder
from .parameter_swap import swapped

SMALL = 1033
"""NumPy's requests of fewer bytes are neither planned nor measured; of CuPy's, the small ones are planned, too."""


def meter_for(parameters: Iterable[Any]) -> Meter:
    """Return a meter for a step that updates these `chainer.Parameter`, by the device that they are on."""
    device = device_of(parameters)
    return host_meter() if device is None else cupy_meter(device.id)


def host_meter() -> Meter:
    """Return a meter of NumPy's requests in this thread. They pass on to what serves now: a pool, maybe."""
    return Meter(partial(NumpyRecorder, small=SMALL, upstream=current_handler()))


def cupy_meter(device: int) -> Meter:
    """Return a meter of CuPy's requests on a device in this thread: those that its memory hooks are told of.

    These are the requests to CuPy's own pools and to a `stowplan.CupyPool`.
    """
    from ..profiler.recorders.cupy_recorder import CupyRecorder

    return Meter(partial(CupyRecorder, device))


def clock_for(parameters: Iterable[Any]) -> Callable[[], float]:
    """Return a clock in seconds for a step that updates these parameters; reading it waits for all work so far."""
    device = device_of(parameters)
    if device is None:
        return time.perf_counter

    def read() -> float:
        device.synchronize()
        return time.perf_counter()

    return read


def device_of(parameters: Iterable[Any]) -> Any:
    """Return the `cupy.cuda.Device` of the first parameter that has an array; None if that is NumPy's."""
    parameters = list(parameters)
    if any(map(swapped, parameters)):
        return None  # not to be fetched for this
    arrays = (param.array for param in parameters)
    array = next((array for array in arrays if array is not None), None)
    device = chainer.backend.get_device_from_array(array)
    return device.device if isinstance(device, chainer.backends.cuda.GpuDevice) else None


class Meter:
    """Measures the requests from entry to exit, by a recorder with operators as its call sites.

    Parameters
    ----------
    recorder
        Makes the recorder, with ``sites``.
    """

    def __init__(self, recorder: Callable[..., Any]) -> None:
        # No code is the user's: the call site is the operator alone.
        self._sites = CallSites(lambda code: False)
        self._recorder = recorder(sites=self._sites)
        self._events: npt.NDArray[Any] = np.empty(0)
        self._site: npt.NDArray[np.int32] = np.empty(0, dtype=np.int32)

    def __enter__(self) -> Meter:
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
