"""What fills a pool's memory, why requests were not replayed, and what to do about it: as a dict and as text.

Two occasions. `Pool.report` tells the present state. When upstream has no memory for a request, the core notes what it
found (allocator/core/diagnosis.hpp), and `failure_text` says it; `attach` hands it to the user in upstream's own error,
so that whoever catches that error goes on catching it::

    stowplan: upstream has no memory for 40,960,000 bytes: request 17 of step 5 (key 'train')
      live 812,646,400 bytes; reserved 901,965,536 (arena 402,981,440, upstream's blocks 498,984,096); ...
      largest live blocks:
          151,027,712  upstream, request 188, 4 steps ago
           18,874,368  planned, request 11 of this step, due at request 103
      next: ...
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol

import numpy as np

from .plan import Plan
from .stats import Stats

PlansInUse = Sequence[tuple[Hashable, int, Plan]]
"""(key, tag, plan) of each plan, the most recently used first."""

REASONS: dict[str, tuple[str, str]] = {
    "outside": (
        "asked for outside of all steps",
        "put the code that repeats into `with pool.step():`",
    ),
    "thread": (
        "asked for by a thread while the step of another was running",
        "nothing, for a thread that loads data; a thread that repeats a step of its own wants a pool of its own",
    ),
    "interrupted": (
        "asked for between interrupt and resume",
        "nothing: it was asked for",
    ),
    "no_plan": (
        "there was no plan: warm-up, record and confirm",
        "nothing, unless it goes on growing: then steps do not repeat, and a key for each kind of step may help",
    ),
    "escaped": (
        "the block is kept beyond the following step, or until its successor is there",
        "drop results (losses, outputs, batches) before the next step makes its own; parameters are meant to stay",
    ),
    "stream": (
        "asked for on another stream than the arena's",
        "run the step on one stream",
    ),
    "late": (
        "a block that had outlived its plan stood in the planned place",
        "drop what is kept from some steps only, or make it in `with pool.interrupt():`",
    ),
    "mismatch": (
        "not planned, or larger than planned",
        "give each kind of step a key, and put what differs each time into `with pool.interrupt():`",
    ),
}
"""Of requests that were not served from a plan: why, and what a user can do."""


class Source(Protocol):
    """What a diagnosis asks of the compiled half of a pool; see allocator/core/diagnosis.hpp."""

    def situation(self) -> dict[str, Any]:
        """Return what fills the memory now."""

    def failure(self) -> dict[str, Any] | None:
        """Return the last request that upstream had no memory for, and what it found; None where there is none."""


class Diagnosis:
    """What a pool says of itself. Remembers the text on the last failure, which must not name a later step's key."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._number, self._text = 0, ""

    def report(self, stats: Stats, plans: PlansInUse, key: Hashable) -> dict[str, Any]:
        """Return what `Pool.report` returns; `key` is the running step's, or the last one's."""
        now = self._source.situation()
        self._describe_failure(now["step"], plans, key)
        largest = max((plan for _, _, plan in plans), key=lambda plan: plan.arena_bytes, default=None)
        bound = 0 if largest is None else largest.placement.lower_bound
        followed = _followed(now["tag"], plans)
        return {
            "step": {
                "number": now["step"],
                "running": now["in_step"],
                "key": key,
                "requests": now["requests"],
                "planned_requests": None if followed is None else len(followed.profile),
            },
            "live_bytes": stats.live_bytes,
            "peak_live_bytes": stats.peak_live_bytes,
            "planned_bytes": 0 if largest is None else largest.arena_bytes,
            "reserved_bytes": stats.reserved_bytes,
            "peak_reserved_bytes": stats.peak_reserved_bytes,
            "arena_bytes": stats.arena_bytes,
            "upstream_bytes": now["upstream_bytes"],
            "lower_bound": bound,
            "fragmentation": stats.arena_bytes / bound - 1 if bound else 0.0,
            "replayed": stats.replayed,
            "guests": stats.guests,
            "upstream": stats.upstream,
            "reasons": {
                name: {"requests": n, "why": REASONS[name][0], "action": REASONS[name][1]}
                for name, n in stats.reasons.items()
            },
            "largest": _largest(now, followed),
            "plans": [
                {
                    "key": own_key,
                    "requests": len(plan.profile),
                    "arena_bytes": plan.arena_bytes,
                    "lower_bound": plan.placement.lower_bound,
                }
                for own_key, _, plan in plans
            ],
            "failure": self._text or None,
        }

    def explain(self, error: BaseException, plans: PlansInUse, key: Hashable) -> None:
        """Attach the text on a failure in the present step to the error it caused, once."""
        step, before = self._source.situation()["step"], self._number
        failure = self._describe_failure(step, plans, key)
        if self._number != before and failure["found"]["step"] == step:
            attach(error, self._text)

    def _describe_failure(self, step: int, plans: PlansInUse, key: Hashable) -> dict[str, Any]:
        failure = self._source.failure() or {"number": 0}
        if failure["number"] != self._number:
            known = failure["found"]["in_step"] and failure["found"]["step"] == step
            self._number, self._text = failure["number"], failure_text(failure, plans, key if known else None)
        return failure


