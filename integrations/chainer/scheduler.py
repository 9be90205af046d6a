"""Run training steps with a lower live peak: lean always, recomputing and swapping under a budget.

The steps of a scheduler pass through these phases::

    watched      the first step, as Chainer runs it: parameters and state are made, reasons against a schedule found
       |
       |  no budget                    budget
       v                               v
      lean                          recorded     a lean step, measured and run twice, operator by operator
       in the pool's steps             |
                                     timed       lean steps, for the seconds; if lean ones are above the budget, by a
                                       |         schedule from the recorded seconds, which is waited for
                                     lean        until the schedule is ready: it is made in a thread of its own
                                       |         (timed by the former schedule, if there is one)
                                       v
                                   scheduled     in the pool's steps

*Lean* costs no time: the arrays that an operator retained are freed after its backward step, sums of gradients are
formed in place, parameters are updated early and in pieces. The pool serves all steps, and plans those of one kind, the
last in each column.

With ``watch=False`` the first step is a lean one, too, and what watching would find is an error. Under a budget, lean
steps that there is no schedule for keep to it as well as they can without one: see `sparing`. Steps of other structures
(a short last batch, other lengths) run lean; one that comes again is recorded, and gets a schedule of its own.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ..allocator.pool import Pool
from ..common.errors import BudgetError, PoolError, ScheduleError, StowplanError
from ..common.swapping import SwapFile
from ..profiler.unbroken import unbroken_context
from ..scheduling import as_recorded, lean, simulate
from . import patches
from .evictions import PinnedSwap, Swap
from .execution import ScheduledStep
from .known import TIMED_STEPS, Known, SchedulerStats, over_budget, parse_budget
from .meter import Retained, clock_for, device_of, meter_for, parameters_of, resident_arrays
from .optimizer_in_backward import Updates, require_set_up
from .parameter_swap import ParameterSwap, require_swappable
from .recorder import Recording, RecordingStep, TimedStep, least
from .schedule_follower import Follower
from .sparing import Sparing
from .written import Written

if TYPE_CHECKING:
    from ..scheduling.solve import Solution

RECORD_AT = 2
"""Number of steps of a structure without a schedule before one is recorded."""


class Scheduler:
    """Run training steps by a schedule that lowers their live peak and changes no bit.

    Parameters
    ----------
    optimizer
        A ``chainer.Optimizer`` that has been set up, or several that the step updates.
    pool
        A `stowplan.NumpyPool` or `stowplan.CupyPool`, which then serves the steps; None: the steps are not planned.
    budget
        Bytes, a text like ``"600 MiB"``, or a share like ``"60%"``, for all that a step has alive, parameters and state
        included. A share is of the peak of the first step recorded, which releases early and recomputes nothing. None:
        lean.
    key
        The key of the pool's step.
    solver, time_limit
        As for `stowplan.scheduling.schedule`.
    swap
        Whether values may also be evicted, if that costs less than recomputing them: to a file without a name in
        this folder (True: one for temporary files that is no memory), or, on a device, to the host's pinned memory.
    swap_parameters
        Whether parameters and the optimizer's state are out of memory, too, in a file as for ``swap``, except while an
        operator or an update uses them. On the host, with reference counts that prove that nothing else has the array.
    watch
        False: the first step is lean, too, for a model that does not fit otherwise. The program then states that no two
        passes visit one operator, and that none reaches into the graph of an earlier step; a step that does so raises
        `.ScheduleError`.
    early_updates
        Where parameters are updated in the backward pass, and their gradients freed. None: where one call holds both,
        as ``optimizer.update(lossfun, ...)`` does, and so Chainer's updater. True: in a loop by hand, too: the program
        promises that each step is one backward pass and one update, with nothing between them that reads or changes
        parameters, gradients, the optimizer or its hooks, and that no function or hook of its own does so in the
        backward pass. False: nowhere. A gradient that is gone raises `.ScheduleError` when it is read.

    Warns
    -----
    RuntimeWarning
        No schedule serves steps under a budget, and they run as Chainer's: ``SchedulerStats.keeps_graph`` tells why.

    Raises
    ------
    ValueError
        The budget is neither a number of bytes nor a share.
    ScheduleError
        ``optimizer`` is no Chainer optimizer, or has not been set up; ``pool`` is no pool; ``early_updates`` is True
        with several optimizers; parameters to be swapped are not on the host, or Python is 3.14 or newer.

    Notes
    -----
    Activations are released early, parameters updated early, and values recomputed under a budget with
    ``update(lossfun)``, an update of Chainer's, hooks that look at one parameter (``WeightDecay``, ``Lasso``,
    ``GradientLARS``, ``GradientHardClipping``), extensions and link hooks. Otherwise `stats` gives the reason:

    - Gradients are kept until the update (``keeps_gradients``), and the rest works, by hand (``loss.backward()``, then
      ``optimizer.update()``: see ``early_updates``), with hooks that look at several gradients or draw
      (``GradientClipping``, ``GradientNoise``), loss scaling, float16 updated in float32, ``ParameterStatistics``,
      ``VariableStatisticsPlot``, ``MSVAG``, ``SMORMS3``, shared rules or states, optimizers' methods, rules, functions
      and hooks that are not Chainer's, ``F.forget``, double backprop, debug mode, and ``np.errstate(all="raise")``.
    - The graph is kept (``keeps_graph``), and no schedule made, with one graph for two losses, adversarial training, a
      pass that reaches into an earlier step, and, under a budget, several graphs first, then passes and updates in
      turns: recomputed, an operator would read updated parameters.
    - Functions of the program's own (classes of ``FunctionNode``) are never recomputed, as they might have effects;
      `stowplan.chainer.trust` declares that a class has none.
    - Without room for what is to be swapped, values stay (``keeps_values``).
    - Swapped parameters are fetched for whoever reads them, and stay where something else refers to their arrays
      (``keeps_parameters``). A child of a fork cannot read those that are out, and gets a `.SwapError`.

    Examples
    --------
    ::

        scheduler = stowplan.chainer.Scheduler(optimizer, pool=pool, budget="600 MiB")
        for x, t in batches:
            with scheduler.step():
                optimizer.update(model, x, t)
    """

    def __init__(
        self,
        optimizer: Any,
        pool: Pool | None = None,
        budget: int | str | None = None,
        *,
        key: Hashable = "train",
        solver: str = "auto",
        time_limit: float | None = None,
        swap: bool | str | os.PathLike[str] = False,
        swap_parameters: bool = False,
        watch: bool = True,
        early_updates: bool | None = None,
    ) -> None:
        self._swaps, self._folder = bool(swap), None if isinstance(swap, bool) else os.fspath(swap)
        self._swap: Swap | None = None
        self._parameters: ParameterSwap | None = None
        self._optimizers: list[Any] = list(optimizer) if isinstance(optimizer, Sequence) else [optimizer]
        require_set_up(self._optimizers)
        if swap_parameters:
            require_swappable(parameters_of(self._optimizers))
            self._parameters = ParameterSwap(SwapFile(self._folder))
        if pool is not None and not isinstance(pool, Pool):
            raise ScheduleError(
                f"pool is {pool!r}; expected a stowplan.NumpyPool or stowplan.CupyPool, or None"
            )
        self._pool = pool
        self._asked = budget
        self._budget, self._share = (None, None) if budget is None else parse_budget(budget)
        self._key, self._solver, self._time_limit = key, solver, time_limit
        self._known: list[Known] = []
        self._unknown: Counter[int] = Counter()
        self._record = budget is not None
        self._watch, self._is_first, self._retained = watch, True, Retained(self._optimizers)
        self._running = self._is_half_updated = False
        self._stats = SchedulerStats()
        self._early = early_updates
        if early_updates is False:
            self.keep_gradients("early_updates is False")
        elif early_updates and len(self._optimizers) > 1:
            raise ScheduleError(
                f"early_updates is True, with {len(self._optimizers)} optimizers; expected one optimizer, or None"
            )

    @property
    def stats(self) -> SchedulerStats:
        """Statistics of the steps so far."""
        return self._stats

    @property
    def recordings(self) -> list[Recording]:
        """The structures recorded so far, with their step graphs."""
        return [known.recording for known in self._known]

    @property
    def solutions(self) -> list[Solution]:
        """The schedules in use."""
        return [known.solution for known in self._known if known.solution is not None]

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the schedules that are being made; return whether they are ready."""
        return all(known.wait(timeout) for known in self._known)

    def keep_gradients(self, reason: str) -> None:
        """Keep gradients until after all parameters are updated, as Chainer does; `stats` gives the reason."""
        self._early = False
        self._set(keeps_gradients=self._stats.keeps_gradients or reason)

    def _set(self, **stats: Any) -> None:
        self._stats = replace(self._stats, **stats)

    def step(self, schedule: bool = True) -> AbstractContextManager[None]:
        """Run the code inside as one step, which is also the pool's step.

        Parameters
        ----------
        schedule
            False: run it as Chainer does, without the pool.

        Raises
        ------
        BudgetError
            On entry, before the first scheduled step: no schedule that was found keeps to the budget.
        PoolError
            A step of this scheduler is running.
        ScheduleError
            The program does what the schedule cannot do as Chainer would; no parameter has changed.
        """
        for known in self._known:
            if known.timed < TIMED_STEPS:  # the first schedule is waited for, where signals are heard
                known.wait(None)
        return self._step(schedule)

    @unbroken_context
    def _step(self, schedule: bool) -> Iterator[None]:
        if self._running:
            raise PoolError("steps do not nest: a step of this scheduler is running")
        if self._is_half_updated:
            raise ScheduleError(
                "an exception ended an earlier step when its backward pass had updated some parameters, and not all; "
                "expected a new Scheduler, once parameters and state are restored, or early_updates=False"
            )
        self._running = True
        try:
            if not schedule:
                yield
                return
            swap = None if self._is_first and self._watch else self._parameters
            with nullcontext() if self._pool is None else self._pool.serving():
                if swap is not None:
                    swap.begin_step(parameters_of(self._optimizers))
                name, step = self._next()
                with self._entered(name, step, swap):
                    yield
            self._over(name, step)
        finally:
            self._running = False

    @contextmanager
    def _entered(self, name: str, step: ScheduledStep, swap: ParameterSwap | None) -> Iterator[None]:
        is_lean = self._asked is None or self._stats.keeps_graph is not None
        pool = self._pool if name == ("lean" if is_lean else "scheduled") else None
        step.values.parameters = swap
        if swap is not None:
            swap.written = step.written
        try:
            with nullcontext() if pool is None else pool.step(self._key), ExitStack() as stack:
                if swap is not None:
                    stack.callback(swap.end_step)
                if isinstance(step, RecordingStep):
                    stack.enter_context(step.meter)
                for optimizer in self._optimizers:
                    stack.enter_context(Updates(step, optimizer, self._early))
                stack.enter_context(patches.running(step))
                yield
        except ValueError as error:
            if step.written is not None:
                step.written.explain(error)
            raise
        finally:
            self._is_half_updated = step.is_half_updated
            step.close()

    # --- which step comes next ----------------------------------------------------------------------------------------

    def _next(self) -> tuple[str, ScheduledStep]:
        """Return the phase of the next step, and the execution that runs it."""
        sparing = self._sparing()
        watched = self._is_first and self._watch
        written = None if self._asked is None else Written(refuses=not watched)  # operators may run again
        if watched:
            return "watched", ScheduledStep(release=False, written=written)
        if self._stats.keeps_graph is not None:  # what was dropped would be made again, and stay
            return "lean", ScheduledStep(release=False)
        self._collect()
        if self._record and not self._is_first:
            parameters = list(parameters_of(self._optimizers))
            resident, clock = resident_arrays(self._optimizers), clock_for(parameters)
            return "recorded", RecordingStep(
                meter_for(parameters), resident, parameters, sparing=sparing, clock=clock, written=written
            )
        is_timed = any(known.is_refined for known in self._known)
        known = [one for one in self._known if is_timed or one.directions is not None]
        if not known:
            return "lean", ScheduledStep(sparing=sparing, written=written)
        follower, swap = (
            Follower([(one.recording.structure, one.directions) for one in known]),
            self._swap_file(),
        )
        if is_timed:
            clock = clock_for(parameters_of(self._optimizers))
            return "timed", TimedStep(follower=follower, swap=swap, clock=clock, written=written)
        return "scheduled", ScheduledStep(follower=follower, swap=swap, written=written)

    def _sparing(self) -> Sparing | None:
        """Return what keeps a step without a schedule within the budget, if there is one."""
        return None if self._budget is None else Sparing(partial(self._retained.left_of, self._budget))

    def _over(self, name: str, step: ScheduledStep) -> None:
        """Update phases and statistics after a step that has ended."""
        self._set(
            recomputed=self._stats.recomputed + step.values.recomputed,
            swapped=self._stats.swapped + step.values.evictions.fetched,
            keeps_gradients=self._stats.keeps_gradients or step.keeps_gradients,
            **{name: getattr(self._stats, name) + 1},
        )
        if self._parameters is not None:
            self._set(swapped_parameters=self._parameters.fetched, keeps_parameters=self._parameters.reason)
        if step.values.evictions.failure is not None:
            self._set(keeps_values=step.values.evictions.failure)
            swap, self._swap = self._swap, None
            if swap is not None:
                swap.close()
        what = step.reason_to_keep_graph()
        if what is not None and self._stats.keeps_graph is None:
            if not self._watch:
                raise ScheduleError(f"{what}; expected neither with watch=False, or watch=True")
            self._set(keeps_graph=what)
            if self._asked is not None:
                warnings.warn(
                    f"steps are not held to the budget of {self._asked}: {what}; expected one graph for each "
                    "loss, and its backward pass before its parameters are updated",
                    RuntimeWarning,
                    stacklevel=4,
                )
        grew = self._retained.grows(step.updates, step.gradients_found, is_first=self._is_first)
        if self._is_first:
            self._is_first = False
            if self._parameters is not None:  # those that the step has made leave, too
                self._parameters.begin_step(parameters_of(self._optimizers))
            self._set(retained_bytes=self._retained.bytes())
        elif grew:  # what was recorded knows less of it
            self._set(retained_bytes=self._retained.bytes())
            self._known, self._record = [], self._asked is not None
        elif isinstance(step, RecordingStep):
            self._recorded(step)
        elif isinstance(step, TimedStep):
            self._timed(step)
        elif step.follower is not None:
            self._scheduled(step.follower)

    @property
    def _left(self) -> int:
        """Bytes of the budget besides what is retained."""
        return max(0, (self._budget or 0) - self._stats.retained_bytes)

    def _recorded(self, step: RecordingStep) -> None:
        self._record = False
        try:
            recording = step.recording()
        except Exception as error:  # whatever is wrong in it: the step has run, and lean ones need none
            self._set(unrecorded=str(error))
            warnings.warn(
                f"steps of {step.count} operators run without a schedule, as they cannot be recorded: {error}; please "
                "report this",
                RuntimeWarning,
                stacklevel=5,
            )
            return
        if not recording.structure.operators:
            return
        retained = max(self._stats.retained_bytes, recording.graph.resident_bytes)
        self._set(retained_bytes=retained)
        if self._budget is None:
            plain = simulate(recording.graph, as_recorded(recording.graph)).peak
            self._budget = int((self._share or 0) * (retained + plain))
        if all(known.recording.structure != recording.structure for known in self._known):
            self._known.append(Known(recording, step.seconds))
            if simulate(recording.graph, lean(recording.graph)).peak > self._left:
                self._solve(self._known[-1], self._left)

    def _timed(self, step: TimedStep) -> None:
        structure = None if step.follower is None else step.follower.structure
        for known in self._known:
            if known.timed < TIMED_STEPS:
                if known.recording.structure is structure:
                    known.seconds = least(known.seconds, step.seconds)
                known.timed += 1
                if known.timed == TIMED_STEPS:
                    self._solve(known, self._left)

    def _scheduled(self, follower: Follower) -> None:
        if follower.structure is not None:
            self._known.sort(key=lambda known: known.recording.structure is not follower.structure)
            return
        self._set(departed=self._stats.departed + 1)
        self._unknown[follower.signature] += 1
        self._record |= self._unknown[follower.signature] == RECORD_AT

    # --- schedules ----------------------------------------------------------------------------------------------------

    def _solve(self, known: Known, budget: int) -> None:
        """Start to make a schedule, in a thread of its own."""
        swap = self._swaps and self._stats.keeps_values is None
        known.solve(budget, solver=self._solver, time_limit=self._time_limit, swap=swap)

    def _collect(self) -> None:
        """Take in schedules that have been made, and what went wrong with them."""
        for known in self._known:
            if not known.is_ready:
                continue
            known.thread = None
            error = known.error
            if isinstance(error, BudgetError):
                if all(one.directions is None for one in self._known):
                    known.timed = TIMED_STEPS  # the least peak was looked for by equal seconds, too
                    used = {"swap": self._swaps, "swap_parameters": self._parameters is not None}
                    raise over_budget(error, self._budget or 0, self._stats.retained_bytes, used) from None
                # Other structures keep to the budget: this one comes as near as it can.
                if known.solution is None or error.least < known.solution.peak:
                    known.use(error.solution)
            elif error is not None:
                raise StowplanError(f"no schedule could be made: {error}") from error
            if known.solution is None:  # a fork has left the thread behind
                self._solve(known, self._left)
                continue
            self._set(
                schedules=sum(one.directions is not None for one in self._known),
                planned_peak=int(known.solution.outcome.peak),
                extra_seconds=float(known.solution.outcome.extra_seconds),
            )

    def _swap_file(self) -> Swap | None:
        """Return the swap that values are evicted to; made at the first call."""
        if not self._swaps or self._stats.keeps_values is not None:
            return None
        if self._swap is None:
            device = None if self._parameters is not None else device_of(parameters_of(self._optimizers))
            self._swap = SwapFile(self._folder) if device is None else PinnedSwap()
        return self._swap
