"""What a training step needs in memory if everything may be swapped, weights and their gradients included.

A tensor is in memory at the execution orders that use it (`layers`), and away between them. With a *look-ahead* of k
orders it is fetched k orders before its next use, and takes k orders to leave: transfers then go on during the
computation (the paper's *proactive* swap). With a look-ahead of 0 the step waits for each of them (*on demand*)::

    orders             0  1  2  3  4  5  6  7  8  9
    a weight's uses       #              #     #
    on demand             #              #     #
    look-ahead 1       #  #  #        #  #  #  #  #

Each stay is a block, as what comes back may lie elsewhere. So what an arena takes is known before anything runs, and
from the operators' seconds and the disk's rate, how much longer the step takes (`latency`).

NNTrainer: Moon et al. 2022 (arXiv 2206.04688), section 4.3 and figure 8. O(k log k) for k uses of tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...packing import Problem
from ...scheduling.graph import StepGraph


class Transfer(NamedTuple):
    """Bytes on their way: begun before one execution order, over before another one, which waits for it."""

    begins: int
    due: int
    bytes: int


class Swapped(NamedTuple):
    """A step whose tensors are swapped.

    Attributes
    ----------
    problem
        A block for each stay of a tensor, in ticks of one execution order each.
    transfers
        What goes out or comes in, in one step.
    """

    problem: Problem
    transfers: list[Transfer]

    @property
    def moved(self) -> int:
        """Bytes that go out or come in."""
        return sum(transfer.bytes for transfer in self.transfers)


def swapped(graph: StepGraph, lookahead: int = 1) -> Swapped:
    """Return what is in memory when, with all tensors swapped, in the order of the graph's operators.

    Parameters
    ----------
    graph
        Of `layers.step_graph`. Its resident tensors (weights, labels) come before their first use, and go after the
        last.
    lookahead
        Execution orders that a transfer may take, 0 or more.
    """
    uses: dict[int, set[int]] = {}
    for at, (reads, writes) in enumerate(zip(graph.reads.rows(), graph.writes.rows(), strict=True)):
        for value in (*reads, *writes):
            uses.setdefault(int(graph.storage[value]), set()).add(at)
    size, start, end = [], [], []
    transfers: list[Transfer] = []
    for storage, orders in uses.items():
        bytes_ = int(graph.size[storage])
        stays: list[list[int]] = []
        for at in sorted(orders):
            if stays and at - lookahead <= stays[-1][1] + lookahead:
                stays[-1][1] = at + 1
            else:
                stays.append([at, at + 1])
        for k, (first, last) in enumerate(stays):
            comes = k > 0 or bool(graph.resident[storage])
            goes = k < len(stays) - 1 or bool(graph.resident[storage])
            size.append(bytes_)
            start.append(max(first - lookahead * comes, 0))
            end.append(last + lookahead * goes)
            if goes:
                transfers.append(Transfer(last, end[-1], bytes_))
            if comes:
                transfers.append(Transfer(start[-1], first, bytes_))
    return Swapped(Problem(size, start, end), transfers)


def latency(graph: StepGraph, transfers: Sequence[Transfer], rate: float) -> float:
    """Return the seconds of a step whose transfers go one after the other, in the order in which they begin.

    Parameters
    ----------
    graph
        With the seconds of its operators.
    transfers
        Of `swapped`.
    rate
        Bytes a second of the disk, both ways together.
    """
    now = free = 0.0  # the step's time, and when the disk has done all that has begun
    ready: dict[int, float] = {}
    seconds = graph.seconds.tolist()
    waiting = sorted(transfers, reverse=True)
    for at, duration in enumerate(seconds):
        while waiting and waiting[-1].begins <= at:
            one = waiting.pop()
            free = max(free, now) + one.bytes / rate
            ready[one.due] = free
        now = max(now, ready.get(at, 0.0)) + duration
    return max(now, free) + sum(one.bytes for one in waiting) / rate
