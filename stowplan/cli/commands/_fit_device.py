"""``stowplan fit --device cuda:24GiB``: whether a step that ran on the CPU fits a device, and what changes that."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...units import human_bytes, parse_bytes
from . import _look

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class Device(click.ParamType):  # type: ignore[type-arg]
    """``cuda:24GiB``."""

    name = "device"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the bytes of its memory."""
        kind, _, memory = str(value).partition(":")
        if kind == "cuda":
            with suppress(ValueError):
                return parse_bytes(memory)
        return self.fail(f"{value!r}; expected cuda:MEMORY, like cuda:24GiB", param, ctx)


def fit_device(
    profiles: Sequence[tuple[int, Path]],
    graphs: Sequence[tuple[int, Path]],
    batches: Sequence[int],
    memory: int,
    retained: int | None,
    as_json: bool,
    how: dict[str, Any],
) -> None:
    """Predict, replay, and print. Exit status 1 if a batch does not fit with the program's own pool."""
    from ...insight.on_device import FITS, NOT, NOT_KNOWN, own_pool, remedies, ways
    from ...prediction import fit_graphs, fit_steps
    from ...profiler import formats
    from ._graphs import read_graph, with_seconds

    known = [({"batch": batch}, formats.read(path)) for batch, path in profiles]
    model = fit_steps(known) if known else None
    graph_model = fit_graphs({n: with_seconds(read_graph(path))[0] for n, path in graphs}) if graphs else None
    why = [one.cannot_tell for one in (model, graph_model) if one and one.cannot_tell]
    reference = model.reference if model else None
    most = retained or 0
    kept: int | npt.NDArray[np.int64] = most
    if retained is None and reference is not None and (rest := reference.unplanned_bytes()) is not None:
        kept = rest - reference.unplanned_step_bytes()
        most = int(kept.max())
    own, printed = own_pool(reference), []
    for batch in sorted(set(batches)):
        profile = model.profile({"batch": batch}) if model else None
        graph = graph_model.at(batch) if graph_model else None
        with _look.status("replaying", "batch {:,}".format) as progress:
            if progress:
                progress(batch)
            found = ways(profile, graph, memory, kept, **how)
        answer = next((way for way in found if way.name == own), found[0])
        better = remedies(found, own)
        printed.append(
            {
                "batch": batch,
                "verdict": answer.verdict,
                "pool": answer.name,
                "remedies": [way.name for way in better],
                "ways": [asdict(way) for way in found],
            }
        )
        if as_json:
            continue
        rows = _look.table("", "", "step", "with retained", "verdict", "extra time", left=("verdict",))
        for way in found:
            extra = f"{way.extra_share:.1%}" if way.extra_share else ""
            rows.add_row(way.title, human_bytes(way.step), human_bytes(way.total), way.verdict, extra)
        changed = ", ".join(f"{way.title} ({way.verdict})" for way in better) or "none of these ways"
        _look.show(
            f"Batch {batch:,} on a device of {human_bytes(memory)}: {answer.verdict} with {answer.title}",
            rows,
            *([] if answer.verdict == FITS else [f"What changes the answer: {changed}"]),
        )
    if as_json:
        figures = {
            "device": "cuda",
            "memory": memory,
            "retained": most,
            "cannot_tell": why,
            "predictions": printed,
        }
        click.echo(json.dumps({**figures, "not_known": NOT_KNOWN}))
    else:
        source = (
            "as --retained says"
            if retained is not None
            else "as recorded, so far as the recorder saw it made"
        )
        _look.show(
            *(f"cannot tell: {one}" for one in why),
            f"Retained: {human_bytes(most)}, {source}. Not known:",
            *(f"  {what}" for what in NOT_KNOWN),
        )
    if any(one["verdict"] == NOT for one in printed):
        raise click.exceptions.Exit(1)
