"""Kinds of programs that Chainer's Trainer runs: what extends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import chainer
import chainer.links as L  # noqa: N812
import numpy as np
from chainer.training import StandardUpdater, Trainer, extensions

from stowplan.chainer import Updater

from .programs import BATCH, CLASSES, KINDS, UNITS, Kind, Net, Program
from .programs_by_call import GONE
from .programs_by_hand import reads_norms

Extend = Callable[[Any, Program], object]
TRAINERS: dict[str, Extend] = {}


def trainer(**how: Any) -> Callable[[Extend], Extend]:
    """A kind that is a Trainer, whose iterations are the steps; the function extends it."""

    def add(extend: Extend) -> Extend:
        name = f"trainer: {extend.__name__}"
        KINDS[name] = Kind(bool, model=lambda: L.Classifier(Net()), **how)
        TRAINERS[name] = extend
        return extend

    return add


def run_trainer(name: str, program: Program, options: dict[str, Any] | None, steps: int, done: Any) -> None:
    """Train; ``done(scheduler)`` is called after each iteration."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((3 * BATCH, UNITS)).astype(np.float32)
    data = chainer.datasets.TupleDataset(x, draw.integers(0, CLASSES, 3 * BATCH, dtype=np.int32))
    kind = StandardUpdater if options is None else Updater
    updater = kind(chainer.iterators.SerialIterator(data, BATCH), program.optimizer, **(options or {}))
    run = Trainer(updater, (steps, "iteration"), out="build/programs")
    run.extend(
        lambda _: done(getattr(updater, "scheduler", None)),
        name="done",
        trigger=(1, "iteration"),
        priority=-9,
    )
    TRAINERS[name](run, program)
    run.run(show_loop_exception_msg=False)


def _each(run: Any, act: Callable[[], object], every: int = 1) -> None:
    run.extend(lambda _: act(), name=act.__name__, trigger=(every, "iteration"), priority=9)


@trainer(refused=GONE)
def logs_norms_late(run: Any, p: Program) -> None:
    _each(run, lambda: reads_norms(p), every=6)


@trainer()
def logs_parameter_statistics(run: Any, p: Program) -> None:
    run.extend(extensions.ParameterStatistics(p.model), trigger=(6, "iteration"))
    _each(run, lambda: p.say(*(v for k, v in sorted(run.observation.items()) if "grad" in k)))


@trainer()
def draws_the_graph_and_the_weights(run: Any, p: Program) -> None:
    run.extend(extensions.DumpGraph("main/loss"))
    run.extend(
        extensions.VariableStatisticsPlot(p.model.predictor.last, report_data=True), trigger=(4, "iteration")
    )
