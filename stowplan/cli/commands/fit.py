"""``stowplan fit``: what a step needs at any batch size, from a few recorded ones, without the target device.

==========  ============================================================  ==============================
asked       answered                                                      exit status 1
==========  ============================================================  ==============================
--batch     the arena, and all that is alive beside it                    cannot tell
--memory    the largest batch with which both fit so much memory          none fits, or cannot tell
--device    whether a batch fits a device, with each of the pools there   one does not, or cannot tell
==========  ============================================================  ==============================

One formula answers all three (`stowplan.prediction.profile_scaling`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...common.units import human_bytes, parse_bytes
from . import _look
from ._options import BYTES, OutputFile, Parsed, planning_options, refuse, removed_option
from ._reporter import Answer, reporter

if TYPE_CHECKING:
    from ...insight.on_device import Way
    from ...planning import Plan
    from ...prediction.profile_scaling import StepPrediction

DOUBLINGS = 4
"""How often the largest recorded batch is doubled for the batches predicted by default."""


def _batch_file(text: str) -> tuple[int, Path]:
    """Read ``BATCH=PROFILE``; return the batch and the path."""
    batch, sign, path = text.partition("=")
    expected = "expected BATCH=PROFILE, like 2=two.profile"
    if sign and ":" in batch:
        raise ValueError(f"{text!r}: named shapes were removed; {expected}")
    if not sign or not batch.isdecimal() or not int(batch):
        raise ValueError(f"{text!r}; {expected}")
    return int(batch), Path(path)


def _device(text: str) -> int:
    """Read ``cuda:24GiB``; return the bytes of its memory."""
    kind, _, memory = text.partition(":")
    if kind == "cuda":
        with suppress(ValueError):
            return parse_bytes(memory)
    raise ValueError(f"{text!r}; expected cuda:MEMORY, like cuda:24GiB")


@reporter(
    "Predict the memory of any batch size, and which one fits.",
    "fit 2=two.profile 3=three.profile 4=four.profile --memory 16GiB",
)
@click.argument(
    "files", metavar="BATCH=PROFILE...", type=Parsed("batch", _batch_file), nargs=-1, required=True
)
@click.option(
    "--batch", "batches", type=click.IntRange(min=1), multiple=True, help="Predict this batch size."
)
@click.option(
    "--memory",
    "--budget",
    "memory",
    type=BYTES,
    help="Find the largest batch that fits so much memory, like 16GiB.",
)
@click.option(
    "--device",
    type=Parsed("device", _device),
    help="Report whether each --batch fits a device of this memory, like cuda:24GiB, and what would change that.",
)
@click.option(
    "--retained",
    type=BYTES,
    help="Memory that the program keeps from step to step (parameters, optimizer state), in place of what the profiles "
    "know of it.",
)
@click.option("-o", "--output", type=OutputFile(), help="Write the predicted profile of the one --batch.")
@removed_option("--at", "--batch, and profiles that differ in one number")
@removed_option("--ranks", "profiles of one rank")
@removed_option("--parallel", "profiles of one rank")
@planning_options
@click.pass_context
def fit(
    context: click.Context,
    /,
    files: tuple[tuple[int, Path], ...],
    batches: tuple[int, ...],
    memory: int | None,
    device: int | None,
    retained: int | None,
    output: Path | None,
    alignment: int | None,
    **how: Any,
) -> Answer:
    """Predict a step's memory at any batch size from profiles of three or more small ones.

    The size of each block is fitted as a power of the batch, or else as affine in it, with the smallest and the largest
    profile; those between check the fit. Use 2 rather than 1 for the smallest batch. What was alive beside the step's
    blocks counts, too. Batches of more than eight times the largest recorded one are named as extrapolated.

    --device cuda:24GiB replays profiles of a CPU run in models of CuPy's and PyTorch's pools, and in a plan: each fits,
    does not fit, or is too close.

    Exit status 1 if nothing can be told, if not even a batch of 1 fits the memory, or unless each batch fits the device
    unchanged.
    """
    from ...insight.comparison import alignment_of
    from ...prediction import fit_steps
    from ...profiler import formats
    from ._graphs import is_graph

    if len(dict(files)) < len(files):
        raise click.UsageError("two profiles of one batch size; expected one of each")
    if device is not None:
        refuse(context, ("memory", "output", "alignment"), "--device")
        if not batches:
            raise click.UsageError("--device; expected --batch: which one is to fit")
    if output is not None and len(batches) != 1:
        raise click.UsageError(f"-o writes one profile; expected one --batch, not {len(batches)}")
    for _, path in files:
        if is_graph(path):
            raise click.UsageError(
                f"{path}: fit of step graphs was removed; expected a profile (stowplan schedule takes graphs)"
            )
    model = fit_steps({batch: formats.read(path) for batch, path in files}, retained)
    asked = sorted(set(batches))
    if not asked and memory is None:
        asked = [model.batches[-1] << k for k in range(1, DOUBLINGS + 1)]
    older = model.older(model.batches[-1])
    figures = {"batches": model.batches, "retained": 0 if older is None else int(older.max())}
    source = _source(model, retained)
    if device is not None:
        return _fit_device(model, asked, device, figures, source, how)
    how = {"alignment": alignment or alignment_of(model.reference), **how}
    return _fit_plans(model, asked, memory, output, figures, source, how)


def _fit_plans(
    model: StepPrediction,
    asked: list[int],
    memory: int | None,
    output: Path | None,
    figures: dict[str, Any],
    source: str,
    how: dict[str, Any],
) -> Answer:
    """Plan each batch asked for, and find the largest one within a memory."""
    from ...planning import make_plan
    from ...prediction.profile_scaling import largest_batch

    def row(batch: int, plan: Plan) -> dict[str, Any]:
        kept = model.kept(batch, how["alignment"])
        return {
            "batch": batch,
            "planned_peak": plan.profile.planned_peak,
            "lower_bound": plan.placement.lower_bound,
            "arena": plan.arena_bytes,
            "kept": kept,
            "total": plan.arena_bytes + kept,
            "optimal": plan.placement.optimal,
            "extrapolated": model.extrapolated(batch),
        }

    why, largest = _reason(model, asked), None
    plans = {} if why else {batch: make_plan(model.profile(batch), **how) for batch in asked}
    if memory is not None and not why:
        largest = largest_batch(model, memory, **how)
        why = model.cannot_tell(largest[0] if largest else 1)
    figures |= {
        "predictions": [] if why else [row(*one) for one in plans.items()],
        "cannot_tell": why,
        "blocks": len(model.reference),
        "matched": model.matched,
        "deviation": {str(batch): share for batch, share in model.deviation.items()},
        "alignment": how["alignment"],
    }
    if memory is not None:
        figures |= {"memory": memory, "largest": row(*largest) if largest and not why else None}
    if why:
        return Answer(figures, [model.head], bad=True, why=f"cannot tell: {why}")
    if output is not None:
        plans[asked[0]].profile.save(output)
    kept = model.kept(1, how["alignment"])
    none = f"not even a batch of 1 fits {memory} bytes, {kept} of which are kept beside its plan"
    bad = memory is not None and largest is None
    return Answer(figures, _plan_parts(model, figures, source), bad=bad, why=none)


def _plan_parts(model: StepPrediction, figures: dict[str, Any], source: str) -> Iterator[object]:
    largest = figures.get("largest")
    every = {row["batch"]: row for row in (*figures["predictions"], largest) if row}.values()
    with_kept = any(row["kept"] for row in every)
    rows = _look.table("Predicted", "batch", "planned peak", "arena", *["with retained"] * with_kept)
    for row in every:
        sizes = [row["planned_peak"], row["arena"], *[row["total"]] * with_kept]
        rows.add_row(f"{row['batch']:,}", *map(human_bytes, sizes))
    yield from (model.head, "")
    if rows.row_count:
        yield rows
    if largest:
        yield from ("", f"The largest batch within {human_bytes(figures['memory'])}: {largest['batch']:,}")
    yield from (*_far(every), source)


def _fit_device(
    model: StepPrediction,
    asked: list[int],
    memory: int,
    figures: dict[str, Any],
    source: str,
    how: dict[str, Any],
) -> Answer:
    """Replay each batch on a device. The result is negative unless each fits with the program's own pool."""
    from ...insight.comparison import ALIGNMENT
    from ...insight.on_device import FITS, NOT_KNOWN, own_pool, remedies, ways

    why, own = _reason(model, asked), own_pool(model.reference)
    found: dict[int, list[Way]] = {}
    with _look.status("replaying", "batch {:,}".format) as progress:
        for batch in asked if not why else ():
            if progress:
                progress(batch)
            found[batch] = ways(model.profile(batch), memory, model.kept(batch, ALIGNMENT), **how)
    predictions = []
    for batch, several in found.items():
        answer = next(way for way in several if way.name == own)
        predictions.append(
            {
                "batch": batch,
                "verdict": answer.verdict,
                "pool": own,
                "remedies": [way.name for way in remedies(several, own)],
                "ways": [asdict(way) | {"extra_share": 0.0} for way in several],
                "extrapolated": model.extrapolated(batch),
            }
        )
    figures |= {
        "predictions": predictions,
        "device": "cuda",
        "memory": memory,
        "cannot_tell": [why] * bool(why),
        "not_known": NOT_KNOWN,
    }
    if why:
        return Answer(figures, [model.head], bad=True, why=f"cannot tell: {why}")
    bad = any(one["verdict"] != FITS for one in predictions)
    return Answer(figures, _device_parts(model, figures, found, source), bad=bad)


