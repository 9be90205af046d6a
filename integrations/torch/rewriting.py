"""A graph module that runs a schedule: operators in its order, and again where a value has gone.

Each run of an operator is a node of its own, and each reader takes the latest result that a schedule has there. The
code that `torch.fx` generates lets go of a result right after its last reader, so that the nodes tell all::

    schedule                     nodes
    conv     h                   h = conv(x, W)
    relu     y  DROPPED          y = relu(h)
    loss     e                   e = loss(y)                 y goes
    relu'                        y_again = relu(h)           h goes
                                 g = relu'(y_again, ...)     y_again goes

Nodes of `evictions` evict what is SWAPPED and bring it back, at the places that the simulation has for them.

What runs again changes nothing: random numbers are drawn from the generator's state of the first time, after which the
generator goes on where it was; batch normalization leaves its running statistics alone, which its result in training
does not depend on. O(n + k) for n runs and k arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter, getitem
from typing import Any

import numpy as np
import torch
from torch.fx import Graph, GraphModule, Node

from ..scheduling import Schedule, StepGraph, Way, simulate
from .evictions import EVICT, RATES, arrive, fetch, leave
from .nodes import BATCH_NORM, is_name, is_on_host, is_random, named_by, run_in_place
from .step_graph import KEEPS, REPEATABLE, WORKSPACE, given_to, operators
from .updates import UPDATE

NO_STATISTICS = torch.ops.aten._native_batch_norm_legit.no_stats
"""Batch normalization in training without running statistics: the first three results are the same."""

AGAIN = "stowplan_again"
"""Key in a node's ``meta``, if it is part of a repetition."""


def mark_repeatable(module: GraphModule) -> None:
    """Mark what `scheduled` can run again although it draws random numbers."""
    for node in operators(module):
        if is_random(node) and not node.target._schema.is_mutable and is_on_host(node):
            node.meta[REPEATABLE] = True


def update_name(number: int) -> str:
    """Return the name of the submodule that runs an update."""
    return f"update_{number}"


def scheduled(module: GraphModule, step: StepGraph, schedule: Schedule) -> GraphModule:
    """Return a graph module that runs a schedule.

    Parameters
    ----------
    module
        Traced, functional, and marked by `mark_repeatable`; with a submodule for each update, by `update_name`, and one
        that evicts, if values are swapped.
    step
        Its step graph.
    schedule
        A valid one of it, without values that are packed.
    """
    written = _Writer(module, step, schedule).write()
    attributes: dict[str, Any] = {}
    for number, node in enumerate(written.find_nodes(op="get_attr")):
        name = f"tensor_{number}"  # found faster than a parameter by its path
        attributes[name] = attrgetter(node.target)(module)
        node.target = name
    for node in written.find_nodes(op="call_module"):
        attributes[node.target] = module.get_submodule(node.target)
    found = GraphModule(attributes, written, type(module).__name__)
    found.graph.lint()
    return found


def exchange_random_state(state: torch.Tensor) -> torch.Tensor:
    """Set the state of the host's generator, and return the one before."""
    before = torch.get_rng_state()
    torch.set_rng_state(state)
    return before


