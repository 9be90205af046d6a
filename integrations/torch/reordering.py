"""A graph module that runs the operators of another in the order with the least live peak.

The code that `torch.fx` generates lets go of each result right after its last use, so that what is alive follows from
the order alone. Nothing else changes: the same operators on the same arguments, writes in place and random numbers in
an order that gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.fx import GraphModule

from ..scheduling import Schedule, StepGraph, Way, require_valid
from ..scheduling.ordering import order
from .rewriting import scheduled
from .step_graph import as_graph_module, graph


def reorder(
    module: torch.nn.Module,
    inputs: Sequence[Any] | None = None,
    *,
    solver: str = "auto",
    time_limit: float | None = 10.0,
) -> GraphModule:
    """Return a graph module whose operators run in the order found by `stowplan.scheduling.ordering.order`.

    Parameters
    ----------
    module
        A graph module of ATen operators, as `trace` and `trace_training` give it; any other is traced, by `trace`.
    inputs
        As for `stowplan.torch.graph`.
    solver, time_limit
        As for ``order``; seconds.

    Returns
    -------
    GraphModule
        It shares the parameters and buffers of ``module``, takes the same arguments and gives the same results, bit by
        bit. ``meta["order"]`` is the ``OrderSolution``: its ``peak`` is the live peak of a run, in bytes, without
        parameters, buffers and inputs, provided that autograd does not record the run (``torch.no_grad``, if the graph
        was not made by `trace` or `trace_training`).

    Raises
    ------
    GraphError
        As `stowplan.torch.graph` does.
    ScheduleError, UnknownSolverError, MissingDependencyError
        As ``order`` does.
    """
    recorded = as_graph_module(module, inputs)
    step = graph(recorded, inputs)
    solution = order(step, solver, time_limit)
    reordered = _ordered(recorded, step, solution.order)
    reordered.meta["order"] = solution
    return reordered


def in_order(module: GraphModule, numbers: npt.ArrayLike, inputs: Sequence[Any] | None = None) -> GraphModule:
    """Return a graph module whose operators run in an order given, such as that of a `.Schedule` from a file.

    Parameters
    ----------
    module, inputs
        As for `stowplan.torch.graph`, which numbers the operators; a graph module.
    numbers
        Numbers of the n operators in the order in which they run, (n,).

    Raises
    ------
    ScheduleError
        Naming the first operator that would run before one that it depends on.
    GraphError
        As `stowplan.torch.graph` does.
    """
    return _ordered(module, graph(module, inputs), np.asarray(numbers, dtype=np.int64))


def _ordered(module: GraphModule, step: StepGraph, sequence: npt.NDArray[np.int64]) -> GraphModule:
    schedule = Schedule(sequence, np.full(step.values, int(Way.KEPT), dtype=np.int64))
    require_valid(step, schedule)
    return scheduled(module, step, schedule)
