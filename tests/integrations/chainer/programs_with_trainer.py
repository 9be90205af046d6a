"""Kinds of programs that Chainer's Trainer runs: what extends it, and an ``update_core`` of the program's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import chainer
import chainer.links as L  # noqa: N812
import numpy as np
from chainer import optimizer_hooks, optimizers
from chainer.training import StandardUpdater, Trainer, extensions

from stowplan.chainer import Updater

from .programs import BATCH, CLASSES, KINDS, UNITS, Kind, Net, Program
from .programs_by_call import GONE
from .programs_by_hand import decays_weights, reads_norms

Extend = Callable[[Any, Program], object]
Core = Callable[[Any], object]
TRAINERS: dict[str, tuple[Core | None, Extend]] = {}


def trainer(core: Core | None = None, **how: Any) -> Callable[[Extend], Extend]:
    """A kind that is a Trainer, whose iterations are the steps; the function extends it.

    Parameters
    ----------
    core
        The updater's ``update_core``; None: Chainer's.
    """

    def add(extend: Extend) -> Extend:
        name = f"trainer: {extend.__name__}"
        KINDS[name] = Kind(bool, model=lambda: L.Classifier(Net()), **how)
        TRAINERS[name] = core, extend
        return extend

    return add


def run_trainer(name: str, program: Program, options: dict[str, Any] | None, steps: int, done: Any) -> None:
    """Train; ``done(scheduler)`` is called after each iteration."""
    core, extend = TRAINERS[name]
    draw = np.random.default_rng(0)
    x = draw.standard_normal((3 * BATCH, UNITS)).astype(np.float32)
    data = chainer.datasets.TupleDataset(x, draw.integers(0, CLASSES, 3 * BATCH, dtype=np.int32))
    base = StandardUpdater if options is None else Updater
    kind = base if core is None else type("Own", (base,), {"update_core": core})
    updater = kind(chainer.iterators.SerialIterator(data, BATCH), program.optimizer, **(options or {}))
    updater.program = program
    run = Trainer(updater, (steps, "iteration"), out="build/programs")
    run.extend(
        lambda _: done(getattr(updater, "scheduler", None)),
        name="done",
        trigger=(1, "iteration"),
        priority=-9,
    )
    extend(run, program)
    run.run(show_loop_exception_msg=False)


def _each(run: Any, act: Callable[[], object], every: int = 1) -> None:
    run.extend(lambda _: act(), name=act.__name__, trigger=(every, "iteration"), priority=9)


def _core(between: Callable[[Program], object]) -> Core:
    """An ``update_core`` by hand, with something between the backward pass and the update."""

    def core(updater: Any) -> None:
        program, optimizer = updater.program, updater.get_optimizer("main")
        batch = updater.converter(updater.get_iterator("main").next(), updater.device)
        loss = optimizer.target(*batch)
        optimizer.target.cleargrads()
        loss.backward()
        del loss
        between(program)
        optimizer.update()

    return core


def _clip(p: Program) -> None:
    for param in p.params() if p.late else ():
        np.clip(param.grad, -1e-3, 1e-3, out=param.grad)


@trainer(core=_core(_clip))
def clips_late(run: Any, p: Program) -> None:
    pass


@trainer(
    core=lambda updater: updater.get_optimizer("main").update(
        updater.get_optimizer("main").target, *updater.converter(updater.get_iterator("main").next(), None)
    )
)
def calls_the_optimizer(run: Any, p: Program) -> None:
    pass


@trainer()
def observes(run: Any, p: Program) -> None:
    run.extend(extensions.observe_lr(), trigger=(1, "iteration"))
    run.extend(extensions.LogReport(trigger=(2, "iteration")))
    _each(run, lambda: p.say(run.observation["main/loss"]))


@trainer()
def loads_a_snapshot_late(run: Any, p: Program) -> None:
    run.extend(extensions.snapshot_object(p.model, "older"), trigger=(4, "iteration"), priority=99)

    def load() -> None:
        if p.k == 6:
            chainer.serializers.load_npz("build/programs/older", p.model)

    _each(run, load)


@trainer(refused=GONE)
def logs_norms_late(run: Any, p: Program) -> None:
    _each(run, lambda: reads_norms(p), every=6)


@trainer()
def logs_parameter_statistics(run: Any, p: Program) -> None:
    run.extend(extensions.ParameterStatistics(p.model), trigger=(6, "iteration"))
    _each(run, lambda: p.say(*(v for k, v in sorted(run.observation.items()) if "grad" in k)))


@trainer()
def changes_weights(run: Any, p: Program) -> None:
    _each(run, lambda: decays_weights(p))


@trainer()
def fails_on_numbers(run: Any, p: Program) -> None:
    run.extend(extensions.FailOnNonNumber(), trigger=(1, "iteration"))


@trainer(
    prepare=lambda p: [
        p.optimizer.add_hook(hook)
        for hook in (optimizer_hooks.Lasso(1e-4), optimizer_hooks.GradientHardClipping(-1e-3, 1e-3))
    ]
)
def has_hooks_of_parameters(run: Any, p: Program) -> None:
    pass


@trainer(prepare=lambda p: p.optimizer.loss_scaling(interval=2))
def scales_the_loss_as_it_can(run: Any, p: Program) -> None:
    pass


@trainer(optimizer=lambda: optimizers.AdamW(weight_decay_rate=0.01))
def shifts_all_of_adam(run: Any, p: Program) -> None:
    for one in (
        extensions.ExponentialShift("alpha", 0.9),
        extensions.LinearShift("beta1", (0.9, 0.8), (1, 5)),
        extensions.WarmupShift("eta", 0.1, 4, 1.0),
        extensions.StepShift("weight_decay_rate", 0.5, 2, 0.01),
    ):
        run.extend(one, trigger=(1, "iteration"))


@trainer()
def draws_the_graph_and_the_weights(run: Any, p: Program) -> None:
    run.extend(extensions.DumpGraph("main/loss"))
    run.extend(
        extensions.VariableStatisticsPlot(p.model.predictor.last, report_data=True), trigger=(4, "iteration")
    )
