r"""A step graph split over streams, by chains: an operator follows the operator that it depends on, where it can.

::

    stream 0   a --> b --> d --> e        c depends on a, whose stream has gone on with b, so c takes the stream that
    stream 1     \--> c --/               has the least to do; d depends on b and c, and follows the later one
"""

from __future__ import annotations

from ...scheduling.graph import StepGraph


def chains(graph: StepGraph, count: int) -> list[list[int]]:
    """Split a graph over ``count`` streams, each in the order recorded. O(n count + e)."""
    streams: list[list[int]] = [[] for _ in range(count)]
    stream: list[int] = []
    for operator, before in enumerate(graph.dependencies().rows()):
        chosen = next((stream[b] for b in reversed(before) if streams[stream[b]][-1] == b), None)
        if chosen is None:
            chosen = min(range(count), key=lambda s: len(streams[s]))
        stream.append(chosen)
        streams[chosen].append(operator)
    return streams
