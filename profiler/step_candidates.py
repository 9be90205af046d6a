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


def measure(log: ProgramLog, loop: LoopNode, asked: IntArray) -> None:
    """Find a loop's figures; ``asked``: what each call site requests in all, as `StepWatch.asked` returns it."""
    numbers = np.unique(log.site[loop.within])
    loop.requests, loop.bytes = asked[numbers[numbers >= 0] + 1].sum(axis=0).tolist()
    loop.peak = held(log, loop)
    fullest = int(log.alive.argmax())
    if ((loop.starts <= fullest) & (fullest < loop.ends)).any():
        loop.of_peak = held(log, loop, np.arange(len(log)) == fullest)


def chosen(log: ProgramLog, loops: Sequence[LoopNode]) -> LoopNode | None:
    """Return the loop that is the step; None if there is none. The module docstring tells how."""
    often = [loop for loop in loops if loop.passes >= LEAST_PASSES]
    if not often:
        return None

    def within(outer: LoopNode | None) -> list[LoopNode]:
        """Return the loops that are directly in one, or in none."""
        around = ((loop, next((one for one in loop.around() if one in often), None)) for loop in often)
        return [loop for loop, innermost in around if innermost is outer]

    outermost = within(None)
    total = sum(loop.bytes for loop in outermost)

    def has_peak(loop: LoopNode) -> bool:
        return loop.of_peak >= NOTABLE * int(log.alive.max()) and loop.bytes >= NOTABLE * total

    step = max(outermost, key=lambda loop: (has_peak(loop), loop.bytes))
    while inner := [loop for loop in within(step) if not loop.loop.is_comprehension]:
        most = max(inner, key=lambda loop: loop.bytes)
        if most.in_a_row < SELDOM or most.bytes < NEARLY * step.bytes:
            break
        is_often = step.in_a_row >= SELDOM
        if is_often and (step.is_users > most.is_users or most.peak < NEARLY * held(log, step, most.within)):
            break
        step = most
    return step
