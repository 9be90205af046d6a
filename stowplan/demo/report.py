"""A comparison as a table and as JSON."""

from __future__ import annotations

from typing import Any

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

    memory = Table(title="Memory of one step", title_justify="left", title_style="bold")
    memory.add_column("")
    memory.add_column("bytes", justify="right")
    memory.add_column("", justify="right")
    memory.add_column("fragmentation", justify="right")
    for name, count in (
        ("live peak: the most that is alive at once", plan.profile.live_peak),
        ("lower bound: the same, in multiples of 64 bytes", bound),
        ("arena", result.arena_bytes),
        ("CuPy's pool, the same requests (model)", result.cupy_pool_bytes),
    ):
        reserved = name.startswith(("arena", "CuPy"))
        memory.add_row(name, f"{count:,}", human_bytes(count), f"{count / bound - 1:.2%}" if reserved else "")

    requests = result.replayed + result.upstream
    measured = task.steps - result.first_replayed
    steps = Table(
        title=f"Steps {result.first_replayed} to {task.steps - 1}", title_justify="left", title_style="bold"
    )
    steps.add_column("")
    steps.add_column("NumPy's allocator", justify="right")
    steps.add_column("stowplan", justify="right")
    steps.add_row(
        "requests served from the plan", "", f"{result.replayed:,} ({result.replayed / max(requests, 1):.2%})"
    )
    steps.add_row("requests served by upstream", f"{requests:,}", f"{result.upstream:,}")
    for name, unit, value in (
        (f"minor page faults per step (median of {measured})", "", result.faults_per_step),
        (f"time per step (median of {measured})", " s", result.seconds_per_step),
    ):
        digits = ",.3f" if unit else ",.0f"
        steps.add_row(name, *(f"{value(run):{digits}}{unit}" for run in (result.default, result.pool)))

    title = f"{task.model}, batch {task.batch}, {task.steps} steps, seed {task.seed}: {len(plan.rows):,} planned blocks"
    if result.differs_in is None:
        arrays = len(result.pool.state)
        verdict = Text(
            f"Bit-identical: {task.steps} losses and {arrays} arrays (parameters, optimizer state)", style="green"
        )
    else:
        verdict = Text(f"NOT bit-identical: the runs differ in {result.differs_in}", style="bold red")
    return Group(Text(title, style="bold"), "", memory, "", steps, "", verdict)


def _costs(result: Comparison, run: Run) -> dict[str, Any]:
    return {
        "seconds_per_step": result.seconds_per_step(run),
        "minor_faults_per_step": result.faults_per_step(run),
        "seconds": [step.seconds for step in run.steps],
        "minor_faults": [step.minor_faults for step in run.steps],
        "losses": [step.loss for step in run.steps],
    }
