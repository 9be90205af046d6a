"""Recorders for a program that knows nothing of them: of NumPy's requests, and of CuPy's once it imports CuPy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from .allocator.numpy_pool import SMALL
from .imports import when_imported
from .marks import steps_go_to

if TYPE_CHECKING:
    from .profiler import CupyRecorder, NumpyRecorder

    R = TypeVar("R", NumpyRecorder, CupyRecorder)

DEVICES = ("auto", "cpu", "gpu")
"""Whose requests: CuPy's if there are any, else NumPy's; NumPy's; CuPy's."""


@dataclass
class Recording:
    """Who watches a program.

    Attributes
    ----------
    numpy, cupy
        None where that one does not watch, or does not yet.
    """

    numpy: NumpyRecorder | None = None
    cupy: CupyRecorder | None = None

    def seen(self) -> tuple[str, NumpyRecorder | CupyRecorder] | None:
        """Return whose requests were seen, by name, and their recorder; None where there is nothing to say."""
        if self.cupy is not None and self.cupy.requests:
            return "CuPy", self.cupy
        return None if self.numpy is None else ("NumPy", self.numpy)


@contextmanager
def recording(device: str = "auto", *, sites: bool = True, small: int | None = None) -> Iterator[Recording]:
    """Watch what this thread asks for.

    Parameters
    ----------
    device
        One of `DEVICES`.
    sites
        Note call sites, and, once Chainer is imported, its links and functions.
    small
        Requests below this many bytes are left out. None: those that `NumpyPool` leaves to NumPy, and none of CuPy's.
    """
    from .profiler import NumpyRecorder
    from .profiler.call_sites import call_sites

    where = call_sites() if sites else None
    watching = Recording()
    with ExitStack() as stack:

        def watch(recorder: R) -> R:
            stack.enter_context(recorder)
            stack.enter_context(steps_go_to(lambda key: recorder.step()))
            return recorder

        def watch_cupy() -> None:
            from .profiler import CupyRecorder

            watching.cupy = watch(CupyRecorder(auto_step=True, sites=where or False, small=small or 0))

        def name_chainer() -> None:
            from .profiler.chainer_names import ChainerNames

            assert where is not None
            stack.enter_context(ChainerNames(where))

        if device != "gpu":
            least = SMALL if small is None else small
            watching.numpy = watch(NumpyRecorder(auto_step=True, sites=where or False, small=least))
        if device != "cpu":
            stack.enter_context(when_imported("cupy", _here(watch_cupy)))
        if where is not None:
            stack.enter_context(when_imported("chainer", _here(name_chainer)))
        yield watching


def _here(action: Callable[[], object]) -> Callable[[], None]:
    """Have an action do nothing in other threads than this one: hooks are local to their thread."""
    thread = threading.get_ident()

    def act() -> None:
        if threading.get_ident() == thread:
            action()

    return act
