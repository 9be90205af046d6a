"""What fills a pool's memory, why requests were not replayed, and what to do about it: as a dict and as text.

Two occasions. `Pool.report` tells the present state. When upstream has no memory for a request, the core notes what it
found (core/replay/diagnosis.hpp), and `failure_text` words it; `attach` hands it to the user in upstream's own error,
so that a program that catches that error goes on catching it::

    stowplan: upstream has no memory for 40,960,000 bytes: request 17 of step 5 (key 'train')
      live 812,646,400 bytes; reserved 901,965,536 (arena 402,981,440, upstream's blocks 498,984,096); ...
      largest live blocks:
          151,027,712  upstream, request 188, 4 steps ago
           18,874,368  planned, request 11 of this step, due at request 103
      next: ...
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .counter_definitions import REASONS, Kind
from .stats import Stats, of_kind

if TYPE_CHECKING:
    from ._core import Backend
    from .cache import Installed


InUse: TypeAlias = "tuple[int, Installed]"
"""A plan in use, and the lane that it is for."""


class Diagnosis:
    """The report of a pool. Remembers the text on the last failure, which must not name a later step's key."""

    def __init__(self, source: Backend) -> None:
        self._source = source
        self._number, self._text = 0, ""

    def report(self, stats: Stats, plans: Sequence[InUse], key: Hashable) -> dict[str, Any]:
        """Return what `Pool.report` returns; `key` is the running step's, or the last one's."""
        now = self._source.situation()
        self._describe_failure(now, plans, key)
        return {
            "step": {
                "number": now["step"],
                "running": now["in_step"],
                "key": key,
                "requests": now["requests"],
                "planned_requests": now["planned_requests"] or None,
            },
            **of_kind(stats, Kind.BYTES),
            "planned_bytes": sum(
                max(used.plan.arena_bytes for own, used in plans if own == lane)
                for lane in {lane for lane, _ in plans}
            ),
            "upstream_bytes": now["upstream_bytes"],
            "fragmentation": stats.fragmentation,
            **of_kind(stats, Kind.SERVED),
            "reasons": {
                name: {"requests": n, "why": REASONS[name].why, "action": REASONS[name].action}
                for name, n in stats.reasons.items()
            },
            "largest": _largest(now, plans),
            "plans": [
                {
                    "key": used.key,
                    "lane": lane,
                    "requests": len(used.plan.profile),
                    "arena_bytes": used.plan.arena_bytes,
                    "lower_bound": used.plan.placement.lower_bound,
                }
                for lane, used in plans
            ],
            "failure": self._text or None,
        }

    def explain(self, error: BaseException, plans: Sequence[InUse], key: Hashable) -> None:
        """Attach the text on a failure in the present step to the error it caused, once."""
        before = self._number
        if self._describe_failure(self._source.situation(), plans, key) and self._number != before:
            attach(error, self._text)

    def _describe_failure(self, now: dict[str, Any], plans: Sequence[InUse], key: Hashable) -> bool:
        """Put the last failure into words, if that has not been done; return whether it was in the present step."""
        failure = self._source.failure()
        if failure is None:
            return False
        found = failure["found"]
        present = (found["step_slot"], found["step"]) == (now["step_slot"], now["step"])
        if failure["number"] != self._number:
            known = key if present and found["in_step"] else None
            self._number, self._text = failure["number"], failure_text(failure, plans, known)
        return bool(present)


