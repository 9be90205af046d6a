"""``stowplan fit``: predict the memory of any batch size from small recorded steps, without the target device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import _look
from ._fit_device import Device, fit_device
from ._fit_graphs import DOUBLINGS, fit_step_graphs
from ._fit_shapes import WAYS, ShapeType, fit_shapes, parse_shape, split_batch
from ._options import Bytes, OutputFile, json_option, planning_options

if TYPE_CHECKING:
    from ...planning import Plan


class _ShapeProfile(click.Path):
    """``BATCH=PROFILE`` or ``SHAPE=PROFILE``, of a step of that batch size or shape; or its step graph."""

    name = "batch=profile"

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the shape and the path."""
        text, sign, path = str(value).partition("=")
        try:
            shape = parse_shape(text if sign else "")
        except ValueError:
            self.fail(
                f"{value!r}; expected BATCH=PROFILE, like 2=two.profile, or NAME:NUMBER,...=PROFILE",
                param,
                ctx,
            )
        return shape, super().convert(path, param, ctx)


@click.command(
    short_help="Predict the memory of any batch size, and which one fits.",
    epilog="Example: stowplan fit 2=two.profile 4=four.profile --memory 16GiB --retained 1.2GiB",
)
@click.argument("files", metavar="BATCH=PROFILE...", type=_ShapeProfile(), nargs=-1, required=True)
@click.option(
    "--batch", "batches", type=click.IntRange(min=1), multiple=True, help="Predict this batch size."
)
@click.option(
    "--at", type=ShapeType(), help="Predict this shape, of profiles of named shapes: NAME:NUMBER,..."
)
@click.option(
    "--ranks", type=click.IntRange(min=1), help="Predict one of so many ranks, split as --parallel says."
)
@click.option("--parallel", type=click.Choice(WAYS), help="What --ranks divide.")
@click.option(
    "--memory",
    "--budget",
    "memory",
    type=Bytes(),
    help="Find the largest batch that fits so much memory, like 16GiB.",
)
@click.option(
    "--device",
    type=Device(),
    help="Say whether each --batch fits a device of so much memory, like cuda:24GiB, and what would change that.",
)
@click.option(
    "--retained",
    type=Bytes(),
    help="Memory that the program keeps from step to step: parameters, optimizer state.  "
    "[default: 0 of profiles, the resident values of step graphs]",
)
@click.option(
    "-o",
    "--output",
    type=OutputFile(),
    help="Write the predicted profile, or step graph, of the one --batch.",
)
@planning_options
@json_option
def fit(
    files: tuple[tuple[dict[str, int], Path], ...],
    batches: tuple[int, ...],
    at: dict[str, int] | None,
    ranks: int | None,
    parallel: str | None,
    memory: int | None,
    device: int | None,
    retained: int | None,
    output: Path | None,
    alignment: int | None,
    solver: str,
    time_limit: float | None,
    threads: int,
    as_json: bool,
) -> None:
    """Predict a step's memory at any batch size from profiles of two or more small ones.

    The size of each block is fitted as a power of the batch, or else as affine in it, with the smallest and the largest
    profile; those between check the fit. What two profiles do not check is said. Take 2 rather than 1 for the smallest.
    Exit status 1 if not even a batch of 1 fits the memory.

    With step graphs, of stowplan profile --graph, in place of profiles: the peak of the lean step, and the least that
    recomputation reaches; within a memory, the largest batch of each; and what recomputation costs in time.

    With shapes, like words:64,width:128=FILE, in place of batches: one rank's memory --at another shape. --ranks N
    --parallel data divides the batch; by tensor or sequence the shapes have a number of that name, their ranks.

    --device cuda:24GiB replays profiles of a CPU run in models of CuPy's and PyTorch's pools, and in a plan: fits, does
    not fit, or too close. With step graphs, beside profiles or alone, lean schedules and recomputation, too. Exit
    status 1 if a batch does not fit as it is.
    """
    if device is not None:
        if at is not None or memory is not None or output is not None or alignment is not None:
            raise click.UsageError("--device; expected neither --at, --memory, --alignment nor -o")
        _on_device(files, batches, ranks, parallel, device, retained, as_json, solver, time_limit, threads)
        return
    if len({tuple(sorted(shape.items())) for shape, _ in files}) < len(files):
        raise click.UsageError("two profiles of one batch size, or of one shape")
    if (ranks is None) != (parallel is None):
        raise click.UsageError("--ranks says how many, --parallel what they divide; expected both or neither")
    if at is not None or any(shape.keys() != {"batch"} for shape, _ in files):
        if memory is not None or output is not None:
            raise click.UsageError("profiles of named shapes; expected neither --memory nor -o")
        shaped = {"alignment": alignment, "solver": solver, "time_limit": time_limit, "threads": threads}
        fit_shapes(files, at, batches, ranks, parallel, retained or 0, as_json, shaped)
        return
    if parallel not in (None, "data"):
        raise click.UsageError(
            f"no number {parallel} beside the batch sizes; expected {parallel}:N,...=PROFILE"
        )
    profiles = [(shape["batch"], path) for shape, path in files]
    batches = tuple(split_batch(batch, ranks, parallel) for batch in batches)
    if output is not None and len(batches) != 1:
        raise click.UsageError(f"-o writes one profile; expected one --batch, not {len(batches)}")
    how: dict[str, Any] = {"solver": solver, "time_limit": time_limit, "threads": threads}
    if _are_graphs(profiles):
        fit_step_graphs(dict(profiles), batches, memory, retained, output, as_json, how)
        return
    retained = retained or 0
    from ...insight.comparison import alignment_of
    from ...planning import make_plan
    from ...prediction import fit_steps
    from ...prediction.largest import largest_batch
    from ...profiler import formats

    known = [({"batch": batch}, formats.read(path)) for batch, path in profiles]
    how["alignment"] = alignment = alignment or alignment_of(known[0][1])
    how["planner"] = how.pop("solver")
    model = fit_steps(known)
    if not batches and memory is None:
        batches = tuple(model.batches[-1] << k for k in range(1, DOUBLINGS + 1))
    plans = {batch: make_plan(model.profile({"batch": batch}), **how) for batch in sorted(set(batches))}
    largest = None if memory is None else largest_batch(model, memory - retained, **how)
    if output is not None:
        plans[batches[0]].profile.save(output)

    if as_json:
        figures: dict[str, Any] = {
            "batches": model.batches,
            "blocks": len(model.reference),
            "matched": model.matched,
            "deviation": {str(shape["batch"]): share for shape, share in model.deviation},
            "cannot_tell": model.cannot_tell,
            "alignment": alignment,
            "retained": retained,
            "predictions": [_figures(batch, plan, retained) for batch, plan in plans.items()],
        }
        if memory is not None:
            figures["memory"] = memory
            figures["largest"] = _figures(*largest, retained) if largest else None
        click.echo(json.dumps(figures))
    else:
        fitted = " and ".join(str(batch) for batch in (model.batches[0], model.batches[-1]))
        checks = [f"checked at {shape['batch']}: {share:.3%} off" for shape, share in model.deviation]
        head = f"{len(model.reference):,} blocks, {model.matched:,} of them fitted from batches {fitted}"
        columns = ("batch", "planned peak", "arena", "", *(["with retained"] if retained else []))
        rows = _look.table("Predicted", *columns)
        for batch, plan in {**plans, **(dict([largest]) if largest else {})}.items():
            total = [_look.size(plan.arena_bytes + retained)[1]] if retained else []
            rows.add_row(
                f"{batch:,}", f"{plan.profile.planned_peak:,}", *_look.size(plan.arena_bytes), *total
            )
        why = [f"cannot tell: {model.cannot_tell}"] if model.cannot_tell else []
        _look.show("; ".join([head, *checks]), *why, "", *([rows] if rows.row_count else []))
        if largest is not None:
            _look.show("", f"The largest batch within {_look.size(memory or 0)[1]}: {largest[0]:,}")
    if memory is not None and largest is None:
        click.echo(f"Error: not even a batch of 1 fits {memory} bytes beside {retained} retained", err=True)
        raise click.exceptions.Exit(1)


