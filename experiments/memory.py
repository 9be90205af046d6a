"""Figure 2 of Sekiyama et al. 2018: memory of a step, ``python -m experiments.memory``.

For each network, training and inference, and each batch size: the arena that stowplan packs for one step, its lower
bound, and what models of today's pools (`stowplan.insight.pool_models`) reserve for the same requests. The retained
part, which no pool can change, has a column of its own: parameters, statistics and the optimizer's state. A step
that is too large for the machine is predicted from batches of 2 and 4 (`measures.recordings`), and marked ``~``; if a
step was recorded as well, the prediction's error is given.

Sizes are rounded up to 512 bytes, as on a device. Pools grow during the first steps, so their models replay the step
until they stop growing. On a device CuPy's own pool takes its model's place, for steps that were recorded: what it has
reserved when steps of the network make it grow no more, the parameters and the state, which were there before, not
counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stowplan import Profile
from stowplan.insight.pool_models import POOL_MODELS, replay, requests
from stowplan.packing import Problem
from stowplan.planning import make_plan

from .measures import output
from .measures.recordings import WARMUP, step_of
from .measures.runner import CELL, RECORDED, Cell, Row, Runner, command
from .measures.workload import Workload

ALIGNMENT = 512
MOST_STEPS, STEADY_AFTER = 8, 2
"""Steps through CuPy's own pool at most, and how many of them in a row have to reserve nothing."""
POOLS = {
    "none": "no pool",
    "free-lists": "Chainer 1",
    "cupy": "CuPy",
    "pytorch": "PyTorch",
    "pytorch-expandable": "PyTorch, expandable",
    "rmm": "RMM",
}


def measure(runner: Runner, cell: Cell) -> Row:
    """Find a cell's row; all sizes in bytes."""
    step = step_of(runner, cell)
    placement = make_plan(step.profile, alignment=ALIGNMENT).placement
    predicted = make_plan(step.predicted, alignment=ALIGNMENT).arena_bytes if step.predicted else None
    row: Row = {
        "recorded": step.recorded,
        "blocks": len(step.profile),
        "retained": step.retained,
        "gradients": int(step.profile.size[step.profile.wrapped].sum()),
        "lower_bound": placement.lower_bound,
        "arena": placement.peak,
        "above_bound": placement.gap,
        "predicted": predicted,
        "prediction_error": predicted / placement.peak - 1 if predicted and step.recorded else None,
    }
    pools = reserved(step.profile)
    if cell.device == "gpu" and step.recorded:
        itself = runner.finished(f"memory/cupy/{cell.name}", lambda: held_by_cupy(runner, cell))
        pools["cupy"] = itself["held"]
    row |= {f"pool_{name}": count for name, count in pools.items()}
    row |= {f"saved_{name}": placement.peak / count - 1 for name, count in pools.items()}
    row |= {
        f"saved_in_all_{name}": (placement.peak + step.retained) / (count + step.retained) - 1
        for name, count in pools.items()
    }
    return row


def reserved(profile: Profile) -> dict[str, int]:
    """Bytes that each pool reserves for the steps of a profile."""
    start, end, gaps = profile.on_line(rows := (~profile.escaped).nonzero()[0])
    script = requests(Problem(profile.size[rows], start, end, gaps=gaps))
    return {name: replay(script, POOL_MODELS[name]()).reserved_peak for name in POOLS}


def held_by_cupy(runner: Runner, cell: Cell) -> Row:
    """Run steps through a new pool of CuPy's own until they reserve nothing more; find what it holds."""
    import cupy

    workload = Workload(cell.model, cell.phase, cell.batch, runner.data, gpu=True)
    for _ in range(WARMUP):
        workload.step()
    pool, steady, held = cupy.cuda.MemoryPool(), 0, 0
    with cupy.cuda.using_allocator(pool.malloc):
        for _ in range(MOST_STEPS):
            workload.step()
            steady, held = steady + 1 if pool.total_bytes() == held else 0, pool.total_bytes()
            if steady == STEADY_AFTER:
                break
    return {"held": held}


def draw(rows: Sequence[Row]) -> Any:
    """Draw bars: retained below, the optimized part above, one panel per network."""
    found = [row for row in rows if "note" not in row]
    panels = list(dict.fromkeys((row["device"], row["model"], row["phase"]) for row in found))
    figure, axes_of = output.grid(len(panels), 2.6)
    for axes, panel in zip(axes_of, panels, strict=True):
        mine = [row for row in found if (row["device"], row["model"], row["phase"]) == panel]
        contestants = [*(f"pool_{name}" for name in POOLS), "arena"]
        width = 0.8 / len(contestants)
        for k, key in enumerate(contestants):
            x = [i + (k - (len(contestants) - 1) / 2) * width for i in range(len(mine))]
            retained = [row["retained"] / 2**20 for row in mine]
            axes.bar(x, retained, width, color=output.GRID)
            label = POOLS.get(key.removeprefix("pool_"), "stowplan")
            heights = [row[key] / 2**20 for row in mine]
            axes.bar(x, heights, width, bottom=retained, color=output.TINTS[k], label=label)
        marks = [("" if row["recorded"] else "~") + str(row["batch"]) for row in mine]
        axes.set_xticks(range(len(mine)), marks)
        device = "" if panel[0] == "cpu" else f" ({panel[0]})"
        output.tidy(axes, f"{panel[1]}, {panel[2]}{device}", "MiB")
    if panels:
        figure.legend(
            *figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=7, fontsize=8
        )
    return figure


COLUMNS = [
    *CELL,
    RECORDED,
    output.Column("retained", "retained", output.mib),
    output.Column("arena", "arena", output.mib),
    output.Column("of it gradients", "gradients", output.mib),
    output.Column("above the bound", "above_bound", output.above),
    *(output.Column(title, f"pool_{name}", output.mib) for name, title in POOLS.items()),
    *(output.Column(f"arena over {title}", f"saved_{name}", output.percent) for name, title in POOLS.items()),
    *(
        output.Column(f"with retained, over {POOLS[name]}", f"saved_in_all_{name}", output.percent)
        for name in ("free-lists", "cupy")
    ),
    output.Column("prediction's error", "prediction_error", lambda error: output.percent(error, 3)),
]


@command(limit=300, quick_limit=5)
def main(runner: Runner) -> None:
    """Compare the memory of one step with what today's pools reserve for it (Figure 2)."""
    rows = runner.run("memory", lambda cell: measure(runner, cell))
    note = (
        "MiB. Batch sizes of training are the paper's; a predicted row was profiled at batches of 2 and 4. Above the "
        "bound by 0: the arena equals its lower bound to the byte, so it is proved that no arena can be smaller."
    )
    output.write_table(rows, COLUMNS, runner.out / "memory", "Memory of one step", note)
    output.save(draw(rows), runner.out / "memory")


if __name__ == "__main__":
    main()
