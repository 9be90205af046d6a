"""Step graphs of whole networks, small and synthetic, for the tests of solvers."""

from __future__ import annotations

import random
from itertools import product

import numpy as np

from stowplan.scheduling import Phase, Schedule, StepGraph, Way, choices, lean, simulate


class Builder:
    """Values and operators one by one."""

    def __init__(self) -> None:
        self.size: list[int] = []
        self.resident: list[bool] = []
        self.reads: list[list[int]] = []
        self.writes: list[list[int]] = []
        self.phase: list[Phase] = []
        self.seconds: list[float] = []
        self.workspace: list[int] = []
        self.label: list[str] = []
        self.repeatable: list[bool] = []

    def value(self, size: int, resident: bool = False) -> int:
        self.size.append(size)
        self.resident.append(resident)
        return len(self.size) - 1

    def run(
        self,
        label: str,
        reads: list[int],
        sizes: list[int],
        phase: Phase = Phase.FORWARD,
        seconds: float = 1.0,
        workspace: int = 0,
        repeatable: bool = True,
    ) -> list[int]:
        written = [self.value(size) for size in sizes]
        self.reads.append(reads)
        self.writes.append(written)
        self.phase.append(phase)
        self.seconds.append(seconds)
        self.workspace.append(workspace)
        self.label.append(label)
        self.repeatable.append(repeatable and phase == Phase.FORWARD)
        return written

    def graph(self, packed: dict[int, int] | None = None) -> StepGraph:
        few = [(packed or {}).get(v, size) for v, size in enumerate(self.size)]
        return StepGraph(
            self.reads,
            self.writes,
            self.size,
            phase=self.phase,
            seconds=self.seconds,
            workspace=self.workspace,
            resident=self.resident,
            repeatable=self.repeatable,
            packed=few,
            label=self.label,
        )


def chain_net(layers: int, seed: int) -> StepGraph:
    """Layers one after the other; each way back reads what its layer read, wrote, or both."""
    rng = random.Random(seed)
    b = Builder()
    value = b.value(rng.randrange(1, 9), resident=True)
    edges = []
    for _ in range(layers):
        (written,) = b.run(
            "layer", [value], [rng.randrange(1, 20)], seconds=rng.randrange(1, 9), workspace=rng.randrange(5)
        )
        edges.append((value, written))
        value = written
    gradient: list[int] = []
    for read, written in reversed(edges):
        needs = rng.choice([[read], [written], [read, written]])
        gradient = b.run(
            "layer'",
            needs + gradient,
            [b.size[read]],
            Phase.BACKWARD,
            rng.randrange(1, 9),
            rng.randrange(5),
        )
    return b.graph()


def branching_net(layers: int, seed: int) -> StepGraph:
    """As `chain_net`, but a layer reads any of the three values before it, or two of them."""
    rng = random.Random(seed)
    b = Builder()
    values = [b.value(rng.randrange(1, 9), resident=True)]
    edges = []
    for _ in range(layers):
        reads = rng.sample(values[-3:], min(len(values[-3:]), rng.choice([1, 1, 2])))
        values += b.run(
            "layer", reads, [rng.randrange(1, 20)], seconds=rng.randrange(1, 9), workspace=rng.randrange(5)
        )
        edges.append((reads, values[-1]))
    gradient: list[int] = []
    for reads, written in reversed(edges):
        needs = rng.choice([reads, [written], [*reads, written]])
        gradient = b.run(
            "layer'", needs + gradient, [rng.randrange(1, 20)], Phase.BACKWARD, rng.randrange(1, 9)
        )
    return b.graph()


def recurrent_net(steps: int, weight: int = 1000, width: int = 10) -> StepGraph:
    """One layer over time that stacks its weights anew for every step, as Chainer's NStepLSTM does.

    The recorded backward pass undoes the products of all steps, and only then splits the gradients of the stacked
    weights and sums them up: all of these are alive at once.
    """
    b = Builder()
    parts = [b.value(weight // 2, resident=True) for _ in range(2)]
    state = b.value(width, resident=True)
    stacked, states = [], [state]
    for _ in range(steps):
        stacked += b.run("Stack", parts, [weight], seconds=0.1)
        states += b.run("Linear", [states[-1], stacked[-1]], [width], seconds=1.0)
    gradient = b.run("loss'", [states[-1]], [width], Phase.BACKWARD)
    gradients = []
    for step in reversed(range(steps)):
        gradient, of_weight = (
            [v]
            for v in b.run(
                "Linear'", [*gradient, states[step], stacked[step]], [width, weight], Phase.BACKWARD, 2.0
            )
        )
        gradients += of_weight
    total = None
    for one in gradients:
        reads = [one] if total is None else [one, total]
        (total,) = b.run("Stack'", reads, [weight], Phase.BACKWARD, 0.1)
    return b.graph()


def brute_force(graph: StepGraph, budget: int) -> tuple[float | None, int]:
    """Return the least extra seconds within a budget, over all values kept or dropped, and the least peak of all."""
    free = [s for s, ways in choices(graph).items() if Way.DROPPED in ways]
    order = lean(graph).order
    fastest, lowest = None, None
    for ways in product((0, 1), repeat=len(free)):
        way = np.zeros(graph.values, dtype=np.int64)
        way[free] = ways
        found = simulate(graph, Schedule(order, way[graph.storage]))
        lowest = found.peak if lowest is None else min(lowest, found.peak)
        if found.peak <= budget and (fastest is None or found.extra_seconds < fastest):
            fastest = found.extra_seconds
    assert lowest is not None
    return fastest, lowest
