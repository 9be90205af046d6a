"""From the step graphs of a step at two or more batch sizes to its step graph at any other.

A step has the same operators at every batch size; what they move and how long they take is nearly always affine in the
batch: activations grow with it, parameters and their gradients do not. So two step graphs determine each number::

    bytes, seconds
      |                 . x   constant + per_item * batch
      |           . x'
      |     . x                  x   recorded: the smallest and the largest batch make the fit
      | .                        x'  recorded: those between check it
      +-----2-----3-----4----> batch

Sizes, packed sizes, workspaces and seconds are fitted; resident values have one size at all batches, and so keep it.
Labels, names, phases and what the program holds are those of the largest batch. O(n + m) for each prediction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import GraphError
from ..scheduling import StepGraph
from .steps import TOLERANCE, IntArray, fitted

_SAME = "reads writes after storage phase repeatable resident kept held label name".split()  # noqa: SIM905
"""Columns of the largest batch's graph that all batches have."""


class Deviation(NamedTuple):
    """How far the graph of a batch between is off, as shares: of values' and workspaces' bytes, of operators' time."""

    bytes: float
    workspace: float
    seconds: float


@dataclass(frozen=True, eq=False)
class GraphModel:
    """The step graph as a function of the batch, from those at some, rising, and how far those between are off."""

    batches: tuple[int, ...]
    smallest: StepGraph
    reference: StepGraph
    deviation: Mapping[int, Deviation]

    @property
    def grows(self) -> bool:
        """Whether a larger batch needs more bytes, the resident values apart."""
        low, high = self.smallest, self.reference
        values = (high.size > low.size) & ~high.resident
        return bool(values.any() or (high.workspace > low.workspace).any())

    def at(self, batch: int) -> StepGraph:
        """Predict the step graph at a batch size; bytes are rounded up.

        Workspaces and seconds never fall with the batch: where the smaller batch has more of them (an array library
        that works in place from some size on; noise), they are the larger batch's at any size.

        Raises
        ------
        GraphError
            The batch is below 1.
        """
        if batch < 1:
            raise GraphError(f"a batch of {batch}; expected 1 or more")
        low, high = self.smallest, self.reference
        size = self._affine(low.size, high.size, batch)
        same: dict[str, Any] = {name: getattr(high, name) for name in _SAME}
        return StepGraph(
            **same,
            size=size,
            seconds=self._seconds(batch),
            workspace=self._affine(np.minimum(low.workspace, high.workspace), high.workspace, batch),
            packed=np.minimum(self._affine(low.packed, high.packed, batch), size),
        )

    def _affine(self, low: IntArray, high: IntArray, batch: int) -> IntArray:
        """Return bytes at a batch, exact, rounded up."""
        laws = fitted(self.batches[0], low, self.batches[-1], high)
        found: IntArray = np.maximum(laws.at([batch]), 0).astype(np.int64)
        return found

    def _seconds(self, batch: int) -> npt.NDArray[np.float64]:
        first, last = self.batches[0], self.batches[-1]
        high = self.reference.seconds
        slope = np.maximum(high - self.smallest.seconds, 0.0) / (last - first)
        # Nothing takes less than no time at batch 0: what grows faster is in proportion.
        slope = np.minimum(slope, high / last)
        return high + slope * (batch - last)


def fit_graphs(graphs: Mapping[int, StepGraph]) -> GraphModel:
    """Fit bytes and seconds as affine in the batch.

    Parameters
    ----------
    graphs
        By batch size, two or more, of one step. Take 2 rather than 1 for the smallest: at 1 array libraries leave out
        copies.

    Raises
    ------
    GraphError
        There are fewer than two, a batch is below 1, the graphs differ in their structure (the first operator or value
        that does is named), or one between the smallest and the largest shows that the values' bytes are not affine, by
        more than `TOLERANCE`.
    """
    batches = tuple(sorted(graphs))
    if len(batches) < 2:
        raise GraphError(f"{len(batches)} step graphs; expected those of two or more batch sizes")
    if batches[0] < 1:
        raise GraphError(f"a batch of {batches[0]}; expected 1 or more")
    last = batches[-1]
    for batch in batches[:-1]:
        _require_same(batch, graphs[batch], last, graphs[last])
    deviation: dict[int, Deviation] = {}
    model = GraphModel(batches, graphs[batches[0]], graphs[last], deviation)
    for batch in batches[1:-1]:
        deviation[batch] = _deviation(model, batch, graphs[batch])
    return model


def _require_same(low: int, small: StepGraph, high: int, large: StepGraph) -> None:
    """Raise unless two graphs have the same operators, which read and write the same values."""
    head, graphs = f"the steps at batches {low} and {high} differ at", (small, large)
    relations = [[graph.reads.rows(), graph.writes.rows(), graph.after.rows()] for graph in graphs]
    columns = [
        list(zip(graph.label, graph.phase.tolist(), *rows, strict=True))
        for graph, rows in zip(graphs, relations, strict=True)
    ]
    for number, (one, other) in enumerate(zip_longest(*columns)):
        if one != other:
            what = [
                "no operator" if row is None else f"{row[0]}, which reads {row[2]} and writes {row[3]}"
                for row in (one, other)
            ]
            raise GraphError(
                f"{head} operator {number}: {what[0]}; and {what[1]}; expected the same operators"
            )
    values = [zip(graph.storage.tolist(), graph.resident.tolist(), strict=True) for graph in graphs]
    for value, (one, other) in enumerate(zip_longest(*values)):
        if one != other:
            name = (large if value < large.values else small).name[value]
            raise GraphError(
                f"{head} {name} (value {value}); expected the same values, sharing the same storages"
            )


def _deviation(model: GraphModel, batch: int, between: StepGraph) -> Deviation:
    """How far a graph is from what the model predicts; raises where its values are too far."""
    predicted = model.at(batch)
    off = np.abs(between.size - predicted.size)
    share = _share(off, between.size)
    if share > TOLERANCE:
        v = int(off.argmax())
        low, high = model.batches[0], model.batches[-1]
        raise GraphError(
            f"sizes are not affine in the batch: {between.name[v]} (value {v}) has {between.size[v]} bytes at batch "
            f"{batch}; expected {predicted.size[v]}, from {model.smallest.size[v]} at {low} and "
            f"{model.reference.size[v]} at {high}"
        )
    return Deviation(
        share,
        _share(np.abs(between.workspace - predicted.workspace), between.workspace),
        _share(np.abs(between.seconds - predicted.seconds), between.seconds),
    )


def _share(off: npt.NDArray[np.generic], of: npt.NDArray[np.generic]) -> float:
    whole = float(np.sum(of))
    return float(np.sum(off)) / whole if whole else float(np.any(off))
