"""Record the steps of a NumPy program under NumPy's own allocator, without replacing it."""

from __future__ import annotations

import contextvars
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import PoolError
from . import _recorder
from .call_sites import call_sites
from .profile import Profile
from .recorder import Recorder
from .steps import EVENT_DTYPE, StepLog, profile_step


def default_handler() -> Any:
    """Return NumPy's default memory handler (a capsule): what a fresh context has."""
    return contextvars.Context().run(_recorder.current_handler)


class NumpyRecorder(Recorder):
    """Watch the NumPy allocations of this context, and make a `Profile` of a step that repeats.

    Every request passes on to NumPy's default handler, so results and addresses are as without the recorder.

    Parameters
    ----------
    auto_step
        Find the step that the program repeats, until one is marked. The profile is that of the largest one found.
    sites
        Note the call site of each block: the innermost line of the user's own code.
    small
        Requests below this many bytes are not recorded.

    Examples
    --------
    >>> import numpy as np
    >>> from stowplan import NumpyRecorder
    >>> recorder = NumpyRecorder()
    >>> with recorder:
    ...     for _ in range(3):
    ...         with recorder.step():
    ...             total = float(np.ones(1000).sum())
    >>> int(recorder.profile().size.max())
    8000
    """

    def __init__(self, *, auto_step: bool = False, sites: bool = False, small: int = 0) -> None:
        super().__init__()
        self._sites = call_sites() if sites else None
        self._host = _recorder.HostRecorder(default_handler(), small, self._sites)
        self._auto_step = auto_step
        self._outer: Any = None

    def __enter__(self) -> NumpyRecorder:
        if self._outer is not None:
            raise PoolError("this recorder is entered already")
        if self._auto_step:
            self._host.find_steps()
        self._outer = _recorder.set_handler(self._host.handler)
        return self

    def __exit__(self, *error: object) -> None:
        _recorder.set_handler(self._outer)
        self._outer = None

    def whole(self) -> Profile:
        """Return all that was recorded as one step; of marked steps the last."""
        if self._auto_step:
            events, _, self._site_before = self._host.end_step()
            self._log = StepLog(events)
        log = StepLog(np.empty(0, EVENT_DTYPE)) if self._log is None else self._log
        return self._with_sites(profile_step(log, StepLog(log.events[:0])), self._site_before)

    def _look_for_profile(self) -> None:
        found = self._host.found() if self._auto_step else None
        if found is not None:
            (events, _, site), (following, *_) = found
            self._profile = self._with_sites(profile_step(StepLog(events), StepLog(following)), site)

    def _begin_step(self) -> bool:
        self._auto_step = False
        return self._host.begin_step()

    def _end_step(self) -> tuple[npt.NDArray[np.void], bool]:
        events, complete, self._site = self._host.end_step()
        return events, complete
