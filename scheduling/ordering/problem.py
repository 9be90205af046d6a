"""What an order is sought for: operators, which of them come before which, and storages with their first and last uses.

::

    operator     writes  reads        storage   writers   users        a storage is alive from the first of its writers
    0 conv       h                    h         0, 1      0, 1, 2, 3   to the last of its users, in whatever order they
    1 relu_      h       h            p         2         2, 3         run
    2 pool       p       h
    3 loss       e       h, p

Resident storages are left out: they are alive in any order. A value that the program itself holds up to an operator has
that one as a user, though it need not wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..graph import BoolArray, IntArray, Relation, StepGraph


@dataclass(frozen=True, eq=False)
class OrderProblem:
    """n operators and k storages; read-only.

    Attributes
    ----------
    workspace
        Bytes of each operator besides its storages, int64 (n,).
    before
        For each operator those that must have run before it; n rows.
    size
        Bytes of each storage, int64 (k,).
    kept
        Whether it is alive at the end of the step, bool (k,).
    writers, users
        For each storage the operators that write it, one at least, and those that write or read it, or up to which the
        program holds it; k rows.
    """

    workspace: IntArray
    before: Relation
    size: IntArray
    kept: BoolArray
    writers: Relation
    users: Relation

    def __len__(self) -> int:
        return len(self.workspace)

    @classmethod
    def of(cls, graph: StepGraph) -> OrderProblem:
        """Return the problem of a step graph."""
        n = len(graph)
        counted = ~graph.resident[graph.storage]
        write, read = _uses(graph, graph.writes, counted), _uses(graph, graph.reads, counted)
        held = np.flatnonzero((graph.held >= 0) & counted)
        hold = graph.storage[held] * n + graph.held[held]
        storages = np.unique(write // max(n, 1))
        kept = np.zeros(graph.values, dtype=bool)
        np.logical_or.at(kept, graph.storage, graph.kept)
        return cls(
            graph.workspace,
            graph.dependencies(),
            graph.size[storages],
            kept[storages],
            _rows(np.unique(write), storages, n),
            _rows(np.unique(np.concatenate([write, read, hold])), storages, n),
        )


def _uses(graph: StepGraph, relation: Relation, counted: BoolArray) -> IntArray:
    """Return the uses of storages by operators, each as storage * n + operator."""
    operator = np.repeat(np.arange(len(graph)), np.diff(relation.first))
    value = relation.index
    use: npt.NDArray[np.int64] = graph.storage[value] * len(graph) + operator
    return use[counted[value]]


def _rows(uses: IntArray, storages: IntArray, n: int) -> Relation:
    """Group sorted uses by storage; those of other storages are left out."""
    first = np.searchsorted(uses, storages * n)
    last = np.searchsorted(uses, (storages + 1) * n)
    chosen = np.zeros(len(uses) + 1, dtype=np.int64)
    np.add.at(chosen, first, 1)
    np.add.at(chosen, last, -1)
    inside = np.cumsum(chosen[:-1]) > 0
    return Relation.from_columns(
        np.concatenate([[0], np.cumsum(last - first)]).astype(np.int64), uses[inside] % max(n, 1)
    )
