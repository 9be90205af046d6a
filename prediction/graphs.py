"""From the step graphs of a step at two or more batch sizes to its step graph at any other.

A step has the same operators at every batch size; what they move and how long they take is nearly always affine in the
batch, or a power of it: activations grow with it, parameters and their gradients do not. So two step graphs determine
each number, and if it is a power, check it (`steps.fitted`)::

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

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import GraphError
from ..scheduling import StepGraph
from .laws import Laws
from .steps import TOLERANCE, fitted, not_checked, off_by, rising

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
    graphs: tuple[StepGraph, ...]
    deviation: Mapping[int, Deviation]

    @property
    def smallest(self) -> StepGraph:
        """The graph of the smallest batch."""
        return self.graphs[0]

    @property
    def reference(self) -> StepGraph:
        """The graph of the largest batch."""
        return self.graphs[-1]

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
        high, last = self.reference, self.batches[-1]
        bytes_: npt.NDArray[np.int64] = np.maximum(self.laws.at([batch]), 0).astype(np.int64)
        size, packed, workspace = np.split(bytes_, [high.values, 2 * high.values])
        slope = np.maximum(high.seconds - self.smallest.seconds, 0.0) / (last - self.batches[0])
        # Nothing takes less than no time at batch 0: what grows faster is in proportion.
        seconds = high.seconds + np.minimum(slope, high.seconds / last) * (batch - last)
        same: dict[str, Any] = {name: getattr(high, name) for name in _SAME}
        return StepGraph(
            **same, size=size, seconds=seconds, workspace=workspace, packed=np.minimum(packed, size)
        )

    @property
    def laws(self) -> Laws:
        """The laws of sizes, packed sizes and workspaces, in this order."""
        return self._fitted[0]

    @property
    def cannot_tell(self) -> str:
        """The values and workspaces whose law no graph has checked but those that made it; empty if there are none."""
        high, checked = self.reference, self._fitted[1]
        rows = np.r_[: high.values, 2 * high.values : len(checked)]  # packed sizes are parts of sizes
        names = [*high.name, *(f"the workspace of {label}" for label in high.label)]
        size = np.concatenate([high.size, high.workspace])
        return not_checked(checked[rows], size, "values and workspaces", names.__getitem__, self.batches)

    @functools.cached_property
    def _fitted(self) -> tuple[Laws, npt.NDArray[np.bool_]]:
        rows = [
            np.concatenate([one.size, one.packed, np.minimum(one.workspace, self.reference.workspace)])
            for one in self.graphs
        ]
        return fitted(self.batches, np.column_stack(rows))


def fit_graphs(graphs: Mapping[int, StepGraph]) -> GraphModel:
    """Fit bytes as affine in the batch, or as powers of it, and seconds as affine.

    Parameters
    ----------
    graphs
        By batch size, two or more, of one step. Take 2 rather than 1 for the smallest: at 1 array libraries leave out
        copies.

    Raises
    ------
    GraphError
        There are fewer than two, a batch is below 1, the graphs differ in their structure (the first operator or value
        that does is named), or one between the smallest and the largest shows that the values' bytes follow no such
        law, by more than `TOLERANCE`.
    """
    batches = rising(graphs, "step graph", GraphError)
    last = batches[-1]
    for batch in batches[:-1]:
        _require_same(batch, graphs[batch], last, graphs[last])
    model = GraphModel(batches, tuple(graphs[batch] for batch in batches), {})
    return replace(
        model, deviation={batch: _deviation(model, batch, graphs[batch]) for batch in batches[1:-1]}
    )


def _require_same(low: int, small: StepGraph, high: int, large: StepGraph) -> None:
    """Raise unless two graphs have the same operators, which read and write the same values."""
    head, graphs = f"the steps at batches {low} and {high} differ at", (small, large)
    operators = [
        zip(one.label, one.reads.rows(), one.writes.rows(), one.phase.tolist(), one.after.rows(), strict=True)
        for one in graphs
    ]
    for number, rows in enumerate(zip_longest(*operators)):
        if rows[0] != rows[1]:
            texts = [
                f"{row[0]}, which reads {row[1]} and writes {row[2]}" if row else "no operator"
                for row in rows
            ]
            raise GraphError(f"{head} operator {number}: {'; and '.join(texts)}; expected the same operators")
    values = [zip(one.storage.tolist(), one.resident.tolist(), strict=True) for one in graphs]
    for value, rows in enumerate(zip_longest(*values)):
        if rows[0] != rows[1]:
            name = max(graphs, key=lambda one: one.values).name[value]
            raise GraphError(
                f"{head} {name} (value {value}); expected the same values, sharing the same storages"
            )


def _deviation(model: GraphModel, batch: int, between: StepGraph) -> Deviation:
    """Return how far a graph is from what the model predicts; raise an error where its values are too far."""
    predicted = model.at(batch)
    share, v = off_by(between.size, predicted.size)
    if share > TOLERANCE:
        low, high = model.batches[0], model.batches[-1]
        raise GraphError(
            f"sizes are neither affine in the batch nor a power of it: {between.name[v]} (value {v}) has "
            f"{between.size[v]} bytes at batch {batch}; expected {predicted.size[v]}, from {model.smallest.size[v]} at "
            f"{low} and {model.reference.size[v]} at {high}"
        )
    return Deviation(
        share,
        off_by(between.workspace, predicted.workspace)[0],
        off_by(between.seconds, predicted.seconds)[0],
    )
