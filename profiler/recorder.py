"""What the recorders have in common: steps in pairs, marked or found, and the profile of one that the next repeated."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType

import numpy as np
import numpy.typing as npt

from ..errors import PoolError, ProfileError
from ._recorder import CallSites, StepWatch
from .call_sites import call_sites
from .profile import Profile
from .steps import EVENT_DTYPE, StepLog, profile_step


class Recorder:
    """Make a `Profile` of a step that repeats. A subclass watches an allocator, and has `_watch` see its requests.

    Parameters
    ----------
    auto_step
        Find the step that the program repeats, until one is marked. The profile is that of the largest one found.
    sites
        Note the call site of each block. `CallSites`: number them there, and leave it to the caller to name askers.
    """

    _watch: StepWatch

    def __init__(self, auto_step: bool, sites: bool | CallSites) -> None:
        self._auto_step = auto_step
        self._names_askers = sites is True
        self._sites = sites if isinstance(sites, CallSites) else call_sites() if sites else None
        self._entered: ExitStack | None = None
        self._log: StepLog | None = None
        self._profile: Profile | None = None
        # Of each request of the last step and of the one before.
        self._site = self._site_before = np.empty(0, dtype=np.int32)

    def _enter(self) -> None:
        """Start to watch: before the subclass does."""
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
            On entry, where a step is running already.
        """
        return RecordedStep(self)

    def profile(self) -> Profile:
        """Return the profile of the last step that the following one repeated.

        Of steps that were found, it is the largest one that was repeated; where none of them was, the largest that came
        again after others.

        Raises
        ------
        ProfileError
            There was no such step yet.
        """
        found = self._watch.found() if self._auto_step else None
        if found is not None:
            (events, _, site), (following, *_) = found
            self._profile = self._with_sites(profile_step(StepLog(events), StepLog(following)), site)
        if self._profile is None:
            raise ProfileError("no profile yet: no two consecutive steps asked for the same blocks")
        return self._profile

    def whole(self) -> Profile:
        """Return all that was recorded as one step; of marked steps the last."""
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
        """Return the events of the step (see `profiler.steps`), and whether they are all of them."""
        events, complete, self._site = self._watch.end_step()
        return events, complete

    def _with_sites(self, profile: Profile, site: npt.NDArray[np.int32]) -> Profile:
        if self._sites is None or len(site) != len(profile):
            return profile
        # Of all sites of the program those of the step.
        used, row = np.unique(site, return_inverse=True)
        unknown = int((used < 0).sum())  # -1 is the first of them, if any
        names = tuple(self._sites.sites[number] for number in used[unknown:].tolist())
        return replace(profile, site=(row.reshape(-1) - unknown).astype(np.int32), sites=names)


class RecordedStep:
    """Begin a step on entry, end it on exit; an exception passes on, and what the step did is no record."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __enter__(self) -> None:
        self._recorder._begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recorder._end(failed=kind is not None)
