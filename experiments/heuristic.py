"""Figure 4 of Sekiyama et al. 2018: how long packing takes, ``python -m experiments.heuristic``.

For each network, training and inference, and each batch size: seconds that the paper's best-fit heuristic takes for
the problem of one step, and those of stowplan's ``auto``, which goes on until it meets the lower bound; and how far
above the bound their placements are. Best of `REPEAT` calls on one thread, validation included.
"""

from __future__ import annotations

from stowplan.packing import pack
from stowplan.planning import make_plan

from .measures.output import Column, above, milliseconds, write_table
from .measures.recordings import step_of
from .measures.runner import CELL, RECORDED, Cell, Row, Runner, command
from .memory import ALIGNMENT

SOLVERS = {"best_fit": "best fit (the paper's)", "auto": "auto"}
REPEAT = 3


def measure(runner: Runner, cell: Cell) -> Row:
    """Find a cell's row; times in seconds."""
    step = step_of(runner, cell)
    problem = make_plan(step.profile, alignment=ALIGNMENT, solver="best_fit").problem
    row: Row = {"recorded": step.recorded, "blocks": len(problem)}
    for solver in SOLVERS:
        placements = [pack(problem, solver) for _ in range(REPEAT)]
        row[f"{solver}_seconds"] = min(placement.seconds for placement in placements)
        row[f"{solver}_above_bound"] = placements[0].gap
    return row


COLUMNS = [
    *CELL,
    RECORDED,
    Column("blocks", "blocks", "{:,}".format),
    *(Column(f"{title}: ms", f"{name}_seconds", milliseconds) for name, title in SOLVERS.items()),
    *(Column(f"{title}: above the bound", f"{name}_above_bound", above) for name, title in SOLVERS.items()),
]


@command(limit=300, quick_limit=5)
def main(runner: Runner) -> None:
    """Measure how long packing one step takes (Figure 4)."""
    rows = runner.run("heuristic", lambda cell: measure(runner, cell))
    write_table(rows, COLUMNS, runner.out / "heuristic", "Time to pack one step")


if __name__ == "__main__":
    main()
