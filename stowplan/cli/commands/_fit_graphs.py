"""``stowplan fit`` of step graphs: the batch that fits with lean and with recomputation, and what that costs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...errors import GraphError
from ...units import human_bytes
from ..terminal import say
from . import _look

if TYPE_CHECKING:
    from rich.table import Table

    from ...prediction.graphs import GraphModel
    from ...prediction.largest import ScheduledStep
    from ...scheduling import StepGraph

DOUBLINGS = 4
"""How often the largest recorded batch is doubled for the batches predicted by default."""


def fit_step_graphs(
    paths: Mapping[int, Path],
    batches: tuple[int, ...],
    memory: int | None,
    retained: int | None,
    output: Path | None,
    as_json: bool,
    how: Mapping[str, Any],
) -> None:
    """Fit, predict and print."""
    from ...prediction.graphs import fit_graphs
    from ...prediction.largest import largest_scheduled_batch, predict_schedules
    from ._graphs import read_graph, with_seconds

    graphs = {batch: with_seconds(read_graph(path))[0] for batch, path in paths.items()}
    model = fit_graphs(graphs)
    if not batches and memory is None:
        batches = tuple(model.batches[-1] << k for k in range(1, DOUBLINGS + 1))
    if memory is not None and not model.grows:
        raise GraphError("no value grows with the batch; expected step graphs of different batch sizes")
    with _look.status("scheduling", "scheduling batch {:,}".format) as progress:
        steps = []
        for batch in sorted(set(batches)):
            if progress:
                progress(batch)
            steps.append(predict_schedules(model, batch, **how))
        lean = scheduled = None
        if memory is not None:
            lean = largest_scheduled_batch(model, memory, retained, solver="lean")
            scheduled = largest_scheduled_batch(model, memory, retained, progress=progress, **how)
    if output is not None:
        model.at(batches[0]).save(output)
    printer = _Printer(model, retained)
    if as_json:
        printer.as_json(steps, memory, lean, scheduled)
    else:
        printer.show(steps, memory, lean, scheduled)
    if memory is not None and scheduled is None:
        say(
            f"Error: not even a batch of 1 fits {memory} bytes, {printer.kept(model.at(1))} of them retained",
            err=True,
        )
        raise click.exceptions.Exit(1)


class _Printer:
    """Prints a model and its predictions."""

    def __init__(self, model: GraphModel, retained: int | None) -> None:
        self.model, self.retained = model, retained

    def kept(self, graph: StepGraph) -> int:
        """Bytes that the program keeps from step to step."""
        return graph.resident_bytes if self.retained is None else self.retained

    def as_json(
        self,
        steps: list[ScheduledStep],
        memory: int | None,
        lean: ScheduledStep | None,
        scheduled: ScheduledStep | None,
    ) -> None:
        printed: dict[str, Any] = {
            "batches": self.model.batches,
            "operators": len(self.model.reference),
            "values": self.model.reference.values,
            "deviation": {str(batch): off._asdict() for batch, off in self.model.deviation.items()},
            "cannot_tell": self.model.cannot_tell,
            "predictions": [self._figures(step) for step in steps],
        }
        if memory is not None:
            printed["memory"] = memory
            printed["largest"] = {
                "lean": self._figures(lean) if lean else None,
                "scheduled": self._figures(scheduled) if scheduled else None,
            }
        click.echo(json.dumps(printed))

    def _figures(self, step: ScheduledStep) -> dict[str, Any]:
        return {
            "batch": step.batch,
            "step_seconds": float(step.graph.seconds.sum()),
            "lean_peak": step.lean.peak,
            "peak": step.scheduled.peak,
            "retained": self.kept(step.graph),
            "total": step.scheduled.peak + self.kept(step.graph),
            "extra_seconds": step.scheduled.extra_seconds,
            "extra_share": step.extra_share,
            "solver": step.scheduled.solver,
        }

    # --- for people ---------------------------------------------------------------------------------------------------

    def show(
        self,
        steps: list[ScheduledStep],
        memory: int | None,
        lean: ScheduledStep | None,
        scheduled: ScheduledStep | None,
    ) -> None:
        batches = self.model.batches
        head = f"{len(self.model.reference):,} operators, fitted from batches {batches[0]} and {batches[-1]}"
        checks = [
            f"checked at {batch}: bytes {off.bytes:.3%} off, workspaces {off.workspace:.1%}, seconds {off.seconds:.1%}"
            for batch, off in self.model.deviation.items()
        ]
        why = self.model.cannot_tell
        _look.show("; ".join([head, *checks]), *([f"cannot tell: {why}"] if why else []))
        if steps:
            _look.show("", self._predicted(steps))
        if memory is not None:
            _look.show("", self._largest(memory, lean, scheduled))

    def _predicted(self, steps: list[ScheduledStep]) -> Table:
        rows = _look.table(
            "Predicted", "batch", "lean peak", "with retained", "least peak", "with retained", "extra time"
        )
        for step in steps:
            cells = [
                human_bytes(count)
                for peak in (step.lean.peak, step.scheduled.peak)
                for count in (peak, peak + self.kept(step.graph))
            ]
            rows.add_row(f"{step.batch:,}", *cells, f"{step.extra_share:.1%}")
        return rows

    def _largest(self, memory: int, lean: ScheduledStep | None, scheduled: ScheduledStep | None) -> Table:
        title = f"The largest batch within {human_bytes(memory)}"
        rows = _look.table(title, "", "batch", "planned peak", "with retained", "extra time")
        for name, step in (("lean", lean), ("with recomputation", scheduled)):
            if step is None:
                rows.add_row(name, "none")
                continue
            peak = step.scheduled.peak
            cells = (human_bytes(peak), human_bytes(peak + self.kept(step.graph)), f"{step.extra_share:.1%}")
            rows.add_row(name, f"{step.batch:,}", *cells)
        return rows
