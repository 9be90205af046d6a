"""Run Chainer's Trainer on a pool: the update is a step, each evaluated batch is a step, the log has statistics.

::

    trainer.run()
      └─ while not stopped
           ├─ updater.update()               step "train": batch, forward, cleargrads, backward, optimizer
           └─ extensions
                ├─ Evaluator    per batch    step "evaluate": batch to the device, forward
                ├─ MemoryReport              statistics into the reporter
                └─ LogReport, snapshot, ...  not served by the pool: they do not repeat

Two lines of a script change::

    updater = stowplan.chainer.Updater(train_iter, optimizer, device=device, pool=pool)  # , budget="2 GiB"
    trainer.extend(stowplan.chainer.MemoryReport(pool))

The update is lean (see `scheduler`), or keeps to a budget, and changes no bit. The pool serves the thread only inside
the steps; nothing has to be entered or set. A short last batch is a variant of its key. Arrays that Chainer keeps
across steps are dropped before their successors are made, and so planned as wrapped blocks: Chainer drops the
gradients; the step drops the loss that `L.Classifier` holds, and with it the graph and the batch, shortly before
`L.Classifier` would.

Importing this module imports Chainer, by `stowplan.compat.enable_chainer`: an ``import chainer`` after it works on
today's NumPy and Python.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import chainer
from chainer.links import Classifier
from chainer.training import Extension, StandardUpdater, Trainer, extension
from chainer.training.extensions import Evaluator, ParameterStatistics, VariableStatisticsPlot

from ..allocator.pool import Pool
from .scheduler import Scheduler

TRAIN, EVALUATE = "train", "evaluate"
"""The step keys."""

READ_GRADIENTS = (ParameterStatistics, VariableStatisticsPlot)
"""Extensions that read gradients after the update."""


class Updater(StandardUpdater):  # type: ignore[misc]
    """Chainer's ``StandardUpdater`` whose update is a step of a pool, lean or within a budget: see `Scheduler`.

    Parameters
    ----------
    iterator, optimizer, options
        As for ``chainer.training.updaters.StandardUpdater``.
    pool
        A `stowplan.NumpyPool` or `stowplan.CupyPool`. It serves the update, whether it is entered or not. None: only
        the schedule lowers the live peak.
    key
        The key of the step.
    budget, swap, swap_parameters, watch, early_updates
        As for `Scheduler`: bytes for all that a step has alive, whether values, and parameters, may be evicted, whether
        the first step runs as Chainer runs it, and where parameters are updated in the backward pass.
    schedule
        False: the update is Chainer's, in a step of the pool.

    Attributes
    ----------
    scheduler
        The `Scheduler`, with its ``stats``; None without one.

    Raises
    ------
    ValueError
        There is a budget, but no schedule is to be made; or neither a pool nor a schedule; or no optimizer is named
        ``"main"``.
    """

    def __init__(
        self,
        iterator: Any,
        optimizer: Any,
        *options: Any,
        pool: Pool | None = None,
        key: Hashable = TRAIN,
        budget: int | str | None = None,
        swap: bool | str | os.PathLike[str] = False,
        swap_parameters: bool = False,
        watch: bool = True,
        early_updates: bool | None = None,
        schedule: bool = True,
        **named: Any,
    ) -> None:
        if not schedule and (budget is not None or pool is None):
            raise ValueError("schedule is False; expected a pool then, and no budget")
        super().__init__(iterator, optimizer, *options, **named)
        names = [*self.get_all_optimizers()]
        if "main" not in names and type(self).update_core is StandardUpdater.update_core:
            raise ValueError(
                f"the optimizers are named {', '.join(names)}; expected one named main, which Chainer's "
                "StandardUpdater updates, or a class with an update_core of its own"
            )
        self.scheduler: Scheduler | None = None
        if schedule:
            optimizers = list(self.get_all_optimizers().values())
            self.scheduler = Scheduler(
                optimizers,
                pool=pool,
                budget=budget,
                key=key,
                swap=swap,
                swap_parameters=swap_parameters,
                watch=watch,
                early_updates=early_updates,
            )
        if pool is not None:
            _interrupt_shuffles(self, pool)
        self._pool = pool
        self._key = key

    def connect_trainer(self, trainer: Trainer) -> None:
        """Find the extensions that read gradients after the update; the trainer calls this."""
        super().connect_trainer(trainer)
        self._trainer = weakref.ref(trainer)

    def update(self) -> None:
        """Update the parameters once, in a step."""
        if self.scheduler is None:
            assert self._pool is not None
            with self._pool.serving(), self._pool.step(self._key):
                self._update()
            return
        trainer = getattr(self, "_trainer", lambda: None)()
        for entry in trainer._extensions.values() if trainer is not None else ():
            if isinstance(entry.extension, READ_GRADIENTS):
                self.scheduler.keep_gradients(
                    f"the extension {type(entry.extension).__name__} reads gradients"
                )
        with self.scheduler.step():
            self._update()

    def _update(self) -> None:
        _drop_results(optimizer.target for optimizer in self.get_all_optimizers().values())
        super().update()


def update_in_steps(updater: Any, pool: Pool, key: Hashable = TRAIN) -> None:
    """Make every update of an existing updater, of whatever class, a step of a pool.

    Parameters
    ----------
    updater
        A ``chainer.training.Updater``. This object's ``update`` is replaced.
    pool, key
        As for `Updater`.
    """
    update: Callable[[], None] = updater.update
    _interrupt_shuffles(updater, pool)

    def update_in_step() -> None:
        with pool.serving(), pool.step(key):
            _drop_results(optimizer.target for optimizer in updater.get_all_optimizers().values())
            update()

    updater.update = update_in_step


def _interrupt_shuffles(updater: Any, pool: Pool) -> None:
    """Keep an iterator's order, made in the last update of an epoch and alive until the next, out of the steps."""
    for iterator in getattr(updater, "_iterators", {}).values():
        if getattr(iterator, "order_sampler", None) is not None:
            iterator.order_sampler = pool.interrupt(iterator.order_sampler)