def _device_parts(
    model: StepPrediction, figures: dict[str, Any], found: dict[int, list[Way]], source: str
) -> Iterator[object]:
    from ...insight.on_device import FITS, UNKNOWN, own_pool, remedies

    yield model.head
    for batch, several in found.items():
        own = own_pool(model.reference)
        answer = next(way for way in several if way.name == own)
        where = f"Batch {batch:,} on a device of {human_bytes(figures['memory'])}"
        needs = f"it needs {human_bytes(answer.total)}, and up to {human_bytes(UNKNOWN)} that are not known (below)"
        yield f"{where}: {answer.verdict} with {answer.title}: {needs}"
        rows = _look.table("", "", "step", "with retained", "verdict", left=("verdict",))
        for way in several:
            rows.add_row(way.title, human_bytes(way.step), human_bytes(way.total), way.verdict)
        yield rows
        if answer.verdict != FITS:
            better = [f"{way.title} ({way.verdict})" for way in remedies(several, own)]
            yield f"Makes it fit: {', '.join(better) or 'none of these'}"
    yield from (*_far(figures["predictions"]), source, "Not known:")
    yield from (f"  {what}" for what in figures["not_known"])


def _reason(model: StepPrediction, asked: list[int]) -> str:
    """Return why nothing can be told of one of the batches asked for; empty if all can."""
    return next(filter(None, [model.unchecked, *map(model.cannot_tell, asked)]), "")


def _far(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        if times := row["extrapolated"]:
            yield f"Batch {row['batch']:,}: extrapolated, {times:,.1f} times beyond what was recorded"


def _source(model: StepPrediction, retained: int | None) -> str:
    """Tell where the bytes come from that are older than a step."""
    if retained is not None:
        return f"Retained: {human_bytes(retained)}, as --retained says"
    older = model.older(model.batches[-1])
    if older is None:
        return "Retained: not recorded, and taken as 0; --retained says it"
    return f"Retained: {human_bytes(int(older.max()))} at batch {model.batches[-1]:,}, as recorded"
