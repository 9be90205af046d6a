"""Steps of a program whose loops are not known, from the sizes of its requests: what `StepFinder` finds in its log."""

from __future__ import annotations

import numpy as np

from ._recorder import StepFinder
from .passes import LoopNode
from .program_log import ProgramLog


def found_steps(log: ProgramLog) -> list[LoopNode]:
    """Return the loops that the finder has followed, in the order of the program; each has only whole steps.

    O(n log n) for n requests, at some hundred nanoseconds each.
    """
    finder = StepFinder()
    stream = log.events["stream"][log.position]
    groups: list[list[int]] = [[]]
    anchors = begun = 0
    for number, (size, of, alive) in enumerate(
        zip(log.size.tolist(), stream.tolist(), log.live_before.tolist(), strict=True)
    ):
        cue = finder.observe(size, of, alive)
        if cue is None:
            continue
        edges = groups[-1]
        if cue == "begins":
            edges.append(number)
            if finder.anchors != anchors:
                groups.append([number])
        elif cue == "found":
            first, second = finder.periods
            groups.append([begun + first, begun + second, number])
        else:
            groups.append([number])
        anchors, begun = finder.anchors, number
    nodes = []
    for edges in groups:
        if len(edges) < 2:
            continue
        starts, ends = np.array(edges[:-1]), np.array(edges[1:])
        within = np.zeros(len(log), dtype=np.bool_)
        within[starts[0] : ends[-1]] = True
        node = LoopNode(None, None, (), True, starts, ends, np.arange(len(starts)) == 0, within)
        node.leave_out_gaps(log.gaps)
        if node.passes:
            nodes.append(node)
    return nodes
