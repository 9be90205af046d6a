"""Training steps of PyTorch within a budget of bytes: traced, scheduled, written as a graph module, and run.

::

    model, loss, batch     tracing        forward and backward as ATen operators, without a byte computed
          |                updates        an update for each parameter, by the user's optimizer
          v                costs          seconds of each operator
    step graph             scheduling     what goes and runs again, in what order, within the budget
          |
          v
    graph module           rewriting      called with each batch of these shapes

A step of other shapes, or with a model switched between training and evaluation, is traced and scheduled for itself.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from ..allocator.pool import Pool
from ..errors import GraphError, ScheduleError
from ..scheduling import Phase
from ..scheduling.solve import Solution
from .budgets import Within, plain_peak
from .costs import seconds
from .evictions import EVICT, Evict
from .live import live_peak
from .rewriting import mark_repeatable, scheduled, update_name
from .step_graph import WORKSPACE, graph
from .tracing import PHASE, trace_training
from .updates import UPDATE, BeforeUpdate, Costs, Update, group_of, reason_against_early, require_served

Loss = Callable[..., torch.Tensor]

RESIDENT = "parameters, buffers, the optimizer's state and the batch"


@dataclass(frozen=True)
class StepStats:
    """What a scheduled step takes, as predicted, and how often it ran.

    Attributes
    ----------
    steps
        That ran by this schedule.
    peak
        Most bytes alive at once, all counted: parameters, buffers, the optimizer's state, the batch, and what the step
        makes.
    resident
        Bytes of these that are alive throughout: all but what the step makes.
    plain_peak
        As `peak`, of a step that recomputes nothing and keeps all gradients until all are there, as PyTorch does.
    recomputed
        Operators that run again in a step.
    swapped
        Bytes that a step evicts to a file, and fetches.
    extra
        Time that the schedule adds, as a share of the step's; by estimated seconds.
    keeps_gradients
        Why gradients are kept until all are there; None: each parameter is updated early.
    keeps_values
        Why values that were to be swapped stay in memory, so that steps are above `peak`; None: they do not.
    """

    steps: int
    peak: int
    resident: int
    plain_peak: int
    recomputed: int
    swapped: int
    extra: float
    keeps_gradients: str | None
    keeps_values: str | None = None


@dataclass
class _Plan:
    run: GraphModule
    solution: Solution
    stats: StepStats


class ScheduledTraining:
    """Training steps that keep to a budget: what `schedule` returns.

    The parameters and the optimizer stay the user's own. Between steps they can be read, saved and changed in place,
    and learning rates scheduled, as in any loop.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Loss | None,
        budget: int | str | None,
        before_update: BeforeUpdate | None,
        solver: str,
        time_limit: float | None,
        swap: bool | str | os.PathLike[str],
        pool: Pool | None,
    ) -> None:
        require_served(optimizer)
        if pool is not None and not isinstance(pool, Pool):
            raise ScheduleError(f"pool is {pool!r}; expected a stowplan.TorchPool, or None")
        self._step = _Step(model, loss)
        self._modules, self._parameters = list(self._step.modules()), list(self._step.parameters())
        self._optimizer, self._before, self._pool = optimizer, before_update, pool
        self._within = Within(budget, solver, time_limit, bool(swap))
        self._evict = Evict(None if swap is True else swap) if swap else None
        self._plans: dict[Any, _Plan] = {}
        self._latest: _Plan | None = None

    def step(self, *batch: Any) -> torch.Tensor:
        """Run a training step: forward, backward, update. Return the loss.

        The gradients of the parameters are None afterwards, as after ``optimizer.zero_grad()``.

        Parameters
        ----------
        batch
            What the loss takes after the model, or the model itself where there is no loss.

        Raises
        ------
        GraphError, BudgetError, ScheduleError
            As `plan` does, before anything has run.
        """
        plan = self._plan(batch)
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            if self._pool is not None:
                stack.enter_context(self._pool.serving())
                stack.enter_context(self._pool.step(id(plan)))
            loss: torch.Tensor = plan.run(*batch)
        failure = None if self._evict is None else self._evict.failure
        plan.stats = replace(plan.stats, steps=plan.stats.steps + 1, keeps_values=failure)
        return loss

    def plan(self, *batch: Any) -> StepStats:
        """Schedule the step for such a batch, unless that was done before, and run nothing.

        Raises
        ------
        GraphError
            The step cannot be traced: it depends on values (``.item()``), calls what is no operator of ATen, or has
            hooks on gradients.
        BudgetError
            No schedule that was found keeps to the budget.
        ScheduleError
            Autocast is on around the call; or values are to be swapped that are not the host's.
        """
        return self._plan(batch).stats

    def differences(self, *batch: Any) -> list[str]:
        """Return the names of parameters whose gradients differ in any bit from those of plain PyTorch.

        For one batch, without an update, and in the memory that a plain step takes. A model may ask whether it is
        traced, and run other operators then, which none but such a trial can find.

        Raises
        ------
        GraphError
            As `plan` does.
        """
        traced = _trace(self._step, batch)
        before = copy.deepcopy(dict(self._step.named_buffers()))
        trained = {name: one for name, one in self._step.named_parameters() if one.requires_grad}
        with torch.random.fork_rng(devices=()):
            loss = self._step(*batch)
            plain = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
        self._restore(before)
        with torch.random.fork_rng(devices=()), torch.no_grad():
            own = traced(*batch)[1]
        self._restore(before)
        pairs = zip(trained, plain, strict=True)
        return [name for name, one in pairs if one is not None and not torch.equal(one, own[name])]

    def _restore(self, buffers: dict[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, buffer in self._step.named_buffers():
                buffer.copy_(buffers[name])

    @property
    def stats(self) -> StepStats | None:
        """Statistics of the schedule used last; None before the first."""
        return None if self._latest is None else self._latest.stats

    @property
    def solution(self) -> Solution | None:
        """The schedule used last, as the solver found it; None before the first."""
        return None if self._latest is None else self._latest.solution

    def _plan(self, batch: tuple[Any, ...]) -> _Plan:
        _require_no_autocast()
        modes = tuple(module.training for module in self._modules)
        trained = tuple(parameter.requires_grad for parameter in self._parameters)
        key = modes, trained, _shapes(batch)
        if key not in self._plans:
            self._plans[key] = self._make(batch)
        self._latest = self._plans[key]
        return self._latest

    def _make(self, batch: tuple[Any, ...]) -> _Plan:
        traced = _trace(self._step, batch)
        if self._evict is not None:
            _require_host(traced)
            traced.add_module(EVICT, self._evict)
        keeps = reason_against_early(self._optimizer, self._before)
        state = self._add_updates(traced, together=keeps is not None)
        mark_repeatable(traced)
        step = graph(traced).with_seconds(seconds(traced))
        resident = step.resident_bytes + state
        plain = resident + plain_peak(step)
        solution = self._within.solve(step, resident, plain, RESIDENT)
        again = sum(len(row) for _, row in solution.outcome.recomputed)
        run = scheduled(traced, step, solution.schedule)
        stats = StepStats(
            0,
            resident + live_peak(run.graph),
            resident,
            plain,
            again,
            sum(int(step.size[storage]) for storage, *_ in solution.outcome.swapped),
            solution.extra_seconds / float(step.seconds.sum()),
            keeps,
        )
        return _Plan(run, solution, stats)

    def _add_updates(self, traced: GraphModule, *, together: bool) -> int:
        """Let updates take the place of the gradients in a traced step; return the bytes of the optimizer's state."""
        output = traced.graph.find_nodes(op="output")[0]
        packed = traced.graph._codegen.pytree_info
        loss, gradients = pytree.tree_unflatten(list(output.args[0]), packed.out_spec)
        groups, costs = group_of(self._optimizer), Costs(self._optimizer)
        rows = []
        for name, gradient in gradients.items():
            parameter = traced.get_parameter(name)
            if id(parameter) in groups:
                rows.append((name, parameter, gradient, groups[id(parameter)]))
        rows.sort(key=lambda row: row[2])  # as they are complete
        bytes_of = [costs.of(parameter, group) for _, parameter, _, group in rows]
        parts = [list(range(len(rows)))] if together else _parts([(row[1].nbytes, row[3]) for row in rows])
        attributes = {node.target: node for node in traced.graph.find_nodes(op="get_attr")}
        with traced.graph.inserting_before(output):
            for number, part in enumerate(parts):
                node = traced.graph.call_function(
                    UPDATE, ([attributes[rows[k][0]] for k in part], [rows[k][2] for k in part], number)
                )
                node.meta[PHASE] = Phase.UPDATE
                at_once = sum if any(group.get("foreach") for group in self._optimizer.param_groups) else max
                node.meta[WORKSPACE] = at_once(bytes_of[k].workspace for k in part)
                node.meta["val"] = None
                group = None if together else rows[part[0]][3]
                update = Update(self._optimizer, [rows[k][1] for k in part], group, self._before)
                traced.add_module(update_name(number), update)
        output.args = ([loss],)
        traced.graph._codegen.pytree_info = packed._replace(out_spec=pytree.tree_structure(0))
        traced.graph.eliminate_dead_code()
        traced.recompile()
        return sum(one.state for one in bytes_of)


def schedule(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Loss | None = None,
    *,
    budget: int | str | None = None,
    before_update: BeforeUpdate | None = None,
    solver: str = "auto",
    time_limit: float | None = None,
    swap: bool | str | os.PathLike[str] = False,
    pool: Pool | None = None,
) -> ScheduledTraining:
    """Train a model within a budget of memory: recompute, swap, reorder and update early, and change no bit.

    Parameters
    ----------
    model
        Trained as it is, in training or in evaluation mode. Only its parameters that the optimizer has are updated.
    optimizer
        One of `ELEMENTWISE`.
    loss
        Called with the model and what `ScheduledTraining.step` is called with; returns a tensor of one element. None:
        the model itself returns it.
    budget
        For all that is alive in a step at once, parameters, buffers, the optimizer's state and the batch included:
        bytes, a text like ``"2 GiB"``, or a share of the plain step's peak like ``"60%"``. None: what costs no time.
    before_update
        Called when all gradients are there, in the parameters' ``grad``, for instance to clip them. Gradients are kept
        until then.
    solver, time_limit
        As for `stowplan.scheduling.schedule`.
    swap
        Whether values may go to a file, where that costs less than to recompute them: of a model on the host alone.
        True: in ``/var/tmp``, or the folder. See `stowplan.swapping`.
    pool
        A `stowplan.TorchPool`, which then serves the steps from one arena. None: PyTorch's own allocator does.

    Raises
    ------
    ScheduleError
        The optimizer is none that can be served; `pool` is no pool.
    ValueError
        The budget is no number of bytes.

    Examples
    --------
    ::

        training = stowplan.torch.schedule(
            model, optimizer, lambda model, x, y: cross_entropy(model(x), y), budget="2 GiB"
        )
        for x, y in batches:
            loss = training.step(x, y)
    """
    return ScheduledTraining(model, optimizer, loss, budget, before_update, solver, time_limit, swap, pool)


class _Step(nn.Module):  # type: ignore[misc]
    """The model and the loss as one module."""

    def __init__(self, model: nn.Module, loss: Loss | None) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, *batch: Any) -> Any:
        return self.model(*batch) if self.loss is None else self.loss(self.model, *batch)


def _trace(step: _Step, batch: tuple[Any, ...]) -> GraphModule:
    for name, parameter in step.named_parameters():
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            raise GraphError(
                f"{name} has hooks on its gradient, which a traced step would not call; expected none"
            )
    try:
        return trace_training(step, batch, lambda loss: loss, functional=True)
    except GraphError:
        raise
    except Exception as error:
        what = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise GraphError(
            f"{type(step.model).__name__} cannot be traced on tensors without bytes ({what}); expected a forward "
            "pass of PyTorch's operators that does not depend on values"
        ) from error


def _require_host(traced: GraphModule) -> None:
    """Raise unless all tensors of a traced step are the host's."""
    for node in traced.graph.nodes:
        for leaf in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(leaf, torch.Tensor) and leaf.device.type != "cpu":
                raise ScheduleError(
                    f"{node.name} is on {leaf.device}; expected a model on the host, whose values a file can take, or "
                    "no swap"
                )


def _parts(rows: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Divide updates, of so many bytes in such a group, into runs of one group: an update of its own costs time.

    What a run holds back until its last gradient is there is a hundredth of all gradients at most.
    """
    few = sum(size for size, _ in rows) // 100
    parts: list[list[int]] = []
    held = 0
    for k, (size, group) in enumerate(rows):
        if parts and rows[parts[-1][0]][1] == group and held + size <= few:
            parts[-1].append(k)
            held += size
        else:
            parts.append([k])
            held = size
    return parts


def _require_no_autocast() -> None:
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    for kind in ("cpu", *(() if device is None else (device.type,))):
        if torch.is_autocast_enabled(kind):
            raise ScheduleError(
                "autocast is on around the step; expected it inside the loss, where it is traced"
            )


def _shapes(batch: tuple[Any, ...]) -> Any:
    """Return what two batches of one schedule have in common: all but the values of tensors."""

    def of(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.shape, leaf.stride(), leaf.dtype, leaf.device
        return leaf

    leaves, spec = pytree.tree_flatten(batch)
    return tuple(map(of, leaves)), spec
