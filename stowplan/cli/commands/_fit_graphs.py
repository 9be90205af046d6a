"""``stowplan fit`` of step graphs: the batch that fits with lean and with recomputation, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...errors import GraphError
from ...units import human_bytes
from . import _look
from ._reporter import Answer

if TYPE_CHECKING:
    from ...prediction.largest import ScheduledStep
    from ._fit_asked import Asked


def fit_step_graphs(asked: Asked) -> Answer:
    """Fit, predict and schedule."""
    from ...prediction.graphs import fit_graphs
    from ...prediction.largest import largest_scheduled_batch, predict_schedules
    from ._graphs import read_graph, with_seconds

    model = fit_graphs({shape["batch"]: with_seconds(read_graph(path))[0] for shape, path in asked.files})
    batches, memory, retained = asked.wanted(model.batches[-1]), asked.memory, asked.retained
    if memory is not None and not model.grows:
        raise GraphError("no value grows with the batch; expected step graphs of different batch sizes")
    with _look.status("scheduling", "scheduling batch {:,}".format) as progress:
        steps = []
        for batch in batches:
            if progress:
                progress(batch)
            steps.append(predict_schedules(model, batch, **asked.how))
        lean = scheduled = None
        if memory is not None:
            lean = largest_scheduled_batch(model, memory, retained, solver="lean")
            scheduled = largest_scheduled_batch(model, memory, retained, progress=progress, **asked.how)
    if asked.output is not None:
        model.at(batches[0]).save(asked.output)
    figures: dict[str, Any] = {
        "batches": model.batches,
        "operators": len(model.reference),
        "values": model.reference.values,
        "deviation": {str(batch): off._asdict() for batch, off in model.deviation.items()},
        "cannot_tell": model.cannot_tell,
        "predictions": [_figures(step, retained) for step in steps],
    }
    if memory is None:
        return Answer(figures, _parts(figures))
    largest = {"lean": _figures(lean, retained), "scheduled": _figures(scheduled, retained)}
    figures |= {"memory": memory, "largest": largest}
    why = ""
    if scheduled is None:
        kept = model.at(1).resident_bytes if retained is None else retained
        why = f"not even a batch of 1 fits {memory} bytes, {kept} of them retained"
    return Answer(figures, _parts(figures), bad=scheduled is None, why=why)


def _figures(step: ScheduledStep | None, retained: int | None) -> dict[str, Any] | None:
    if step is None:
        return None
    kept = step.graph.resident_bytes if retained is None else retained
    return {
        "batch": step.batch,
        "step_seconds": float(step.graph.seconds.sum()),
        "lean_peak": step.lean.peak,
        "peak": step.scheduled.peak,
        "retained": kept,
        "total": step.scheduled.peak + kept,
        "extra_seconds": step.scheduled.extra_seconds,
        "extra_share": step.extra_share,
        "solver": step.scheduled.solver,
    }


def _parts(figures: dict[str, Any]) -> Iterator[object]:
    batches = figures["batches"]
    head = f"{figures['operators']:,} operators, fitted from batches {batches[0]} and {batches[-1]}"
    checks = [
        f"checked at {batch}: bytes {off['bytes']:.3%} off, workspaces {off['workspace']:.1%}, "
        f"seconds {off['seconds']:.1%}"
        for batch, off in figures["deviation"].items()
    ]
    yield "; ".join([head, *checks])
    if figures["cannot_tell"]:
        yield f"cannot tell: {figures['cannot_tell']}"
    if figures["predictions"]:
        columns = ("lean peak", "with retained", "least peak", "with retained", "extra time")
        rows = _look.table("Predicted", "batch", *columns)
        for row in figures["predictions"]:
            peaks = (row["lean_peak"], row["lean_peak"] + row["retained"], row["peak"], row["total"])
            rows.add_row(f"{row['batch']:,}", *map(human_bytes, peaks), f"{row['extra_share']:.1%}")
        yield from ("", rows)
    if "largest" in figures:
        title = f"The largest batch within {human_bytes(figures['memory'])}"
        rows = _look.table(title, "", "batch", "planned peak", "with retained", "extra time")
        for name, row in zip(("lean", "with recomputation"), figures["largest"].values(), strict=True):
            if row is None:
                rows.add_row(name, "none")
                continue
            sizes = (row["peak"], row["total"])
            rows.add_row(name, f"{row['batch']:,}", *map(human_bytes, sizes), f"{row['extra_share']:.1%}")
        yield from ("", rows)
