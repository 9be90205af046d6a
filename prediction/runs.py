"""Run a function once, and note what its arrays had alive after each request, and which line asked.

::

    request    x*2     +1      sum            return
    live      |====|========|=========|....|=====|       older blocks of the function's own, those of its results
    line       f:2    f:2     f:3

NumPy's and CuPy's allocations are seen, on all threads that `threading` starts. What C libraries take with malloc
(LAPACK's workspaces, SciPy's lists in C++) is not, nor what other processes take. `Run.touched` tells of the former:
the pages that the call touched first, once malloc has given back what lay free (glibc's ``malloc_trim``).
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from contextvars import Context
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

from ..profiler import NumpyRecorder, Profile
from ..profiler.recorders.call_sites import call_sites
from .arguments import on_device

__all__ = ["Run", "run"]


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
    touched
        Bytes of fresh pages that its thread touched; 0 where the system does not tell.
    foreign
        Whether a result lies in memory that the array library has not allocated.
    lazy
        Whether it returned a generator, or another iterator, so that its work is still to be done.
    """

    profile: Profile
    most: int
    others: int
    touched: int
    foreign: bool
    lazy: bool

    @property
    def live(self) -> npt.NDArray[np.int64]:
        """Bytes alive after each request: those of the call and what earlier calls have kept."""
        return self.profile.alive

    @property
    def peak(self) -> int:
        """Most bytes alive at once."""
        return int(self.live.max(initial=0))

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


def run(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    options: Mapping[str, Any],
    times: int = 1,
    quiet: bool = True,
    sites: bool = True,
    trim: bool = False,
) -> list[Run]:
    """Call a function a few times and return each call. Errors pass through, and warnings unless they are to be quiet.

    What earlier calls keep counts as alive in later ones, as it is when a program calls the function again. ``trim``:
    malloc gives back what lies free before, so that what is touched is told.
    """
    named = call_sites(1) if sites else False
    recorder: Any = NumpyRecorder(sites=named, threads=True)
    host = not any(map(on_device, arguments))
    if not host:
        from ..profiler import CupyRecorder

        recorder = CupyRecorder(sites=named)
    found, apart = [], Context().run  # where the recorder's own arrays are not seen as the function's
    with recorder, ExitStack() as stack:
        if quiet:
            stack.enter_context(warnings.catch_warnings())
            stack.enter_context(np.errstate(all="ignore"))
            warnings.simplefilter("ignore")
        for _ in range(times):
            others, step = recorder.program().other_requests, recorder.step()
            apart(step.__enter__)
            if trim and host and (give_back := _malloc_trim()):
                give_back(0)
            pages = _pages()
            try:
                result = function(*arguments, **options)
            except BaseException as error:
                apart(step.__exit__, type(error), error, None)
                raise
            pages = _pages() - pages if host else 0
            apart(step.__exit__, None, None, None)
            lazy = inspect.isgenerator(result) or (
                hasattr(result, "__next__") and not hasattr(result, "dtype")
            )
            program = recorder.program()
            others = program.other_requests - others
            profile = apart(recorder.whole)
            found.append(Run(profile, program.live_peak, others, pages, _is_foreign(result), lazy))
            del result
    return found


@functools.cache
def _malloc_trim() -> Any:
    """Return glibc's function of this name, or None."""
    try:
        return getattr(ctypes.CDLL(None), "malloc_trim", None)
    except (OSError, TypeError):  # not on Windows
        return None


def _pages() -> int:
    """Return the bytes of all pages that this thread has touched first."""
    if resource is None or not hasattr(resource, "RUSAGE_THREAD"):
        return 0
    return int(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt) * resource.getpagesize()


def _is_foreign(value: Any) -> bool:
    """Whether arrays among a result lie in memory of other code: compiled by Numba, for instance."""
    if isinstance(value, (tuple, list)):
        return any(_is_foreign(one) for one in value)
    if not isinstance(value, np.ndarray) or not value.nbytes:
        return False
    while isinstance(value.base, np.ndarray):
        value = value.base
    return value.base is not None and not isinstance(value.base, (memoryview, bytes, bytearray))


def is_plain() -> bool:
    """Whether NumPy's default allocator serves this context: a pool's, or a recorder's, is not to be replaced."""
    core = getattr(np, "_core", None) or np.core
    return bool(core.multiarray.get_handler_name() == "default_allocator")
