"""Whether a pool has helped a program, why, and what to do: the two lines at the end of ``stowplan run``.

CPU time a step decides: with the plan beside that without it, where the pool keeps freed memory mapped already, so this
is not what plain Python would take. Page faults explain it, as they are most of what a plan saves on the host; what was
not served from the plan, and why, explains the rest.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..units import human_bytes
from .step_usage import StepCost

NOISE = 0.03
"""Share of a step's CPU time that two measurements may differ by without a reason."""
FEW_FAULTS = 50
"""Page faults a step that take no time worth a plan: some tens of microseconds."""

MARK = (
    "mark the part that repeats: --step-function MODULE:FUNCTION, or `with stowplan.step():` in the program"
)
MIMALLOC = (
    "or run it without stowplan, with an allocator that keeps memory: LD_PRELOAD=libmimalloc.so python ..."
)
KEEPING = (
    "compare with an allocator that does no more than that: LD_PRELOAD=libmimalloc.so python ..., "
    "or glibc's variables"
)


class Verdict(NamedTuple):
    """A pool's effect on a program.

    Attributes
    ----------
    helped
        None where it cannot be told.
    why
        What was seen.
    advice
        What to do; empty if nothing.
    before, after
        What a step cost without the plan and with it; None where no whole step was seen.
    """

    helped: bool | None
    why: str
    advice: str = ""
    before: StepCost | None = None
    after: StepCost | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return all of it for ``--json``."""
        costs = {
            name: cost and cost._asdict() for name, cost in (("before", self.before), ("after", self.after))
        }
        return {**self._asdict(), **costs}


def judge(figures: dict[str, Any], before: StepCost | None = None, after: StepCost | None = None) -> Verdict:
    """Judge a pool by its counts, and by what its steps cost.

    Parameters
    ----------
    figures
        `Stats` as a dict, with ``requests``, and ``with_a_plan``: how many came while there was a plan.
    before, after
        What a step cost without the plan and with it.
    """
    requests = figures["requests"]
    if not requests:
        return Verdict(
            False,
            "it asked for no block that is large enough to plan",
            "run it without stowplan",
            before,
            after,
        )
    if not figures["replayed"]:
        why = f"no step that repeats was found in {requests:,} requests"
        if figures["with_a_plan"]:
            why = f"none of {requests:,} requests came as planned{_mostly(figures)}"
        return Verdict(False, why, f"{MARK}; {MIMALLOC}", before, after)
    covered = figures["replayed"] / requests
    missed = (
        "" if covered > 0.9 else f"; {1 - covered:.0%} of the requests were not planned{_mostly(figures)}"
    )
    advice = _action(figures) if missed else ""
    if before is None or after is None:
        part = "without the plan" if before is None else "with the plan"
        why = f"page faults and CPU time a step were not measured, as no whole step was seen {part}"
        return Verdict(None, why + missed, advice or "give it more steps", before, after)
    change = after.cpu_seconds / before.cpu_seconds - 1 if before.cpu_seconds else 0.0
    if change < -NOISE:
        return Verdict(True, f"a step takes {-change:.0%} less CPU time{missed}", advice, before, after)
    if before.faults < FEW_FAULTS:
        why = (
            f"a step has only {before.faults:,.0f} page faults without a plan, as the pool keeps what is freed: "
            "a plan has little to add"
        )
        return Verdict(None if change <= NOISE else False, why, KEEPING, before, after)
    if change <= NOISE:
        return Verdict(None, f"CPU time a step did not change measurably{missed}", advice, before, after)
    advice = f"{advice or MARK}; {MIMALLOC}"
    return Verdict(False, f"a step takes {change:.0%} more CPU time{missed}", advice, before, after)


def text(name: str, figures: dict[str, Any], verdict: Verdict) -> str:
    """Return the two lines on a pool."""
    requests = figures["requests"]
    parts = [f"{figures['steps']:,} steps"]
    if requests:
        parts.append(f"{figures['replayed'] / requests:.1%} of {requests:,} requests served from the plan")
    before, after = verdict.before, verdict.after
    if before is not None and after is not None:
        parts.append(
            f"a step without -> with it (mean of {before.steps:,} -> {after.steps:,}): "
            f"page faults {before.faults:,.0f} -> {after.faults:,.0f}, "
            f"CPU time {_seconds(before.cpu_seconds)} -> {_seconds(after.cpu_seconds)}"
        )
    parts.append(
        f"most reserved {human_bytes(figures['peak_reserved_bytes'])}, "
        f"most alive {human_bytes(figures['peak_live_bytes'])}"
    )
    heading = {True: "it helped", False: "it did not help", None: "whether it helped cannot be told"}
    advice = f". What to do: {verdict.advice}" if verdict.advice else ""
    return f"stowplan: {name}: {'; '.join(parts)}\n  {heading[verdict.helped]}: {verdict.why}{advice}"


def _mostly(figures: dict[str, Any]) -> str:
    from ..allocator.counts import REASONS

    reasons = figures["reasons"]
    if not reasons:
        return ""
    return f" (mostly: {REASONS[max(reasons, key=reasons.__getitem__)].why})"


def _action(figures: dict[str, Any]) -> str:
    from ..allocator.counts import REASONS

    reasons = figures["reasons"]
    return REASONS[max(reasons, key=reasons.__getitem__)].action if reasons else ""


def _seconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.2f} ms" if seconds < 1 else f"{seconds:,.2f} s"
