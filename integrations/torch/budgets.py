"""A budget of bytes as users give it, and a graph that runs a schedule within it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch.fx import GraphModule

from ..errors import BudgetError
from ..scheduling import Schedule, StepGraph, simulate
from ..scheduling.schedule import as_recorded
from ..scheduling.solve import Solution, schedule
from ..units import human_bytes, parse_bytes, parse_share
from .evictions import RATES
from .live import live_peak
from .rewriting import scheduled


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
    solver, time_limit, swap
        As for `stowplan.scheduling.schedule`.
    """

    budget: int | str | None
    solver: str
    time_limit: float | None
    swap: bool = False

    def __post_init__(self) -> None:
        if self.budget is not None and parse_share(self.budget) is None:
            parse_bytes(self.budget)

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
        share = None if self.budget is None else parse_share(self.budget)
        total = (
            None if self.budget is None else parse_bytes(self.budget) if share is None else int(share * plain)
        )
        own = None if total is None else max(total - resident, 0)
        try:
            solution = schedule(step, own, self.solver, self.time_limit, RATES, self.swap)
        except BudgetError as error:
            floor = error.floor.partition("; ")[0]  # its advice is not all for here
            raise BudgetError(
                f"a budget of {human_bytes(total or 0)} is below what any schedule found needs: the least is "
                f"{human_bytes(resident + error.least)}, {human_bytes(resident)} of it {what}; {floor}",
                resident + error.least,
                error.floor,
                error.solution,
            ) from None
        run = scheduled(joint, step, solution.schedule)
        again = sum(len(row) for _, row in solution.outcome.recomputed)
        # Of what inductor fuses alone, no operator has seconds.
        extra = solution.extra_seconds / (float(step.seconds.sum()) or 1.0)
        return run, solution, GraphStats(resident + live_peak(run.graph), resident, plain, again, extra)


def plain_peak(step: StepGraph) -> int:
    """Return the peak of a step in its own order without recomputation, besides what is resident."""
    order = np.arange(len(step), dtype=np.int64)
    return simulate(step, Schedule(order, as_recorded(step).way)).peak
