"""Korthikanti et al. (MLSys 2023, arXiv 2205.05198): what a rank of a split network keeps, and recomputation."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from stowplan.compat import enable_chainer

from ..measures.runner import CannotRunError
from .table import Table

enable_chainer()

from ..models.split_block import Parallel, activation_bytes  # noqa: E402 (Chainer is mended first)
from ..parallel.__main__ import Shape, measure  # noqa: E402
from ..parallel.recomputation import overheads  # noqa: E402

WAYS: tuple[Parallel, ...] = ("tensor", "sequence", "selective")
SHAPE = Shape(words=64, batch=4, width=128, heads=4, layers=8)
WIDTHS = ((128, 4), (256, 4), (512, 8))
"""And heads, of what recomputation costs: products of matrices grow faster with the width than what attention keeps."""
GPT3 = (2048, 1, 12_288, 96)
"""Words, batch, width and heads of GPT-3, a layer of which the paper splits over 8 ranks."""


def tables(quick: bool) -> Iterator[Table]:
    """Return what ranks keep, beside the closed forms, if there is MPI; and what recomputation costs."""
    small = dataclasses.replace(SHAPE, layers=2)
    rows, note = [], KEPT
    try:
        for ranks in (2,) if quick else (2, 4):
            for way in WAYS:
                row = measure(way, ranks, small if quick else SHAPE)
                sizes = (f"{row[name]:,}" for name in ("kept", "form"))
                rows.append([way, str(ranks), *sizes, f"{row['kept_over_form']:.4f}"])
    except (ModuleNotFoundError, CannotRunError) as error:
        note = f"Not measured: {error}"
    yield Table(
        "A rank of MPI keeps, bytes", ("by", "ranks", "kept", "closed form", "kept / form"), rows, note
    )
    forms = {way: activation_bytes(*GPT3, 8, way, item=2) for way in WAYS}
    rows = [[way, f"{form / 2**20:,.1f}", f"{forms['tensor'] / form:.1f}"] for way, form in forms.items()]
    yield Table(
        "A layer of GPT-3 on 8 ranks, by the forms", ("by", "kept, MiB", "less than by tensor"), rows, FORMS
    )
    rows = []
    for width, heads in WIDTHS[:1] if quick else WIDTHS:
        shape = dataclasses.asdict(dataclasses.replace(small, width=width, heads=heads))
        runs = [overheads(**shape) for _ in range(1 if quick else 5)]
        found = sorted(runs, key=lambda run: float(run[-1]["extra"]))[len(runs) // 2]  # by full's, the median
        for row in found:
            cells = f"{row['extra']:.1%}", f"{row['extra'] / found[-1]['extra']:.0%}"
            rows.append([f"{row['recomputation']}, width {width}", f"{row['peak'] / 2**20:.1f}", *cells])
    columns = ("recomputed", "live peak, MiB", "time more", "of full's time")
    yield Table("Recomputation on one rank, two blocks", columns, rows, OVERHEADS)


KEPT = (
    "*Selective* is by sequence, with selective recomputation. The forms are the paper's equations 2 and 4, and "
    "34 s b h / t, with 4 bytes an element."
)
FORMS = "With 2 bytes an element. The paper: about five times."
OVERHEADS = "Predicted from the seconds of each operator. The paper: selective costs 90 % less than full."
