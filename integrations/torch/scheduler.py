"""Training within a budget of bytes: each step runs by a plan that is of it.

::

    model, loss, batch     capture        forward and backward as ATen operators, and guards on what they are made from
    graph                  plans          scheduled, and written as a graph module
    call                   here           runs the plan whose guards it passes, on its own tensors

A step that fails a guard is captured and planned again; after ``torch._dynamo.config.recompile_limit`` plans, steps
that none of them is for run as in plain PyTorch, or raise.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any
from weakref import proxy

import numpy as np
import torch
from torch import nn
from torch.fx import GraphModule

from ..allocator.pool import Pool
from ..common.errors import GraphError, ScheduleError
from ..scheduling.solve import Solution
from .budgets import Within
from .capture import Captured, LimitReachedError
from .guards import (
    require_alone,
    require_no_autocast,
    require_no_catch,
    require_no_effects,
    situation,
    switches,
)
from .plans import Plan, Planner, StepStats
from .seams import ELSEWHERE, dynamo, pytree
from .updates import BeforeUpdate, layout_of, left, reason_against_early, require_served, update_all

Loss = Callable[..., torch.Tensor]


class _Planned(Exception):  # noqa: N818 (no error)
    """Ends a call that was to plan only."""


class _Stale(Exception):  # noqa: N818 (no error)
    """A plan's call found its tensors in another situation; nothing has run."""


