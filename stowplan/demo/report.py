"""A comparison as a table and as JSON."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..plot import human_bytes
from .compare import Comparison
from .training import Run


def as_json(result: Comparison) -> dict[str, Any]:
    """Return what ``stowplan demo --json`` prints: bytes, requests, seconds, minor page faults."""
    task, plan = result.task, result.plan
    return {
        "model": task.model,
        "batch": task.batch,
        "steps": task.steps,
        "seed": task.seed,
        "blocks": len(plan.rows),
        "live_peak": plan.profile.live_peak,
        "lower_bound": plan.placement.lower_bound,
        "arena": result.arena_bytes,
        "fragmentation": result.fragmentation,
        "cupy_pool": result.cupy_pool_bytes,
        "first_replayed_step": result.first_replayed,
        "replayed": result.replayed,
        "upstream": result.upstream,
        "identical": result.differs_in is None,
        "default": _costs(result, result.default),
        "pool": _costs(result, result.pool),
    }


def as_table(result: Comparison) -> RenderableType:
    """Return the demo's table, for a `rich.console.Console`."""
    task, plan = result.task, result.plan
    bound = plan.placement.lower_bound

    memory = _table("Memory of one step", "bytes", "", "fragmentation")
    memory.add_row("live peak", *_size(plan.profile.live_peak), "")
    memory.add_row("lower bound (units of 64 bytes)", *_size(bound), "")
    for name, count in (
        ("arena", result.arena_bytes),
        ("CuPy's pool (model)", result.cupy_pool_bytes),
    ):
        memory.add_row(name, *_size(count), f"{count / bound - 1:.2%}")

    requests = result.replayed + result.upstream
    measured = task.steps - result.first_replayed
    steps = _table(
        f"Steps {result.first_replayed} to {task.steps - 1} (medians of {measured})",
        "NumPy's allocator",
        "stowplan",
    )
    steps.add_row(
        "requests served from the plan", "0", f"{result.replayed:,} ({result.replayed / requests:.2%})"
    )
    steps.add_row("requests served by upstream", f"{requests:,}", f"{result.upstream:,}")
    runs = (result.default, result.pool)
    steps.add_row(
        "minor page faults per step",
        *(f"{result.faults_per_step(run):,.0f}" for run in runs),
    )
    steps.add_row("time per step", *(f"{result.seconds_per_step(run):.3f} s" for run in runs))

    title = f"{task.model}, batch {task.batch}, seed {task.seed}: {len(plan.rows):,} planned blocks in a step"
    if result.differs_in is None:
        what = f"{task.steps} losses, {len(result.pool.state)} arrays (parameters, optimizer state)"
        verdict = Text(f"bit-identical: {what}", style="green")
    else:
        verdict = Text(f"NOT bit-identical: the runs differ in {result.differs_in}", style="bold red")
    return Group(Text(title, style="bold"), "", memory, "", steps, "", verdict)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _size(count: int) -> tuple[str, str]:
    return f"{count:,}", human_bytes(count)


def _costs(result: Comparison, run: Run) -> dict[str, Any]:
    return {
        "seconds_per_step": result.seconds_per_step(run),
        "minor_faults_per_step": result.faults_per_step(run),
        "seconds": [step.seconds for step in run.steps],
        "minor_faults": [step.minor_faults for step in run.steps],
        "losses": [step.loss for step in run.steps],
    }
