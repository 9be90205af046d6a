"""Record the step graph of a program that does not mention stowplan, while it trains with Chainer.

While a recorder is entered, it replaces the method `chainer.GradientMethod.update`. It records and times a few steps of
the first optimizer that calls it. Where a step begins depends on how the program updates::

    optimizer.update(lossfun, x, t)         the call is the step: forward, backward and update
    loss.backward(); optimizer.update()     a step lasts from the end of one update to the end of the next: the first
                                            one is not seen

After these steps the replaced method only passes calls on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from ...import_hooks import when_imported

if TYPE_CHECKING:
    from ...chainer.graph_recorder import GraphRecorder
    from ...scheduling import StepGraph

__all__ = ["AutoGraphRecorder", "recording_graph"]


class AutoGraphRecorder:
    """Records the steps of the first optimizer that updates, in the thread that made it.

    Attributes
    ----------
    graph
        The step graph, once it is known.
    updates
        Number of calls of `chainer.GradientMethod.update` seen.
    reason
        Why the updates seen give no graph; None if there is one, or if only too few updates came.
    """

    def __init__(self, done: Callable[[StepGraph], object]) -> None:
        self.graph: StepGraph | None = None
        self.updates = 0
        self.reason: str | None = None
        self._done = done
        self._thread = threading.get_ident()
        self._optimizer: Any = None
        self._recorder: GraphRecorder | None = None
        self._steps_left = 0
        self._inside = False
        self._open: AbstractContextManager[None] | None = None  # a step that ends with the next update

    def install(self) -> Callable[[], None]:
        """Replace Chainer's method; return a function that puts it back. Imports Chainer."""
        from ...compat import enable_chainer

        enable_chainer()
        from chainer.optimizer import GradientMethod

        own = GradientMethod.update

        def update(optimizer: Any, lossfun: Any = None, *args: Any, **named: Any) -> None:
            if self._takes(optimizer):
                self._update(own, optimizer, lossfun, *args, **named)
            else:
                own(optimizer, lossfun, *args, **named)

        def put_back() -> None:
            self._leave_open_step()
            if GradientMethod.update is update:
                GradientMethod.update = own

        GradientMethod.update = update
        return put_back

    def _takes(self, optimizer: Any) -> bool:
        """Whether an update is to be recorded."""
        if self._inside or threading.get_ident() != self._thread:
            return False
        self.updates += 1
        if self.graph is not None or self.reason is not None:
            return False
        if self._optimizer is not None:
            return optimizer is self._optimizer
        from chainer.optimizer import GradientMethod

        if type(optimizer).update is not GradientMethod.update:
            self.reason = f"{type(optimizer).__name__} has an update of its own"
            return False
        from ...chainer.graph_recorder import STEPS, GraphRecorder

        self._optimizer = optimizer
        self._recorder = GraphRecorder(optimizer)
        self._steps_left = STEPS
        return True

    def _update(
        self, own: Callable[..., None], optimizer: Any, lossfun: Any, *args: Any, **named: Any
    ) -> None:
        assert self._recorder is not None
        self._inside = True
        try:
            if lossfun is not None:
                with self._recorder.step():
                    optimizer.update(lossfun, *args, **named)  # the step's own now
            else:
                own(optimizer, *args, **named)
        finally:
            self._inside = False
        if lossfun is not None:
            self._count()
        else:
            self._open_step()

    # --- steps that end with the next update --------------------------------------------------------------------------

    def _open_step(self) -> None:
        """Begin a step here, which the optimizer's next update ends."""
        assert self._recorder is not None
        self._open = self._recorder.step()
        self._open.__enter__()
        update: Callable[..., None] = (
            self._optimizer.update
        )  # the step's own, which goes when the step is left

        def update_and_leave(*args: Any, **named: Any) -> None:
            self._inside = True
            self.updates += 1
            try:
                update(*args, **named)
            except BaseException:
                self._leave_open_step()
                raise
            finally:
                self._inside = False
            step, self._open = self._open, None
            assert step is not None
            step.__exit__(None, None, None)
            self._count()
            if self.graph is None and self.reason is None:
                self._open_step()

        self._optimizer.update = update_and_leave

    def _leave_open_step(self) -> None:
        """Abandon a step that has not ended."""
        step, self._open = self._open, None
        if step is not None:
            step.__exit__(_Abandoned, _Abandoned(), None)

    def _count(self) -> None:
        """Count a finished step; after the last one take its graph."""
        assert self._recorder is not None
        self._steps_left -= 1
        if self._steps_left:
            return
        self.graph = self._recorder.graph
        if self.graph is None:
            self.reason = "its steps apply no function of Chainer's"
            return
        self._recorder = None
        self._done(self.graph)


class _Abandoned(BaseException):
    """Passed to a step that is abandoned."""


@contextmanager
def recording_graph(done: Callable[[StepGraph], object]) -> Iterator[AutoGraphRecorder]:
    """Record, while entered, the step graph of the first Chainer optimizer that updates in this thread.

    Parameters
    ----------
    done
        Called with the graph as soon as it is known.
    """
    recorder = AutoGraphRecorder(done)
    put_back: list[Callable[[], None]] = []
    with when_imported("chainer", lambda: put_back.append(recorder.install())):
        try:
            yield recorder
        finally:
            for back in put_back:
                back()
