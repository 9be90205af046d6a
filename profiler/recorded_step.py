"""A step as a recorder returns it, and the profile that two of them make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .profile import Profile
from .steps import StepLog, profile_in_turn


class Recorded(NamedTuple):
    """A step, as the compiled half of a recorder returns it.

    Attributes
    ----------
    events
        Structured array (k,) of `profiler.events.EVENT_DTYPE`.
    complete
        Whether they are all.
    site
        Call site of each request, int32 (n,); empty where none are recorded.
    alive
        The most bytes that the whole program had alive from each request to the next, int64 (n,).
    signature
        A hash of the requests' sizes and streams, in order.
    """

    events: npt.NDArray[np.void]
    complete: bool
    site: npt.NDArray[np.int32]
    alive: npt.NDArray[np.int64]
    signature: int


def profile_of(step: Recorded, following: Recorded, names: Sequence[str]) -> tuple[Profile, int]:
    """Return the profile of a step, and how many steps like it the profile covers.

    Parameters
    ----------
    following
        The step after it.
    names
        The names of the call sites, by number.
    """
    log, next_log = StepLog(step.events), StepLog(following.events)
    # A step may begin with less alive than its repetitions do: nothing was kept yet.
    alive = following.alive if log.equals(next_log) else step.alive
    profile, turns = profile_in_turn(log, next_log)  # as a pool plans them
    return noted(profile, np.tile(step.site, turns), np.tile(alive, turns), names), turns


def noted(
    profile: Profile, site: npt.NDArray[np.int32], alive: npt.NDArray[np.int64], names: Sequence[str]
) -> Profile:
    """Add to a step's profile what its events do not tell: call sites, and the most alive, where they are known."""
    if len(alive) == len(profile):
        profile = replace(profile, alive=alive)
    if not names or len(site) != len(profile):
        return profile
    # The profile names only the sites of its own step, and several numbers may have one name.
    row_of: dict[str, int] = {}
    rows = {-1: -1}
    for number in np.unique(site[site >= 0]).tolist():
        rows[number] = row_of.setdefault(names[number], len(row_of))
    used, which = np.unique(site, return_inverse=True)
    row = np.array([rows[number] for number in used.tolist()], dtype=np.int32)[which.reshape(-1)]
    return replace(profile, site=row, sites=tuple(row_of))
