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
        storage, users = graph.storage.tolist(), graph.users()
        writers: list[set[int]] = [set() for _ in storage]
        for value, operators in enumerate(graph.writers()):
            writers[storage[value]].update(operators)
        for value in np.flatnonzero(graph.held >= 0).tolist():
            users[storage[value]].add(int(graph.held[value]))
        kept = {storage[value] for value in np.flatnonzero(graph.kept).tolist()}
        storages = [s for s in range(graph.values) if writers[s] and not graph.resident[s]]
        return cls(
            graph.workspace,
            graph.dependencies(),
            graph.size[storages],
            np.array([s in kept for s in storages], dtype=bool),
            Relation(sorted(writers[s]) for s in storages),
            Relation(sorted(users[s]) for s in storages),
        )
