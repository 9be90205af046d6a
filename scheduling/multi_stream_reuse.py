r"""Which tensors may share memory when a step's operators run on several streams: decided, not tried.

::

    stream 0     a ---> b -----> d          b reads what a writes, and so does c; d reads what c writes
    stream 1      \---> c ---/              a's memory may be d's: a, b and c happen before d
                                            b's memory may not be c's: neither happens before the other

An operator *happens before* another if a path leads to it along data edges and each stream's own order. The memory of
tensor A may be B's if all that reads or writes A happens before all that writes B (or the other way round): whatever
the streams' speeds, nothing of A is then needed any more. All streams are done when the next step begins.

In a stream all operators follow each other, so those that happen before another are its first few: one number for
each stream, a *vector clock* (Fidge 1988, Mattern 1989), tells which. Clocks take O((n + e) s) for n operators, e edges
and s streams; a pair is one comparison of s numbers. This is the first half of SOMAS (Lamprou et al., MLSys 2023); its
second, offsets under such constraints, is `stowplan.packing`'s.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ..common.errors import FormatError, GraphError
from ..packing import Problem
from .graph import IntArray, StepGraph
from .ordering.problem import OrderProblem

Counts = npt.NDArray[np.int32]

# Rows of the comparison of all pairs that are looked at together.
_ROWS = 256


@dataclass(frozen=True, eq=False)
class Reuse:
    """What may share memory, as a packing problem of k blocks, with its certificate. Columns are int64.

    Attributes
    ----------
    problem
        The blocks: storages by number, then workspaces by operator; resident storages have none. Two blocks may share
        memory if they are neither alive together nor ``apart``. Ticks are positions in ``order``.
    storage
        For each block the value that has its storage, (k,), -1 for a workspace.
    operator
        For each block the operator whose workspace it is, (k,), -1 for a storage.
    order
        All operators in an order that data and streams allow, (n,).
    clock
        The certificate: how many operators of each stream, the first ones, are over when an operator begins, (n, s).
    """

    problem: Problem
    storage: IntArray
    operator: IntArray
    order: IntArray
    clock: IntArray


def safe_reuse(
    graph: StepGraph, streams: Sequence[Sequence[int]], contiguous: Iterable[Sequence[int]] = ()
) -> Reuse:
    """Decide which blocks of a step on several streams may share memory (SOMAS, Lamprou et al., MLSys 2023).

    Parameters
    ----------
    graph
        n operators.
    streams
        For each stream its operators, in the order in which it runs them; each operator is in one stream.
    contiguous
        Groups of values whose storages lie one behind the other, as for bulk communication.

    Raises
    ------
    GraphError
        The streams have an unknown operator, one twice or one too few, or their order contradicts the data's: the
        message names the operator. A contiguous group names a value that has no block.
    """
    stream = _partition(graph, streams)
    before = [set(row) for row in graph.dependencies().rows()]
    for row in streams:
        for earlier, later in pairwise(row):
            before[later].add(earlier)
    order = _order(graph, before)
    place = {operator: k for row in streams for k, operator in enumerate(row)}
    clock = np.zeros((len(graph), len(streams)), dtype=np.int64)
    for operator in order:
        mine = clock[operator]
        for earlier in before[operator]:
            np.maximum(mine, clock[earlier], out=mine)
            mine[stream[earlier]] = max(mine[stream[earlier]], place[earlier] + 1)
    return _reuse(graph, np.array(order, dtype=np.int64), stream, place, clock, contiguous)


def _partition(graph: StepGraph, streams: Sequence[Sequence[int]]) -> list[int]:
    stream = [-1] * len(graph)
    for s, row in enumerate(streams):
        for operator in row:
            if not 0 <= operator < len(graph):
                raise GraphError(
                    f"stream {s} has operator {operator}, which the graph has not; expected 0 to {len(graph) - 1}"
                )
            if stream[operator] >= 0:
                raise GraphError(
                    f"{graph.operator_text(operator)} is in the streams {stream[operator]} and {s}; "
                    "expected one"
                )
            stream[operator] = s
    if -1 in stream:
        operator = stream.index(-1)
        raise GraphError(f"{graph.operator_text(operator)} is in no stream; expected one")
    return stream


def _order(graph: StepGraph, before: list[set[int]]) -> list[int]:
    """As recorded, where the streams allow that."""
    if all(earlier < operator for operator, row in enumerate(before) for earlier in row):
        return list(range(len(graph)))
    try:
        return list(TopologicalSorter(dict(enumerate(before))).static_order())
    except CycleError as error:
        operator = error.args[1][0]
        raise GraphError(
            f"the streams' order contradicts the data's at {graph.operator_text(operator)}, which would have to run "
            "before itself (a cycle)"
        ) from None


def _reuse(
    graph: StepGraph,
    order: IntArray,
    stream: list[int],
    place: dict[int, int],
    clock: IntArray,
    contiguous: Iterable[Sequence[int]],
) -> Reuse:
    """Return the storages and workspaces of a graph, alive as an order has them."""
    problem = OrderProblem.of(graph)
    storages = np.unique(graph.storage[graph.writes.index])
    storages = storages[~graph.resident[storages]]
    scratch = np.flatnonzero(graph.workspace > 0)
    alone = [[operator] for operator in scratch.tolist()]
    size = np.concatenate([problem.size, graph.workspace[scratch]])
    kept = np.concatenate([problem.kept, np.zeros(len(alone), dtype=bool)])
    n, k = len(graph), len(size)
    position = np.argsort(order)
    start, end = np.zeros(k, dtype=np.int64), np.zeros(k, dtype=np.int64)
    # Of each stream the operators that the block needs, and those that are over when its first bytes are written.
    over = np.full((k, clock.shape[1]), n + 1, dtype=np.int32)
    free = np.empty_like(over)
    rows = zip(problem.writers.rows() + alone, problem.users.rows() + alone, strict=True)
    for b, (writers, users) in enumerate(rows):
        start[b], end[b] = position[writers].min(), n if kept[b] else position[users].max() + 1
        free[b] = clock[writers].min(axis=0)
        if not kept[b]:
            over[b] = 0
            for operator in users:
                over[b, stream[operator]] = max(over[b, stream[operator]], place[operator] + 1)
    block = {int(s): b for b, s in enumerate(storages)}
    groups = []
    for group in contiguous:
        own = [int(graph.storage[v]) for v in group if 0 <= v < graph.values]
        if len(own) < len(group) or not block.keys() >= set(own):
            raise GraphError(
                f"the contiguous group {list(group)} has a value that no operator writes, or a resident one"
            )
        groups.append([block[s] for s in own])
    names = [graph.name[s] for s in storages.tolist()]
    names += [f"workspace of {graph.label[i]}" for i in scratch.tolist()]
    apart = _unordered(start, end, over, free)
    of_storage, of_operator = np.full((2, k), -1, dtype=np.int64)
    of_storage[: len(storages)], of_operator[len(storages) :] = storages, scratch
    packing = Problem(size, start, end, id=names, apart=apart, contiguous=groups)
    return Reuse(packing, of_storage, of_operator, order, clock)


def _unordered(start: IntArray, end: IntArray, over: Counts, free: Counts) -> IntArray:
    """Return the pairs of blocks that are not alive together, and of which none is over when the other begins.

    Only the one that ends first in the order can be over: any other pair is alive together.
    """
    by_start = np.argsort(start, kind="stable")
    starts, free = start[by_start], np.ascontiguousarray(free[by_start].T)
    by_end = np.argsort(end, kind="stable")
    later = np.searchsorted(starts, end[by_end])
    found = []
    for at in range(0, len(start), _ROWS):
        rows, first = by_end[at : at + _ROWS], int(later[at])
        unsafe = np.zeros((len(rows), len(starts) - first), dtype=bool)
        for s in range(len(free)):
            unsafe |= over[rows, s][:, None] > free[s, first:]
        unsafe &= np.arange(first, len(starts)) >= later[at : at + _ROWS, None]
        one, other = np.nonzero(unsafe)
        found.append(np.stack([rows[one], by_start[first + other]], axis=1))
    return np.sort(np.concatenate([np.empty((0, 2), dtype=np.int64), *found]), axis=1)


def check_reuse(graph: StepGraph, streams: Sequence[Sequence[int]], reuse: Reuse) -> None:
    """Raise unless the certificate is true and every pair of blocks is rightly allowed, or forbidden, to share memory.

    Shares no code with `safe_reuse`: reachability by a walk from every operator, then all pairs. For small graphs,
    O(n (n + e) + k²) for k blocks.

    Raises
    ------
    GraphError
        Naming the first operator, or pair of blocks, that is wrong.
    """
    following = [set(row) for row in graph.dependants()]
    for stream in streams:
        for earlier, later in pairwise(stream):
            following[earlier].add(later)
    after: list[set[int]] = []
    for operator in range(len(graph)):
        seen: set[int] = set()
        waiting = [operator]
        while waiting:
            new = following[waiting.pop()] - seen
            seen |= new
            waiting += new
        after.append(seen)
    for s, stream in enumerate(streams):
        for operator in range(len(graph)):
            true = sum(operator in after[other] for other in stream)
            if reuse.clock[operator, s] != true:
                raise GraphError(
                    f"{graph.operator_text(operator)}: the certificate has {reuse.clock[operator, s]} "
                    f"operators of stream {s} before it; {true} are"
                )
    needs, begins = [], []
    for storage, scratch in zip(reuse.storage.tolist(), reuse.operator.tolist(), strict=True):
        values = np.flatnonzero(graph.storage == storage) if scratch < 0 else ()
        writes = {i for i in range(len(graph)) if set(graph.writes[i]) & set(values)} or {scratch}
        reads = {i for i in range(len(graph)) if set(graph.reads[i]) & set(values)}
        held = {int(graph.held[v]) for v in values if graph.held[v] >= 0}
        needs.append(None if any(graph.kept[v] for v in values) else writes | reads | held)
        begins.append(writes)
    forbidden = {tuple(sorted(pair)) for pair in reuse.problem.apart.tolist()}
    start, end = reuse.problem.start, reuse.problem.end
    for i in range(len(needs)):
        for j in range(i + 1, len(needs)):
            safe = any(
                need is not None and all(begin <= after[o] for o in need)
                for need, begin in ((needs[i], begins[j]), (needs[j], begins[i]))
            )
            allowed = (i, j) not in forbidden and not (start[i] < end[j] and start[j] < end[i])
            if safe != allowed:
                verb = "may share memory, but neither is" if allowed else "may not share memory, but one is"
                raise GraphError(f"blocks {i} and {j} {verb} over before the other begins")


def read_streams(path: str | os.PathLike[str], graph: StepGraph) -> list[list[int]]:
    """Read a partition into streams: CSV with the columns ``operator`` and ``stream``.

    An operator is a number, or a name that the graph has once. A stream runs its operators in the file's order.

    Raises
    ------
    FormatError
        A column is missing, or an operator is unknown, ambiguous or named twice, or in none of the streams.
    OSError
        The file cannot be opened.
    """
    number: dict[str, int] = {}
    for i, label in enumerate(graph.label):
        number[label] = -1 if label in number else i
    streams: dict[str, list[int]] = {}
    seen: set[int] = set()
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            if not {"operator", "stream"} <= set(reader.fieldnames or ()):
                raise FormatError(
                    path, f"the columns are {reader.fieldnames}; expected operator and stream", 1
                )
            for row in reader:
                name, line = (row["operator"] or "").strip(), reader.line_num
                operator = int(name) if name.isdecimal() else number.get(name)
                if operator is None or operator >= len(graph):
                    raise FormatError(path, f"the graph has no operator {name!r}", line)
                if operator < 0:
                    raise FormatError(path, f"several operators are {name!r}; expected a number", line)
                if operator in seen:
                    raise FormatError(path, f"operator {name!r} is there twice", line)
                seen.add(operator)
                streams.setdefault((row["stream"] or "").strip(), []).append(operator)
    except (csv.Error, UnicodeDecodeError) as error:
        raise FormatError(path, f"not a CSV file ({error})") from None
    missing = sorted(set(range(len(graph))) - seen)
    if missing:
        text = graph.operator_text(missing[0])
        raise FormatError(path, f"{text} is in no stream; expected each of {len(graph)}")
    return list(streams.values())
