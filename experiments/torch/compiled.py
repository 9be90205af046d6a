"""Split compiled steps within budgets, beside PyTorch's own setting: ``python -m experiments.torch.compiled``.

`stowplan.torch.compile_backend` at shares of the peak, and ``activation_memory_budget`` at several settings, both by
``torch.compile`` with the same kernels (``aot_eager``) and the same loop around. Peaks and times are as in `budget`,
of forward, backward and update; shares are of the peak of PyTorch's own split. Beside these, what is kept for backward
by inductor without a budget. Six of the models need ``pip install transformers``. Each row is in a file as soon as it
is measured.

Exit status 1 if by stowplan a parameter differs from what PyTorch's own split gives, or the peak of forward and
backward is more than `CLOSE` from what was predicted. PyTorch's setting draws others where dropout runs again.
"""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

import click
import torch

from stowplan.torch import Meter, compile_backend

from ..measures import output
from ..measures.kept import Row
from .kept import Kept
from .metered import metered, partitioned
from .models import of_models, rows_of
from .training import Model, Original, peak_of, plain_step, seconds_of, trained

SETTINGS = (1.0, 0.5, 0.25, 0.0)
SHARES = ("80%", "60%")
LEAST, INDUCTOR = "least", "inductor"
"""In the place of a share: the least that was found, and no budget with inductor's kernels."""
CLOSE = 0.02
"""How far from its prediction a peak may be, as a share."""

TITLE = "Compiled steps of PyTorch, split within budgets"
NOTE = (
    "Peaks, beside what is resident, are shares of that of PyTorch's own split (the setting 1.0); CPU times are over "
    "those of the step that is not compiled. "
    "*setting*: of `activation_memory_budget`, or a budget of `stowplan.torch.compile_backend`, a share of all bytes "
    "with the resident ones. *identical*: parameters, equal to the bit after three steps. "
    "*kept*: MiB that forward keeps for backward with inductor's kernels and no budget."
)
COLUMNS = [
    output.Column("model", "model"),
    output.Column("way", "way"),
    output.Column("setting", "setting"),
    output.Column("peak", "share", "{:.3f}".format),
    output.Column("time", "seconds", "{:.2f}".format),
    output.Column("identical", "identical"),
    output.Column("kept", "kept", lambda count: f"{count / 2**20:.2f}"),
]


def measure(model: Model, kept: Kept) -> None:
    """Make the rows of one model that are not there yet."""
    original = Original(model)
    plain, batch = original.plain, original.batch
    expected: dict[str, torch.Tensor] = {}

    def row(backend: Any, meters: list[Meter]) -> Row:
        """Train; a peak is the most bytes alive in one of forward, backward and update."""
        torch._dynamo.reset()
        own = original.copy()
        step = plain_step(own, torch.compile(model.loss, backend=backend, dynamic=False), meters)
        trained(step, batch)
        same = all(
            torch.equal(one, expected.setdefault(key, one.clone())) for key, one in own.state_dict().items()
        )
        found = {"peak": peak_of(step, batch, meters), "identical": same}
        return found | {"seconds": seconds_of(step, plain, batch)}

    def theirs(setting: float) -> Row:
        meters: list[Meter] = []
        with torch._functorch.config.patch(activation_memory_budget=setting):
            return row(partitioned(meters), meters)

    def ours(budget: str) -> Row:
        meters: list[Meter] = []
        backend = compile_backend(0 if budget == LEAST else budget, compiler=metered(meters))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "stowplan: a graph takes")
            found = row(backend, meters)
        # Graphs that are compiled again, with other guards, are of the same shapes.
        return found | {"predicted": max(stats.peak - stats.resident for stats in backend.stats)}

    row(partitioned([]), [])  # what all others are compared with
    for setting in SETTINGS:
        kept.add("torch", setting, functools.partial(theirs, setting))
    for share in (*SHARES, LEAST):
        kept.add("stowplan", share, functools.partial(ours, share))

    def fused(backend: Any) -> Row:
        """Return what is kept for backward with inductor's kernels and no budget."""
        torch._dynamo.reset()
        own = original.copy()
        loss = torch.compile(model.loss, backend=backend, dynamic=False)(own, *batch)
        return {"peak": None, "kept": saved(loss, [*own.parameters(), *own.buffers(), *batch])}

    kept.add("torch", INDUCTOR, functools.partial(fused, "inductor"))
    kept.add("stowplan", INDUCTOR, functools.partial(fused, compile_backend(compiler="inductor")))


def saved(loss: torch.Tensor, before: list[torch.Tensor]) -> int:
    """Return the bytes that autograd keeps for the backward pass, each storage once, without those there before."""
    nodes, found = [loss.grad_fn], {}
    for node in nodes:
        nodes += [other for other, _ in node.next_functions if other is not None and other not in nodes]
        for one in getattr(node, "saved_tensors", ()):
            found[one.untyped_storage()._cdata] = one.untyped_storage().nbytes()
    for one in before:
        found.pop(one.untyped_storage()._cdata, None)
    return sum(found.values())


def shown(name: str, rows: list[Row]) -> list[Row]:
    """Return the lines of a model's table: what each way reached, in shares of PyTorch's own split."""
    before = next((row["peak"] for row in rows if row["setting"] == 1.0), None)
    return [
        {"device": "cpu", "model": name} | row | ({"share": row["peak"] / before} if row["peak"] else {})
        for row in rows
        if row["peak"] is not None or "kept" in row
    ]


def wrong(row: Row) -> str | None:
    """Return what is wrong with a row of stowplan's, if anything."""
    if row["peak"] is None or row["way"] != "stowplan":
        return None
    if not row["identical"]:
        return "parameters differ"
    if abs(row["peak"] - row.get("predicted", row["peak"])) > CLOSE * row["peak"]:
        return f"peak {row['peak']} was predicted to be {row['predicted']}"
    return None


@click.command()
@of_models
def main(chosen: tuple[str, ...], out: Path) -> None:
    """Split compiled steps of PyTorch within budgets of bytes."""
    kept = rows_of(chosen, out / "torch_compiled", measure)
    lines = [line for name, rows in kept.items() for line in shown(name, rows)]
    output.write_table(lines, COLUMNS, out / "torch_compiled", TITLE, NOTE, ("torch", "transformers"))
    output.fail(
        f"{name} at {row['setting']}: {what}"
        for name, rows in kept.items()
        for row in rows
        if (what := wrong(row))
    )


if __name__ == "__main__":
    main()
