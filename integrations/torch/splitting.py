"""What a joint graph of AOTAutograd needs to be scheduled as two, and a scheduled one to be split.

Before: what reads inputs that forward changes at its end runs once, and in the step graph backward waits for all of
forward. After: repetitions are marked as backward's, and hold on to nothing but what they take.

The marks are PyTorch's own, ``node.meta["partitioner_tag"]``, which its partitioners go by.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from ..scheduling import Phase, StepGraph
from .joint import BACKWARD, FORWARD, TAG
from .nodes import BATCH_NORM, named_by
from .rewriting import AGAIN, exchange_random_state
from .step_graph import REPEATABLE

COPY = torch.ops.aten.copy_.default


def forward_first(step: StepGraph) -> StepGraph:
    """Let backward begin when all of forward has run, as these are two graphs."""
    forward, before = (step.phase == Phase.FORWARD).tolist(), step.dependencies().rows()
    read = {other for k, row in enumerate(before) if forward[k] for other in row}
    ends = [k for k in range(len(step)) if forward[k] and k not in read]
    begins = [not forward[k] and all(forward[other] for other in row) for k, row in enumerate(before)]
    rows = zip(step.after.rows(), begins, strict=True)
    return step.with_after(sorted({*row, *ends}) if first else row for row, first in rows)


def mark_backward(run: GraphModule) -> None:
    """Mark repetitions as backward's, and put views of the gradients of results after forward's last node."""
    last = None
    for node in run.graph.nodes:
        if AGAIN in node.meta:
            node.meta[TAG] = BACKWARD
        if node.meta.get(TAG) == FORWARD:
            last = node
    for given in run.graph.find_nodes(op="placeholder"):
        if last is not None and "tangents" in given.name:
            for view in reversed(named_by(given)):
                last.append(view)


def keep_readers_of_written(joint: GraphModule) -> None:
    """Let what reads inputs that forward changes run once; but batch normalization, which is not run on them again."""
    for given in joint.graph.find_nodes(op="placeholder"):
        if any(node.target is COPY and node.args[0] is given for node in given.users):
            for node in given.users:
                if node.target is not BATCH_NORM:
                    node.meta[REPEATABLE] = False


def run_from(state: torch.Tensor, operator: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run an operator that draws random numbers from a state of the host's generator, and leave that as it is."""
    before = exchange_random_state(state)
    try:
        return operator(*args, **options)
    finally:
        torch.set_rng_state(before)


def draw_again(run: GraphModule) -> None:
    """Let repetitions of random operators depend on nothing but their arguments: what is split has no other order."""
    for node in run.graph.find_nodes(op="call_function", target=torch.get_rng_state):
        given = pytree.tree_leaves([one.meta["val"] for one in run.graph.find_nodes(op="placeholder")])
        mode = next(one.fake_mode for one in given if isinstance(one, FakeTensor))
        node.meta |= {"val": mode.from_tensor(torch.get_rng_state()), TAG: FORWARD}
        for before in list(node.users):
            drawn, (after,) = before.next, before.users
            drawn.args, drawn.target = (node, drawn.target, *drawn.args), run_from
            run.graph.erase_node(after)
            run.graph.erase_node(before)
