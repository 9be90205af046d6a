"""Record the steps of a NumPy program under NumPy's own allocator, without replacing it."""

from __future__ import annotations

import contextvars
from types import TracebackType
from typing import Any

from ..errors import PoolError, ProfileError
from . import _recorder
from .profile import Profile
from .steps import StepLog, profile_step


def default_handler() -> Any:
    """Return NumPy's default memory handler (a capsule): what a fresh context has."""
    return contextvars.Context().run(_recorder.current_handler)


class NumpyRecorder:
    """Watch the NumPy allocations of this context, and make a `Profile` of a step that repeats.

    Every request passes on to NumPy's default handler, so results and addresses are as without the recorder.

    Examples
    --------
    >>> import numpy as np
    >>> recorder = NumpyRecorder()
    >>> with recorder:
    ...     for _ in range(3):
    ...         with recorder.step():
    ...             total = float(np.ones(1000).sum())
    >>> recorder.profile().size.max()
    8000
    """

    def __init__(self) -> None:
        self._host = _recorder.HostRecorder(default_handler())
        self._outer: Any = None
        self._log: StepLog | None = None
        self._profile: Profile | None = None

    def __enter__(self) -> NumpyRecorder:
        if self._outer is not None:
            raise PoolError("this recorder is entered already")
        self._outer = _recorder.set_handler(self._host.handler)
        return self

    def __exit__(self, *error: object) -> None:
        _recorder.set_handler(self._outer)
        self._outer = None

    def step(self) -> _RecordedStep:
        """Return a context manager around one step.

        Raises
        ------
        PoolError
            On entry, where a step is running already.
        """
        return _RecordedStep(self)

    def profile(self) -> Profile:
        """Return the profile of the last step that the following one repeated.

        Raises
        ------
        ProfileError
            No two consecutive steps were equal yet.
        """
        if self._profile is None:
            raise ProfileError("no profile yet: no two consecutive steps asked for the same blocks")
        return self._profile

    def _begin(self) -> None:
        if not self._host.begin_step():
            raise PoolError("a step is running already")

    def _end(self, failed: bool) -> None:
        events, complete = self._host.end_step()
        log = StepLog(events) if complete and not failed else None
        if log is not None and self._log is not None and self._log.equals(log):
            self._profile = profile_step(self._log, log)
        self._log = log


class _RecordedStep:
    def __init__(self, recorder: NumpyRecorder) -> None:
        self._recorder = recorder

    def __enter__(self) -> None:
        self._recorder._begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recorder._end(failed=kind is not None)
