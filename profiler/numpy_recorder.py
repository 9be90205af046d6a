"""Record the steps of a NumPy program under NumPy's own allocator, without replacing it."""

from __future__ import annotations

import contextvars
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import PoolError
from . import _recorder
from .recorder import Recorder


def default_handler() -> Any:
    """Return NumPy's default memory handler (a capsule): what a fresh context has."""
    return contextvars.Context().run(_recorder.current_handler)


class NumpyRecorder(Recorder):
    """Watch the NumPy allocations of this context, and make a `Profile` of a step that repeats.

    Every request passes on to NumPy's default handler, so results and addresses are as without the recorder.

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

    def __init__(self) -> None:
        super().__init__()
        self._host = _recorder.HostRecorder(default_handler())
        self._outer: Any = None

    def __enter__(self) -> NumpyRecorder:
        if self._outer is not None:
            raise PoolError("this recorder is entered already")
        self._outer = _recorder.set_handler(self._host.handler)
        return self

    def __exit__(self, *error: object) -> None:
        _recorder.set_handler(self._outer)
        self._outer = None

    def _begin_step(self) -> bool:
        return self._host.begin_step()

    def _end_step(self) -> tuple[npt.NDArray[np.void], bool]:
        return self._host.end_step()
