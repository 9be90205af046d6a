"""Record a program that does not mention stowplan: NumPy's requests; CuPy's and PyTorch's once it imports them."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from ...allocator.backends.numpy_pool import SMALL
from ...allocator.backends.torch_pool import SMALL as SMALL_OF_TORCH
from ...common.errors import MissingDependencyError
from ...common.import_hooks import once_imported
from .step_markers import steps_go_to

if TYPE_CHECKING:
    from ...profiler.recorders.recorder import Recorder

DEVICES = ("auto", "cpu", "gpu", "torch")
"""Whose requests are recorded: NumPy's, CuPy's, those of PyTorch's CPU tensors; ``auto``: of all of them."""


def seen(recorders: dict[str, Recorder]) -> Recorder | None:
    """Return CuPy's recorder if it saw a request, else NumPy's or PyTorch's, whichever saw more bytes; or None."""
    if "CuPy" in recorders and recorders["CuPy"].requests:
        return recorders["CuPy"]
    host = [recorders[name] for name in ("NumPy", "PyTorch") if name in recorders]
    return max(host, key=lambda recorder: recorder.program().bytes, default=None)


@contextmanager
def recording(
    device: str = "auto", *, sites: bool = True, small: int | None = None, stacks: int = 0, callers: int = 0
) -> Iterator[dict[str, Recorder]]:
    """Record the requests of this thread, and of PyTorch's CPU tensors on all threads; yield recorders by library.

    CuPy's and PyTorch's are among them once the program has imported these.

    Where PyTorch's cannot be recorded, for want of a compiler, there is a RuntimeWarning, or, if they are the only ones
    requested, an error in the program's import.

    Parameters
    ----------
    device
        One of `DEVICES`.
    sites
        Record call sites and, once Chainer is imported, its links and functions.
    small
        Requests below this many bytes are left out. None: those that `NumpyPool` and `TorchPool` do not plan, and none
        of CuPy's.
    stacks
        Calls of a library that a call site has besides the user's own line.
    callers
        Lines of the user's that called that line, and are part of a call site.
    """
    from ...profiler import NumpyRecorder
    from ...profiler.recorders.call_sites import call_sites

    where = call_sites(stacks, callers) if sites else None
    found: dict[str, Recorder] = {}
    with ExitStack() as stack:

        def watch(recorder: Recorder) -> None:
            stack.enter_context(recorder)
            stack.enter_context(steps_go_to(lambda key: recorder.step()))
            found[recorder.library] = recorder

        def watch_cupy() -> None:
            from ...profiler import CupyRecorder

            watch(CupyRecorder(auto_step=True, sites=where or False, small=small or 0))

        def watch_torch() -> None:
            from ...profiler import TorchRecorder

            least = SMALL_OF_TORCH if small is None else small
            try:
                watch(TorchRecorder(auto_step=True, sites=where or False, small=least))
            except MissingDependencyError as error:
                if device == "torch":
                    raise
                warnings.warn(f"PyTorch's tensors are not recorded: {error}", RuntimeWarning, stacklevel=2)

        def name_chainer() -> None:
            from ...profiler.recorders.chainer_names import ChainerNames

            assert where is not None
            stack.enter_context(ChainerNames(where))

        if device in ("auto", "cpu"):
            least = SMALL if small is None else small
            watch(NumpyRecorder(auto_step=True, sites=where or False, small=least, threads=True))
        if device in ("auto", "gpu"):
            stack.callback(once_imported("cupy", _here(watch_cupy)))
        if device in ("auto", "torch"):
            stack.callback(once_imported("torch", watch_torch))
        if where is not None:
            stack.callback(once_imported("chainer", _here(name_chainer)))
        yield found


def _here(action: Callable[[], object]) -> Callable[[], None]:
    """Return an action that does nothing in threads other than this one: hooks are local to their thread."""
    thread = threading.get_ident()

    def act() -> None:
        if threading.get_ident() == thread:
            action()

    return act
