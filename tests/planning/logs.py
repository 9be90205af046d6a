"""Step logs and profiles, written down as short as they can be, and plans in use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stowplan import Profile
from stowplan.planning import Plan
from stowplan.profiler import StepLog
from stowplan.profiler.events import ALLOCATE, EVENT_DTYPE, FREE, FREE_PREVIOUS
from stowplan.profiler.steps import profile_step


def log(text: str) -> StepLog:
    """Return a step's log: ``300`` asks for 300 bytes, ``-0`` frees request 0, ``~1`` request 1 of the step before."""
    events = np.zeros(len(text.split()), dtype=EVENT_DTYPE)
    requests = 0
    for event, word in zip(events, text.split(), strict=True):
        if word[0] in "-~":
            event["kind"], event["request"] = (FREE if word[0] == "-" else FREE_PREVIOUS), int(word[1:])
        else:
            event["kind"], event["size"], event["request"] = ALLOCATE, int(word), requests
            requests += 1
    return StepLog(events)


def profile(text: str) -> Profile:
    """Return the profile of a step that repeats."""
    return profile_step(log(text), log(text))


@dataclass(eq=False)
class Used:
    """A plan in use."""

    plan: Plan