class _Writer:
    def __init__(self, module: GraphModule, step: StepGraph, schedule: Schedule) -> None:
        self.module, self.step, self.schedule = module, step, schedule
        self.nodes = operators(module)
        self.graph = Graph()
        self.graph.set_codegen(module.graph._codegen)  # how arguments and results are packed
        self.now: dict[Node, Node] = {}  # the latest copy of each node
        self.random_state: dict[int, Node] = {}  # by operator: the generator's state before its first run
        self.writes: list[list[int]] = step.writes.rows()
        self.storage: list[int] = step.storage.tolist()
        self.there: set[int] = set()
        self.outcome = simulate(step, schedule, RATES)
        self.last, self.near, self.leaves = self._uses()

    def write(self) -> Graph:
        again = dict(self.outcome.recomputed)
        repeated = {operator for row in again.values() for operator in row}
        for node in given_to(self.module):
            self.copy(node)
        moves = self._moves(again)
        for position, operator in enumerate(self.schedule.order.tolist()):
            for move, swapped in moves.get(position, ()):
                move(swapped)
            for other in again.get(position, ()):
                self.run_again(other)
                self.there.update(v for v in self.writes[other] if self.last[self.storage[v]] >= position)
            if operator in repeated and is_random(self.nodes[operator]):
                self.random_state[operator] = self.graph.call_function(torch.get_rng_state)
            self.run(operator)
            self.there.update(self.writes[operator])
            self.there.difference_update(self.leaves.get(position, ()))
        self.copy(self.module.graph.find_nodes(op="output")[0])
        # Names that nothing reads would keep results.
        self.graph.eliminate_dead_code(lambda node: not is_name(node))
        run_in_place(self.graph)
        return self.graph

    def copy(self, node: Node) -> Node:
        self.now[node] = self.graph.node_copy(node, self.now.__getitem__)
        return self.now[node]

    def run(self, operator: int) -> None:
        node = self.nodes[operator]
        if node.target is UPDATE:
            gradients = [self.now[gradient] for gradient in node.args[1]]
            update = self.graph.call_module(update_name(node.args[2]), (gradients,))
            update.meta |= {key: node.meta[key] for key in (WORKSPACE, KEEPS) if key in node.meta}
            return
        for one in (node, *named_by(node)):
            self.copy(one)

    def run_again(self, operator: int) -> None:
        """Run an operator again; what it writes that is still there is left as it is."""
        node = self.nodes[operator]
        before = None
        if is_random(node):
            before = self.graph.call_function(exchange_random_state, (self.random_state[operator],))
        left = {name: self.now[name] for name, v in self._names(operator) if v in self.there}
        copied = self.copy(node)
        copied.meta[AGAIN] = True
        if node.target is BATCH_NORM:
            copied.target, copied.args = NO_STATISTICS, (*copied.args[:3], *copied.args[5:])
        for name in named_by(node):
            if name not in left:
                self.copy(name).meta[AGAIN] = True
        self.now.update(left)
        if before is not None:
            self.graph.call_function(exchange_random_state, (before,))

    def _names(self, operator: int) -> list[tuple[Node, int]]:
        """Return the nodes that name results of an operator, each with its value."""
        node = self.nodes[operator]
        made = iter(v for v in self.writes[operator] if not self.step.resident[v])
        results = node.meta["val"] if isinstance(node.meta["val"], (tuple, list)) else [node.meta["val"]]
        value = [next(made) if isinstance(result, torch.Tensor) else -1 for result in results]
        if not isinstance(node.meta["val"], (tuple, list)):
            names = {node: value[0]}
        else:
            names = {name: value[name.args[1]] for name in node.users if name.target is getitem}
        return [(one, v) for name, v in names.items() for one in (name, *named_by(name))]

    # --- swap ---------------------------------------------------------------------------------------------------------

    def _moves(self, again: dict[int, tuple[int, ...]]) -> dict[int, list[_Move]]:
        """Return by position what is to be moved before its operator."""
        runs: dict[Node, list[int]] = {}
        for position, operator in enumerate(self.schedule.order.tolist()):
            for one in (*again.get(position, ()), operator):
                runs.setdefault(self.nodes[one], []).append(position)
        moves: dict[int, list[_Move]] = {}
        for storage, out, into in self.outcome.swapped:
            near, back, names = self.near[storage], len(self.nodes), []
            for operator, row in enumerate(self.writes):
                if any(self.storage[v] == storage for v in row):
                    for name, v in self._names(operator):
                        later = [p for user in name.users for p in runs.get(user, ()) if p > near]
                        if later and self.storage[v] == storage:
                            names.append(name)
                            back = min(back, *later)
            swapped = _Swapped(storage, names)
            for position, move in (
                (near + 1, self.evict),
                (out, self.leave),
                (into, self.fetch),
                (back, self.arrive),
            ):
                moves.setdefault(position, []).append((move, swapped))
        return moves

    def evict(self, swapped: _Swapped) -> None:
        swapped.kept = self.graph.call_module(EVICT, tuple(self.now[name] for name in swapped.names))

    def leave(self, swapped: _Swapped) -> None:
        names = (self.now[name] for name in swapped.names)
        self.graph.call_function(leave, (swapped.kept, *names))
        swapped.values = {v for v in self.there if self.storage[v] == swapped.storage}
        self.there -= swapped.values

    def fetch(self, swapped: _Swapped) -> None:
        if not swapped.values & self.there:  # else it has been made again meanwhile
            swapped.raw = self.graph.call_function(fetch, (swapped.kept,))
            swapped.raw.meta["val"] = swapped.names[0].meta["val"]

    def arrive(self, swapped: _Swapped) -> None:
        if swapped.raw is None:
            return
        every = self.graph.call_function(arrive, (swapped.kept, swapped.raw))
        every.meta["val"] = tuple(name.meta["val"] for name in swapped.names)
        for number, name in enumerate(swapped.names):
            self.now[name] = self.graph.call_function(getitem, (every, number))
            self.now[name].meta["val"] = name.meta["val"]
        self.there |= swapped.values

    # --- uses ---------------------------------------------------------------------------------------------------------

    def _uses(self) -> tuple[dict[int, int], dict[int, int], dict[int, list[int]]]:
        """Return the positions of storages' last and near uses, and by position the values dropped after it.

        The near use is the last in the phase that wrote the storage: see `stowplan.scheduling.check`.
        """
        step, order = self.step, self.schedule.order.tolist()
        reads = step.reads.rows()
        phase: dict[int, int] = {}
        for operator, row in enumerate(self.writes):
            for value in row:
                phase.setdefault(self.storage[value], int(step.phase[operator]))
        last: dict[int, int] = {}
        near: dict[int, int] = {}
        for position, operator in enumerate(order):
            for storage in {self.storage[v] for v in (*reads[operator], *self.writes[operator])}:
                last[storage] = position
                if phase.get(storage) == step.phase[operator]:
                    near[storage] = position
        leaves: dict[int, list[int]] = {}
        for value in np.flatnonzero(self.schedule.way == Way.DROPPED).tolist():
            storage = self.storage[value]
            for position in {near[storage], last[storage]}:
                leaves.setdefault(position, []).append(value)
        return last, near, leaves


@dataclass
class _Swapped:
    storage: int
    names: list[Node]  # of its tensors that are read later
    kept: Node | None = None
    raw: Node | None = None
    values: set[int] = field(default_factory=set)  # that have left


_Move = tuple[Callable[[_Swapped], None], _Swapped]
