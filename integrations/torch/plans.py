"""The plan of a training step: the graph module that runs it within a budget, and what that takes.

::

    graph of Dynamo's      capture        forward and backward as one graph of ATen operators
          |                updates        an update for each parameter, by the user's optimizer
          v                costs          seconds of each operator
    step graph             budgets        what goes and runs again, in what order
          |
          v
    graph module           rewriting      called with the tensors of each step that the plan is of
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule

from ..scheduling.solve import Solution
from .budgets import GraphStats, Within
from .capture import joint_of
from .guards import Classes, situation
from .layouts import require_layouts
from .nodes import bytes_of
from .rewriting import mark_repeatable
from .step_graph import graph
from .updates import BeforeUpdate, add_updates, are_shared, reason_against_early

SHARED = "parameters, gradients or the optimizer's state share memory, or other tensors share theirs"
RESIDENT = "parameters, buffers, the optimizer's state and the batch"


@dataclass(frozen=True)
class StepStats(GraphStats):
    """What a scheduled step takes, as predicted.

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
    keeps_gradients
        Why gradients are kept until all exist; None: each parameter is updated early.
    reason
        Why this plan was made: the guard that failed, or what else has changed.
    steps
        Of `ScheduledTraining.stats`: all steps of the training so far, micro-batches and those without a plan included.
    """

    keeps_gradients: str | None
    reason: str = "the first step"
    steps: int = 0


@dataclass(eq=False)
class Plan:
    """What runs in the place of a Dynamo graph, for calls whose tensors are in one situation."""

    situation: Any
    run: GraphModule
    solution: Solution
    stats: StepStats
    with_state: set[int]  # parameters, by their ids, whose state has been counted
    classes: Classes

    def __call__(self, *args: Any) -> Any:
        """Run the step, on these tensors."""
        with torch.no_grad():
            return self.run.forward(*args)


@dataclass
class Planner:
    """Plans the steps of one training."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    before: BeforeUpdate | None
    within: Within

    def plan(
        self, module: GraphModule, inputs: list[Any], batch: Any, reason: str, *, accumulates: bool
    ) -> Plan:
        """Return the plan for a Dynamo graph with these inputs, of a batch; `reason` is that of `StepStats`."""
        keeps = reason_against_early(self.optimizer, self.before)
        if keeps is None and are_shared(self.optimizer, inputs):
            keeps = SHARED
        before = situation(inputs, self.optimizer)
        joint = joint_of(module, inputs)
        require_layouts(joint.graph)
        state, with_state = add_updates(
            joint, inputs, self.optimizer, self.before, together=keeps is not None, accumulates=accumulates
        )
        mark_repeatable(joint)
        run, solution, taken = self.within.write(
            joint, graph(joint), self._resident(inputs, batch, joint) + state, RESIDENT
        )
        # A share is one of the first step's: a shorter batch has as many bytes.
        self.within = replace(self.within, budget=self.within.total(taken.plain_peak))
        stats = StepStats(**vars(taken), keeps_gradients=keeps, reason=reason)
        return Plan(before, run, solution, stats, with_state, Classes(self.model))

    def _resident(self, inputs: list[Any], batch: Any, joint: GraphModule) -> int:
        """Return the bytes that exist throughout, each storage once: also what the graph keeps, or does not read."""
        groups = (group["params"] for group in self.optimizer.param_groups)
        constants = [attrgetter(node.target)(joint) for node in joint.graph.find_nodes(op="get_attr")]
        every = [*self.model.parameters(), *self.model.buffers(), *inputs, *constants, *chain(*groups)]
        gradients = [one.grad for one in every if one.is_leaf]
        return sum(bytes_of([every, batch, gradients, list(self.optimizer.state.values())]).values())
