"""Record the steps of a NumPy program under NumPy's own allocator, without replacing it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from types import FrameType
from typing import Any

from .. import _recorder
from ..default_handler import default_handler
from ..unbroken import unbroken_context
from .recorder import Recorder


class NumpyRecorder(Recorder):
    """Watch the NumPy allocations of this context, and make a `Profile` of a step that repeats.

    Every request is passed on, by default to NumPy's own handler, so results and addresses are as without the recorder.

    Parameters
    ----------
    auto_step
        Find the step among the loops of the program, by the call sites of its requests, until a step is marked.
    sites
        Record the call site of each block: the innermost line of the user's own code, and, if Chainer has been imported
        when the recorder is entered, the link and the function that asked.
    small
        Requests below this many bytes are not recorded.
    upstream
        The memory handler that requests are passed on to; None: NumPy's default one.
    threads
        Count, besides this context's requests, those of the threads that ``threading`` starts from now on: they lie in
        no step, but the program's live peak has them. By ``threading.setprofile``, for one call in each thread.

    Raises
    ------
    PoolError
        The recorder is entered twice.

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

    library = "NumPy"

    def __init__(
        self,
        *,
        auto_step: bool = False,
        sites: bool | _recorder.CallSites = False,
        small: int = 0,
        threads: bool = False,
        upstream: Any = None,
    ) -> None:
        super().__init__(auto_step, sites)
        self._small, self._threads = small, threads
        self._watch = self._host = _recorder.HostRecorder(
            default_handler() if upstream is None else upstream, small, self._sites
        )
        self._threads_before: Any = None

    def _begin(self, undone: ExitStack) -> None:
        undone.callback(_recorder.set_handler, _recorder.set_handler(self._host.handler))
        if self._threads:
            self._threads_before = threading.getprofile()
            threading.setprofile(self._enter_thread)
            undone.callback(self._leave_threads)

    def _leave_threads(self) -> None:
        if threading.getprofile() == self._enter_thread:
            threading.setprofile(self._threads_before)

    @unbroken_context
    def _unwatched(self) -> Iterator[None]:
        watched = _recorder.set_handler(default_handler())
        try:
            yield
        finally:
            _recorder.set_handler(watched)

    def _enter_thread(self, frame: FrameType, event: str, argument: object) -> None:
        """Watch a thread that has just begun: its context is its own."""
        sys.setprofile(self._threads_before)
        _recorder.set_handler(self._host.handler)
