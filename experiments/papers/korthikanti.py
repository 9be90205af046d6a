"""Korthikanti et al. (MLSys 2023, arXiv 2205.05198): what a rank of a split network keeps, and recomputation."""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.compat import enable_chainer

from ..measures.ranks import run_ranks
from ..measures.runner import CannotRunError
from .table import Table

enable_chainer()

from ..models.split_block import Parallel, activation_bytes  # noqa: E402 (Chainer is mended first)
from ..parallel.recomputation import overheads  # noqa: E402

WAYS: tuple[Parallel, ...] = ("data", "tensor", "sequence", "selective")
SECONDS = 300
"""After which ranks are taken to hang."""
SHAPE = 64, 4, 128, 4
"""Words, batch, width and heads."""
WIDTHS = ((128, 4), (256, 4), (512, 8))
"""And heads, of what recomputation costs: products of matrices grow faster with the width than what attention keeps."""
GPT3 = (2048, 1, 12_288, 96)
"""Words, batch, width and heads of GPT-3, a layer of which the paper splits over 8 ranks."""


def kept(way: Parallel, ranks: int, layers: int) -> list[str]:
    """Train a step on ranks of MPI; return the row of the one that keeps the most."""
    found = run_ranks(ranks, "experiments.parallel.rank", [way, *map(str, (*SHAPE, layers))], SECONDS)
    most = max(int(rank["kept"]) for rank in found)
    form = layers * activation_bytes(*SHAPE, ranks, way)
    error = max((rank["error"] for rank in found if rank["error"] is not None), default=None)
    off = "" if error is None else f"{error:.1e}"
    return [way, str(ranks), f"{most:,}", f"{round(form):,}", f"{most / form:.4f}", off]


def tables(quick: bool) -> Iterator[Table]:
    """Return what ranks keep, beside the closed forms, if there is MPI; and what recomputation costs."""
    rows, note = [], KEPT
    try:
        for ranks in (2,) if quick else (2, 4):
            rows += [kept(way, ranks, 2 if quick else 8) for way in WAYS]
    except (ModuleNotFoundError, CannotRunError) as error:
        note = f"Not measured: {error}"
    columns = ("by", "ranks", "kept", "closed form", "kept / form", "gradients off by")
    yield Table("A rank of MPI keeps, bytes", columns, rows, note)
    forms = {way: activation_bytes(*GPT3, 8, way, item=2) for way in WAYS[1:]}
    rows = [[way, f"{form / 2**20:,.1f}", f"{forms['tensor'] / form:.1f}"] for way, form in forms.items()]
    yield Table(
        "A layer of GPT-3 on 8 ranks, by the forms", ("by", "kept, MiB", "less than by tensor"), rows, FORMS
    )
    rows = []
    for width, heads in WIDTHS[:1] if quick else WIDTHS:
        runs = [overheads(*SHAPE[:2], width, heads, layers=2) for _ in range(1 if quick else 5)]
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
