"""Measure bytes: what outlives the steps of a training, and what each operator of a step has alive while it runs.

`Retained` measures what outlives steps: parameters, persistent arrays of links, the state of update rules, and the
gradients that one step leaves to the next. A `Meter` measures what an operator has alive besides the values that it
reads and writes. Its recorder logs every request and free of the step in order, with the operator that runs. The bytes
alive at an operator's fullest moment, less those at its first request, are the values that it writes and its
*workspace*::

    alive   |        _            conv requests columns (workspace) and its output, and frees the columns
            |       | |___
            |  _____|    |__
            +-------|conv|--> events

Seconds are read from a *clock*; on a device, where kernels run asynchronously, it waits for them.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import chainer
import numpy as np
import numpy.typing as npt

from ..profiler._recorder import CallSites, current_handler
from ..profiler.events import ALLOCATE, FREE
from ..profiler.recorders.numpy_recorder import NumpyRecorder
from .parameter_swap import AwayState, is_away, swapped

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


# --- what outlives a step ---------------------------------------------------------------------------------------------


def parameters_of(optimizers: Iterable[Any]) -> Iterator[Any]:
    """Yield the parameters that these `chainer.Optimizer` update."""
    for optimizer in optimizers:
        yield from optimizer.target.params()


def resident_arrays(optimizers: Iterable[Any]) -> list[Any]:
    """Return the arrays that exist between two steps, as far as they have been made, and are in memory."""
    found = []
    for optimizer in optimizers:
        for link in optimizer.target.links():
            for name in sorted(link._params | link._persistent):
                value = link.__dict__[name]
                if isinstance(value, chainer.Parameter) and is_away(value):
                    continue
                array = value.array if isinstance(value, chainer.Variable) else value
                if isinstance(array, chainer.get_array_types()):
                    found.append(array)
        for param in optimizer.target.params():
            # While a link runs, a hook of its may have put a variable in a parameter's place.
            state = getattr(getattr(param, "update_rule", None), "state", None)
            state = {} if state is None or type(state) is AwayState else state
            found += [array for array in state.values() if isinstance(array, chainer.get_array_types())]
    return found


def retained_bytes(optimizers: Iterable[Any]) -> int:
    """Return the bytes of these arrays, each counted once."""
    return sum({id(array): int(array.nbytes) for array in resident_arrays(optimizers)}.values())


class Retained:
    """What outlives the steps of some optimizers, the gradients included that one step adds to another's."""

    def __init__(self, optimizers: Iterable[Any]) -> None:
        self._optimizers = list(optimizers)
        self._gradients = 0
        self._lacks_state = False  # the first step had no update, which makes the state

    def bytes(self) -> int:
        """Return its bytes now."""
        return retained_bytes(self._optimizers) + self._gradients

    def left_of(self, budget: int) -> int:
        """Return the bytes of a budget that are left, once all state has been made."""
        return max(0, budget - self.bytes() - state_to_come(self._optimizers))

    def grows(self, updates: int, found: Mapping[int, int], *, is_first: bool) -> bool:
        """Note a step: its updates, and the bytes of the gradients that its first backward pass found, by id.

        Return whether more outlives steps than was known.
        """
        gradients = sum(found.get(id(param), 0) for param in parameters_of(self._optimizers)) if found else 0
        grows = (self._lacks_state and updates > 0) or gradients > self._gradients
        self._lacks_state = updates == 0 and (is_first or self._lacks_state)
        self._gradients = max(self._gradients, gradients)
        return grows


def state_to_come(optimizers: Iterable[Any]) -> int:
    """Return the bytes of the state that Chainer's update rules have yet to make, for the parameters that there are."""
    total = 0
    arrays: dict[type, int] = {}
    for param in parameters_of(optimizers):
        rule = getattr(param, "update_rule", None)
        if (
            swapped(param)
            or param.array is None
            or rule is None
            or rule.state
            or not type(rule).__module__.startswith("chainer.")
        ):
            continue
        if type(rule) not in arrays:
            twin = copy.copy(rule)
            twin._state = {}
            twin.init_state(chainer.Parameter(np.zeros(1, np.float32)))
            arrays[type(rule)] = sum(isinstance(value, np.ndarray) for value in twin.state.values())
        total += int(param.array.nbytes) * arrays[type(rule)]
    return total
