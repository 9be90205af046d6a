"""``stowplan fit`` of profiles of named shapes: the memory of one rank, at shapes that fit no machine here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ...errors import ProfileError
from . import _look
from ._fit_profiles import arena_cells, arena_columns
from ._reporter import Answer

if TYPE_CHECKING:
    from ._fit_asked import Asked

WAYS = ("data", "tensor", "sequence")


def fit_shapes(asked: Asked) -> Answer:
    """Fit and predict."""
    from ...prediction.ranks import SPLIT, fit_ranks
    from ...profiler import formats

    if asked.at is None:
        raise click.UsageError("profiles of named shapes; expected --at NAME:NUMBER,...")
    target = {name: number for name, number in asked.at.items() if name not in SPLIT}
    ways = [(name, number) for name, number in asked.at.items() if name in SPLIT]
    if len(ways) + (asked.parallel is not None) > 1:
        given = " and ".join(name for name, _ in ways)
        raise click.UsageError(f"--at has {given}; expected one way to split, there or as --parallel")
    parallel, ranks = ways[0] if ways else (asked.parallel, asked.ranks or 1)
    if parallel in SPLIT:
        target[parallel] = ranks
    profiles = [(shape, formats.read(path)) for shape, path in asked.files]
    how, retained = asked.planning(profiles[0][1]), asked.retained or 0
    model = fit_ranks(profiles, parallel)
    whole = asked.batches or (target.get("batch", 1),)
    if "batch" not in next(iter(model.models.values())).shape and (asked.batches or parallel == "data"):
        raise ProfileError("no batch in the profiles' shapes; expected batch:N in each")
    predictions = []
    for batch in whole:
        has_batch = "batch" in target or asked.batches
        shape = {**target, "batch": asked.of_rank(batch)} if has_batch else target
        memory = model.at(shape, **how)
        predictions.append(
            {
                "batch": batch,
                "shape": shape,
                **memory._asdict(),
                "total": memory.arena + retained,
                "cannot_tell": model.cannot_tell(shape),
            }
        )
    figures = {
        "ranks": ranks,
        "parallel": parallel,
        "retained": retained,
        "deviation": max((share for one in model.models.values() for _, share in one.deviation), default=0.0),
        "blocks": [len(one.reference) for one in model.models.values()],
        "predictions": predictions,
    }
    return Answer(figures, _parts(figures, len(profiles)))


def _parts(figures: dict[str, Any], profiles: int) -> Iterator[object]:
    parallel, retained = figures["parallel"], figures["retained"]
    counts = " and ".join(f"{count:,}" for count in figures["blocks"])
    yield f"{counts} blocks, fitted from {profiles} profiles; sizes at most {figures['deviation']:.3%} off"
    for why in dict.fromkeys(row["cannot_tell"] for row in figures["predictions"]):
        if why:
            yield f"cannot tell: {why}"
    title = "A rank" if parallel is None else f"A rank of {figures['ranks']}, by {parallel}"
    rows = _look.table(title, "shape", *arena_columns(retained))
    for row in figures["predictions"]:
        shape = " ".join(f"{name}:{number:,}" for name, number in row["shape"].items())
        rows.add_row(shape, *arena_cells(row, retained))
    yield from ("", rows)
