"""Run a function once, and note what its arrays had alive after each request, and which line asked.

::

    request    x*2     +1      sum            return
    live      |====|========|=========|....|=====|       older blocks of the function's own, those of its results
    line       f:2    f:2     f:3

NumPy's and CuPy's allocations are seen, on all threads that `threading` starts. What C libraries take with malloc
(LAPACK's own buffers, SciPy's lists in C++) is not, nor what other processes take.
"""

from __future__ import annotations

import inspect
import sys
import time
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

__all__ = ["Run", "recorder_for", "run"]


@dataclass(frozen=True, eq=False)
class Run:
    """One call.

    Attributes
    ----------
    profile
        Of its requests; what is alive at the end counts as freed there. With call sites.
    live
        Bytes alive after each request, int64 (n,): those of the call and what earlier calls have kept.
    most
        The most alive at once up to its end, other threads' blocks included.
    others
        Requests of other threads.
    faults
        Bytes of fresh pages that its thread touched; 0 where the system does not say.
    foreign
        Whether a result lies in memory that the array library has not allocated.
    lazy
        Whether it returned a generator, or another iterator, so that its work is still to be done.
    seconds
        Of CPU time that its thread took: other programs do not count.
    """

    profile: Profile
    live: npt.NDArray[np.int64]
    most: int
    others: int
    faults: int
    foreign: bool
    lazy: bool
    seconds: float

    @property
    def peak(self) -> int:
        """Most bytes alive at once."""
        return int(self.live.max(initial=0))

    @property
    def results(self) -> int:
        """Bytes alive when it returns: its results, and what it keeps."""
        return int(self.profile.size[self.profile.end >= self.profile.period].sum())

    def lines(self) -> list[str]:
        """Call site of each request."""
        names = (*self.profile.sites, "")
        return [names[site] for site in self.profile.site.tolist()]

    def at(self, request: int) -> tuple[int, dict[str, int]]:
        """Return what is alive after a request: bytes of the results, and of all blocks by the line that asked."""
        profile, tick = self.profile, int(self.profile.start[request])
        alive = np.flatnonzero((profile.start <= tick) & (profile.end > tick))
        size, names = profile.size[alive], (*profile.sites, "")
        by_line: dict[str, int] = {}
        for site, count in zip(profile.site[alive].tolist(), size.tolist(), strict=True):
            by_line[names[site]] = by_line.get(names[site], 0) + count
        return int(size[profile.end[alive] >= profile.period].sum()), by_line


def recorder_for(arrays: Sequence[Any], sites: bool = True) -> Any:
    """Return a recorder of the library that the arrays are of: CuPy if one is CuPy's, otherwise NumPy."""
    named = call_sites(1) if sites else False
    if any(type(array).__module__.partition(".")[0] == "cupy" for array in arrays):
        from ..profiler import CupyRecorder

        return CupyRecorder(sites=named)
    return NumpyRecorder(sites=named, threads=True)


def run(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    options: Mapping[str, Any],
    times: int = 1,
    quiet: bool = True,
    sites: bool = True,
) -> list[Run]:
    """Call a function a few times and return each call. Errors pass through, and warnings unless they are to be quiet.

    What earlier calls keep counts as alive in later ones, as it is when a program calls the function again.
    """
    recorder, found = recorder_for(arguments, sites), []
    apart = Context().run  # where the recorder's own arrays are not seen as the function's
    with recorder, ExitStack() as stack:
        if quiet:
            stack.enter_context(warnings.catch_warnings())
            stack.enter_context(np.errstate(all="ignore"))
            warnings.simplefilter("ignore")
        for _ in range(times):
            others = recorder.program().other_requests
            step = recorder.step()
            apart(step.__enter__)
            pages, began = _pages(), time.thread_time()
            try:
                result = function(*arguments, **options)
            except BaseException as error:
                apart(step.__exit__, type(error), error, None)
                raise
            took, pages = time.thread_time() - began, _pages() - pages
            apart(step.__exit__, None, None, None)
            lazy = inspect.isgenerator(result) or (hasattr(result, "__next__") and not _is_array(result))
            profile = apart(recorder.whole)
            program = recorder.program()
            others = program.other_requests - others
            found.append(
                Run(profile, profile.alive, program.live_peak, others, pages, _is_foreign(result), lazy, took)
            )
            del result
    return found


def _pages() -> int:
    """Return the bytes of all pages that this thread has touched first."""
    if resource is None or not hasattr(resource, "RUSAGE_THREAD"):
        return 0
    return int(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt) * resource.getpagesize()


def _is_foreign(value: Any) -> bool:
    """Whether arrays among a result lie in memory of other code: compiled by Numba, say."""
    if isinstance(value, (tuple, list)):
        return any(_is_foreign(one) for one in value)
    if not isinstance(value, np.ndarray) or not value.nbytes:
        return False
    while isinstance(value.base, np.ndarray):
        value = value.base
    return value.base is not None and not isinstance(value.base, (memoryview, bytes, bytearray))


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or type(value).__module__.partition(".")[0] == "cupy"


def on_device(value: Any) -> bool:
    """Whether a value is an array of CuPy's."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(value, cupy.ndarray)


def is_plain() -> bool:
    """Whether NumPy's default allocator serves this context: a pool's, or a recorder's, is not to be replaced."""
    core = getattr(np, "_core", None) or np.core
    return bool(core.multiarray.get_handler_name() == "default_allocator")
