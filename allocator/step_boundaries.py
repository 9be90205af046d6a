"""Steps that frameworks tell: where an optimizer's update has ended, a step ends, and the next one begins.

::

    forward  backward  update | forward  backward  update | forward ...
        belongs to no step    ^ told                      ^ told: a step of the thread ends, its next one begins

All of Chainer's optimizers update by `GradientMethod.update`, those within ChainerMN's, too; for PyTorch's there is a
public hook. A framework is hooked once a pool asks to be told (`listen`), as soon as the program imports it, and for
good. An update within an update, of an optimizer that another one wraps, tells nothing. Nor does one in an interrupted
part, or where the pool does not serve.

An update that an exception leaves tells nothing, either; the step that it was in is no record. O(depth of the stack)
for each update.
"""

from __future__ import annotations

import functools
import sys
import threading
from contextlib import suppress
from importlib.util import find_spec
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..common.errors import PoolError
from ..common.import_hooks import once_imported
from ._core import Step, pools

if TYPE_CHECKING:
    from .lanes import Lanes

NOBODY_TELLS = (
    "steps are told by the optimizers of Chainer and PyTorch, and neither is installed; expected the loop's body "
    "within `with pool.step():` or `with stowplan.step():`, or `stowplan run --step-function MODULE:FUNCTION`. "
    "Without auto_step a pool serves without steps, too"
)


class _Updates(threading.local):
    """The outermost updates of a thread that have begun since one ended."""

    begun = 0


_updates = _Updates()


def can_be_told() -> bool:
    """Whether there is a framework that tells steps."""
    return any(sys.modules.get(name) or find_spec(name) for name in ("chainer", "torch"))


@functools.cache
def listen() -> None:
    """Have the frameworks tell all pools when an optimizer updates, once they are imported.

    Raises
    ------
    PoolError
        None is installed.
    """
    if not can_be_told():
        raise PoolError(NOBODY_TELLS)
    once_imported("chainer.optimizer", _hook_chainer)
    once_imported("torch.optim.optimizer", _hook_torch)


def _hook_chainer() -> None:
    from chainer.optimizer import GradientMethod

    plain = GradientMethod.update

    @functools.wraps(plain)
    def update(*args: Any, **named: Any) -> Any:
        _began(sys._getframe())
        result = plain(*args, **named)
        _ended(sys._getframe())
        return result

    GradientMethod.update = update


def _hook_torch() -> None:
    with suppress(ImportError):  # a PyTorch before 2.0 has no hooks of all optimizers
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        # They are called in one function, which each optimizer's step is within.
        register_optimizer_step_pre_hook(lambda *_: _began(sys._getframe(1)))
        register_optimizer_step_post_hook(lambda *_: _ended(sys._getframe(1)))


def _is_outermost(update: FrameType) -> bool:
    """Whether no frame around this one runs the same code."""
    frame = update.f_back
    while frame is not None and frame.f_code is not update.f_code:
        frame = frame.f_back
    return frame is None


def _began(update: FrameType) -> None:
    if _is_outermost(update):
        _updates.begun += 1


def _ended(update: FrameType) -> None:
    if not _is_outermost(update):
        return
    is_whole, _updates.begun = _updates.begun == 1, 0
    for pool in pools():
        if not pool._told.is_over:
            pool._told.update_ended(pool._told_lanes(), is_whole)


class _Running:
    """The step that was told last, and may be running, of the process."""

    step: Step | None = None

    def end(self, is_whole: bool) -> None:
        """End it, if it has not ended; it is a record only as a whole."""
        if self.step is not None:
            self.step.__exit__(None, None if is_whole else PoolError("cut off"), None)


class _RunningHere(_Running, threading.local):
    """That of each thread."""


class ToldSteps:
    """The steps that a pool is told, on all of its devices.

    Attributes
    ----------
    is_over
        Whether it is told none any more.
    mutex
        Is held while steps begin and end.
    """

    def __init__(self, *, is_over: bool) -> None:
        self.is_over = is_over
        self.mutex = threading.Lock()
        self._by_lanes: dict[Lanes, _Running] = {}

    def update_ended(self, lanes: Lanes | None, is_whole: bool) -> None:
        """End this thread's step, and begin its next one; `is_whole`: no update in it was cut off."""
        with self.mutex, suppress(PoolError):  # the part is interrupted, or steps are refused
            if lanes is None or self.is_over:
                return
            lanes.check()
            if lanes not in self._by_lanes:
                self._by_lanes[lanes] = _Running() if lanes.of_process else _RunningHere()
            running = self._by_lanes[lanes]
            running.end(is_whole)
            running.step = Step(lanes, None, False)  # before it begins, so that no signal loses it
            running.step.__enter__()

    def end_here(self) -> None:
        """End this thread's steps: the pool serves it no longer."""
        if not self.is_over:
            with self.mutex:
                self._end_here()

    def _end_here(self) -> None:
        for running in self._by_lanes.values():
            running.end(is_whole=False)

    def end(self, *, for_good: bool = False) -> None:
        """End the steps of all threads; `for_good`: be told none any more, as steps are marked."""
        if self.is_over:
            return
        with self.mutex:
            if not self.is_over:
                self._end_here()
                for lanes in self._by_lanes:
                    lanes.backend.end_steps_of_others()
            self.is_over |= for_good
