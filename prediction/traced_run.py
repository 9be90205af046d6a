"""Run a function once, and note what its arrays had alive after each request, and which line asked.

::

    request    x*2     +1      sum            return
    live      |====|========|=========|....|=====|       older blocks of the function's own, those of its results
    line       f:2    f:2     f:3

NumPy's and CuPy's allocations are seen, on all threads that `threading` starts. What else takes memory is told by two
others: *tracemalloc*, of Python's objects and of all that NumPy allocates (in a pool, or without a handler); and the
*resident set*, of C libraries, too (LAPACK's workspaces, PyTorch's tensors). Where they have more, `Run.unseen` says
so. What other processes take nobody sees.
"""

from __future__ import annotations

import ctypes
import inspect
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from contextvars import Context
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..common.units import human_bytes
from ..profiler import NumpyRecorder, Profile
from ..profiler.recorders.call_sites import call_sites
from ..profiler.unbroken import unbroken, unbroken_context
from .child import resident_peak
from .shape_variables import on_device

OWN = 128
"""Bytes that the record of a request may take."""
TRACED, RESIDENT = 1 << 19, 1 << 22
"""Bytes that tracemalloc and the resident set may have more: buffers that NumPy casts in, and two huge pages."""
MALLOC_TRIM: Any = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""glibc's function of this name, or None."""


@dataclass(frozen=True, eq=False)
class Run:
    """One call.

    Attributes
    ----------
    profile
        The profile of its requests, with call sites; what is alive at the end counts as freed there.
    most
        The most alive at once up to its end, other threads' blocks included.
    others
        Requests of other threads.
    traced, resident
        The most bytes that tracemalloc has seen, and by which the resident set grew, at once; 0 where they are not
        asked, or not told.
    lazy
        Whether it returned an iterator, or a coroutine, so that its work is still to be done.
    """

    profile: Profile
    most: int
    others: int
    traced: int = 0
    resident: int = 0
    lazy: bool = False

    @property
    def live(self) -> npt.NDArray[np.int64]:
        """Bytes alive after each request: those of the call and what earlier calls have kept."""
        return self.profile.alive

    @property
    def peak(self) -> int:
        """Most bytes alive at once."""
        return int(self.live.max(initial=0))

    @property
    def beside(self) -> int:
        """Bytes that others see, and the recorder does not."""
        return max(self.traced, self.resident - OWN * len(self.profile)) - self.most

    def unseen(self, most: int) -> str:
        """Tell what takes more bytes than its arrays, beside 1 % of ``most``; empty if nothing does."""
        if self.traced - self.most > most // 100 + TRACED:
            return (
                f"it takes {human_bytes(self.traced)}, of which its arrays have {human_bytes(self.most)}: the rest is "
                "Python's objects, or arrays that no handler sees (those of a pool)"
            )
        if self.beside > self.traced - self.most and self.beside > most // 100 + RESIDENT:
            return (
                f"the resident set grew by {human_bytes(self.resident)}, and its arrays have "
                f"{human_bytes(self.most)}: a C library takes the rest (LAPACK's workspaces, PyTorch's tensors)"
            )
        return ""

    def lines(self) -> list[str]:
        """Call site of each request."""
        names = (*self.profile.sites, "")
        return [names[site] for site in self.profile.site.tolist()]

    def blocks(self) -> dict[str, int]:
        """Return the bytes of the largest block that each line requested."""
        names = (*self.profile.sites, "")
        largest = np.zeros(len(names), dtype=np.int64)
        np.maximum.at(largest, self.profile.site, self.profile.size)
        return {name: size for name, size in zip(names, largest.tolist(), strict=True) if size}

    def at(self, request: int) -> tuple[int, dict[str, int]]:
        """Return what is alive after a request: bytes of the results, and of all blocks by the line that asked."""
        alive, by_line = alive_at(self.profile, int(self.profile.start[request]))
        results = alive[self.profile.end[alive] >= self.profile.period]
        return int(self.profile.size[results].sum()), by_line


def alive_at(profile: Profile, tick: int) -> tuple[npt.NDArray[np.int64], dict[str, int]]:
    """Return the blocks alive just after a tick, and their bytes by the line that asked."""
    alive = np.flatnonzero(profile.alive_at(tick))
    names, by_line = (*profile.sites, ""), dict[str, int]()
    for site, count in zip(profile.site[alive].tolist(), profile.size[alive].tolist(), strict=True):
        by_line[names[site]] = by_line.get(names[site], 0) + count
    return alive, by_line


class Recording:
    """Records calls, each while `call` is entered. What earlier ones keep counts as alive in later ones.

    Parameters
    ----------
    sites
        Whether call sites are noted.
    outside
        Whether tracemalloc and the resident set are asked, too.
    device
        Whether arrays are CuPy's.
    """

    def __init__(self, sites: bool = True, outside: bool = False, device: bool = False) -> None:
        named = call_sites(1) if sites else False
        self.runs: list[Run] = []
        self._outside = outside and not device
        if device:
            from ..profiler import CupyRecorder

            self._recorder: Any = CupyRecorder(sites=named)
        else:
            self._recorder = NumpyRecorder(sites=named, threads=True)

    @unbroken
    def __enter__(self) -> Recording:
        self._recorder.__enter__()
        return self

    @unbroken
    def __exit__(self, *error: object) -> None:
        self._recorder.__exit__(*error)

    @unbroken_context
    def call(self) -> Iterator[None]:
        """Record one call. Errors pass through."""
        apart = Context().run  # where the recorder's own arrays are not seen as the function's
        others, step = self._recorder.program().other_requests, self._recorder.step()
        apart(step.__enter__)
        tracing, traced, resident = tracemalloc.is_tracing(), 0, 0
        if self._outside:
            if MALLOC_TRIM is not None:
                MALLOC_TRIM(0)
            if not tracing:
                tracemalloc.start()
            tracemalloc.reset_peak()
            before, resident = tracemalloc.get_traced_memory()[0], resident_peak(anew=True)
        try:
            yield
        except BaseException as error:
            apart(step.__exit__, type(error), error, error.__traceback__)
            raise
        finally:
            if self._outside:
                traced, resident = tracemalloc.get_traced_memory()[1] - before, resident_peak() - resident
                if not tracing:
                    tracemalloc.stop()
        apart(step.__exit__, None, None, None)
        program = self._recorder.program()
        profile = apart(self._recorder.whole)
        others = program.other_requests - others
        self.runs.append(Run(profile, program.live_peak, others, traced, resident))


def run(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    times: int = 1,
    sites: bool = True,
    outside: bool = False,
) -> list[Run]:
    """Call a function a few times, without its warnings, and return each call. Errors pass through."""
    with Recording(sites, outside, any(map(on_device, arguments))) as recording, ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(np.errstate(all="ignore"))
        warnings.simplefilter("ignore")
        for _ in range(times):
            with recording.call():
                result = function(*arguments)
            lazy = inspect.isawaitable(result) or (
                hasattr(result, "__next__") and not hasattr(result, "dtype")
            )
            recording.runs[-1] = replace(recording.runs[-1], lazy=lazy or inspect.isasyncgen(result))
            del result
    return recording.runs


def is_plain() -> bool:
    """Whether NumPy's default allocator serves this context: a pool's, or a recorder's, is not to be replaced."""
    core = getattr(np, "_core", None) or np.core
    return bool(core.multiarray.get_handler_name() == "default_allocator")