def _on_device(
    files: tuple[tuple[dict[str, int], Path], ...],
    batches: tuple[int, ...],
    ranks: int | None,
    parallel: str | None,
    memory: int,
    retained: int | None,
    as_json: bool,
    solver: str,
    time_limit: float | None,
    threads: int,
) -> None:
    from ._graphs import is_graph

    if any(shape.keys() != {"batch"} for shape, _ in files):
        raise click.UsageError("--device; expected profiles of batch sizes, BATCH=PROFILE")
    if not batches:
        raise click.UsageError("--device; expected --batch: which one is to fit")
    graphs = [(shape["batch"], path) for shape, path in files if is_graph(path)]
    profiles = [(shape["batch"], path) for shape, path in files if not is_graph(path)]
    for kind in (graphs, profiles):
        if len(dict(kind)) < len(kind):
            raise click.UsageError("two profiles, or two step graphs, of one batch size")
    batches = tuple(split_batch(batch, ranks, parallel) for batch in batches)
    how = {"solver": solver, "time_limit": time_limit, "threads": threads}
    fit_device(profiles, graphs, batches, memory, retained, as_json, how)


def _are_graphs(files: list[tuple[int, Path]]) -> bool:
    """Whether the files are step graphs; raise if only some are."""
    from ._graphs import is_graph

    graphs = [path for _, path in files if is_graph(path)]
    others = [path for _, path in files if path not in graphs]
    if graphs and others:
        raise click.UsageError(
            f"{graphs[0]} is a step graph, {others[0]} is none; expected profiles alone, or step graphs alone"
        )
    return bool(graphs)


def _figures(batch: int, plan: Plan, retained: int) -> dict[str, Any]:
    return {
        "batch": batch,
        "planned_peak": plan.profile.planned_peak,
        "lower_bound": plan.placement.lower_bound,
        "arena": plan.arena_bytes,
        "total": plan.arena_bytes + retained,
        "optimal": plan.placement.optimal,
    }
