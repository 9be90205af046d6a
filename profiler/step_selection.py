"""The candidate steps of a recorded program, from its log: each loop's figures, and the profile of a pass of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ._recorder import CallSites, StepWatch
from .events import IntArray
from .loop_iterations import LoopNode, loops_of
from .loops import line_of
from .program_log import ProgramLog
from .program_summary import Program
from .recorded_step import profile_of
from .step_candidates import StepCandidate, chosen, measure
from .steps import MOST_TURNS


def candidates_of(watch: StepWatch, sites: CallSites, program: Program) -> list[StepCandidate]:
    """Return the steps of a program, in its order.

    Parameters
    ----------
    watch
        What has logged it.
    sites
        The call sites of its requests.
    program
        Its counts.
    """
    log = ProgramLog.of_segments(watch.segments())
    if not len(log):
        return []
    asked = watch.asked()
    loops = [loop for loop in loops_of(log, sites) if loop.passes]
    for loop in loops:
        measure(log, loop, asked)
    step = chosen(log, loops)
    return [
        _candidate(log, loop, sites, asked.sum(axis=0), program, loop is step)
        for loop in sorted(loops, key=lambda loop: int(loop.starts[0]))
        if loop is step or _is_listed(loop)
    ]


def _is_listed(node: LoopNode) -> bool:
    """Whether a loop is one of the program's steps: of those in libraries, only the outermost ones are."""
    return node.passes > 1 and (node.is_users or node.parent is None)


def _usual_pass(log: ProgramLog, node: LoopNode) -> tuple[int, int, int]:
    """Return start and end of the pass that stands for a loop, and the end of the one that follows it, or its own.

    Among the passes that the next one repeats (else those that came again, else all), it takes the requests that ask
    for most in all; among their passes the ones with the most alive in the program; and of these the one in the middle.
    """
    starts, ends = node.starts, node.ends
    kind = log.signatures(starts, ends)
    follows = np.append((ends[:-1] == starts[1:]) & ~node.enters[1:], False)
    repeated = np.append(kind[:-1] == kind[1:], False) & follows
    kinds, which, times = np.unique(kind, return_inverse=True, return_counts=True)
    which = which.reshape(-1)
    usable = next(
        rows
        for rows in (repeated, follows & (times[which] > 1), follows, np.ones_like(follows))
        if rows.any()
    )
    size = np.concatenate([[0], np.cumsum(log.size)])
    asked = np.zeros(len(kinds), dtype=np.int64)
    np.maximum.at(asked, which[usable], (times[which] * (size[ends] - size[starts]))[usable])
    rows = np.flatnonzero(usable & (which == int(asked.argmax())))
    highest = np.maximum.reduceat(np.append(log.alive, 0), np.stack([starts, ends], axis=1).reshape(-1))[::2]
    rows = rows[highest[rows] == highest[rows].max()]
    row = int(rows[len(rows) // 2])
    return int(starts[row]), int(ends[row]), int(ends[row + 1] if follows[row] else ends[row])


def _candidate(
    log: ProgramLog,
    loop: LoopNode,
    sites: CallSites,
    asked: IntArray,
    program: Program,
    is_step: bool,
) -> StepCandidate:
    start, end, following = _usual_pass(log, loop)
    row = int(np.searchsorted(loop.starts, start))
    first = row - next((back for back in range(row) if loop.enters[row - back]), row)
    before = loop.starts[max(first, row - MOST_TURNS) : row].tolist()
    step = log.recorded([*before, start], end)
    profile, turns = profile_of(step, log.recorded([*before, start, end], following), sites.sites)
    kind = log.signatures(loop.starts, loop.ends)
    kept = int((loop.ends - loop.starts).sum())
    scale = max(loop.requests / max(kept, 1), 1.0)
    times = round(int((kind == kind[row]).sum()) * scale)
    passes = round(loop.passes * scale)
    program = replace(
        program,
        steps=passes,
        repeats=times,
        step_requests=min(loop.requests, program.requests),
        step_bytes=min(loop.bytes, program.bytes),
        turns=turns,
    )
    name, text = _named(loop, sites)
    requests, size = loop.requests / max(int(asked[0]), 1), loop.bytes / max(int(asked[1]), 1)
    return StepCandidate(
        replace(profile, program=program),
        name,
        text,
        int(log.before[start]),
        passes,
        times,
        requests,
        size,
        loop.peak,
        loop.of_peak,
        is_step,
    )


def _named(node: LoopNode, sites: CallSites) -> tuple[str, str]:
    """Return the line of a loop and its text; see `StepCandidate.loop`."""
    users = next(((code, place) for code, place in reversed(node.frames) if sites.is_users(code)), None)
    if node.is_users or users is None:
        return str(node.loop), node.loop.text
    line, text = line_of(*users)
    return f"{users[0].co_filename}:{line} {users[0].co_name} > {node.loop.short()}", text