def report_text(data: dict[str, Any]) -> str:
    """Return a report as text."""
    step, requests = data["step"], data["replayed"] + data["guests"] + data["upstream"]
    where = "in step" if step["running"] else "before step"
    lines = [
        f"{where} {_step(step['number'], step['key'] if step['running'] else None)}; plans: {len(data['plans'])}",
        f"  live           {data['live_bytes']:>16,} bytes, peak {data['peak_live_bytes']:,}",
        f"  planned        {data['planned_bytes']:>16,} bytes, by the largest plans",
        f"  reserved       {data['reserved_bytes']:>16,} bytes: arena {data['arena_bytes']:,}, "
        f"upstream's blocks {data['upstream_bytes']:,}, kept for later {data['kept_bytes']:,}; "
        f"peak {data['peak_reserved_bytes']:,}",
        f"  lower bound    {data['lower_bound']:>16,} bytes, of the plans",
        f"  fragmentation  {data['fragmentation']:>16.2%} of the arena, over the lower bound",
        f"requests: {requests:,}, of which {data['replayed']:,} replayed, {data['guests']:,} guests, "
        f"{data['upstream']:,} upstream",
    ]
    for name, reason in sorted(data["reasons"].items(), key=lambda item: -item[1]["requests"]):
        lines.append(f"  {name:<12} {reason['requests']:>10,}  {reason['why']}")
        lines.append(f"  {'':<23}  -> {reason['action']}")
    if data["planning_failure"] is not None:
        lines.append(f"the last plan failed, and a later step orders it again: {data['planning_failure']}")
    lines += _largest_lines(data["largest"], "")
    if data["failure"] is not None:
        lines += ["the last request that failed:", data["failure"]]
    return "\n".join(lines)


def failure_text(failure: dict[str, Any], plans: Sequence[InUse], key: Hashable) -> str:
    """Tell what a request that upstream had no memory for was, what it found, and what to do next.

    Parameters
    ----------
    failure
        As the core noted it.
    plans
        The plans in use.
    key
        The step's key, or None.
    """
    asked, found = failure["asked"], failure["found"]
    if asked["age"] < 0:
        where = "in an interrupted part of" if found["in_step"] else "outside of all steps, before"
    else:
        where = f"request {asked['request']} of"
    bound = max((used.plan.placement.lower_bound for _, used in plans), default=0)
    reserved = found["arena_bytes"] + found["upstream_bytes"]
    largest = _largest(found, plans)
    limited = 0 < failure["limit"] < reserved + asked["size"]
    cause = f"the limit of {failure['limit']:,} bytes leaves no room" if limited else "upstream has no memory"
    return "\n".join(
        [
            f"stowplan: {cause} for {asked['size']:,} bytes: {where} step {_step(found['step'], key)}",
            f"  live {found['live_bytes']:,} bytes; reserved {reserved:,} (arena {found['arena_bytes']:,}, "
            f"upstream's blocks {found['upstream_bytes']:,}); largest lower bound {bound:,}",
            *_largest_lines(largest, "  "),
            f"  next: {_LIMITED if limited else _next_action(asked['size'], found, largest, bool(plans))}",
        ]
    )


_LIMITED = "a higher limit, or fewer arrays kept; arenas count as a whole, also between steps"


def attach(error: BaseException, text: str) -> None:
    """Extend an error's message in place; its type, and so what catches it, stays.

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
        return "this request alone exceeds all other live memory: check the array's shape"
    if not planned:
        return (
            "there is no plan yet, and steps without one take the most: make the first steps smaller, load plans "
            "that an earlier run has saved, or, on a GPU, make it CupyPool(sample='managed') if it is not one"
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


def _step(number: int, key: Hashable) -> str:
    return str(number) if key is None else f"{number} (key {key!r})"


def _largest(situation: dict[str, Any], plans: Sequence[InUse]) -> list[dict[str, Any]]:
    """Tell at which request each planned block is due, and whether that is the next step's; None for other blocks."""
    by_tag = {(lane, used.tag): used.plan.profile for lane, used in plans}
    blocks = []
    for block in situation["largest"]:
        own = {name: value for name, value in block.items() if name not in ("slot", "tag")}
        own |= {"due": None, "wrapped": False}
        profile = by_tag.get((block["lane"], block["tag"]))
        if block["place"] == "planned" and profile is not None:
            end = int(profile.end[block["slot"]])
            own["due"] = int(np.searchsorted(profile.start, end % profile.period))
            own["wrapped"] = end >= profile.period
        blocks.append(own)
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
        stream = f" on stream {block['stream']:#x}" if block["stream"] else ""
        text = f"{indent}  {block['size']:>16,}  {block['place']}{stream}, {birth}"
        if block["due"] is not None:
            text += f", due at request {block['due']}{' of the next step' if block['wrapped'] else ''}"
        lines.append(text)
    return lines if blocks else [f"{indent}no live blocks"]
