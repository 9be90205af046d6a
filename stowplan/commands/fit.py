"""``stowplan fit``: from small profiled steps to the memory of any batch size, without the target device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import _look
from ._options import Bytes, OutputFile, planning_options

if TYPE_CHECKING:
    from ..allocator import Plan

_DOUBLINGS = 4  # of the largest profiled batch, where nothing else is asked


class _BatchProfile(click.Path):
    """``BATCH=PROFILE``: a batch size, and the profile of a step of it."""

    name = "batch=profile"

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the batch and the path."""
        batch, sign, path = str(value).partition("=")
        if not sign or not batch.isdecimal() or int(batch) < 1:
            self.fail(f"{value!r}; expected BATCH=PROFILE, like 2=two.profile", param, ctx)
        return int(batch), super().convert(path, param, ctx)


@click.command(epilog="Example: stowplan fit 2=two.profile 4=four.profile --memory 16GiB --retained 1.2GiB")
@click.argument("profiles", metavar="BATCH=PROFILE...", type=_BatchProfile(), nargs=-1, required=True)
@click.option(
    "--batch", "batches", type=click.IntRange(min=1), multiple=True, help="Predict this batch size."
)
@click.option("--memory", type=Bytes(), help="Find the largest batch that fits so much memory, like 16GiB.")
@click.option(
    "--retained",
    type=Bytes(),
    default=0,
    help="Memory that the program keeps from step to step: parameters, optimizer state.",
)
@click.option("-o", "--output", type=OutputFile(), help="Write the predicted profile of the one --batch.")
@planning_options
def fit(
    profiles: tuple[tuple[int, Path], ...],
    batches: tuple[int, ...],
    memory: int | None,
    retained: int,
    output: Path | None,
    alignment: int,
    solver: str,
    time_limit: float | None,
    threads: int,
    as_json: bool,
) -> None:
    """Predict a step's memory at any batch size from profiles of two or more small ones.

    The size of each block is fitted as affine in the batch, with the smallest and the largest profile; those between
    check the fit. Take 2 rather than 1 for the smallest. Exit status 1 where not even a batch of 1 fits the memory.
    """
    if len({batch for batch, _ in profiles}) < len(profiles):
        raise click.UsageError("two profiles of one batch size")
    if output is not None and len(batches) != 1:
        raise click.UsageError(f"-o writes one profile; expected one --batch, not {len(batches)}")
    from ..prediction import largest_batch, predict
    from ..profiler import formats
    from ..profiler.scaling import fit_batches

    known = {batch: formats.read(path) for batch, path in profiles}
    model = fit_batches(known)
    if not batches and memory is None:
        batches = tuple(model.batches[-1] << k for k in range(1, _DOUBLINGS + 1))
    how: dict[str, Any] = {
        "alignment": alignment,
        "solver": solver,
        "time_limit": time_limit,
        "threads": threads,
    }
    plans = {batch: predict(model, batch, **how) for batch in sorted(set(batches))}
    largest = None if memory is None else largest_batch(model, memory - retained, **how)
    if output is not None:
        plans[batches[0]].profile.save(output)

    if as_json:
        figures: dict[str, Any] = {
            "batches": model.batches,
            "blocks": len(model.reference),
            "matched": model.matched,
            "deviation": {str(batch): share for batch, share in model.deviation.items()},
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
        checks = [f"checked at {batch}: {share:.3%} off" for batch, share in model.deviation.items()]
        head = f"{len(model.reference):,} blocks, {model.matched:,} of them fitted from batches {fitted}"
        columns = ("batch", "live peak", "arena", "", *(["with retained"] if retained else []))
        rows = _look.table("Predicted", *columns)
        for batch, plan in {**plans, **(dict([largest]) if largest else {})}.items():
            total = [_look.size(plan.arena_bytes + retained)[1]] if retained else []
            rows.add_row(f"{batch:,}", f"{plan.profile.live_peak:,}", *_look.size(plan.arena_bytes), *total)
        _look.show("; ".join([head, *checks]), "", *([rows] if rows.row_count else []))
        if largest is not None:
            _look.show("", f"The largest batch within {_look.size(memory or 0)[1]}: {largest[0]:,}")
    if memory is not None and largest is None:
        click.echo(f"Error: not even a batch of 1 fits {memory} bytes beside {retained} retained", err=True)
        raise click.exceptions.Exit(1)


def _figures(batch: int, plan: Plan, retained: int) -> dict[str, Any]:
    return {
        "batch": batch,
        "live_peak": plan.profile.live_peak,
        "lower_bound": plan.placement.lower_bound,
        "arena": plan.arena_bytes,
        "total": plan.arena_bytes + retained,
        "optimal": plan.placement.optimal,
    }
