"""A joint graph of AOTAutograd, forward and backward in one, as it is to be scheduled.

PyTorch marks what is backward's in ``node.meta["partitioner_tag"]``, which its partitioners go by too.
"""

from __future__ import annotations

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.graph import CodeGen

from ..common.errors import GraphError
from ..scheduling.graph import Phase
from .eager import cast_once, lay_out_parts
from .graph_errors import line_at
from .nodes import BATCH_NORM, PHASE, leave_out_statistics, mark_in_place, require_numbers
from .shrinking import shrink, write_parts

aten = torch.ops.aten

TAG, FORWARD, BACKWARD = "partitioner_tag", "is_forward", "is_backward"
MUST_BE_BACKWARD = "must_be_in_backward"


CHECKS = "checks values, which an assertion does in the midst of the step; expected it after the step"
REFUSED = {
    aten.mkldnn_rnn_layer.default: "is oneDNN's LSTM, whose backward pass reads memory that no graph sees; expected "
    "the step within torch.backends.mkldnn.flags(enabled=False), which has another LSTM",
    aten.embedding_renorm.default: "is of an embedding with max_norm, which writes on its weight within forward; "
    "expected max_norm=None, and the norms bounded after the step",
    aten._sparse_coo_tensor_with_dims_and_tensors.default: "is the sparse gradient of an embedding; expected "
    "sparse=False",
    aten._assert_async.default: CHECKS,
    aten._assert_async.msg: CHECKS,
    aten.prod.dim_int: "has a backward pass along a dimension that depends on values; expected none",
}
"""Operators that raise in the midst of a graph, or whose backward pass has other bits there."""


def refuse(graph: Graph) -> None:
    """Raise if an operator would have other bits."""
    for target, why in REFUSED.items():
        for node in graph.find_nodes(op="call_function", target=target):
            raise GraphError(f"{node.name}{line_at(node)} {why}")


def prepare(joint: GraphModule, casts: str | None) -> bool:
    """Put a joint graph in phases; return whether it has a backward pass.

    With `casts`, as `casts_of` tells them, it gives the bits of a plain run; without, those of a compiler of its own.
    """
    graph = joint.graph
    require_numbers(graph)
    leave_out_statistics(graph)
    if casts is not None:
        refuse(graph)
        lay_out_parts(graph)
        write_parts(graph)
    shrink(graph)
    has_backward = put_in_phases(joint)
    if casts is not None:
        cast_once(graph, casts)
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
    for node in graph.find_nodes(op="call_function", target=aten.t.default):
        if node.args[0].target is aten.t.default:  # of weights in backward, and of their gradients
            node.replace_all_uses_with(node.args[0].args[0])
    graph.eliminate_dead_code()
    prepare(joint, casts)
    mark_in_place(graph)
    _write_buffers_early(graph)
    for tangent in given[len(taken) :]:  # of the loss
        value = tangent.meta["val"]
        options = {"dtype": value.dtype, "device": value.device, "pin_memory": False}
        with graph.inserting_before(
            next(node for node in graph.nodes if node.meta.get(PHASE) == Phase.BACKWARD)
        ):
            ones = graph.call_function(aten.full.default, (list(value.shape), 1), options)
        ones.meta = {"val": value, PHASE: Phase.BACKWARD}
        tangent.replace_all_uses_with(ones)
        graph.erase_node(tangent)
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
    """Put backward's nodes after forward's, and mark each; return whether there are any."""
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
        node.meta[PHASE] = Phase.BACKWARD if node in late else Phase.FORWARD
        if node.meta.get(TAG) in (None, FORWARD, BACKWARD):
            node.meta[TAG] = BACKWARD if node in late else FORWARD
        if node in late:
            output.prepend(node)
    return any(node in late for node in nodes)
