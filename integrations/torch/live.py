"""The live peak of a graph as its generated code runs it, from the graph alone.

The code that `torch.fx` generates lets go of each node's result right after its last reader. A schedule's simulated
peak is a bound on it: there, what runs again holds what it reads until the operator that it runs for is done::

    nodes                     simulated                  here
    a_again = cat(x, y)       x and y stay               x and y go, if nothing reads them later
    g = norm'(a_again, ...)   x and y go after it
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from torch.fx import Graph, Node

from .nodes import IN_PLACE, storages
from .step_graph import KEEPS, WORKSPACE

GIVEN = ("placeholder", "get_attr")
"""Kinds of nodes whose tensors exist before the graph runs."""


def live_peak(graph: Graph, handed: Collection[Node] = ()) -> int:
    """Return the most bytes alive at once, without those given, but those `handed` over, which go after their last use.

    Results stay to the end.

    Two nodes name one storage if their ``meta["val"]`` do and one takes the other, or if one writes in place on the
    other. O(n + k) for n nodes and k arguments.
    """
    nodes = list(graph.nodes)
    place = {node: k for k, node in enumerate(nodes)}
    names: dict[Node, dict[int, int]] = {}  # by storages in "val": the numbers of those of a node's results
    size: list[int] = []
    ends: list[int] = []
    came = [0] * len(nodes)  # bytes
    for k, node in enumerate(nodes):
        taken = {key: one for source in node.all_input_nodes for key, one in names[source].items()}
        names[node] = {}
        for key, count in storages(node).items():
            if IN_PLACE in node.meta and node.target is node.meta[IN_PLACE][1]:
                names[node][key] = next(iter(names[node.args[0]].values()))
            elif key in taken:
                names[node][key] = taken[key]
            else:
                names[node][key] = len(size)
                size.append(0 if node.op in GIVEN and node not in handed else count)
                ends.append(k)
                came[k] += size[-1]
        last = max((place[user] for user in node.users), default=k)
        for one in names[node].values():
            ends[one] = max(ends[one], last)
        if KEEPS in node.meta:
            for one in (one for given in node.all_input_nodes for one in names[given].values()):
                ends[one] = len(nodes)
    goes: dict[int, int] = defaultdict(int)
    for one, end in enumerate(ends):
        goes[end] += size[one]
    alive = most = 0
    for k, node in enumerate(nodes):
        alive += came[k]
        most = max(most, alive + int(node.meta.get(WORKSPACE, 0)))
        alive -= goes[k]
    return most
