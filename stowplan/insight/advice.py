"""What a step's peak is made of, and what each remedy leaves of it: the figures of the commands that do it.

A profile, or a log, tells what is alive at the program's fullest moment, and what pools and a plan make of it
(`stowplan compare`). A step graph tells which of it is read again, and what releasing, computing again, another order
and offloading make of it (`stowplan schedule`, `stowplan order`).

=============  =====================================================================================================
part           in a graph; in a profile whose call sites say *forward* and *backward*
=============  =====================================================================================================
retained       parameters, state: resident values; older and escaped blocks
activations    what forward makes and backward reads; what forward asks for
gradients      what backward makes; what it asks for
temporaries    workspaces, and what forward alone reads; what ends before another call site asks
step           the step's other blocks: no call site says forward or backward
fragmentation  what the program's own pool reserves at most, beyond the live peak: recorded, or by its model
=============  =====================================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..common.errors import BudgetError
from . import on_device
from .comparison import MALLOC, POOL_TITLES, Comparison, is_of_host, peak_of

if TYPE_CHECKING:
    from ..profiler import Profile
    from ..scheduling import StepGraph
    from ..scheduling.graph import Relation
    from ..scheduling.solve import Solution

SHARES = (0.8, 0.5)
"""Of the recorded peak: the budgets that recomputation is tried at."""


@dataclass(frozen=True)
class Remedy:
    """One way to run the step.

    Attributes
    ----------
    name
        What is done.
    size
        The most bytes with it; None: it cannot be had.
    extra
        Time that a step takes more, as a share of its operators' time; None: not known.
    how
        How to switch it on; of what cannot be had, why.
    """

    name: str
    size: int | None
    extra: float | None
    how: str


def parts_of_profile(found: Comparison) -> dict[str, int]:
    """Return the bytes of each part at a program's live peak; and what its own pool needs beyond that."""
    profile = found.plan.profile
    parts, program = profile.at_live_peak(), profile.program
    if parts is None:
        tick, own = peak_of(found.plan).tick, int(profile.live_bytes().max(initial=0))
        retained = int(profile.unplanned_step_bytes()[:-1][tick]) if len(profile) else 0
    else:
        tick, own, retained = parts.tick, parts.planned, parts.older + parts.escaped
    kinds = dict.fromkeys(("activations", "gradients", "temporaries"), 0)
    sites = [site.lower() for site in profile.sites]
    if tick >= 0 and any("backward" in site for site in sites):
        for row in np.flatnonzero(profile.alive_at(tick) & profile.planned).tolist():
            if (kind := _kind(profile, sites, row)) is not None:
                kinds[kind] += int(profile.size[row])
    step = {**kinds, "step": own - sum(kinds.values())}
    reserved = 0 if program is None else program.reserved
    if not reserved and (name := _own(found)) in found.pools:
        reserved = _taken(found, name) + (retained if found.with_plan is None else 0)
    return {"retained": retained, **step, "fragmentation": max(reserved - retained - own, 0)}


def _kind(profile: Profile, sites: list[str], row: int) -> str | None:
    """Tell what a block is by its call site, and by whether another one asks while it lives; None: unknown."""
    site = int(profile.site[row])
    kinds = {"backward": "gradients", "forward": "activations"}
    kind = None if site < 0 else next((kind for word, kind in kinds.items() if word in sites[site]), None)
    between = (profile.start > profile.start[row]) & (profile.start < profile.end[row])
    return "temporaries" if kind and (profile.site[between] == site).all() else kind


def _taken(found: Comparison, name: str) -> int:
    """Return what the program takes with a pool at most; the step alone where nothing tells of the rest."""
    whole = found.whole(name)
    return found.pools[name].reserved_peak if whole is None else whole


def _own(found: Comparison) -> str:
    profile = found.plan.profile
    if profile.program is not None and profile.program.library == "RMM":
        return "rmm"
    return MALLOC if is_of_host(profile) else on_device.own_pool(profile)