def report_text(data: dict[str, Any]) -> str:
    """Return a report as text."""
    step, requests = data["step"], data["replayed"] + data["guests"] + data["upstream"]
    where = "in step" if step["running"] else "before step"
    lines = [
        f"{where} {_step(step['number'], step['key'] if step['running'] else None)}; plans: {len(data['plans'])}",
        f"  live           {data['live_bytes']:>16,} bytes, {data['peak_live_bytes']:,} at the most",
        f"  planned        {data['planned_bytes']:>16,} bytes, by the largest plan",
        f"  reserved       {data['reserved_bytes']:>16,} bytes: arena {data['arena_bytes']:,}, "
        f"upstream's blocks {data['upstream_bytes']:,}; {data['peak_reserved_bytes']:,} at the most",
        f"  lower bound    {data['lower_bound']:>16,} bytes, of the largest plan",
        f"  fragmentation  {data['fragmentation']:>16.2%} of the arena, over the lower bound",
        f"requests: {requests:,}, of which {data['replayed']:,} replayed, {data['guests']:,} guests, "
        f"{data['upstream']:,} upstream",
    ]
    for name, reason in sorted(data["reasons"].items(), key=lambda item: -item[1]["requests"]):
        lines.append(f"  {name:<12} {reason['requests']:>10,}  {reason['why']}")
        lines.append(f"  {'':<23}  -> {reason['action']}")
    lines += _largest_lines(data["largest"], "")
    if data["failure"] is not None:
        lines += ["the last request that failed:", data["failure"]]
    return "\n".join(lines)


def failure_text(failure: dict[str, Any], plans: PlansInUse, key: Hashable) -> str:
    """Say what a request that upstream had no memory for was, what it found, and what to do next.

    Parameters
    ----------
    failure
        As the core noted it.
    plans
        The plans in use.
    key
        Of the step, or None.
    """
    asked, found = failure["asked"], failure["found"]
    if asked["age"] < 0:
        where = "in an interrupted part of" if found["in_step"] else "outside of all steps, before"
    else:
        where = f"request {asked['request']} of"
    bound = max((plan.placement.lower_bound for _, _, plan in plans), default=0)
    reserved = found["arena_bytes"] + found["upstream_bytes"]
    largest = _largest(found, _followed(found["tag"], plans))
    return "\n".join(
        [
            f"stowplan: upstream has no memory for {asked['size']:,} bytes: {where} step "
            f"{_step(found['step'], key)}",
            f"  live {found['live_bytes']:,} bytes; reserved {reserved:,} (arena {found['arena_bytes']:,}, "
            f"upstream's blocks {found['upstream_bytes']:,}); lower bound of the plans {bound:,}",
            *_largest_lines(largest, "  "),
            f"  next: {_next_action(asked['size'], found, largest, bool(plans))}",
        ]
    )


def attach(error: BaseException, text: str) -> None:
    """Make an error say more, in place; its type, and so what catches it, stays.

    An error whose message is its argument gets a longer message; one that words its own (NumPy's), a note, or before
    Python 3.11, which has no notes, a cause.
    """
    if all(isinstance(argument, str) for argument in error.args) and len(error.args) < 2:
        error.args = ("\n".join([*error.args, text]),)
    elif hasattr(error, "add_note"):
        error.add_note(text)
    elif error.__cause__ is None:
        error.__cause__ = MemoryError(text)


def _next_action(size: int, found: dict[str, Any], largest: list[dict[str, Any]], planned: bool) -> str:
    """Choose the one thing that helps most."""
    if size > found["live_bytes"]:
        return "look at the shape: this request is larger than all live blocks together"
    if not planned:
        return (
            "there is no plan yet, and steps without one take the most: make the first steps smaller, load plans "
            "that an earlier run has saved, or, on a GPU, take CupyPool(sample='managed')"
        )
    kept = sum(block["size"] for block in largest if block["age"] != 0 and block["place"] != "planned")
    if 2 * kept > found["live_bytes"]:
        return (
            "most of what is live was made before this step and is not planned: see which of the blocks above the "
            "program still needs, and drop the others (results kept in lists, losses with their graphs)"
        )
    return (
        "the step itself needs this much, and no placement is smaller than the lower bound: a smaller batch, or "
        "results computed again instead of kept (in Chainer, F.forget)"
    )


def _followed(tag: int, plans: PlansInUse) -> Plan | None:
    return next((plan for _, own, plan in plans if own == tag), None)


def _step(number: int, key: Hashable) -> str:
    return str(number) if key is None else f"{number} (key {key!r})"


def _largest(situation: dict[str, Any], followed: Plan | None) -> list[dict[str, Any]]:
    """Say at which request each planned block is due, and whether that is the next step's; None for other blocks."""
    blocks = []
    for block in situation["largest"]:
        slot = block["slot"]
        place: dict[str, Any] = {"due": None, "wrapped": False}
        if slot is not None and followed is not None:
            profile = followed.profile
            end = int(profile.end[slot])
            place["due"] = int(np.searchsorted(profile.start, end % profile.period))
            place["wrapped"] = end >= profile.period
        blocks.append({name: value for name, value in block.items() if name != "slot"} | place)
    return blocks


def _largest_lines(blocks: list[dict[str, Any]], indent: str) -> list[str]:
    lines = [f"{indent}largest live blocks:"]
    for block in blocks:
        if block["age"] < 0:
            birth = "born outside of the steps"
        elif block["age"] == 0:
            birth = f"request {block['request']} of this step"
        else:
            birth = f"request {block['request']}, {block['age']} step{'s' * (block['age'] > 1)} ago"
        text = f"{indent}  {block['size']:>16,}  {block['place']}, {birth}"
        if block["due"] is not None:
            text += f", due at request {block['due']}{' of the next step' if block['wrapped'] else ''}"
        lines.append(text)
    return lines if blocks else [f"{indent}no live blocks"]
