"""What training takes of a device: ``python -m experiments.device``.

Networks are trained in the ways of `measures.device_training.WAYS`: with CuPy's own pool, through CupyPool as it is,
with steps that Chainer tells, with its first steps in managed memory, with lean steps, and under the least
budget that a schedule keeps. Each run is in a process of its own. The table has what is in use of the device after
each step, by its driver; the most at any request; and from which step on the plan serves. Only on the simulated device
is nothing else in use, so the table is filled there; its bytes are those of any device with the same requests.

The last column names what stowplan promises and a row does not keep:

- at no step more in use than with CuPy's own pool and a page, nor at any request of the run
- once the plan serves, no more in use than retained + arena, both in pages of 2 MiB, and three pages more
- the plan serves from the `DUE` step on
- the pool's own statistics are the driver's
- the same bits

with `SLACK` where it is about what is in use.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial

import click

from .measures import contest, output
from .measures.apart import CannotRunError, ask
from .measures.device_training import NETWORKS, PAGE, WAYS, Task
from .measures.kept import Row
from .measures.runner import NO_GPU, SIMULATED, Runner, command, has_gpu, is_simulated
from .models import Model

BATCH, QUICK_BATCH = 2, 1
STEPS, QUICK_STEPS = 10, 8
SIZES, QUICK_SIZES = {"resnet50": 64}, {"resnet50": 32, "ptb": 5}
"""Sides of images, or numbers of words, that are smaller than the network's, so that a step takes seconds."""
SLACK = 1.02
DUE = {"pool": 4, "auto": 6, "managed": 4, "lean": 5, "budget": 9}
"""The first step that the plan serves. The pool sees one step go by, records one, and confirms it. A step that is told
begins as the one before it ends, the first after the first update, so its plan comes a step later. A scheduler needs
the first step for itself, and under a budget four more."""
SERVING = 0.5
"""Share of a step's requests from which on the plan counts as serving."""
BUDGET_ATTEMPTS = 4


def trained(runner: Runner, task: Task) -> Row:
    """Run a task on a device that is large enough; the row has a ``note`` if that cannot be done."""

    def find() -> Row:
        click.echo(f"{task.model}, {WAYS[task.way]}", err=True)
        found = within_reach(task) if task.way == "budget" else run(task)
        if "failed" in found:
            raise CannotRunError(found["failed"])
        return found

    path = runner.out / "device" / "cells" / f"{task.model}-{task.way}.json"
    return contest.measured({}, path, asdict(task), find)


def run(task: Task) -> Row:
    """Train in a process of its own; see `measures.device_training.train`."""
    found: Row = ask("experiments.measures.device_training:train", asdict(task))
    return found


def within_reach(task: Task) -> Row:
    """Train under the least budget that is kept, and return it with the row."""
    budget = 1
    for _ in range(BUDGET_ATTEMPTS):
        found = run(replace(task, budget=budget))
        if "least" not in found:
            return found | {"budget": budget}
        budget = int(SLACK * found["least"])
    raise CannotRunError(f"no schedule kept to {budget:,} bytes, a little more than the least found")


def serving_from(row: Row) -> int:
    """Return the first step from which on the plan serves every step; one after the last if there is none."""
    without = [step for step, share in enumerate(row.get("replayed", ()), 1) if share < SERVING]
    return max(without, default=0) + 1


