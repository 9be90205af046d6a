"""Replace an optimizer's `update` while a scheduled step runs, so that parameters are updated in the backward pass.

::

    optimizer.update(loss, x, t)         forward, cleargrads, backward (updates early), the parameters that are left
    loss.backward(); optimizer.update()  the same, if the step watched was one backward pass, then one update

If there is a reason against an early update, or the optimizer has an `update` of its own, Chainer's update runs.

ChainerMN's multi-node optimizers are no optimizers but stand before one: their `update` runs the backward pass,
averages the gradients over all ranks, in an order that all ranks share, and then calls the `update` of the optimizer,
which is the one that is replaced. No parameter can be updated before the average exists, so none is updated early.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from chainer.optimizer import GradientMethod

from ..errors import ScheduleError
from .early import EarlyUpdate, behind, reason_against
from .execution import ScheduledStep

if TYPE_CHECKING:
    from .scheduler import Scheduler

__all__ = ["NESTED", "Updates"]

READ = "gradients are read after the backward pass"
NESTED = "an operator runs a backward pass of its own"
"""Why gradients are kept."""


class Updates:
    """An optimizer's `update` while a step runs: it updates parameters in the backward pass."""

    def __init__(self, scheduler: Scheduler, step: ScheduledStep, optimizer: Any) -> None:
        self._scheduler, self._step, self._outer = scheduler, step, optimizer
        self._optimizer = behind(optimizer)
        self._early: EarlyUpdate | None = None
        self._finished = False

    def __enter__(self) -> None:
        self._own = self._optimizer.__dict__.get("update")
        self._optimizer.update = self.update
        if self._scheduler.one_update:
            self._step.before_backward = self._before_backward

    def __exit__(self, *error: object) -> None:
        early, self._early = self._early, None
        if self._own is None:
            del self._optimizer.__dict__["update"]
        else:
            self._optimizer.update = self._own
        if error[0] is None and early is not None and early.has_begun:
            raise ScheduleError(
                "the step ended without optimizer.update(), and its backward pass has updated parameters, as the first "
                "step's update came after it; expected update(lossfun), or step(schedule=False) for such a step"
            )

    def _original(self) -> Callable[..., None]:
        update: Callable[..., None] = self._own or type(self._optimizer).update.__get__(self._optimizer)
        return update

    def _before_backward(self) -> None:
        """Let the backward pass that is about to begin update parameters; the program updates them after it."""
        self._scheduler.reads.pause()
        cleared = all(param._grad_var is None for param in self._optimizer.target.params())
        if self._early is None and self._step.passes == 1 and cleared:
            self._early = self._early_update()
            self._step.early = self._early

    def _early_update(self) -> EarlyUpdate | None:
        """Return an early update for the coming backward pass, if nothing speaks against it."""
        scheduler, step = self._scheduler, self._step
        if not step.releases or scheduler.stats.keeps_graph is not None:
            return None
        read = READ if scheduler.reads.seen else None
        reason = reason_against(self._outer) or read or (NESTED if step.nested else None)
        if reason is not None:
            scheduler.keep_gradients(reason)
        return EarlyUpdate(self._outer) if scheduler.stats.keeps_gradients is None else None

    def update(self, lossfun: Any = None, *args: Any, **named: Any) -> None:
        """Update the parameters, as `chainer.GradientMethod.update`."""
        optimizer, step = self._optimizer, self._step
        step.updates += 1
        if lossfun is None and self._finished and step.passes == 1:
            raise ScheduleError(
                "a second optimizer.update() in a step, without a backward pass before it: the gradients went with the "
                "first one; expected step(schedule=False) for such a step"
            )
        if lossfun is not None or type(optimizer).update is not GradientMethod.update:
            step.before_backward = self._scheduler.reads.pause
        if type(optimizer).update is not GradientMethod.update:
            self._original()(lossfun, *args, **named)
            step.updated(optimizer.target.params())
            return
        if lossfun is not None:
            loss = lossfun(*args, **named)
            if getattr(optimizer, "_use_cleargrads", True):
                optimizer.target.cleargrads()
            else:
                optimizer.target.zerograds()
            self._early = self._early_update()
            step.early = self._early
            try:
                loss.backward(loss_scale=optimizer._loss_scale)
            finally:
                step.early = None
            del loss
        self._scheduler.reads.pause()
        if self._early is not None:
            early, self._early = self._early, None
            step.early, self._finished = None, True
            step.update_rest(early.finish)
        else:
            step.updates_by_hand |= lossfun is None
            step.update_rest(self._original())
        step.updated(optimizer.target.params())
        self._scheduler.reads.go_on()
