"""A graph module that runs a schedule: operators in its order, and again where a value has gone.

Each run of an operator is a node of its own, and each reader takes the latest result that a schedule has there. The
code that `torch.fx` generates lets go of a result right after its last reader, so that the nodes tell all::

    schedule                     nodes
    conv     h                   h = conv(x, W)
    relu     y  DROPPED          y = relu(h)
    loss     e                   e = loss(y)                 y goes
    relu'                        y_again = relu(h)           h goes
                                 g = relu'(y_again, ...)     y_again goes

What runs again changes nothing: random numbers are drawn from the generator's state of the first time, after which the
generator goes on where it was; batch normalization leaves its running statistics alone, which its result in training
does not depend on. O(n + k) for n runs and k arguments.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from ..scheduling import Schedule, StepGraph, simulate
from .nodes import BATCH_NORM, define, device_of, is_name, is_random, named_by, run_in_place, storages
from .seams import pack_like, schema_of
from .step_graph import KEEPS, REPEATABLE, WORKSPACE, given_to, operators
from .updates import UPDATE, update_name

NO_STATISTICS = torch.ops.aten._native_batch_norm_legit.no_stats
"""Batch normalization in training without running statistics: the first three results are the same."""

STATE_BYTES = {"cpu": torch.get_rng_state().nbytes, "cuda": 16}
"""Of a generator's state, by the kind of its device; it is on the host."""


def mark_repeatable(module: GraphModule, *, anywhere: bool = False) -> None:
    """Mark what can run again although it draws random numbers, and has more bytes than the states that it takes.

    `scheduled` can have operators of the host and of CUDA run again, PyTorch those `anywhere`.
    """
    for node in operators(module):
        if is_random(node) and not schema_of(node.target).is_mutable:
            device = device_of(node)
            state = STATE_BYTES.get(device.type) if device is not None else None
            if anywhere or state is not None:
                node.meta[REPEATABLE] = sum(storages(node).values()) > 2 * (state or 0)


def scheduled(module: GraphModule, step: StepGraph, schedule: Schedule) -> GraphModule:
    """Return a graph module that runs a schedule.

    Parameters
    ----------
    module
        Traced, functional, and marked by `mark_repeatable`; with a submodule for each update, by `update_name`.
    step
        Its step graph.
    schedule
        A valid one of it, without values that are packed or swapped.
    """
    found = GraphModule(module, _Writer(module, step, schedule).write(), type(module).__name__)
    found.graph.lint()
    return found


def _state_of(device: torch.device) -> torch.Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _exchange(state: torch.Tensor, device: torch.device) -> torch.Tensor:
    before = _state_of(device)
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
    return before


RANDOM_STATE = define("random_state(Device device) -> Tensor", _state_of)
EXCHANGE = define("exchange_random_state(Tensor state, Device device) -> Tensor", _exchange)
"""Sets the state of a device's generator, and returns the one before. Operators, so that their bytes are seen."""


class _Writer:
    def __init__(self, module: GraphModule, step: StepGraph, schedule: Schedule) -> None:
        self.module, self.nodes = module, operators(module)
        self.order = schedule.order.tolist()
        self.again = dict(simulate(step, schedule).recomputed)
        self.graph = Graph()
        pack_like(self.graph, module.graph)
        self.now: dict[Node, Node] = {}  # the latest copy of each node
        self.random_state: dict[int, Node] = {}  # by operator: the generator's state before its first run

    def write(self) -> Graph:
        repeated = {operator for row in self.again.values() for operator in row}
        for node in given_to(self.module):
            self.copy(node)
        for position, operator in enumerate(self.order):
            for other in self.again.get(position, ()):
                self.run_again(other)
            if operator in repeated and is_random(self.nodes[operator]):
                self.random_state[operator] = self.drawn(RANDOM_STATE, self.nodes[operator])
            self.run(operator)
        self.copy(self.module.graph.output_node())
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
            given = tuple([self.now[one] for one in row] for row in node.args[:2])
            update = self.graph.call_module(update_name(node.args[2]), given)
            update.meta |= {key: node.meta[key] for key in (WORKSPACE, KEEPS) if key in node.meta}
            return
        for one in (node, *named_by(node)):
            self.copy(one)

    def run_again(self, operator: int) -> None:
        node = self.nodes[operator]
        before = self.drawn(EXCHANGE, node, self.random_state[operator]) if is_random(node) else None
        copied = self.copy(node)
        statistics: list[Node] = []
        if node.target is BATCH_NORM:
            copied.target, copied.args = NO_STATISTICS, (*copied.args[:3], *copied.args[5:])
            statistics = [name for name in node.users if name.args[1] >= 3]
        for name in named_by(node):
            if name not in statistics:
                self.copy(name)
        if before is not None:
            self.drawn(EXCHANGE, node, before)

    def drawn(self, operator: Any, by: Node, *args: Node) -> Node:
        """Call an operator that returns the state of the generator that a node draws from."""
        device = device_of(by) or torch.device("cpu")
        node = self.graph.call_function(operator, (*args, device))
        node.meta["val"] = torch.empty(STATE_BYTES[device.type], dtype=torch.uint8, device="meta")
        return node
