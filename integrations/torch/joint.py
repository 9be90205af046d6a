"""A joint graph of AOTAutograd, forward and backward in one, as it is to be scheduled.

PyTorch marks what is backward's in ``node.meta["partitioner_tag"]``, which its partitioners go by too.
"""

from __future__ import annotations

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.graph import CodeGen

from ..errors import GraphError
from ..scheduling.graph import Phase
from .eager import cast_once, lay_out_parts
from .nodes import BATCH_NORM, PHASE, leave_out_statistics, mark_in_place, require_numbers
from .shrinking import shrink, write_parts

aten = torch.ops.aten

TAG, FORWARD, BACKWARD = "partitioner_tag", "is_forward", "is_backward"
MUST_BE_BACKWARD = "must_be_in_backward"


REFUSED = {
    aten.mkldnn_rnn_layer.default: "keeps what its backward pass needs from every graph; expected another LSTM, such "
    "as that in torch.backends.mkldnn.flags(enabled=False)",
    aten.prod.dim_int: "has a backward pass along a dimension that depends on values; expected none",
}
"""Operators whose backward pass in a graph has other bits."""


def prepare(joint: GraphModule, casts: str) -> bool:
    """Let a joint graph give the bits of a plain run, in phases; return whether it has a backward pass."""
    graph = joint.graph
    require_numbers(graph)
    for target, why in REFUSED.items():
        for node in graph.find_nodes(op="call_function", target=target):
            raise GraphError(f"{node.name} {why}")
    leave_out_statistics(graph)
    lay_out_parts(graph)
    write_parts(graph)
    shrink(graph)
    has_backward = put_in_phases(joint)
    cast_once(graph, casts)
    mark_in_place(graph)
    return has_backward


def normal(joint: GraphModule, inputs: int, casts: str) -> GraphModule:
    """Prepare a joint graph, and let it begin with its inputs alone, the gradient of the loss a constant."""
    graph = joint.graph
    given = graph.find_nodes(op="placeholder")
    taken = [one for one in given if not one.name.startswith("tangents")]
    if [getattr(one.meta.get("desc"), "idx", None) for one in taken] != list(range(inputs)):
        raise GraphError(
            "inputs of the step share memory, and it writes on them, or operators have effects; expected tensors that "
            "lie apart"
        )
    for target in (aten.detach.default, aten.alias.default):
        for node in graph.find_nodes(op="call_function", target=target):
            node.replace_all_uses_with(node.args[0])
    graph.eliminate_dead_code()
    prepare(joint, casts)
    _write_buffers_early(graph)
    for tangent in given[len(taken) :]:
        value = tangent.meta["val"]
        with graph.inserting_after(tangent):
            ones = graph.call_function(
                aten.full.default,
                (list(value.shape), 1),
                {"dtype": value.dtype, "device": value.device, "pin_memory": False},
            )
        ones.meta = {"val": value, PHASE: Phase.BACKWARD}
        tangent.replace_all_uses_with(ones)
        graph.erase_node(tangent)
        first = next(
            (node for node in graph.nodes if node.meta.get(PHASE) == Phase.BACKWARD and node is not ones),
            None,
        )
        if first is not None:
            first.prepend(ones)
    graph.eliminate_dead_code()
    graph.set_codegen(CodeGen())  # its arguments are the inputs, one by one
    return joint


def _write_buffers_early(graph: Graph) -> None:
    """Write buffers as soon as what is written exists, if nothing but batch normalization has read them.

    What is written is read from the buffer then, as in the program.
    """
    place = {node: k for k, node in enumerate(graph.nodes)}
    for node in graph.find_nodes(op="call_function", target=aten.copy_.default):
        given, written = node.args[:2]
        if given.op == "placeholder" and isinstance(written, Node):
            others = [one for one in given.users if one is not node and one.target is not BATCH_NORM]
            last = max((written, *others), key=place.__getitem__)
            if all(one is written for one in others):
                last.append(node)
                old, new = given.meta["val"], written.meta["val"]
                if (old.shape, old.stride(), old.dtype) == (new.shape, new.stride(), new.dtype):
                    written.replace_all_uses_with(
                        given, lambda user, node=node: user is not node and user.op != "output"
                    )


def put_in_phases(joint: GraphModule) -> bool:
    """Put backward's nodes after forward's, and mark each; return whether there are any.

    Marks of ``torch.utils.checkpoint`` go: the schedule decides.
    """
    nodes = [node for node in joint.graph.nodes if node.op not in ("placeholder", "get_attr", "output")]
    late = {node for node in joint.graph.find_nodes(op="placeholder") if "tangents" in node.name}
    for node in nodes:
        if node.meta.get(TAG) in (BACKWARD, MUST_BE_BACKWARD) or not late.isdisjoint(node.all_input_nodes):
            late.add(node)
    for node in reversed(nodes):  # constants without a mark, by passes of inductor
        if TAG not in node.meta and node.users and late.issuperset(node.users):
            late.add(node)
    output = joint.graph.find_nodes(op="output")[0]
    for node in nodes:
        node.meta.pop("recompute", None)
        node.meta[PHASE] = Phase.BACKWARD if node in late else Phase.FORWARD
        if node.meta.get(TAG) in (None, FORWARD, BACKWARD):
            node.meta[TAG] = BACKWARD if node in late else FORWARD
        if node in late:
            output.prepend(node)
    return any(node in late for node in nodes)
