"""The plan of a training step: the graph module that runs it within a budget, and what that takes.

::

    graph of Dynamo's      capture        forward and backward as one graph of ATen operators
          |                early          an update for each parameter, by the user's optimizer
          v                costs          seconds of each operator
    step graph             budgets        what goes and runs again, in what order
          |
          v
    graph module           rewriting      called with the tensors of each step that the plan is of
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule

from ..errors import ScheduleError
from ..scheduling.solve import Solution
from .budgets import GraphStats, Within
from .capture import differentiated
from .early import Updates
from .evictions import EVICT, Evict
from .guards import require_own_gradient, situation
from .nodes import is_on_host
from .rewriting import mark_repeatable
from .step_graph import graph
from .updates import BeforeUpdate, are_shared, reason_against_early

RESIDENT = "parameters, buffers, the optimizer's state and the batch"


@dataclass(frozen=True)
class StepStats(GraphStats):
    """What a scheduled step takes, as predicted, and how often it ran.

    Attributes
    ----------
    peak
        Most bytes live at once: parameters, buffers, the optimizer's state, gradients that earlier steps
        have left, the batch, what else the step reads, and what it makes.
    resident
        Bytes of these that are alive throughout: all but what the step makes.
    plain_peak
        As ``peak``, of a step that recomputes nothing and keeps all gradients until all exist, as PyTorch does.
    recomputed
        As of `GraphStats`.
    extra
        As of `GraphStats`.
    swapped
        Bytes that a step evicts to a file, and fetches.
    keeps_gradients
        Why gradients are kept until all exist; None: each parameter is updated early.
    keeps_values
        Why values that were to be swapped stay in memory, so that steps are above ``peak``; None: they do not.
    reason
        Why this plan was made: the guard that failed, or what else has changed.
    steps
        Steps that ran by this schedule.
    """

    swapped: int
    keeps_gradients: str | None
    keeps_values: str | None = None
    reason: str = "the first step"
    steps: int = 0


@dataclass(eq=False)
class Plan:
    """What runs in the place of a Dynamo graph, for calls whose tensors are in one situation."""

    situation: Any
    call: Any
    run: GraphModule
    solution: Solution
    stats: StepStats
    arguments: list[
        Any
    ]  # the tensors of the step that runs, which is which parameter is known from these alone
    methods: Mapping[type, Any] = field(default_factory=dict)

    def __call__(self, *args: Any) -> Any:
        """Run the step, on these tensors."""
        self.arguments[:] = args
        try:
            return self.call(*args)
        finally:
            self.arguments.clear()


@dataclass(frozen=True)
class Planner:
    """Plans the steps of one training."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    before: BeforeUpdate | None
    within: Within
    evict: Evict | None

    def plan(self, module: GraphModule, inputs: list[Any], reason: str, *, accumulates: bool) -> Plan:
        """Return the plan for a Dynamo graph with these inputs; `reason` is that of `StepStats`."""
        for one in inputs:
            require_own_gradient(one)
        keeps = reason_against_early(self.optimizer, self.before)
        if keeps is None and are_shared(self.optimizer, inputs):
            keeps = (
                "parameters, gradients or the optimizer's state share memory, or other tensors share theirs"
            )
        # Found by updates of tensors with bytes, so not while AOTAutograd traces.
        updates = Updates(
            self.optimizer, self.before, inputs, together=keeps is not None, accumulates=accumulates
        )
        arguments: list[Any] = []
        found: list[tuple[GraphModule, Solution, StepStats]] = []

        def rewrite(joint: GraphModule) -> GraphModule:
            if self.evict is not None:
                far = next((node for node in joint.graph.nodes if not is_on_host(node)), None)
                if far is not None:
                    raise ScheduleError(
                        f"{far.name} is not the host's; expected a model on the host, whose values a file can take, or "
                        "no swap"
                    )
                joint.add_module(EVICT, self.evict)
            state = updates.add(joint, arguments)
            mark_repeatable(joint)
            step = graph(joint)
            run, solution, taken = self.within.write(joint, step, self._resident(inputs) + state, RESIDENT)
            swapped = sum(int(step.size[storage]) for storage, *_ in solution.outcome.swapped)
            stats = StepStats(**vars(taken), swapped=swapped, keeps_gradients=keeps, reason=reason)
            found.append((run, solution, stats))
            return run

        before = situation(inputs, self.optimizer)
        call = differentiated(module, inputs, rewrite)
        return Plan(before, call, *found[0], arguments)

    def _resident(self, inputs: list[Any]) -> int:
        """Return the bytes that exist throughout, each storage once."""
        every = [*self.model.parameters(), *self.model.buffers(), *inputs]
        every += [one.grad for group in self.optimizer.param_groups for one in group["params"]]
        every += [one.grad for one in inputs if one.is_leaf]
        storages = {
            one.untyped_storage()._cdata: one.untyped_storage().nbytes() for one in every if one is not None
        }
        return sum(storages.values())
