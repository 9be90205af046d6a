"""Training within a budget of bytes: each step runs by a plan that is of it.

::

    model, loss, batch     capture        forward and backward as ATen operators, and guards on what they are made from
    graph                  plans          scheduled, and written as a graph module
    call                   here           runs the plan whose guards it passes, on its own tensors

A step that fails a guard is captured and planned again; after ``torch._dynamo.config.recompile_limit`` plans, steps
that none of them is for run as in plain PyTorch, or raise.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from weakref import proxy

import numpy as np
import torch
import torch._dynamo
from torch import nn
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from ..allocator.pool import Pool
from ..errors import GraphError, ScheduleError
from ..scheduling.solve import Solution
from .budgets import Within
from .capture import Captured, LimitReachedError
from .evictions import Evict
from .guards import (
    ELSEWHERE,
    methods,
    require_alone,
    require_no_autocast,
    require_no_effects,
    situation,
    surroundings,
    traced_methods,
)
from .plans import Plan, Planner, StepStats
from .trial import differences
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
        self._key: Any = None
        self._unseen: dict[str, Any] = {}
        self._reason, self._plain_steps = "", 0

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
        loss, plan = self._run(batch)
        others = left(self._optimizer)  # of parameters that this step does not use
        if plan is None:
            loss.backward()
        elif any(id(one) not in before for one in others):
            raise ScheduleError(
                "forward sets gradients of parameters, after the step has updated them; expected a forward pass that "
                "leaves grad alone (the step has run, and its update did not use what forward has set)"
            )
        if plan is None or others:
            update_all(self._optimizer, self._planner.before)
        return loss.detach()

    def accumulate(self, *batch: Any) -> torch.Tensor:
        """Run forward and backward, and add to the gradients, which the next `step` updates by. Return the loss.

        A micro-batch's peak is that of a step, and the gradients that are left.

        Raises
        ------
        GraphError, BudgetError, ScheduleError
            As `plan` does, before anything has run.
        """
        self._accumulates = True
        loss, plan = self._run(batch)
        if plan is None:
            loss.backward()
        return loss.detach()

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
            As many plans were made as there may be, and ``strict`` is on; or values are to be swapped that are not the
            host's.
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
        """Statistics of the plan used last; None before the first."""
        return None if self._latest is None else self._latest.stats

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

    def differences(self, *batch: Any) -> list[str]:
        """Return the names of what a step by its plan leaves with other bits than a plain step.

        Parameters, buffers, and ``"loss"``. Both steps run from the state that there is, which is put back afterwards:
        it takes the memory of a plain step and two copies of model and optimizer. Side effects of a model, such as
        counting its calls, happens twice.

        Raises
        ------
        GraphError, BudgetError, ScheduleError
            As `plan` does.
        """

        def plain() -> torch.Tensor:
            with torch.enable_grad():
                loss = _loss_of(self._model, self._loss, *batch)
            loss.backward()
            update_all(self._optimizer, self._planner.before)
            return loss.detach()

        return differences(self._model, self._optimizer, plain, lambda: self.step(*batch))

    # --- running ------------------------------------------------------------------------------------------------------

    def _run(self, batch: tuple[Any, ...]) -> tuple[torch.Tensor, Plan | None]:
        """Run forward, backward and what the plan does with gradients; the loss alone, and None, without a plan."""
        require_no_autocast()
        kind = next(
            (type(one) for one in pytree.tree_leaves(batch) if isinstance(one, (np.generic, np.ndarray))),
            None,
        )
        if kind is not None:
            raise GraphError(
                f"the batch has a {kind.__name__} of NumPy's in it; expected tensors and Python's numbers"
            )
        for reason, holds in ELSEWHERE.items():
            if holds():
                return self._without_plan(batch, reason)
        for _ in range(2):
            self._ran = None
            frame = self._frame()
            try:
                with ExitStack() as stack:
                    stack.enter_context(torch.enable_grad())
                    if self._is_full:
                        stack.enter_context(torch.compiler.set_stance("eager_on_recompile"))
                    loss: torch.Tensor = frame(self._model, self._loss, *batch)
            except _Stale:
                self._frames = {key: one for key, one in self._frames.items() if one is not frame}
                continue
            except LimitReachedError as error:
                return self._without_plan(batch, str(error))
            if self._ran is None:
                self._plain_steps += 1
                return loss, None
            self._latest = self._ran
            failure = None if self._planner.evict is None else self._planner.evict.failure
            stats = self._ran.stats
            self._ran.stats = replace(stats, steps=stats.steps + 1, keeps_values=failure)
            return loss, self._ran
        raise AssertionError("a plan was stale right after it was made")

    def _without_plan(self, batch: tuple[Any, ...], reason: str) -> tuple[torch.Tensor, None]:
        if self._strict:
            raise ScheduleError(f"this step has no plan: {reason}; expected no more plans, or strict=False")
        if self._only_plans:
            raise ScheduleError(f"this step has no plan: {reason}")
        if not self._plain_steps:
            warnings.warn(
                f"stowplan: a step runs as in plain PyTorch, within no budget, as others may later: {reason}",
                stacklevel=4,
            )
        self._is_full = self._is_full or len(self._plans) >= _limit()
        with torch.enable_grad():
            loss = _loss_of(self._model, self._loss, *batch)
        self._plain_steps += 1
        return loss, None

    def _frame(self) -> Captured:
        """Return the function of the step that fits what no guard of PyTorch's sees."""
        unseen = {
            "the step now adds to earlier gradients, or no longer does": self._accumulates,
            "the optimizer's parameters, their gradients or its options have changed": layout_of(
                self._optimizer
            ),
            "hooks on the optimizer have changed": reason_against_early(
                self._optimizer, self._planner.before
            ),
            "a class, a method of it, or a setting of PyTorch's backends has changed": surroundings(
                self._model
            ),
        }
        self._key = tuple(unseen.values())
        if self._key not in self._frames:
            require_alone(self._model)
            other = [what for what, one in unseen.items() if self._unseen.get(what, one) != one]
            self._reason = " and ".join(other) or (
                "gradients, hooks, methods or memory that is shared have changed"
                if self._plans
                else "the first step"
            )
            self._frames[self._key] = Captured(_loss_of, self._make, strict=self._strict)
        self._unseen = unseen
        return self._frames[self._key]

    def _make(self, module: GraphModule, inputs: list[Any], _: int) -> Callable[..., Any]:
        """Plan a Dynamo graph; return what runs in its place."""
        if len(self._plans) >= _limit():
            raise LimitReachedError
        calls_program = reason_against_early(self._optimizer, self._planner.before) is not None
        require_no_effects(self._optimizer, calls_program=calls_program)
        reason = self._frames[self._key].reason or self._reason
        plan = self._planner.plan(module, inputs, reason, accumulates=self._accumulates)
        plan.methods = traced_methods()
        training, number = proxy(self), len(self._plans)  # Dynamo keeps what it calls for good
        self._plans.append(plan)
        return lambda *args: training._call(number, args)

    def _call(self, number: int, args: tuple[Any, ...]) -> Any:
        plan = self._plans[number]
        is_as_traced = all(methods(kind) == before for kind, before in plan.methods.items())
        if not is_as_traced or situation(args, self._optimizer) != plan.situation:
            raise _Stale
        self._latest = plan
        if self._only_plans:
            raise _Planned
        with ExitStack() as stack:
            if self._pool is not None:
                stack.enter_context(self._pool.serving())
                stack.enter_context(self._pool.step(id(plan)))
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
    swap: bool | str | os.PathLike[str] = False,
    pool: Pool | None = None,
    strict: bool = False,
) -> ScheduledTraining:
    """Train a model within a budget of memory: recompute, swap, reorder and update early, and change no bit.

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
        For all that is alive in a step at once, parameters, buffers, the optimizer's state and the batch included:
        bytes, a text like ``"2 GiB"``, or a share like ``"60%"`` of what this training's own step would take in plain
        PyTorch. None: what costs no time.
    before_update
        Called when all gradients exist, in the parameters' ``grad``, for instance to clip them. Gradients are kept
        until then.
    solver, time_limit
        As for `stowplan.scheduling.schedule`.
    swap
        Whether values may go to a file, where that costs less than to recompute them: of a model on the host alone.
        True: in ``/var/tmp``, or the folder. See `stowplan.swapping`.
    pool
        A `stowplan.TorchPool`, which then serves the steps from one arena. None: PyTorch's own allocator does.
    strict
        Whether a step that no plan is for, once there are as many as ``torch._dynamo.config.recompile_limit``, raises.
        False: it runs as in plain PyTorch, and the first one warns. So it is with the plan of a model that computes
        otherwise because it is compiled (``torch.compiler.is_compiling()``): it raises, or warns and serves.

    Raises
    ------
    ScheduleError
        The optimizer is none that can be served; ``pool`` is no pool.
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
    names.

    *What runs as in plain PyTorch, and is counted*: steps under hooks on all modules or on saved tensors, a dispatch
    mode, anomaly detection, with ``torch.compile`` off or another stance. A forward pass must not change ``grad`` or
    set the default type: that step runs without it.

    *What no guard sees*: the sign of a zero among numbers, what ``functools.lru_cache`` keeps, ``os.environ``, the
    ``_version`` of a tensor, hooks on autograd's nodes, and what the program has promised Dynamo (``allow_in_graph``,
    ``assume_constant_result``, ``nonstrict_trace``). Make a new training if one of them changes. Functions that
    ``torch.compile`` made and that the loss calls are captured as they were before; modules that it made are refused.
    Methods of classes are guarded where the class is a module's, a base's, of what a module keeps, or ``torch.Tensor``,
    and where the graph has methods of it that were not PyTorch's own.

    *What is not checked or counted*: values that ``torch.distributions`` would check; memory that an operator takes and
    frees while it runs; what ``before_update`` allocates. The peak is higher than ``stats.peak`` by two bytes an
    element of the statistics of a LayerNorm whose input is in bfloat16 and whose weights are not; and, with
    ``before_update``, by one parameter's bytes for Adam.

    *Python objects*: what forward writes on them remains after the step. ``before_update`` and hooks on the optimizer
    run within it, and see them as before; a warning tells.

    *Threads*: one training plans at a time. A ``torch.compile`` of the program's own sets
    ``torch.compiler.is_compiling()`` for all threads while it compiles, and optimizers may then come to other last
    bits.

    *Models that ask whether they are compiled*: their graph is compared with a plain run, of a copy, on tensors without
    bytes. Where operators, numbers or the order of random draws differ, or plain PyTorch reads values there, ``step``
    warns with the lines and the first operator that differs; with ``strict``, it raises `.GraphError`. That run may
    call a logger or a counter once more than plain PyTorch. With an ``attention_mask``, models of transformers warn.

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
    if pool is not None and not isinstance(pool, Pool):
        raise ScheduleError(f"pool is {pool!r}; expected a stowplan.TorchPool, or None")
    evict = Evict(None if swap is True else swap) if swap else None
    within = Within(budget, solver, time_limit, bool(swap))
    planner = Planner(model, optimizer, before_update, within, evict)
    return ScheduledTraining(planner, loss, pool, strict=strict)


def _loss_of(model: nn.Module, loss: Loss | None, *batch: Any) -> torch.Tensor:
    return model(*batch) if loss is None else loss(model, *batch)


def _limit() -> int:
    return int(torch._dynamo.config.recompile_limit)
