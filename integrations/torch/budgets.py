"""A budget of bytes as users give it, and a graph that runs a schedule within it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch.fx import GraphModule

from ..common.errors import BudgetError
from ..common.units import human_bytes, parse_bytes, parse_share
from ..scheduling import Schedule, StepGraph, simulate
from ..scheduling.schedule import as_recorded
from ..scheduling.solve import Solution, schedule
from .live import live_peak
from .rewriting import scheduled

TRIES = 4
"""Schedules that are tried before the least one."""


@dataclass(frozen=True)
class GraphStats:
    """What a scheduled graph takes, as predicted.

    Attributes
    ----------
    peak
        Most bytes alive at once: those that exist before, and all that is made.
    resident
        Bytes of these that are alive throughout: of a compiled graph parameters, buffers, inputs and the gradients of
        results.
    plain_peak
        As ``peak``, where nothing is recomputed.
    recomputed
        Operators that run again.
    extra
        Time that the schedule adds, as a share of the step's; by estimated seconds.
    """

    peak: int
    resident: int
    plain_peak: int
    recomputed: int
    extra: float


@dataclass(frozen=True)
class Within:
    """How steps are scheduled.

    Attributes
    ----------
    budget
        Bytes, a text like ``"2 GiB"``, a share of the plain peak like ``"60%"``; None: what costs no time.
    solver, time_limit
        As for `stowplan.scheduling.schedule`.
    """

    budget: int | str | None
    solver: str
    time_limit: float | None

    def __post_init__(self) -> None:
        if self.budget is None or parse_share(self.budget) is not None:
            return
        if parse_bytes(self.budget) == 0 and set(str(self.budget)) & set("123456789"):
            raise ValueError(
                f"budget is {self.budget!r}, below one byte; expected bytes, or a share like '50%'"
            )

    def total(self, plain: int) -> int | None:
        """Return the budget in bytes, of a step that takes so many in plain PyTorch."""
        if self.budget is None:
            return None
        share = parse_share(self.budget)
        return parse_bytes(self.budget) if share is None else int(share * plain)

    def write(
        self, joint: GraphModule, step: StepGraph, resident: int, what: str
    ) -> tuple[GraphModule, Solution, GraphStats]:
        """Return a graph module that runs the schedule with the least time within the budget.

        Parameters
        ----------
        joint, step
            The operators, and their step graph with seconds.
        resident
            Bytes of the budget that are alive throughout: `what` they are.

        Raises
        ------
        BudgetError
            No schedule that was found keeps to the budget.
        """
        plain = resident + plain_peak(step)
        total = self.total(plain)
        own = None if total is None else max(total - resident, 0)
        target, tries = own, TRIES
        while True:  # what draws again keeps a generator's state, which no schedule knows of
            failed = None
            try:
                solution = schedule(step, target, self.solver, self.time_limit)
            except BudgetError as error:
                failed, solution = error, error.solution
            run = scheduled(joint, step, solution.schedule)
            peak = live_peak(run.graph)
            if own is None or target is None or peak <= own:
                break
            if failed is not None:
                floor = failed.floor.partition("; ")[0]  # its advice is not all for here
                raise BudgetError(
                    f"a budget of {human_bytes(total or 0)} is below what any schedule found needs: the least is "
                    f"{human_bytes(resident + peak)}, {human_bytes(resident)} of it {what}; {floor}",
                    resident + peak,
                    failed.floor,
                    solution,
                )
            tries -= 1
            target = max(target - peak + own, 0) if tries else 0
        again = sum(len(row) for _, row in solution.outcome.recomputed)
        extra = solution.extra_seconds / (float(step.seconds.sum()) or 1.0)
        return run, solution, GraphStats(resident + peak, resident, plain, again, extra)


def plain_peak(step: StepGraph) -> int:
    """Return the peak of a step in its own order without recomputation, besides what is resident."""
    order = np.arange(len(step), dtype=np.int64)
    return simulate(step, Schedule(order, as_recorded(step).way)).peak
