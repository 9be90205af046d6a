"""``stowplan fit`` of profiles of batch sizes: the arenas of other batches, and the largest batch that fits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...units import human_bytes
from . import _look
from ._reporter import Answer

if TYPE_CHECKING:
    from ...planning import Plan
    from ._fit_asked import Asked


def fit_profiles(asked: Asked) -> Answer:
    """Fit, predict and plan."""
    from ...planning import make_plan
    from ...prediction import fit_steps
    from ...prediction.largest import largest_batch
    from ...profiler import formats

    known = [(shape, formats.read(path)) for shape, path in asked.files]
    how, memory, retained = asked.planning(known[0][1]), asked.memory, asked.retained or 0
    model = fit_steps(known)
    plans = {
        batch: make_plan(model.profile({"batch": batch}), **how) for batch in asked.wanted(model.batches[-1])
    }
    largest = None if memory is None else largest_batch(model, memory - retained, **how)
    if asked.output is not None:
        next(iter(plans.values())).profile.save(asked.output)
    figures: dict[str, Any] = {
        "batches": model.batches,
        "blocks": len(model.reference),
        "matched": model.matched,
        "deviation": {str(shape["batch"]): share for shape, share in model.deviation},
        "cannot_tell": model.cannot_tell,
        "alignment": how["alignment"],
        "retained": retained,
        "predictions": [_figures(batch, plan, retained) for batch, plan in plans.items()],
    }
    if memory is not None:
        figures |= {"memory": memory, "largest": _figures(*largest, retained) if largest else None}
    return Answer(
        figures,
        _parts(figures),
        bad=memory is not None and largest is None,
        why=f"not even a batch of 1 fits {memory} bytes in addition to {retained} retained",
    )


def _figures(batch: int, plan: Plan, retained: int) -> dict[str, Any]:
    return {
        "batch": batch,
        "planned_peak": plan.profile.planned_peak,
        "lower_bound": plan.placement.lower_bound,
        "arena": plan.arena_bytes,
        "total": plan.arena_bytes + retained,
        "optimal": plan.placement.optimal,
    }


def _parts(figures: dict[str, Any]) -> Iterator[object]:
    batches, retained, largest = figures["batches"], figures["retained"], figures.get("largest")
    checks = [f"checked at {batch}: {share:.3%} off" for batch, share in figures["deviation"].items()]
    blocks = f"{figures['blocks']:,} blocks, {figures['matched']:,} of them fitted"
    yield "; ".join([f"{blocks} from batches {batches[0]} and {batches[-1]}", *checks])
    if figures["cannot_tell"]:
        yield f"cannot tell: {figures['cannot_tell']}"
    yield ""
    rows = _look.table("Predicted", "batch", *arena_columns(retained))
    for batch, row in {row["batch"]: row for row in (*figures["predictions"], largest) if row}.items():
        rows.add_row(f"{batch:,}", *arena_cells(row, retained))
    if rows.row_count:
        yield rows
    if largest:
        yield from ("", f"The largest batch within {human_bytes(figures['memory'])}: {largest['batch']:,}")


def arena_columns(retained: int) -> list[str]:
    """Return the heads of `arena_cells`."""
    return ["planned peak", "arena", *(["with retained"] if retained else [])]


def arena_cells(row: dict[str, Any], retained: int) -> list[str]:
    """Return the bytes in a prediction's row of a table."""
    total = [human_bytes(row["total"])] if retained else []
    return [human_bytes(row["planned_peak"]), human_bytes(row["arena"]), *total]
