"""A backend of `torch.compile` that splits a training step into forward and backward within a budget of bytes.

AOTAutograd traces forward and backward into one *joint* graph and asks a partitioner for two. Which results the first
hands to the second, and which are made again there, is what it decides. Here the joint graph is scheduled as any other
step is, and written as the schedule says; what is read beyond the last forward operator is then what is kept::

    joint graph        f1  f2  f3 | b3       b2       b1
    scheduled          f1  f2  f3 | b3  f2'  b2  f1'  b1       f2' and f1' run again
    split              forward    | backward

The order within the backward graph is the schedule's. What draws random numbers on the host draws the same again, from
the generator's state of the first time, which is kept (5 KB); elsewhere, and by inductor, it does not run again.

Of PyTorch this uses the documented way to write a backend (``torch._dynamo.backends.common.aot_autograd``) and
``functorch.compile.default_partition``, which extracts the two graphs; from what is private, the marks that it goes by
(`joint`), and for inductor the class in ``torch._inductor.custom_graph_pass`` that its option
``custom_partitioner_fn`` expects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter

from ..errors import ScheduleError
from .budgets import Within, plain_peak
from .costs import seconds
from .capture import put_in_phases
from .joint import draw_again, forward_first, leave_out_copies, mark_backward, read_copies
from .live import live_peak
from .nodes import require_numbers
from .rewriting import mark_repeatable, scheduled
from .shrinking import shrink
from .step_graph import graph

RESIDENT = "parameters, buffers, inputs and the gradients of results"

Compiler = Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]


@dataclass(frozen=True)
class GraphStats:
    """What a compiled graph's forward and backward take, as predicted.

    Attributes
    ----------
    peak
        Most bytes alive at once: parameters, buffers, inputs, results and their gradients, and all that is made.
    resident
        Bytes of these that are there before, and the gradients of results.
    plain_peak
        As `peak`, where nothing is recomputed.
    recomputed
        Operators that run again.
    extra
        Time that this adds, as a share of the step's; by estimated seconds.
    """

    peak: int
    resident: int
    plain_peak: int
    recomputed: int
    extra: float


class CompileBackend:
    """What `compile_backend` returns: a backend of `torch.compile`."""

    def __init__(self, within: Within, compiler: str | Compiler) -> None:
        if isinstance(compiler, str) and compiler not in ("eager", "inductor"):
            raise ScheduleError(f"compiler is {compiler!r}; expected 'eager', 'inductor', or a function")
        self.__name__ = "stowplan"  # as PyTorch's messages call it
        self._within, self._compiler = within, compiler
        self._stats: list[GraphStats] = []

    @property
    def stats(self) -> tuple[GraphStats, ...]:
        """Statistics of each graph that was split, in the order in which they were compiled."""
        return tuple(self._stats)

    def __call__(self, module: GraphModule, inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
        """Compile a graph that `torch.compile` has captured."""
        compiled: Callable[..., Any]
        if self._compiler == "inductor":
            options = {"custom_partitioner_fn": _for_inductor(self.partition)}
            compiled = torch._inductor.compile(module, list(inputs), options=options)
            return compiled
        from torch._dynamo.backends.common import aot_autograd

        compiler = _eager if self._compiler == "eager" else self._compiler
        compiled = aot_autograd(
            fw_compiler=compiler,
            bw_compiler=compiler,
            partition_fn=self.partition,
            keep_inference_input_mutations=True,
        )(module, inputs)
        return compiled

    def partition(
        self,
        joint: GraphModule,
        joint_inputs: Any,
        *,
        num_fwd_outputs: int,
        static_lifetime_input_indices: list[int] | None = None,
        **_: Any,
    ) -> tuple[GraphModule, GraphModule]:
        """Split a joint graph: ``partition_fn`` of ``aot_autograd``.

        Raises
        ------
        GraphError
            The graph calls what is no operator, or its shapes are symbols.
        BudgetError
            No schedule that was found keeps to the budget.
        """
        from functorch.compile import default_partition

        joint.graph.eliminate_dead_code()
        require_numbers(joint.graph)
        shrink(joint.graph)
        if put_in_phases(joint):
            read_copies(joint)
            joint = self._scheduled(joint)
        forward, backward = default_partition(
            joint,
            joint_inputs,
            num_fwd_outputs=num_fwd_outputs,
            static_lifetime_input_indices=static_lifetime_input_indices,
        )
        # What draws random numbers is left in both, and would draw more of them than the program does.
        backward.graph.eliminate_dead_code(lambda node: node.is_impure(impure_random=False))
        backward.recompile()
        return forward, backward

    def _scheduled(self, joint: GraphModule) -> GraphModule:
        if self._compiler != "inductor":
            mark_repeatable(joint)
        step = forward_first(graph(joint)).with_seconds(seconds(joint))
        resident = step.resident_bytes
        plain = resident + plain_peak(step)
        solution = self._within.solve(step, resident, plain, RESIDENT)
        run = scheduled(joint, step, solution.schedule)
        mark_backward(run)
        leave_out_copies(run)
        again = sum(len(row) for _, row in solution.outcome.recomputed)
        extra = solution.extra_seconds / float(step.seconds.sum())
        self._stats.append(GraphStats(resident + live_peak(run.graph), resident, plain, again, extra))
        draw_again(run)
        return run


def compile_backend(
    budget: int | str | None = None,
    *,
    compiler: str | Compiler = "eager",
    solver: str = "auto",
    time_limit: float | None = None,
) -> CompileBackend:
    """Return a backend for `torch.compile` that keeps a training step's forward and backward within a budget.

    ``torch.compile(model, backend=stowplan.torch.compile_backend("2 GiB"), dynamic=False)``

    Parameters
    ----------
    budget
        For what is alive at once in forward and backward of each graph: parameters, buffers, inputs, gradients and all
        that is made; without the optimizer's state. Bytes, a text like ``"2 GiB"``, or a share like ``"60%"`` of the
        peak without recomputation. None: what costs no time.
    compiler
        ``"eager"`` runs PyTorch's own operators, and the budget bounds what is alive. ``"inductor"`` generates code
        for the two graphs, which fuses operators and may reorder them: the budget then chooses what is kept and is no
        bound. A function: as `fw_compiler` of ``aot_autograd``.
    solver, time_limit
        As for `stowplan.scheduling.schedule`, for each graph.

    Returns
    -------
    CompileBackend
        Its `stats` say what each graph takes. Where a graph cannot keep to the budget, or is none of operators, the
        first call raises what `torch.compile` makes of a backend's `BudgetError` or `GraphError`.

    Raises
    ------
    ScheduleError
        `compiler` is none of these.
    """
    return CompileBackend(Within(budget, solver, time_limit), compiler)


def _eager(module: GraphModule, _: Any) -> Callable[..., Any]:
    def run(args: list[Any]) -> Any:
        return Interpreter(module).boxed_run(args)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _for_inductor(partition: Callable[..., Any]) -> Any:
    from torch._inductor.custom_graph_pass import CustomPartitionerFn

    class Partitioner(CustomPartitionerFn):  # type: ignore[misc]
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return partition(*args, **kwargs)

        def uuid(self) -> None:
            """Keep graphs out of inductor's cache: a budget is not part of its key."""

    return Partitioner()