class ScheduledTraining:
    """Training steps that keep to a budget: what `schedule` returns.

    The model and the optimizer stay the user's own. Between steps all of them may change: what a plan was made from is
    guarded, by ``torch.compile``'s guards, and a step that fails one is planned again.
    """

    def __init__(self, planner: Planner, loss: Loss | None, pool: Pool | None, *, strict: bool) -> None:
        self._planner, self._loss, self._pool, self._strict = planner, loss, pool, strict
        self._model, self._optimizer = planner.model, planner.optimizer
        self._frames: dict[Any, Captured] = {}
        self._plans: list[Plan] = []
        self._latest: Plan | None = None
        self._accumulates = self._only_plans = self._is_full = False
        self._ran: Plan | None = None
        self._batch: tuple[Any, ...] = ()
        self._key: Any = None
        self._unseen: dict[str, Any] = {}
        self._reason, self._stale, self._steps, self._plain_steps = "", "the first step", 0, 0

    def step(self, *batch: Any) -> torch.Tensor:
        """Run a training step: forward, backward, update. Return the loss.

        The gradients of the optimizer's parameters are None afterwards, as after ``optimizer.zero_grad()``; those that
        there were before are part of the update, as in PyTorch.

        Parameters
        ----------
        batch
            What the loss takes after the model, or the model itself where there is no loss. What is no tensor is part
            of the plan: another value makes another plan.

        Raises
        ------
        GraphError, BudgetError, ScheduleError
            As `plan` does, before anything has run.
        """
        self._accumulates = False
        before = {id(one) for one in left(self._optimizer)}
        loss, planned = self._run(batch)
        others = left(self._optimizer)  # of parameters that this step does not use
        if planned and any(id(one) not in before for one in others):
            raise ScheduleError(
                "forward sets gradients of parameters, after the step has updated them; expected a forward pass that "
                "leaves grad alone (the step has run, and its update did not use what forward has set)"
            )
        if others or not planned:
            update_all(self._optimizer, self._planner.before)
        return loss

    def accumulate(self, *batch: Any) -> torch.Tensor:
        """Run forward and backward, and add to the gradients, which the next `step` updates by. Return the loss.

        A micro-batch's peak is that of a step, and the gradients that are left.

        Raises
        ------
        GraphError, BudgetError, ScheduleError
            As `plan` does, before anything has run.
        """
        self._accumulates = True
        return self._run(batch)[0]

    def plan(self, *batch: Any) -> StepStats:
        """Schedule the step for such a batch, unless that was done before, and run nothing.

        Raises
        ------
        GraphError
            The step is no graph: it depends on values (``.item()``), or does what ``torch.compile`` breaks a graph at.
            Or it is distributed: gradients would not be reduced.
        BudgetError
            No schedule that was found keeps to the budget.
        ScheduleError
            As many plans were made as there may be, and ``strict`` is on.
        """
        self._accumulates, self._only_plans = False, True
        try:
            self._run(batch)
        except _Planned:
            pass
        finally:
            self._only_plans = False
        if self._latest is None:
            raise ScheduleError("this step has no plan; expected torch.compile to be on")
        return self._latest.stats

    @property
    def stats(self) -> StepStats | None:
        """Statistics of the plan used last, and how many steps ran by any plan; None before the first plan."""
        return None if self._latest is None else replace(self._latest.stats, steps=self._steps)

    @property
    def plans(self) -> tuple[StepStats, ...]:
        """Statistics of all plans, in the order in which they were made."""
        return tuple(plan.stats for plan in self._plans)

    @property
    def plain_steps(self) -> int:
        """How many steps ran as in plain PyTorch, within no budget."""
        return self._plain_steps

    @property
    def solution(self) -> Solution | None:
        """The schedule used last, as the solver found it; None before the first."""
        return None if self._latest is None else self._latest.solution

    def __reduce_ex__(self, _: Any) -> Any:
        raise TypeError("a training cannot be copied or pickled; expected a schedule of a copied model")

    # --- running ------------------------------------------------------------------------------------------------------

    def _run(self, batch: tuple[Any, ...]) -> tuple[torch.Tensor, bool]:
        """Run forward, backward and what the plan does with gradients; return the loss, and if there was one."""
        require_no_autocast()
        for one in pytree.tree_leaves(batch):
            if isinstance(one, (np.generic, np.ndarray)):
                raise GraphError(f"the batch has a NumPy {type(one).__name__}; expected tensors and numbers")
        for reason, holds in ELSEWHERE.items():
            if holds():
                return self._without_plan(batch, reason)
        for _ in range(2):
            self._ran, self._batch = None, batch
            frame = self._frame()
            try:
                full = torch.compiler.set_stance("eager_on_recompile") if self._is_full else nullcontext()
                with torch.enable_grad(), full:
                    loss: torch.Tensor = frame(self._model, self._loss, *batch)
            except _Stale as error:
                self._stale = str(error)
                self._frames = {key: one for key, one in self._frames.items() if one is not frame}
                continue
            except LimitReachedError as error:
                return self._without_plan(batch, str(error))
            finally:
                self._batch = ()  # which is the program's
            self._latest = self._ran or self._latest
            return self._ended(loss, planned=self._ran is not None)
        raise AssertionError("a plan was stale right after it was made")

    def _without_plan(self, batch: tuple[Any, ...], reason: str) -> tuple[torch.Tensor, bool]:
        if self._strict:
            raise ScheduleError(f"this step has no plan: {reason}; expected no more plans, or strict=False")
        if self._only_plans:
            raise ScheduleError(f"this step has no plan: {reason}")
        if not self._plain_steps:
            what = "a step runs as in plain PyTorch, within no budget, as others may later"
            warnings.warn(f"stowplan: {what}: {reason}", stacklevel=4)
        self._is_full = self._is_full or len(self._plans) >= _limit()
        with torch.enable_grad():
            return self._ended(_loss_of(self._model, self._loss, *batch), planned=False)

    def _ended(self, loss: torch.Tensor, *, planned: bool) -> tuple[torch.Tensor, bool]:
        if not planned:
            loss.backward()
            self._plain_steps += 1
        self._steps += 1
        return loss.detach(), planned

    def _frame(self) -> Captured:
        """Return the function of the step that fits what no guard of PyTorch's sees."""
        optimizer, before = self._optimizer, self._planner.before
        unseen = {
            "the step now adds to earlier gradients, or no longer does": self._accumulates,
            "the optimizer's parameters, their gradients or its options have changed": layout_of(optimizer),
            "hooks on the optimizer have changed": reason_against_early(optimizer, before),
            "a setting of PyTorch's backends has changed": switches(),
        }
        self._key = tuple(unseen.values())
        if self._key not in self._frames:
            require_alone(self._model)
            other = [what for what, one in unseen.items() if self._unseen.get(what, one) != one]
            self._reason = " and ".join(other) or self._stale
            self._frames[self._key] = Captured(_loss_of, self._make, strict=self._strict)
        self._unseen = unseen
        return self._frames[self._key]

    def _make(self, module: GraphModule, inputs: list[Any], _: int) -> Callable[..., Any]:
        """Plan a Dynamo graph; return what runs in its place."""
        if len(self._plans) >= _limit():
            raise LimitReachedError("there are as many plans as torch._dynamo.config.recompile_limit allows")
        require_no_catch()
        calls_program = reason_against_early(self._optimizer, self._planner.before) is not None
        require_no_effects(self._optimizer, calls_program=calls_program)
        reason = self._frames[self._key].reason or self._reason
        plan = self._planner.plan(module, inputs, self._batch, reason, accumulates=self._accumulates)
        training, number = proxy(self), len(self._plans)  # Dynamo keeps what it calls for good
        self._plans.append(plan)
        return lambda *args: training._call(number, args)

    def _call(self, number: int, args: tuple[Any, ...]) -> Any:
        plan = self._plans[number]
        if plan.classes.have_changed():
            raise _Stale("a class, a method of it, or a module's keys have changed")
        is_counted = plan.with_state.issuperset(map(id, self._optimizer.state))
        if not is_counted or situation(args, self._optimizer) != plan.situation:
            raise _Stale("gradients, hooks, other parameters' state or memory that is shared have changed")
        self._latest = plan
        if self._only_plans:
            raise _Planned
        if self._pool is None:
            results = plan(*args)
        else:
            with self._pool.serving(), self._pool.step(id(plan)):
                results = plan(*args)
        self._ran = plan
        return results


