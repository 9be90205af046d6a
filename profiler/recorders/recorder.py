"""What the recorders have in common: pairs of equal steps, marked or loops' passes, and the profile of the first."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ...common.errors import PoolError, ProfileError
from .._recorder import CallSites, StepWatch
from ..profile import Profile
from ..program_log import ProgramLog
from ..program_summary import Holder, Program
from ..recorded_step import Recorded, noted, profile_of
from ..step_candidates import StepCandidate
from ..steps import StepLog, profile_step
from ..unbroken import unbroken, unbroken_context
from .call_sites import call_sites

if TYPE_CHECKING:
    from typing_extensions import Self


class Recorder:
    """Make a `Profile` of a step that repeats. A subclass sets `library`, and passes requests to its `_watch`.

    Parameters
    ----------
    auto_step
        Find the step among the loops of the program, by the call sites of its requests, until a step is marked.
    sites
        Record the call site of each block. If it is a `CallSites`, use it; the caller sets its `asker`.
    """

    library: ClassVar[str]
    _watch: StepWatch
    _small = 0  # bytes below which the program's requests are not noted
    _threads = False  # whether requests of other threads are seen

    def __init__(self, auto_step: bool, sites: bool | CallSites) -> None:
        self._auto_step = auto_step
        self._names_askers = sites is True
        self._sites = sites if isinstance(sites, CallSites) else call_sites() if sites else None
        self._entered: ExitStack | None = None
        self._last: Recorded | None = None  # of the marked steps, if nothing of it was lost
        self._profile: Profile | None = None
        self._signature, self._turns = 0, 1  # of the profile's step; steps that the profile covers

    @unbroken
    def __enter__(self) -> Self:
        if self._entered is not None:
            raise PoolError("this recorder is entered already")
        with ExitStack() as stack:
            if self._names_askers and self._sites is not None and "chainer" in sys.modules:
                from .chainer_names import ChainerNames

                stack.enter_context(ChainerNames(self._sites))
            if self._sites is not None:
                self._sites.begin_here()
            if self._auto_step:
                self._watch.log_all()
            self._begin(stack)
            self._entered = stack.pop_all()
        return self

    @unbroken
    def __exit__(self, *error: object) -> None:
        entered, self._entered = self._entered, None
        if entered is not None:
            entered.close()

    def _begin(self, undone: ExitStack) -> None:
        """Begin to watch; give what ends that to a stack."""

    @property
    def requests(self) -> int:
        """Requests seen so far, in steps or not."""
        return self._watch.program(0)["requests"]

    @unbroken_context
    def step(self) -> Iterator[None]:
        """Return a context manager around one step. An exception passes through, and its step is not recorded.

        Raises
        ------
        PoolError
            On entry, if a step is running already.
        """
        self._auto_step = False
        if not self._watch.begin_step():
            raise PoolError("a step is running already")
        is_whole = False
        try:
            yield
            is_whole = True
        finally:
            self._end(is_whole)

    def profile(self) -> Profile:
        """Return the profile of the last step that the following one repeated.

        If steps were found, it is the one of the `candidates` that is chosen.

        Raises
        ------
        ProfileError
            There has been no such step; or it was to be found, and call sites are not recorded.
        """
        for candidate in self.candidates():
            if candidate.chosen:
                return candidate.profile
        if self._profile is None:
            if self._auto_step and self._sites is None:
                raise ProfileError(
                    "no profile: steps are found by their call sites, which are not recorded; expected sites=True, or "
                    "each step within `with recorder.step():`"
                )
            steps = "passes of a loop" if self._auto_step else "steps (`with recorder.step():`)"
            raise ProfileError(f"no profile yet; expected: two {steps} in a row, of the same blocks")
        return replace(self._profile, program=replace(self.program(self._signature), turns=self._turns))

    def candidates(self) -> list[StepCandidate]:
        """Return the steps that were found, in the order of the program.

        None where steps were marked, or call sites are not recorded.

        Each is a loop of the program, and its profile one pass that the next one repeated, if there is such a pass. See
        ``stowplan.profiler.step_candidates``.
        """
        if not self._auto_step or self._sites is None:
            return []
        from ..step_selection import candidates_of

        with self._unwatched():
            return candidates_of(self._watch, self._sites, self.program())

    def whole(self) -> Profile:
        """Return the profile of everything recorded as one step; if steps were marked, of the last one.

        What is still alive at the end counts as freed there.
        """
        with self._unwatched():
            program = self.program()
            if self._auto_step:
                log = ProgramLog.of_segments(self._watch.segments())
                begin = log.gaps[-1] if log.gaps else 0
                self._last = log.recorded([begin], len(log)) if len(log) else None
            if self._last is None:
                none = np.empty(0, dtype=np.int64)
                return Profile(none, none, none, program=program)
            profile = profile_step(StepLog(self._last.events), StepLog(self._last.events[:0]))
            end = np.where(profile.wrapped, profile.period, profile.end)
            profile = noted(replace(profile, end=end), self._last.site, self._last.alive, self._names())
            return replace(profile, program=program)

    def program(self, signature: int = 0) -> Program:
        """Return the counts of the program so far, its repeats those of the step with a signature."""
        counts = self._watch.program(signature)
        counts["live_peak"] = counts.pop("peak")
        holders = tuple(Holder(site or "", *held) for site, *held in self._watch.at_peak())
        return Program(
            library=self.library, small=self._small, threads=self._threads, holders=holders, **counts
        )

    def _end(self, is_whole: bool) -> None:
        with self._unwatched():
            before, step = self._last, self._end_step()
            self._last = step if step.complete and is_whole else None
            if before is not None and self._last is not None and before.signature == step.signature:
                self._profile, self._turns = profile_of(before, step, self._names())
                self._signature = step.signature

    def _unwatched(self) -> AbstractContextManager[None]:
        """Return a context in which the recorder's own arrays are made: they are none of the program's."""
        return nullcontext()

    def _end_step(self) -> Recorded:
        """End the marked step and return it."""
        return Recorded(*self._watch.end_step())

    def _names(self) -> list[str]:
        return [] if self._sites is None else self._sites.sites