def of_profile(found: Comparison) -> list[Remedy]:
    """List what the program takes as it is, if that is known, with pools, its own first, and with a plan."""
    own, profile = _own(found), found.plan.profile
    others = () if is_of_host(profile) else (*on_device.POOLS, "rmm")
    pools = [own, *(name for name in others if name != own)]
    rows = []
    if profile.program is not None and profile.program.reserved:
        rows.append(Remedy("as recorded", profile.program.reserved, None, ""))
    for name in pools:
        if name in found.pools:
            rows.append(Remedy(POOL_TITLES[name], _taken(found, name), None, HOW_POOL.get(name, "")))
    plan = found.plan.arena_bytes if found.with_plan is None else found.with_plan
    return [*rows, Remedy("a plan", plan, None, NO_PLAN if own == "rmm" else HOW_PLAN)]


HOW_POOL = {
    "pytorch-expandable": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    "rmm": "rmm.mr.PoolMemoryResource; as it grows without a limit",
}
HOW_PLAN = "with pool.step(): CupyPool, TorchPool, NumpyPool"
NO_PLAN = "not in RAPIDS: what a plan would take if CuPy's arrays asked for all"


def parts_of_graph(graph: StepGraph) -> dict[str, int]:
    """Return the bytes of each part at the peak of a step as it was recorded."""
    from ..scheduling import Phase, as_recorded
    from ..scheduling.peak_explanation import alive_at_peak

    forward = graph.phase == Phase.FORWARD

    def those(relation: Relation, operators: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        values = [value for row in np.flatnonzero(operators).tolist() for value in relation[row]]
        return np.isin(np.arange(graph.values), graph.storage[np.array(values, dtype=np.int64)])

    made, made_later = those(graph.writes, forward), those(graph.writes, ~forward)
    read_later = those(graph.reads, ~forward)
    peak = alive_at_peak(graph, as_recorded(graph))
    parts = {
        "retained": graph.resident_bytes,
        "activations": 0,
        "gradients": 0,
        "temporaries": peak.workspace,
    }
    for value, size in peak.storages:
        if made_later[value] and not made[value]:
            parts["gradients"] += size
        else:
            parts["activations" if read_later[value] else "temporaries"] += size
    return parts


def of_graph(graph: StepGraph, how: dict[str, Any]) -> list[Remedy]:
    """List what releasing, computing again, another order and offloading make of a step; resident values count.

    Parameters
    ----------
    graph
        With the seconds of its operators.
    how
        Solver, time limit and progress, as for `stowplan.scheduling.solve.schedule`.
    """
    from ..scheduling import as_recorded, simulate
    from ..scheduling.ordering import order
    from ..scheduling.solve import schedule

    kept, recorded = graph.resident_bytes, simulate(graph, as_recorded(graph)).peak
    plain = recorded + kept
    rows = [
        Remedy("as recorded", plain, 0.0, RECORDED),
        _remedy(graph, "early release", schedule(graph, solver="lean"), LEAN),
    ]
    for share in SHARES:
        for swap in (False, True):
            name = f"{'offloading' if swap else 'recomputation'} at {share:.0%}"
            try:
                chosen = schedule(graph, max(int(share * plain) - kept, 0), swap=swap, **how)
            except BudgetError as error:
                text = f"the least that was found is {error.least + kept:,} bytes"
                rows.append(Remedy(name, None, None, text))
                continue
            offloads = ", swap=True (Chainer)" if swap else ""
            rows.append(_remedy(graph, name, chosen, f'budget="{share:.0%}"{offloads}'))
    best = order(graph, time_limit=how.get("time_limit"))
    rows.append(Remedy("a better order", best.peak + kept, 0.0, "stowplan order"))
    return rows


RECORDED = "(values end with their last use; plain Chainer keeps some longer)"
LEAN = "stowplan.chainer.Updater, stowplan.torch.schedule"


def _remedy(graph: StepGraph, name: str, chosen: Solution, how: str) -> Remedy:
    seconds = float(graph.seconds.sum())
    return Remedy(
        name, chosen.peak + graph.resident_bytes, chosen.extra_seconds / seconds if seconds else None, how
    )
