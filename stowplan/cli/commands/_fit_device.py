"""``stowplan fit --device cuda:24GiB``: whether a step that ran on the CPU fits a device, and what changes that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ...units import human_bytes
from . import _look
from ._reporter import Answer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ...insight.on_device import Way
    from ...prediction.steps import StepPrediction
    from ._fit_asked import Asked


def fit_device(asked: Asked) -> Answer:
    """Predict and replay. The result is negative unless each batch fits with the program's own pool."""
    from ...insight.on_device import FITS, NOT_KNOWN, own_pool, remedies, ways
    from ...prediction import fit_graphs, fit_steps
    from ...profiler import formats
    from ._graphs import is_graph, read_graph, with_seconds

    if not asked.batches:
        raise click.UsageError("--device; expected --batch: which one is to fit")
    if any(shape.keys() != {"batch"} for shape, _ in asked.files):
        raise click.UsageError("--device; expected profiles of batch sizes, BATCH=PROFILE")
    graphs = {
        shape["batch"]: with_seconds(read_graph(path))[0] for shape, path in asked.files if is_graph(path)
    }
    known = [(shape, formats.read(path)) for shape, path in asked.files if not is_graph(path)]
    model = fit_steps(known) if known else None
    graph_model = fit_graphs(graphs) if graphs else None
    kept, memory = _retained(asked, model), asked.device or 0
    own = own_pool(model.reference if model else None)
    found: dict[int, list[Way]] = {}
    with _look.status("replaying", "batch {:,}".format) as progress:
        for batch in asked.wanted(0):
            if progress:
                progress(batch)
            profile = model.profile({"batch": batch}) if model else None
            graph = graph_model.at(batch) if graph_model else None
            found[batch] = ways(profile, graph, memory, kept, **asked.how)
    predictions = []
    for batch, several in found.items():
        answer = _own(several, own)
        better = [way.name for way in remedies(several, own)]
        every = [asdict(way) for way in several]
        told = {"verdict": answer.verdict, "pool": answer.name, "remedies": better, "ways": every}
        predictions.append({"batch": batch, **told})
    figures = {
        "device": "cuda",
        "memory": memory,
        "retained": int(kept.max()),
        "cannot_tell": [one.cannot_tell for one in (model, graph_model) if one and one.cannot_tell],
        "predictions": predictions,
        "not_known": NOT_KNOWN,
    }
    bad = any(one["verdict"] != FITS for one in predictions)
    return Answer(figures, _parts(asked, figures, found, own), bad=bad)


def _own(found: list[Way], own: str) -> Way:
    return next((way for way in found if way.name == own), found[0])


def _retained(asked: Asked, model: StepPrediction | None) -> npt.NDArray[np.int64]:
    """Return what the program keeps from step to step: as asked, or at each moment of the step recorded."""
    import numpy as np

    step = model.reference if model else None
    if asked.retained is None and step is not None and (rest := step.unplanned_bytes()) is not None:
        return rest - step.unplanned_step_bytes()
    return np.array([asked.retained or 0])


def _parts(asked: Asked, figures: dict[str, Any], found: dict[int, list[Way]], own: str) -> Iterator[object]:
    from ...insight.on_device import FITS, UNKNOWN, remedies

    for batch, several in found.items():
        answer = _own(several, own)
        where = f"Batch {batch:,} on a device of {human_bytes(figures['memory'])}"
        needs = f"it needs {human_bytes(answer.total)}, and up to {human_bytes(UNKNOWN)} that are not known (below)"
        yield f"{where}: {answer.verdict} with {answer.title}: {needs}"
        rows = _look.table("", "", "step", "with retained", "verdict", "extra time", left=("verdict",))
        for way in several:
            extra = f"{way.extra_share:.1%}" if way.extra_share else ""
            rows.add_row(way.title, human_bytes(way.step), human_bytes(way.total), way.verdict, extra)
        yield rows
        if answer.verdict != FITS:
            better = [f"{way.title} ({way.verdict})" for way in remedies(several, own)]
            yield f"Makes it fit: {', '.join(better) or 'none of these'}"
    yield from (f"cannot tell: {one}" for one in figures["cannot_tell"])
    recorded = "as recorded, so far as the recorder saw it made"
    source = recorded if asked.retained is None else "as --retained says"
    yield f"Retained: {human_bytes(figures['retained'])}, {source}. Not known:"
    yield from (f"  {what}" for what in figures["not_known"])
