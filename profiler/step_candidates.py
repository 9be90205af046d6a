"""Candidate steps: the loops of a program, what each requests and holds, and which of them is the step.

The step is the loop that a person would name. It is looked for from outside to inside::

    for epoch in range(3):             few passes: it is the loop in it, if that has nearly all of the bytes
        for batch in batches:          <- the step
            for layer in layers:       few passes in a row, and a part of what a batch holds

    for hour in range(500):            <- the step: an hour holds more, while its solver runs, than a sweep does
        while residual > least:

1. Of the outermost loops, the one that was running at the program's peak, if a pass of it held `NOTABLE` of that, and
   it requests `NOTABLE` of all bytes; else the one that requests most.
2. A ``for`` or ``while`` in it takes its place, where it makes at least `SELDOM` passes in a row and requests `NEARLY`
   all that the outer one requests; and where the outer loop's pass holds little else while it runs, or the outer loop
   itself makes fewer than `SELDOM` passes in a row. A library's loop takes the place of a user's own only in the latter
   case.

Where call sites are not recorded there are no loops, and no candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .events import IntArray
from .loop_iterations import LoopNode, held
from .profile import Profile
from .program_log import ProgramLog

SELDOM = 8
NEARLY = 0.8
NOTABLE = 0.1
LEAST_PASSES = 3


@dataclass(frozen=True)
class StepCandidate:
    """A step that was found, and what it covers.

    Attributes
    ----------
    profile
        The profile of one of its runs.
    loop
        The line of the loop, ``"file:line function"``; where that is a library's, the user's line that has called it,
        and after ``" > "`` the library's.
    text
        The text of that line.
    start
        Requests of the program before the profile's run.
    passes
        How often the step ran.
    times
        How often with just the profile's requests.
    requests, bytes
        Shares of all requests, and of all the bytes requested, that lie in it; 0 to 1.
    peak
        The most bytes alive of one run's own requests.
    of_peak
        What a run held of the program's peak, when the most was alive; bytes, 0 where no run was under way then.
    chosen
        Whether it is the step that `Recorder.profile` returns.
    """

    profile: Profile
    loop: str
    text: str
    start: int
    passes: int
    times: int
    requests: float
    bytes: float
    peak: int
    of_peak: int
    chosen: bool

    def __len__(self) -> int:
        """Return the requests of the step."""
        return len(self.profile)


@dataclass(frozen=True)
class Measured:
    """A loop of a program with its figures.

    Attributes
    ----------
    node
        The loop.
    requests, bytes
        In it, of the whole program.
    peak, of_peak
        As in `StepCandidate`.
    """

    node: LoopNode
    requests: int
    bytes: int
    peak: int
    of_peak: int


def measure(log: ProgramLog, node: LoopNode, asked: IntArray) -> Measured:
    """Return the figures of a loop; ``asked``: what each call site requests in all, as `StepWatch.asked` returns it."""
    numbers = np.unique(log.site[node.within])
    requests, size = asked[numbers[numbers >= 0] + 1].sum(axis=0).tolist()
    fullest = int(log.alive.argmax())
    is_under_way = bool(((node.starts <= fullest) & (fullest < node.ends)).any())
    of_peak = held(log, node, np.arange(len(log)) == fullest) if is_under_way else 0
    return Measured(node, requests, size, held(log, node), of_peak)


def chosen(log: ProgramLog, loops: Sequence[Measured]) -> Measured | None:
    """Return the loop that is the step; None if there is none. The module docstring tells how."""
    often = [loop for loop in loops if loop.node.passes >= LEAST_PASSES]
    if not often:
        return None
    nodes = {id(loop.node) for loop in often}

    def within(outer: Measured | None) -> list[Measured]:
        """Return the loops that are directly in one, or in none."""
        found = []
        for loop in often:
            around = next((node for node in loop.node.around() if id(node) in nodes), None)
            if around is (None if outer is None else outer.node):
                found.append(loop)
        return found

    outermost = within(None)
    total = sum(loop.bytes for loop in outermost)

    def has_peak(loop: Measured) -> bool:
        return loop.of_peak >= NOTABLE * int(log.alive.max()) and loop.bytes >= NOTABLE * total

    step = max(outermost, key=lambda loop: (has_peak(loop), loop.bytes))
    while inner := [loop for loop in within(step) if not loop.node.loop.is_comprehension]:
        most = max(inner, key=lambda loop: loop.bytes)
        if most.node.in_a_row < SELDOM or most.bytes < NEARLY * step.bytes:
            break
        is_often = step.node.in_a_row >= SELDOM
        if is_often and (
            step.node.is_users > most.node.is_users
            or most.peak < NEARLY * held(log, step.node, most.node.within)
        ):
            break
        step = most
    return step