def broken(row: Row, cupy: Row) -> list[str]:
    """Return the promises that a row does not keep, each with its worst figure; `cupy`: the row of CuPy's own pool."""
    if row["way"] == "cupy":
        return []
    found, since = [], serving_from(row)
    whole = row["retained_in_pages"] + -(-row["arena"] // PAGE) * PAGE + 3 * PAGE
    over = [(mine - PAGE) / its for mine, its in zip(row["in_use"], cupy["in_use"], strict=True)]
    if max(over) > SLACK:
        found.append(f"{max(over):.2f} times CuPy's after step {over.index(max(over)) + 1}")
    if row["most"] - PAGE > SLACK * cupy["most"]:
        found.append(f"{row['most'] / cupy['most']:.2f} times CuPy's at most")
    after = [bytes_ / whole for bytes_ in row["in_use"][since - 1 :]]
    if after and max(after) > SLACK:
        found.append(f"{max(after):.2f} times retained + arena after the plan")
    if since > DUE[row["way"]]:
        late = "never" if since > len(row["in_use"]) else f"from step {since}"
        found.append(f"the plan serves {late}, not from {DUE[row['way']]}")
    off = max((mine - its for mine, its in zip(row["reserved"], row["in_use"], strict=True)), key=abs)
    if off:
        found.append(f"reserved_bytes is off by {off:+,}")
    if row["peak_reserved"] != row["most"]:
        found.append(f"peak_reserved_bytes is off by {row['peak_reserved'] - row['most']:+,}")
    if row["fingerprint"] != cupy["fingerprint"]:
        found.append("OTHER BITS")
    return found


def title_of(task: Task) -> str:
    """Return the title of a task's network, with the size of its examples if it is not the network's own."""
    model = NETWORKS[task.model]
    if task.size is None:
        return model.title
    return f"{model.title}, {task.size} {'words' if model.kind == 'words' else f'x {task.size} images'}"


def rows_of(runner: Runner, model: Model, ways: Sequence[str], steps: int) -> list[Row]:
    """Find the rows of a network, two at a time; `ways`: names of `WAYS`, CuPy's own pool first."""
    batch = (*runner.batches, QUICK_BATCH if runner.quick else BATCH)[0]
    size = (QUICK_SIZES if runner.quick else SIZES).get(model.name)
    tasks = [Task(model.name, batch, way, steps, runner.data.seed, size) for way in ways]
    with ThreadPoolExecutor(2) as executor:
        trained_rows = list(executor.map(partial(trained, runner), tasks))
    rows = []
    for task, row in zip(tasks, trained_rows, strict=True):
        about = {"device": SIMULATED, "model": title_of(task), "batch": task.batch, "way": task.way}
        rows.append(about | row)
    for row in rows:
        if "note" not in row and "note" not in rows[0]:
            row["broken"] = "; ".join(broken(row, rows[0]))
    return rows


def table_row(row: Row) -> Row:
    """Return a row as the table has it: one entry a column."""
    if "in_use" not in row:
        return row
    found = {key: value for key, value in row.items() if key not in ("in_use", "reserved", "replayed")}
    found |= {f"in_use_{step}": count for step, count in enumerate(row["in_use"], 1)}
    if "replayed" in row:
        since = serving_from(row)
        found |= {
            "reserved": row["reserved"][-1],
            "serving_from": since if since <= len(row["in_use"]) else "never",
            "last_replayed": row["replayed"][-1],
            "retained_and_arena": row["retained"] + row["arena"],
        }
    return found


def columns(steps: int) -> list[output.Column]:
    """Columns of the Markdown table."""
    column = output.Column
    return [
        column("device", "device"),
        column("network", "model"),
        column("batch", "batch"),
        column("trained with", "way", WAYS.__getitem__),
        column("after step 1", "in_use_1", output.mib),
        *(column(str(step), f"in_use_{step}", output.mib) for step in range(2, steps + 1)),
        column("at most", "most", output.mib),
        column("`reserved_bytes`", "reserved", output.mib),
        column("`peak_reserved_bytes`", "peak_reserved", output.mib),
        column("plan serves from step", "serving_from"),
        column("replayed in the last step", "last_replayed", "{:.1%}".format),
        column("budget", "budget", output.mib),
        column("retained", "retained", output.mib),
        column("arena", "arena", output.mib),
        column("retained + arena", "retained_and_arena", output.mib),
        column("parameters", "fingerprint", lambda digest: digest[:8]),
        column("broken promises", "broken"),
    ]


@command(limit=300, quick_limit=60, models=NETWORKS)
@output.chosen("--way", "ways", WAYS)
def main(runner: Runner, ways: tuple[str, ...]) -> None:
    """Show what training takes of a device, step by step; CuPy's own pool always takes part."""
    if not has_gpu() or not is_simulated():
        raise click.ClickException(
            f"{NO_GPU if not has_gpu() else 'a real device'}; expected the simulated one"
        )
    steps = QUICK_STEPS if runner.quick else STEPS
    chosen = tuple(way for way in WAYS if way == "cupy" or way in (ways or WAYS))
    rows: list[Row] = []
    for model in runner.models:
        rows += rows_of(runner, model, chosen, steps)
        _write(runner, rows, steps)
    _summarize(rows)


def _write(runner: Runner, rows: Sequence[Row], steps: int) -> None:
    note = (
        "MiB. In use of the device, by its driver (`memGetInfo`), after each step and at most; each run in a process "
        "of its own."
    )
    path, title = runner.out / "device", "Training on a device: memory in use"
    found = [table_row(row) for row in rows]
    output.write_table(found, columns(steps), path, title, note, ("Chainer", "cupy-rocm-7-0"))


def _summarize(rows: Sequence[Row]) -> None:
    ours = [row for row in rows if row["way"] != "cupy"]
    click.echo(f"{sum(row.get('broken') == '' for row in ours)} of {len(ours)} rows keep every promise")
    for row in rows:
        if said := row.get("note", row.get("broken")):
            click.echo(f"{row['model']}, {WAYS[row['way']]}: {said}")


if __name__ == "__main__":
    main()
