"""What the recorders have in common: pairs of equal steps, marked or found, and the profile of the first of a pair."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType

import numpy as np
import numpy.typing as npt

from ...errors import PoolError, ProfileError
from .._recorder import CallSites, StepWatch
from ..candidates import StepCandidate
from ..profile import Profile
from ..steps import EVENT_DTYPE, StepLog, profile_step
from .call_sites import call_sites


class Recorder:
    """Make a `Profile` of a step that repeats. A subclass passes an allocator's requests to its `_watch`.

    Parameters
    ----------
    auto_step
        Find the step that the program repeats, until a step is marked.
    sites
        Record the call site of each block. If it is a `CallSites`, use that one, whose `asker` the caller sets.
    """

    _watch: StepWatch

    def __init__(self, auto_step: bool, sites: bool | CallSites) -> None:
        self._auto_step = auto_step
        self._names_askers = sites is True
        self._sites = sites if isinstance(sites, CallSites) else call_sites() if sites else None
        self._entered: ExitStack | None = None
        self._log: StepLog | None = None
        self._profile: Profile | None = None
        # The site of each request of the last step and of the one before.
        self._site = self._site_before = np.empty(0, dtype=np.int32)

    def _enter(self) -> None:
        """Begin to record. The subclass calls it before it begins to watch."""
        if self._entered is not None:
            raise PoolError("this recorder is entered already")
        self._entered = ExitStack()
        if self._names_askers and self._sites is not None and "chainer" in sys.modules:
            from .chainer_names import ChainerNames

            self._entered.enter_context(ChainerNames(self._sites))
        if self._auto_step:
            self._watch.find_steps()

    def _exit(self) -> None:
        """End what `_enter` started."""
        if self._entered is not None:
            self._entered.close()
            self._entered = None

    def step(self) -> RecordedStep:
        """Return a context manager around one step.

        Raises
        ------
        PoolError
            On entry, if a step is running already.
        """
        return RecordedStep(self)

    def profile(self) -> Profile:
        """Return the profile of the last step that the following one repeated.

        If steps were found, it is the one of the `candidates` that is chosen.

        Raises
        ------
        ProfileError
            There has been no such step.
        """
        for candidate in self.candidates():
            if candidate.chosen:
                self._profile = candidate.profile
        if self._profile is None:
            raise ProfileError("no profile yet: no two consecutive steps asked for the same blocks")
        return self._profile

    def candidates(self) -> list[StepCandidate]:
        """Return the steps that were found, in the order of the program; none where steps were marked.

        Each is one that the program repeated for a while: phases one after the other, a loop and the one around it. Of
        the steps of one loop it is the largest one that was repeated at once, or else the largest one that came again
        after others.
        """
        if not self._auto_step:
            return []
        found, chosen = self._watch.candidates()
        candidates = []
        for number, (step, following, start, times, requests, size) in enumerate(found):
            profile = self._with_sites(profile_step(StepLog(step[0]), StepLog(following[0])), step[2])
            candidates.append(StepCandidate(profile, start, times, requests, size, number == chosen))
        return candidates

    def whole(self) -> Profile:
        """Return the profile of everything recorded as one step; if steps were marked, of the last one."""
        if self._auto_step:
            events, _, self._site_before = self._watch.end_step()
            self._log = StepLog(events)
        log = StepLog(np.empty(0, EVENT_DTYPE)) if self._log is None else self._log
        return self._with_sites(profile_step(log, StepLog(log.events[:0])), self._site_before)

    def _begin(self) -> None:
        self._auto_step = False
        if not self._watch.begin_step():
            raise PoolError("a step is running already")

    def _end(self, failed: bool) -> None:
        events, complete = self._end_step()
        log = StepLog(events) if complete and not failed else None
        if log is not None and self._log is not None and self._log.equals(log):
            self._profile = self._with_sites(profile_step(self._log, log), self._site_before)
        self._log, self._site_before = log, self._site

    def _end_step(self) -> tuple[npt.NDArray[np.void], bool]:
        """Return the events of the step (see `profiler.steps`), and whether none was lost."""
        events, complete, self._site = self._watch.end_step()
        return events, complete

    def _with_sites(self, profile: Profile, site: npt.NDArray[np.int32]) -> Profile:
        if self._sites is None or len(site) != len(profile):
            return profile
        # The profile names only the sites of its own step.
        used, row = np.unique(site, return_inverse=True)
        unknown = int((used < 0).sum())  # -1 is the first of them, if any
        names = tuple(self._sites.sites[number] for number in used[unknown:].tolist())
        return replace(profile, site=(row.reshape(-1) - unknown).astype(np.int32), sites=names)


class RecordedStep:
    """Begin a step on entry, end it on exit. An exception passes through, and its step is not recorded."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __enter__(self) -> None:
        self._recorder._begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recorder._end(failed=kind is not None)