def _drop_results(models: Iterable[Any]) -> None:
    """Drop the results of the former step that classifiers hold; they drop them only when the next batch exists."""
    for model in models:
        for link in model.links():
            if isinstance(link, Classifier):
                link.y = link.loss = link.accuracy = None


def evaluate_in_steps(evaluator: Any, pool: Pool, key: Hashable = EVALUATE) -> bool:
    """Make every batch that an existing evaluator evaluates a step of a pool.

    ``Evaluator.evaluate`` converts a batch while it still holds the arrays of the one before. Here both belong to one
    function, the step, which drops them at its end: so they are planned, and one batch of them is alive.

    Parameters
    ----------
    evaluator
        A ``chainer.training.extensions.Evaluator``. This object's ``converter`` and ``eval_func`` are replaced.
    pool, key
        As for `Updater`.

    Returns
    -------
    bool
        False, and nothing changed, if the evaluator's class has an ``evaluate`` of its own, which may use the converter
        and the function in another way.
    """
    if type(evaluator).evaluate is not Evaluator.evaluate:
        return False
    convert, function = evaluator.converter, evaluator.eval_func

    def evaluate_batch(batch: _Unconverted) -> None:
        arrays = chainer.dataset.convert._call_converter(convert, batch.samples, evaluator.device)
        evaluate = function or evaluator.get_target("main")
        if isinstance(arrays, tuple):
            evaluate(*arrays)
        elif isinstance(arrays, dict):
            evaluate(**arrays)
        else:
            evaluate(arrays)

    def evaluate_in_step(batch: _Unconverted) -> None:
        with pool.serving(), pool.step(key):
            _drop_results(evaluator.get_all_targets().values())
            evaluate_batch(batch)

    evaluator.converter = chainer.dataset.converter()(lambda samples, device: _Unconverted(samples))
    evaluator.eval_func = evaluate_in_step
    return True


class _Unconverted:
    """A batch to be converted in the step; neither a tuple nor a dict, which Chainer would unpack."""

    def __init__(self, samples: Any) -> None:
        self.samples = samples


class MemoryReport(Extension):  # type: ignore[misc]
    """Trainer extension: a pool's statistics among the observations, and the trainer's evaluators in steps.

    Reports in every iteration, so that ``LogReport`` logs means over its interval:

    ======================  ==========================================================================================
    ``pool/replayed``       share of the requests since the last report that were served from a plan, 0 to 1
    ``pool/guests``         share that was not, but was placed in the arena
    ``pool/reserved``       bytes that the arena and upstream's live blocks take together
    ``pool/live_peak``      most bytes requested and not freed, since the pool was made
    ``pool/lower_bound``    bytes; the largest of the plans in use
    ``pool/plans``          plans made since the pool was made
    ======================  ==========================================================================================

    Parameters
    ----------
    pool
        The updater's.
    evaluate
        Whether the batches of the trainer's evaluators become steps, too; see `evaluate_in_steps`.
    """

    trigger = (1, "iteration")
    priority = extension.PRIORITY_WRITER - 1  # after the evaluators, before extensions that read

    def __init__(self, pool: Pool, *, evaluate: bool = True) -> None:
        self._pool = pool
        self._evaluate = evaluate
        self._replayed = self._guests = self._requests = 0

    def initialize(self, trainer: Trainer) -> None:
        """Look for the trainer's evaluators; the trainer calls this before it runs."""
        if self._evaluate:
            for entry in trainer._extensions.values():
                if isinstance(entry.extension, Evaluator):
                    evaluate_in_steps(entry.extension, self._pool)

    def __call__(self, trainer: Trainer) -> None:
        """Report."""
        stats = self._pool.stats
        replayed = stats.replayed - self._replayed
        guests = stats.guests - self._guests
        served = stats.replayed + stats.guests + stats.upstream
        requests = max(served - self._requests, 1)
        self._replayed, self._guests, self._requests = stats.replayed, stats.guests, served
        chainer.report(
            {
                "pool/replayed": replayed / requests,
                "pool/guests": guests / requests,
                "pool/reserved": stats.reserved_bytes,
                "pool/live_peak": stats.peak_live_bytes,
                "pool/lower_bound": stats.lower_bound,
                "pool/plans": stats.plans,
            }
        )
