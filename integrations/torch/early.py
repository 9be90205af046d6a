"""Where in a step the optimizer updates which parameters, and the bytes that this takes.

A joint graph has a gradient for each input. Early, each parameter is updated as soon as its gradient is complete, and
the gradient goes; together, one update takes all gradients. Small parameters of one group share an update, which costs
time of its own. How many bytes an update requests, and how many its state keeps, follows from two small parameters that
are updated apart. O(n log n) for n inputs.
"""

from __future__ import annotations

import copy
import inspect
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn, optim
from torch.fx import GraphModule, Node

from ..scheduling import Phase
from .meter import measure
from .nodes import PHASE, storage_of
from .rewriting import update_name
from .step_graph import KEEPS, WORKSPACE
from .updates import LAID_OUT, UPDATE, BeforeUpdate, Update, group_of


class Bytes(NamedTuple):
    """Bytes that an update has alive while it runs, and those of the state that it keeps."""

    workspace: int
    state: int


class Updates:
    """The updates of a step whose parameters are among its inputs.

    Parameters
    ----------
    optimizer, before
        The user's: see `Update`.
    inputs
        Of the step.
    together
        Whether one update takes all gradients.
    accumulates
        Whether gradients are left in ``grad`` instead.
    """

    def __init__(
        self,
        optimizer: optim.Optimizer,
        before: BeforeUpdate | None,
        inputs: Sequence[Any],
        *,
        together: bool,
        accumulates: bool,
    ) -> None:
        self._optimizer, self._before, self._inputs = optimizer, before, inputs
        self._together, self._accumulates = together, accumulates
        self._groups = group_of(optimizer)
        costs = Costs(optimizer)
        groups = self._groups
        self._costs = {k: costs.of(one, groups[id(one)]) for k, one in enumerate(inputs) if id(one) in groups}

    def add(self, joint: GraphModule, arguments: Sequence[torch.Tensor]) -> int:
        """Let updates take the place of the gradients in a joint graph; return the bytes of the optimizer's state."""
        output = joint.graph.find_nodes(op="output")[0]
        results, count = list(output.args[0]), len(output.args[0]) - len(self._inputs)
        given = joint.graph.find_nodes(op="placeholder")
        taken = {storage_of(one) for one in results[:count] if isinstance(one, Node)}
        early: list[tuple[int, Node, int | None]] = []
        left: list[tuple[int, Node, int | None]] = []
        for number, (tensor, gradient) in enumerate(zip(self._inputs, results[count:], strict=True)):
            if gradient is not None:
                group = self._groups.get(id(tensor))
                own = _laid_out(joint, gradient, given[number], taken)
                (left if group is None or self._accumulates else early).append((number, own, group))
        early.sort(key=lambda row: row[1])  # as they are complete
        parts = _parts([(self._inputs[row[0]].nbytes, row) for row in early])
        if self._together and early:
            parts = [early]
        at_once = sum if any(group.get("foreach") for group in self._optimizer.param_groups) else max
        with joint.graph.inserting_before(output):
            for number, part in enumerate([*parts, *([row] for row in left)]):
                numbers = [row[0] for row in part]
                gradients = [row[1] for row in part]
                node = joint.graph.call_function(UPDATE, ([given[k] for k in numbers], gradients, number))
                node.meta = {PHASE: Phase.UPDATE, "val": None, WORKSPACE: 0}
                optimizer = self._optimizer if number < len(parts) else None
                if optimizer is not None:
                    node.meta[WORKSPACE] = at_once(self._costs[k].workspace for k in numbers)
                elif self._inputs[numbers[0]].grad is None:
                    node.meta[KEEPS] = True
                group = None if self._together else part[0][2]
                update = Update(optimizer, arguments, numbers, group, self._before)
                joint.add_module(update_name(number), update)
        output.args = (tuple(results[:count]),)
        joint.graph.eliminate_dead_code()
        joint.recompile()
        return sum(self._costs[row[0]].state for row in early)


def _laid_out(joint: GraphModule, gradient: Node, parameter: Node, taken: set[Node]) -> Node:
    """Return a gradient in its parameter's layout, on a storage that is nobody else's: as autograd has it."""
    value, root = gradient.meta["val"], storage_of(gradient)
    like = torch.empty_like(parameter.meta["val"])
    pairs = zip(value.stride(), like.stride(), value.shape, strict=True)
    alike = all(one == other or size == 1 for one, other, size in pairs)
    if alike and root not in taken and root.op != "placeholder":
        taken.add(root)
        return gradient
    with joint.graph.inserting_after(gradient):
        copied: Node = joint.graph.call_function(LAID_OUT, (gradient, parameter))
    copied.meta = {PHASE: Phase.BACKWARD, "val": like}
    return copied


def _parts(rows: Sequence[tuple[int, Any]]) -> list[list[Any]]:
    """Divide updates, of so many bytes each, into runs of one group: an update of its own costs time.

    What a run holds back until its last gradient exists is a hundredth of all gradients at most.
    """
    few = sum(size for size, _ in rows) // 100
    parts: list[list[Any]] = []
    held = 0
    for size, row in rows:
        if parts and parts[-1][0][2] == row[2] and held + size <= few:
            parts[-1].append(row)
            held += size
        else:
            parts.append([row])
            held = size
    return parts


class Costs:
    """The bytes of updates of an optimizer's parameters, by laws ``a + b * elements`` found from two small updates."""

    def __init__(self, optimizer: optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._laws: dict[Any, tuple[Bytes, Bytes]] = {}

    def of(self, parameter: torch.Tensor, group: int) -> Bytes:
        """Return the bytes of one parameter's update."""
        key = (group, parameter.dtype, parameter.device)
        if key not in self._laws:
            self._laws[key] = self._tried(_FEW, *key), self._tried(2 * _FEW, *key)
        few, twice = self._laws[key]
        return Bytes(*(_extended(a, b, parameter.numel()) for a, b in zip(few, twice, strict=True)))

    def _tried(self, elements: int, group: int, dtype: torch.dtype, device: torch.device) -> Bytes:
        parameter = nn.Parameter(torch.ones(elements, dtype=dtype, device=device))
        twin = copy.copy(self._optimizer)
        twin.state = defaultdict(dict)
        twin.param_groups = [{**self._optimizer.param_groups[group], "params": [parameter]}]
        parameter.grad = torch.ones_like(parameter)
        step = inspect.unwrap(type(twin).step)  # without the hooks that the user has put on it
        with torch.no_grad():
            step(twin)
            kept = twin.state[parameter]
            state = sum(
                one.untyped_storage().nbytes() for one in kept.values() if isinstance(one, torch.Tensor)
            )
            peak = measure(step, twin).peak
            if "step" in kept:  # some updates take more later on: RAdam's, ASGD's
                kept["step"] = kept["step"] * 0 + _LATE
                step(twin)
                peak = max(peak, measure(step, twin).peak)
            return Bytes(peak, state)


_FEW = 1024
_LATE = 10_000_000
"""A number of steps after which an update is as it will be."""


def _extended(few: int, twice: int, elements: int) -> int:
    """Return what a law gives for some elements that gives these two numbers for `_FEW` and twice as many."""
    each = (twice - few) / _FEW
    return max(0, round(few - each * _FEW + each * elements))