def schedule(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Loss | None = None,
    *,
    budget: int | str | None = None,
    before_update: BeforeUpdate | None = None,
    solver: str = "auto",
    time_limit: float | None = None,
    swap: object = None,
    pool: Pool | None = None,
    strict: bool = False,
) -> ScheduledTraining:
    """Train a model within a budget of memory: recompute, reorder and update early, and change no bit.

    Parameters
    ----------
    model
        Trained as it is, in training or in evaluation mode. Only its parameters that the optimizer has are updated.
    optimizer
        One of ``ELEMENTWISE``.
    loss
        Called with the model and what `ScheduledTraining.step` is called with; returns a tensor of one element. None:
        the model itself returns it.
    budget
        For all that is alive in a step at once, parameters, buffers, gradients, the optimizer's state and the batch
        included: bytes, a text like ``"2 GiB"``, or a share like ``"60%"`` of what the first step that is planned would
        take in plain PyTorch; later batches have as many bytes. None: what costs no time.
    before_update
        Called when all gradients exist, in the parameters' ``grad``, for instance to clip them. Gradients are kept
        until then.
    solver, time_limit
        As for `stowplan.scheduling.schedule`.
    pool
        A `stowplan.TorchPool`, which then serves the steps from one arena. None: PyTorch's own allocator does.
    strict
        Whether a step that no plan is for, once there are as many as ``torch._dynamo.config.recompile_limit``, raises.
        False: it runs as in plain PyTorch, and the first one warns. So does a step that asks whether it is compiled
        (``torch.compiler.is_compiling()``): it raises, or warns and is served.

    Raises
    ------
    ScheduleError
        The optimizer is none that can be served; ``model``, ``loss`` or ``pool`` is none.
    ValueError
        The budget is no number of bytes.

    Notes
    -----
    *What raises* `.GraphError`, *before anything has run*: what Dynamo breaks a graph at (dependence on values, as by
    ``.item()``; NumPy's functions; a ``torch.Generator`` of the program's own; packed sequences; backward hooks on
    modules; checks of ``torch.linalg`` in ``inv``, ``solve``, ``cholesky``; gradients within the loss). So do hooks on
    gradients, tensors computed outside of the step from what requires gradients, ``torch.utils.checkpoint`` (the budget
    decides), lazy modules before their first call, ``prod`` along a dimension, random numbers drawn into a part of a
    tensor, and oneDNN's LSTM (``torch.backends.mkldnn.flags(enabled=False)`` helps). So does a forward pass that
    registers hooks on parameters or writes on the optimizer, and an exception of the model or the loss, which the error
    names. So do functions that ``torch.jit.script`` or ``torch.compile`` made, a function of PyTorch's that was
    replaced by one that calls it, NumPy's numbers, and operators whose strides PyTorch traces wrongly and stowplan does
    not know of.

    *What runs as in plain PyTorch, and is counted*: steps under hooks on all modules or on saved tensors, a dispatch
    mode, anomaly detection, with ``torch.compile`` off or another stance. A forward pass must not change ``grad`` or
    set the default type: that step runs without it.

    *What no guard sees*: the sign of a zero among numbers, what ``functools.lru_cache`` keeps, ``os.environ``, the
    ``_version`` of a tensor, hooks on autograd's nodes, attributes of metaclasses, what is missing in a Python module,
    in a function or in the ``__dict__`` of what the model does not keep, and what the program has promised Dynamo
    (``allow_in_graph``, ``assume_constant_result``, ``nonstrict_trace``). Make a new training if one of them changes.
    Methods of classes are guarded where the class is a module's, a base's, of what a module keeps, or ``torch.Tensor``,
    and where the graph has methods of it that were not PyTorch's own.

    *What is not checked or counted*: values that ``torch.distributions`` would check; memory that an operator takes and
    frees while it runs; what ``before_update`` allocates. The peak is higher than ``stats.peak`` by two bytes an
    element of the statistics of a LayerNorm whose input is in bfloat16 and whose weights are not.

    *Python objects*: what forward writes on them remains after the step. ``before_update`` and hooks on the optimizer
    run within it, and see them as before; a warning tells.

    *Threads*: one training plans at a time. A ``torch.compile`` of the program's own sets
    ``torch.compiler.is_compiling()`` for all threads while it compiles, and optimizers may then come to other last
    bits.

    *Programs that ask whether they are compiled* are told that they are, and may compute otherwise than in plain
    PyTorch: ``step`` warns with the lines, and raises `.GraphError` where ``strict``.

    Examples
    --------
    ::

        training = stowplan.torch.schedule(
            model, optimizer, lambda model, x, y: cross_entropy(model(x), y), budget="2 GiB"
        )
        for x, y in batches:
            loss = training.step(x, y)
    """
    require_served(optimizer)
    if not isinstance(model, nn.Module):
        raise ScheduleError(f"model is {model!r}; expected a torch.nn.Module")
    for name, one in (("loss", loss), ("before_update", before_update)):
        if one is not None and not callable(one):
            raise ScheduleError(f"{name} is {one!r}; expected a function, or None")
    if pool is not None and not isinstance(pool, Pool):
        raise ScheduleError(f"pool is {pool!r}; expected a stowplan.TorchPool, or None")
    if swap:
        raise ScheduleError("swap is gone; use a smaller budget, within which values are computed again")
    planner = Planner(model, optimizer, before_update, Within(budget, solver, time_limit))
    return ScheduledTraining(planner, loss, pool, strict=strict)


def _loss_of(model: nn.Module, loss: Loss | None, *batch: Any) -> torch.Tensor:
    return model(*batch) if loss is None else loss(model, *batch)


def _limit() -> int:
    return int(dynamo.config.recompile_limit)
