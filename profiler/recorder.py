"""What the recorders have in common: steps in pairs, and the profile of a step that the next one repeated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from types import TracebackType

import numpy as np
import numpy.typing as npt

from ..errors import PoolError, ProfileError
from ._recorder import CallSites
from .profile import Profile
from .steps import StepLog, profile_step


class Recorder(ABC):
    """Make a `Profile` of a step that repeats. A subclass watches an allocator."""

    def __init__(self) -> None:
        self._log: StepLog | None = None
        self._profile: Profile | None = None
        self._sites: CallSites | None = None
        self._site = self._site_before = np.empty(
            0, dtype=np.int32
        )  # of each request of a step and of the one before

    @abstractmethod
    def _begin_step(self) -> bool:
        """Start a step in this thread; False where one is running."""

    @abstractmethod
    def _end_step(self) -> tuple[npt.NDArray[np.void], bool]:
        """Return the events of the step (see `profiler.steps`), and whether they are all of them."""

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

        Raises
        ------
        ProfileError
            No two consecutive steps were equal yet.
        """
        self._look_for_profile()
        if self._profile is None:
            raise ProfileError("no profile yet: no two consecutive steps asked for the same blocks")
        return self._profile

    def _look_for_profile(self) -> None:  # noqa: B027 (most recorders find no steps)
        """Make the profile of steps that were found, if any."""

    def _begin(self) -> None:
        if not self._begin_step():
            raise PoolError("a step is running already")

    def _end(self, failed: bool) -> None:
        events, complete = self._end_step()
        log = StepLog(events) if complete and not failed else None
        if log is not None and self._log is not None and self._log.equals(log):
            self._profile = self._with_sites(profile_step(self._log, log), self._site_before)
        self._log, self._site_before = log, self._site

    def _with_sites(self, profile: Profile, site: npt.NDArray[np.int32]) -> Profile:
        if self._sites is None or len(site) != len(profile):
            return profile
        return replace(profile, site=site, sites=tuple(self._sites.sites))


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
