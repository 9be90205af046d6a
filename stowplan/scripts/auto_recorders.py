"""Record a program that does not mention stowplan: NumPy's requests, and CuPy's once the program imports it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ..allocator.backends.numpy_pool import SMALL
from ..import_hooks import when_imported
from .step_markers import steps_go_to

if TYPE_CHECKING:
    from ..profiler import CupyRecorder, NumpyRecorder

    R = TypeVar("R", NumpyRecorder, CupyRecorder)

DEVICES = ("auto", "cpu", "gpu")
"""Whose requests are recorded: ``auto`` means CuPy's if there are any, else NumPy's."""


@dataclass
class Recorders:
    """The recorders of a program.

    Attributes
    ----------
    numpy, cupy
        None if the device rules it out, or as long as the program has not imported CuPy.
    """

    numpy: NumpyRecorder | None = None
    cupy: CupyRecorder | None = None

    def seen(self) -> tuple[str, NumpyRecorder | CupyRecorder] | None:
        """Return the library recorded, by name, and its recorder; None for CuPy's alone without a request."""
        if self.cupy is not None and self.cupy.requests:
            return "CuPy", self.cupy
        return None if self.numpy is None else ("NumPy", self.numpy)


@contextmanager
def recording(device: str = "auto", *, sites: bool = True, small: int | None = None) -> Iterator[Recorders]:
    """Record the requests of this thread.

    Parameters
    ----------
    device
        One of `DEVICES`.
    sites
        Record call sites and, once Chainer is imported, its links and functions.
    small
        Requests below this many bytes are left out. None: those that `NumpyPool` does not plan, and none of CuPy's.
    """
    from ..profiler import NumpyRecorder
    from ..profiler.recorders.call_sites import call_sites

    where = call_sites() if sites else None
    found = Recorders()
    with ExitStack() as stack:

        def watch(recorder: R) -> R:
            stack.enter_context(recorder)
            stack.enter_context(steps_go_to(lambda key: recorder.step()))
            return recorder

        def watch_cupy() -> None:
            from ..profiler import CupyRecorder

            found.cupy = watch(CupyRecorder(auto_step=True, sites=where or False, small=small or 0))

        def name_chainer() -> None:
            from ..profiler.recorders.chainer_names import ChainerNames

            assert where is not None
            stack.enter_context(ChainerNames(where))

        if device != "gpu":
            least = SMALL if small is None else small
            found.numpy = watch(
                NumpyRecorder(auto_step=True, sites=where or False, small=least, threads=True)
            )
        if device != "cpu":
            stack.enter_context(when_imported("cupy", _here(watch_cupy)))
        if where is not None:
            stack.enter_context(when_imported("chainer", _here(name_chainer)))
        yield found


def _here(action: Callable[[], object]) -> Callable[[], None]:
    """Return an action that does nothing in threads other than this one: hooks are local to their thread."""
    thread = threading.get_ident()

    def act() -> None:
        if threading.get_ident() == thread:
            action()

    return act
