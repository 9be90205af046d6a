"""Record the step graph of the steps that a Chainer program marks, by ``stowplan.step()`` or ``--step-function``.

The first marked step that updates parameters tells which optimizers do. The next ones of its key are recorded and timed
operator by operator (`stowplan.chainer.graph_recorder`), until the graph is known; later ones only run.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...common.units import counted

if TYPE_CHECKING:
    from ...chainer.graph_recorder import GraphRecorder
    from ...scheduling import StepGraph


class MarkedGraphRecorder:
    """Records the marked steps of the thread that made it.

    Parameters
    ----------
    done
        Called with the graph as soon as it is known.

    Attributes
    ----------
    graph
        The step graph, once it is known.
    """

    def __init__(self, done: Callable[[StepGraph], object]) -> None:
        self.graph: StepGraph | None = None
        self._done = done
        self._thread = threading.get_ident()
        self._steps = 0
        self._key: Hashable = None
        self._left = 0  # steps to be recorded
        self._recorder: GraphRecorder | None = None
        self._refused: str | None = None

    @contextmanager
    def step(self, key: Hashable) -> Iterator[None]:
        """Surround a marked step: the function that `steps_go_to` takes."""
        if threading.get_ident() != self._thread or self.graph is not None or self._refused is not None:
            yield
            return
        self._steps += 1
        if self._recorder is None:
            with _updating() as optimizers:
                yield
            self._record(optimizers, key)
        elif key != self._key:
            yield
        else:
            with self._recorder.step():
                yield
            self._left -= 1
            if self._left:
                return
            self.graph = self._recorder.graph
            if self.graph is not None:
                self._done(self.graph)
            else:
                self._refused = self._recorder.stats.unrecorded or "its steps apply no function of Chainer's"

    def _record(self, optimizers: list[Any], key: Hashable) -> None:
        """Record the next steps of this key, if these optimizers let that be done."""
        if not optimizers:
            return
        from chainer.optimizer import GradientMethod

        own = [type(one).__name__ for one in optimizers if type(one).update is not GradientMethod.update]
        if own:
            self._refused = f"{own[0]} has an update of its own"
            return
        from ...chainer.graph_recorder import STEPS, GraphRecorder

        self._key, self._left, self._recorder = key, STEPS, GraphRecorder(optimizers)

    @property
    def why_none(self) -> str:
        """Tell why there is no graph, and what was expected."""
        if not self._steps:
            return (
                "no step was marked; expected `with stowplan.step():` around the body of the training loop, or "
                "--step-function MODULE:FUNCTION"
            )
        seen = f"{counted(self._steps, 'marked step')} seen"
        if self._refused is not None:
            return f"{seen}, but {self._refused}"
        if self._recorder is None:
            return f"{seen}, in none of which an optimizer of Chainer's updated"
        return f"{seen}; expected {self._left} more that apply Chainer's functions and update"


@contextmanager
def _updating() -> Iterator[list[Any]]:
    """Collect the optimizers of Chainer's that update in this thread while this is entered."""
    found: list[Any] = []
    if "chainer" not in sys.modules:
        yield found
        return
    from chainer.optimizer import GradientMethod

    own, thread = GradientMethod.update, threading.get_ident()

    def update(optimizer: Any, *args: Any, **named: Any) -> None:
        if threading.get_ident() == thread and all(optimizer is not one for one in found):
            found.append(optimizer)
        own(optimizer, *args, **named)

    GradientMethod.update = update
    try:
        yield found
    finally:
        GradientMethod.update = own
