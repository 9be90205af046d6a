"""What the recorders have in common: pairs of equal steps, marked or found, and the profile of the first of a pair."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import PoolError, ProfileError
from .._recorder import CallSites, StepWatch
from ..candidates import StepCandidate
from ..profile import Profile
from ..program import Holder, Program
from ..steps import StepLog, profile_step, steps_in_turn
from .call_sites import call_sites


class Recorded(NamedTuple):
    """A step, as the compiled half of a recorder returns it.

    Attributes
    ----------
    events
        Structured array (k,) of `profiler.events.EVENT_DTYPE`.
    complete
        Whether they are all.
    site
        Call site of each request, int32 (n,); empty where none are recorded.
    alive
        The most bytes that the whole program had alive from each request to the next, int64 (n,).
    signature
        Of the requests' sizes and streams, in order.
    """

    events: npt.NDArray[np.void]
    complete: bool
    site: npt.NDArray[np.int32]
    alive: npt.NDArray[np.int64]
    signature: int


class Recorder:
    """Make a `Profile` of a step that repeats. A subclass passes an allocator's requests to its `_watch`.

    Parameters
    ----------
    auto_step
        Find the step that the program repeats, until a step is marked.
    sites
        Record the call site of each block. If it is a `CallSites`, use it; the caller sets its `asker`.
    """

    library: ClassVar[str]
    _watch: StepWatch
    _small: int
    _threads = False  # whether requests of other threads are seen

    def __init__(self, auto_step: bool, sites: bool | CallSites) -> None:
        self._auto_step = auto_step
        self._names_askers = sites is True
        self._sites = sites if isinstance(sites, CallSites) else call_sites() if sites else None
        self._entered: ExitStack | None = None
        self._last: Recorded | None = None  # of the marked steps, if nothing of it was lost
        self._profile: Profile | None = None
        self._signature = 0  # of the profile's step

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
                return candidate.profile
        if self._profile is None:
            raise ProfileError("no profile yet: no two consecutive steps asked for the same blocks")
        assert self._profile.program is not None
        turns = self._profile.program.turns
        return replace(self._profile, program=replace(self.program(self._signature), turns=turns))

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
            profile = self._profile_of(Recorded(*step), Recorded(*following))
            assert profile.program is not None
            # A step may have come before it was found, and its like in another phase.
            program = profile.program
            program = replace(
                program,
                steps=max(times, program.steps),
                repeats=max(times, program.repeats),
                step_requests=max(round(requests * program.requests), program.step_requests),
                step_bytes=max(round(size * program.bytes), program.step_bytes),
            )
            profile = replace(profile, program=program)
            candidates.append(StepCandidate(profile, start, times, requests, size, chosen=number == chosen))
        return candidates

    def whole(self) -> Profile:
        """Return the profile of everything recorded as one step; if steps were marked, of the last one.

        What is still alive at the end counts as freed there.
        """
        program = self.program()
        if self._auto_step:
            self._last = Recorded(*self._watch.end_step())
        if self._last is None:
            none = np.empty(0, dtype=np.int64)
            return Profile(none, none, none, program=program)
        profile = profile_step(StepLog(self._last.events), StepLog(self._last.events[:0]))
        end = np.where(profile.wrapped, profile.period, profile.end)
        return replace(self._noted(replace(profile, end=end), self._last, self._last.alive), program=program)

    def program(self, signature: int = 0) -> Program:
        """Return the counts of the program so far, its repeats those of the step with a signature."""
        counts = self._watch.program(signature)
        counts["live_peak"] = counts.pop("peak")
        holders = tuple(Holder(site or "", *held) for site, *held in self._watch.at_peak())
        return Program(
            library=self.library, small=self._small, threads=self._threads, holders=holders, **counts
        )

    def _begin(self) -> None:
        self._auto_step = False
        if not self._watch.begin_step():
            raise PoolError("a step is running already")

    def _end(self, failed: bool) -> None:
        before, step = self._last, self._end_step()
        self._last = step if step.complete and not failed else None
        if before is not None and self._last is not None and before.signature == step.signature:
            self._profile, self._signature = self._profile_of(before, step), step.signature

    def _end_step(self) -> Recorded:
        """End the marked step and return it."""
        return Recorded(*self._watch.end_step())

    def _profile_of(self, step: Recorded, following: Recorded) -> Profile:
        log, next_log = StepLog(step.events), StepLog(following.events)
        # A step may begin with less alive than its repetitions do: nothing was kept yet.
        alive = following.alive if log.equals(next_log) else step.alive
        steps = steps_in_turn(next_log) if log.equals(next_log) else 1
        if steps == 1:
            profile = profile_step(log, next_log)
        else:
            several = next_log.times(steps)  # as a pool plans them
            profile = profile_step(several, several)
            step, alive = step._replace(site=np.tile(step.site, steps)), np.tile(alive, steps)
        return replace(
            self._noted(profile, step, alive), program=replace(self.program(step.signature), turns=steps)
        )

    def _noted(self, profile: Profile, step: Recorded, alive: npt.NDArray[np.int64]) -> Profile:
        """Add to a step's profile what its events do not say."""
        profile = self._with_sites(profile, step.site)
        return replace(profile, alive=alive) if len(alive) == len(profile) else profile

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
