"""Record the step graph of a program that knows nothing of stowplan, while it trains with Chainer.

`chainer.GradientMethod.update`, the class's, is replaced while a recorder is entered. The first optimizer that comes by
has a few steps run through a scheduler's phases: watched, recorded, timed. Where a step begins depends on the form::

    optimizer.update(lossfun, x, t)         the call is the step: forward, backward and update
    loss.backward(); optimizer.update()     a step is all from the end of one update to the end of the next: the first
                                            one is not seen

Then the replaced function steps aside, and the program goes on as it would have.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from .imports import when_imported

if TYPE_CHECKING:
    from .chainer.graph_recorder import GraphRecorder as Recorder
    from .scheduling import StepGraph

__all__ = ["GraphRecorder", "recording_graph"]


class GraphRecorder:
    """Records the steps of the first optimizer that updates, in the thread that made it.

    Attributes
    ----------
    graph
        The step graph, once it is known.
    updates
        Calls of `chainer.GradientMethod.update` that were seen.
    reason
        Why there is no graph though there were updates; None where not enough of them came.
    """

    def __init__(self, done: Callable[[StepGraph], object]) -> None:
        self.graph: StepGraph | None = None
        self.updates = 0
        self.reason: str | None = None
        self._done = done
        self._thread = threading.get_ident()
        self._optimizer: Any = None
        self._scheduler: Recorder | None = None
        self._steps_left = 0
        self._inside = False
        self._open: AbstractContextManager[None] | None = None  # a step that ends with the next update

    def install(self) -> Callable[[], None]:
        """Replace Chainer's method; return what puts it back. Chainer is imported."""
        from .compat import enable_chainer

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
        self._begin(optimizer)
        return True

    def _begin(self, optimizer: Any) -> None:
        from .chainer.graph_recorder import STEPS
        from .chainer.graph_recorder import GraphRecorder as Recorder

        self._optimizer = optimizer
        self._scheduler = Recorder(optimizer)
        self._steps_left = STEPS

    def _update(
        self, own: Callable[..., None], optimizer: Any, lossfun: Any, *args: Any, **named: Any
    ) -> None:
        assert self._scheduler is not None
        self._inside = True
        try:
            if lossfun is not None:
                with self._scheduler.step():
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
        """Begin a step here, and have the optimizer's next update end it."""
        assert self._scheduler is not None
        self._open = self._scheduler.step()
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
        """Give up a step that has not come to its end."""
        step, self._open = self._open, None
        if step is not None:
            step.__exit__(_Abandoned, _Abandoned(), None)

    def _count(self) -> None:
        """Take in a step that is over; the last one gives the graph."""
        assert self._scheduler is not None
        self._steps_left -= 1
        if self._steps_left:
            return
        self.graph = self._scheduler.graph
        if self.graph is None:
            self.reason = "its steps apply no function of Chainer's"
            return
        self._scheduler = None
        self._done(self.graph)


class _Abandoned(BaseException):
    """Ends a step that the program has not brought to its end."""


@contextmanager
def recording_graph(done: Callable[[StepGraph], object]) -> Iterator[GraphRecorder]:
    """Record, while entered, the step graph of the first optimizer of Chainer's that updates in this thread.

    Parameters
    ----------
    done
        Called with the graph as soon as it is known.
    """
    recorder = GraphRecorder(done)
    put_back: list[Callable[[], None]] = []
    with when_imported("chainer", lambda: put_back.append(recorder.install())):
        try:
            yield recorder
        finally:
            for back in put_back:
                back()
