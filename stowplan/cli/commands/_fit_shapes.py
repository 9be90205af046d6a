"""``stowplan fit`` of profiles of named shapes: the memory of one rank, at shapes that fit no machine here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ...errors import ProfileError
from . import _look

WAYS = ("data", "tensor", "sequence")


def parse_shape(text: str) -> dict[str, int]:
    """Read ``words:64,width:128``; a number alone is the batch.

    Raises
    ------
    ValueError
        It is neither.
    """
    shape = {}
    for item in [f"batch:{text}"] if text.isdecimal() else text.split(","):
        name, _, number = item.partition(":")
        if not name.isidentifier() or not number.isdecimal() or int(number) < 1 or name in shape:
            raise ValueError(f"{item!r} of {text!r}")
        shape[name] = int(number)
    return shape


class ShapeType(click.ParamType):  # type: ignore[type-arg]
    """``NAME:NUMBER,...``."""

    name = "shape"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the numbers by name."""
        try:
            return value if isinstance(value, dict) else parse_shape(value)
        except ValueError as error:
            self.fail(f"{error}; expected NAME:NUMBER,..., like words:2048,width:12288", param, ctx)


def split_batch(batch: int, ranks: int | None, parallel: str | None) -> int:
    """Return the batch of a rank."""
    return -(-batch // ranks) if ranks and parallel == "data" else batch


def fit_shapes(
    files: Sequence[tuple[Mapping[str, int], Path]],
    at: Mapping[str, int] | None,
    batches: Sequence[int],
    ranks: int | None,
    parallel: str | None,
    retained: int,
    as_json: bool,
    how: dict[str, Any],
) -> None:
    """Fit, predict and print."""
    from ...insight.comparison import alignment_of
    from ...prediction.ranks import SPLIT, fit_ranks
    from ...profiler import formats

    if at is None:
        raise click.UsageError("profiles of named shapes; expected --at NAME:NUMBER,...")
    if parallel is None and (split := [name for name in SPLIT if name in at]):
        parallel, ranks = split[0], at[split[0]]
    target = {name: number for name, number in at.items() if name not in SPLIT}
    if parallel in SPLIT:
        target[str(parallel)] = ranks or 1
    profiles = [(shape, formats.read(path)) for shape, path in files]
    how["alignment"] = how.get("alignment") or alignment_of(profiles[0][1])
    how["planner"] = how.pop("solver")
    model = fit_ranks(profiles, parallel)
    whole = list(batches) or [target.get("batch", 1)]
    if "batch" not in next(iter(model.models.values())).shape and (batches or parallel == "data"):
        raise ProfileError("no batch in the profiles' shapes; expected batch:N in each")
    found = []
    for batch in whole:
        shape = (
            {**target, "batch": split_batch(batch, ranks, parallel)}
            if "batch" in target or batches
            else target
        )
        found.append((batch, shape, model.at(shape, **how)))
    deviation = max((share for one in model.models.values() for _, share in one.deviation), default=0.0)
    blocks = {layers: len(one.reference) for layers, one in model.models.items()}
    if as_json:
        figures = [
            {
                "batch": batch,
                "shape": shape,
                "planned_peak": memory.planned_peak,
                "arena": memory.arena,
                "total": memory.arena + retained,
                "cannot_tell": model.cannot_tell(shape),
            }
            for batch, shape, memory in found
        ]
        checks = {"ranks": ranks or 1, "parallel": parallel, "retained": retained, "deviation": deviation}
        click.echo(json.dumps({**checks, "blocks": list(blocks.values()), "predictions": figures}))
        return
    rows = _look.table(
        "A rank" if parallel is None else f"A rank of {ranks}, by {parallel}",
        "shape",
        "planned peak",
        "arena",
        "",
        *(["with retained"] if retained else []),
    )
    for _, shape, memory in found:
        total = [_look.size(memory.arena + retained)[1]] if retained else []
        shape_text = " ".join(f"{name}:{number:,}" for name, number in shape.items())
        rows.add_row(shape_text, f"{memory.planned_peak:,}", *_look.size(memory.arena), *total)
    counts = " and ".join(f"{count:,}" for count in blocks.values())
    reasons = dict.fromkeys(model.cannot_tell(shape) for _, shape, _ in found)
    _look.show(
        f"{counts} blocks, fitted from {len(files)} profiles; sizes at most {deviation:.3%} off",
        *(f"cannot tell: {why}" for why in reasons if why),
        "",
        rows,
    )
