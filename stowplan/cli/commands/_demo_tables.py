"""Write a comparison as a table, or as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rich.text import Text

from ...common.units import human_bytes
from ...insight.demo.compare import Comparison, PooledRun
from ...insight.demo.training import Run
from ._look import table


def as_json(result: Comparison) -> dict[str, Any]:
    """Return what ``stowplan demo --json`` prints: bytes, requests, seconds, minor page faults.

    The figures of the pool's plan stand next to the task's; those of the lean one are in ``lean``.
    """
    task = result.task
    return {
        "model": task.model,
        "batch": task.batch,
        "steps": task.steps,
        "seed": task.seed,
        "first_replayed_step": result.first_measured,
        "identical": result.differs_in is None,
        **_plan(result, result.pool),
        "default": _costs(result, result.default),
        "pool": _costs(result, result.pool),
        "lean": {**_plan(result, result.lean), **_costs(result, result.lean)},
    }


def as_tables(result: Comparison) -> Iterator[object]:
    """Yield the lines and tables of ``stowplan demo``."""
    task, runs, blocks = result.task, (result.pool, result.lean), len(result.pool.plan.rows)
    title = f"{task.model}, batch {task.batch}, seed {task.seed}: {blocks:,} planned blocks in a step"
    yield from (Text(title, style="bold"), "")

    memory = table("Memory of one step, bytes", "", "stowplan", "", "lean", "")
    bounds = [run.plan.placement.lower_bound for run in runs]
    memory.add_row("planned peak", *_sizes(run.plan.profile.planned_peak for run in runs))
    memory.add_row("lower bound (64 B)", *_sizes(bounds))
    memory.add_row("arena", *_sizes(run.arena_bytes for run in runs))
    memory.add_row("  fragmentation", *_shares(run.fragmentation for run in runs))
    pools = [run.cupy_pool_bytes for run in runs]
    memory.add_row("CuPy's pool (model)", *_sizes(pools))
    memory.add_row(
        "  fragmentation", *_shares(pool / bound - 1 for pool, bound in zip(pools, bounds, strict=True))
    )
    yield from (memory, "")

    first, all_runs = result.first_measured, (result.default, *runs)
    heading = f"Steps {first} to {task.steps - 1} (medians of {task.steps - first})"
    steps = table(heading, "", "NumPy", "stowplan", "lean")
    steps.add_row("requests served from the plan", "0", *(_replayed(run, first) for run in runs))
    upstream = [
        result.pool.replayed(first) + result.pool.upstream(first),
        *(run.upstream(first) for run in runs),
    ]
    steps.add_row("requests served by upstream", *(f"{count:,}" for count in upstream))
    steps.add_row("minor page faults per step", *(f"{result.faults_per_step(run):,.0f}" for run in all_runs))
    ratios = [result.over_default(run) for run in runs]
    seconds = f"{result.seconds_per_step(result.default):.3f} s"
    steps.add_row("time per step", seconds, *(f"{median:.2f} of it" for _, median, _ in ratios))
    steps.add_row("  quartiles over the rounds", "", *(f"{low:.2f} to {high:.2f}" for low, _, high in ratios))
    yield from (steps, "")

    if result.differs_in is None:
        what = f"{task.steps} losses, {len(result.pool.state)} arrays (parameters, optimizer state)"
        yield Text(f"bit-identical: {what}", style="green")
    else:
        yield Text(f"NOT bit-identical: the runs differ in {result.differs_in}", style="bold red")


def _sizes(counts: Iterable[int]) -> list[str]:
    return [cell for count in counts for cell in (f"{count:,}", human_bytes(count))]


def _shares(shares: Iterable[float]) -> list[str]:
    return [cell for share in shares for cell in ("", f"{share:.2%}")]


def _replayed(run: PooledRun, first: int) -> str:
    count = run.replayed(first)
    return f"{count:,} ({count / (count + run.upstream(first)):.2%})"


def _plan(result: Comparison, run: PooledRun) -> dict[str, Any]:
    return {
        "blocks": len(run.plan.rows),
        "planned_peak": run.plan.profile.planned_peak,
        "lower_bound": run.plan.placement.lower_bound,
        "arena": run.arena_bytes,
        "fragmentation": run.fragmentation,
        "cupy_pool": run.cupy_pool_bytes,
        "replayed": run.replayed(result.first_measured),
        "upstream": run.upstream(result.first_measured),
    }


def _costs(result: Comparison, run: Run) -> dict[str, Any]:
    return {
        "seconds_per_step": result.seconds_per_step(run),
        "over_default": dict(zip(("low", "median", "high"), result.over_default(run), strict=True)),
        "minor_faults_per_step": result.faults_per_step(run),
        "seconds": [step.seconds for step in run.steps],
        "minor_faults": [step.minor_faults for step in run.steps],
        "losses": [step.loss for step in run.steps],
    }
