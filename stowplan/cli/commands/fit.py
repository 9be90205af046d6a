"""``stowplan fit``: predict the memory of any batch size from small recorded steps, without the target device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ._fit_asked import DEVICE, SHAPE, Asked, ShapeFile
from ._fit_device import fit_device
from ._fit_graphs import fit_step_graphs
from ._fit_profiles import fit_profiles
from ._fit_shapes import WAYS, fit_shapes
from ._options import BYTES, OutputFile, planning_options, refuse
from ._reporter import Answer, reporter

MODES: dict[str, tuple[Callable[[Asked], Answer], tuple[str, ...]]] = {
    "--device": (fit_device, ("at", "memory", "output", "alignment")),
    "profiles of named shapes": (fit_shapes, ("memory", "output")),
    "step graphs": (fit_step_graphs, ("alignment",)),
    "profiles of batch sizes": (fit_profiles, ()),
}
"""What is asked: the function that answers, and parameters that it has no use for."""


@reporter(
    "Predict the memory of any batch size, and which one fits.",
    "fit 2=two.profile 4=four.profile --memory 16GiB --retained 1.2GiB",
)
@click.argument("files", metavar="BATCH=PROFILE...", type=ShapeFile(), nargs=-1, required=True)
@click.option(
    "--batch", "batches", type=click.IntRange(min=1), multiple=True, help="Predict this batch size."
)
@click.option("--at", type=SHAPE, help="Predict this shape, of profiles of named shapes: NAME:NUMBER,...")
@click.option(
    "--ranks", type=click.IntRange(min=1), help="Predict one of so many ranks, split by --parallel."
)
@click.option("--parallel", type=click.Choice(WAYS), help="What --ranks divide.")
@click.option(
    "--memory",
    "--budget",
    "memory",
    type=BYTES,
    help="Find the largest batch that fits so much memory, like 16GiB.",
)
@click.option(
    "--device",
    type=DEVICE,
    help="Report whether each --batch fits a device of this memory, like cuda:24GiB, and what would change that.",
)
@click.option(
    "--retained",
    type=BYTES,
    help="Memory that the program keeps from step to step: parameters, optimizer state.  "
    "[default: 0 of profiles, the resident values of step graphs]",
)
@click.option(
    "-o",
    "--output",
    type=OutputFile(),
    help="Write the predicted profile, or step graph, of the one --batch.",
)
@planning_options
@click.pass_context
def fit(context: click.Context, /, **given: Any) -> Answer:
    """Predict a step's memory at any batch size from profiles of two or more small ones.

    The size of each block is fitted as a power of the batch, or else as affine in it, with the smallest and the largest
    profile; those between check the fit. Sizes that no profile checks are reported. Use 2 rather than 1 for the
    smallest batch. Exit status 1 if not even a batch of 1 fits the memory.

    With step graphs (stowplan profile --graph) in place of profiles, it predicts the peak of the lean step and the
    least peak with recomputation; with --memory, the largest batch of each; and the time that recomputation costs.

    With shapes, like words:64,width:128=FILE, in place of batches, it predicts one rank's memory --at another shape.
    --ranks N --parallel data divides the batch; for tensor or sequence, the shapes have a number of that name, their
    ranks.

    --device cuda:24GiB replays profiles of a CPU run in models of CuPy's and PyTorch's pools, and in a plan: each fits,
    does not fit, or is too close. With step graphs, alone or with profiles, lean schedules and recomputation are
    candidates as well. Exit status 1 unless each batch fits unchanged.
    """
    asked = Asked(**given)
    mode = _mode(asked)
    answer, without = MODES[mode]
    refuse(context, without, mode)
    if (asked.ranks is None) != (asked.parallel is None):
        raise click.UsageError(
            "--ranks gives their number, --parallel what they divide; expected both or neither"
        )
    if answer is not fit_shapes and asked.parallel not in (None, "data"):
        number = f"no number {asked.parallel} with the batch sizes"
        raise click.UsageError(f"{number}; expected {asked.parallel}:N,...=PROFILE")
    if asked.output is not None and len(asked.batches) != 1:
        raise click.UsageError(f"-o writes one profile; expected one --batch, not {len(asked.batches)}")
    return answer(asked)


def _mode(asked: Asked) -> str:
    """Return the mode, of `MODES`, that files and options choose; raise if files do not go together."""
    from ._graphs import is_graph

    named = asked.at is not None or any(shape.keys() != {"batch"} for shape, _ in asked.files)
    graphs = [not named and is_graph(path) for _, path in asked.files]
    steps = {(graph, *sorted(shape.items())) for graph, (shape, _) in zip(graphs, asked.files, strict=True)}
    if len(steps) < len(asked.files):
        raise click.UsageError("two profiles of one batch size or shape, or two step graphs")
    if asked.device is not None:
        return "--device"
    if named:
        return "profiles of named shapes"
    if len({*graphs}) > 1:
        graph, other = (asked.files[graphs.index(kind)][1] for kind in (True, False))
        raise click.UsageError(
            f"{graph} is a step graph, {other} is none; expected profiles alone, or step graphs alone"
        )
    return "step graphs" if graphs[0] else "profiles of batch sizes"
