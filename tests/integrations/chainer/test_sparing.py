"""Steps under a budget, from the first one on: however the graph branches, they keep to it, and no bit differs."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import chainer
import chainer.functions as F  # noqa: N812
import chainer.links as L  # noqa: N812
import numpy as np
import pytest

from stowplan import NumpyRecorder
from stowplan.chainer import Scheduler
from stowplan.chainer.schedule_follower import Directions
from stowplan.scheduling import Phase, Schedule, Way, simulate

from .training_runs import Deep, batches, fingerprint


class Residual(Deep):
    """Between two layers two values go on, so one that is kept cuts nothing off; and each layer has a mask."""

    def forward(self, x: Any, t: Any) -> Any:
        h = self.first(x)
        for layer in self.layers:
            h = h + F.dropout(F.sigmoid(layer(h)), 0.3)
        return F.softmax_cross_entropy(self.last(h), t)


class Dense(Deep):
    """Each layer reads all values before it."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.grown = chainer.ChainList(*(L.Convolution2D(None, 8, 1) for _ in range(12)))

    def forward(self, x: Any, t: Any) -> Any:
        values = [self.first(x)]
        for layer in self.grown:
            values.append(F.relu(layer(F.concat(values))))
        return F.softmax_cross_entropy(self.last(values[-1]), t)


def run(network: Any, budget: int | None, scheduled: bool = True) -> tuple[list[int], str]:
    """Return the live peaks of steps, and what they have trained."""
    np.random.seed(0)
    net = network()
    opt = chainer.optimizers.Adam().setup(net)
    recorder, peaks = NumpyRecorder(), []
    with recorder:
        scheduler = Scheduler(opt, budget=budget, watch=False) if scheduled else None
        for x, t in batches(3, 128):
            with scheduler.step() if scheduler else nullcontext(), recorder.step():
                opt.update(net, x, t)
            if scheduler:
                scheduler.wait()
            peaks.append(recorder.whole().live_peak or 0)
    return peaks, fingerprint(net, opt)


@pytest.mark.parametrize(("network", "share"), [(Residual, 0.6), (Dense, 0.9)])
def test_the_first_steps_keep_to_a_budget(network: Any, share: float) -> None:
    peaks, reference = run(network, None, scheduled=False)
    lean, same = run(network, None)
    budget = int(share * max(lean))
    found, also = run(network, budget)
    assert reference == same == also
    assert max(peaks) > max(lean)
    assert max(found[:2]) <= budget


def test_a_second_graph_of_a_step_keeps_what_its_backward_pass_reads() -> None:
    """Not what its forward pass is done with, though backward steps of the first graph came before."""
    nets = [Deep(), Deep()]
    opts = [chainer.optimizers.SGD().setup(net) for net in nets]
    scheduler = Scheduler(opts, budget=1 << 40)
    for x, t in batches(2):
        with scheduler.step():
            for opt in opts:
                opt.update(opt.target, x, t)
    (recording,) = scheduler.recordings
    graph = recording.graph
    schedule = Schedule(np.arange(len(graph)), np.full(len(graph.size), Way.KEPT))
    directions = Directions.of(recording.structure, graph, schedule, simulate(graph, schedule))
    backward = np.flatnonzero(graph.phase == Phase.BACKWARD)
    large = (graph.size > 4) & ~graph.resident[graph.storage]  # neither a parameter nor a loss
    kept = {value for value in directions.last_place if large[value]}
    assert kept
    assert kept <= {int(value) for row in backward for value in graph.reads[row]}
