"""A backend of ``torch.compile`` that splits a training step into forward and backward within a budget of bytes.

AOTAutograd traces forward and backward into one *joint* graph and asks a partitioner for two. Which results the first
hands to the second, and which are made again there, is what it decides. Here the joint graph is scheduled as any other
step is, and written according to the schedule; what is read beyond the last forward operator is then what is kept::

    joint graph        f1  f2  f3 | b3       b2       b1
    scheduled          f1  f2  f3 | b3  f2'  b2  f1'  b1       f2' and f1' run again
    split              forward    | backward

The order within the backward graph is the schedule's. What draws random numbers on the host draws the same again, from
the generator's state of the first time, which is kept (5 KB); elsewhere, and by inductor, it does not run again.

Inductor fuses operators, and what PyTorch's own partitioner calls recomputable costs nothing there (fusion-aware
checkpointing: He & Yu, Transcending runtime-memory tradeoffs in checkpointing by being fusion aware, MLSys 2023,
section 3): without a budget its min cut decides, and within one such operators have no seconds.

Of PyTorch this uses the documented way to write a backend (``torch._dynamo.backends.common.aot_autograd``) and from
``functorch.compile`` ``default_partition``, which extracts the two graphs, and ``min_cut_rematerialization_partition``;
from what is private, the marks that these go by (`joint`), the partitioner's list of operators, and for inductor the
class in ``torch._inductor.custom_graph_pass`` that its option ``custom_partitioner_fn`` expects.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from functorch.compile import default_partition, min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._functorch.partitioners import get_default_op_list
from torch.fx import GraphModule, Node

from ..errors import ScheduleError
from .budgets import GraphStats, Within, plain_peak
from .eager import DECOMPOSITIONS, ONCE, as_eager, casts_of
from .joint import prepare, put_in_phases
from .live import live_peak, storages
from .nodes import leave_out_statistics, require_numbers
from .rewriting import mark_repeatable
from .shrinking import shrink
from .splitting import draw_again, forward_first, keep_readers_of_written, mark_backward
from .step_graph import graph, operators

RESIDENT = "parameters, buffers, inputs and the gradients of results"

Compiler = Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]


class CompileBackend:
    """What `compile_backend` returns: a backend of ``torch.compile``."""

    def __init__(self, within: Within, compiler: str | Compiler) -> None:
        if isinstance(compiler, str) and compiler not in ("eager", "inductor"):
            raise ScheduleError(f"compiler is {compiler!r}; expected 'eager', 'inductor', or a function")
        self.__name__ = "stowplan"  # as PyTorch's messages call it
        self._within, self._compiler = within, compiler
        self._stats: list[GraphStats] = []
        self._casts = ONCE  # of the graph that is compiled now

    @property
    def stats(self) -> tuple[GraphStats, ...]:
        """Statistics of each graph that was split, in the order in which they were compiled."""
        return tuple(self._stats)

    def __call__(self, module: GraphModule, inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
        """Compile a graph that ``torch.compile`` has captured."""
        compiled: Callable[..., Any]
        require_numbers(module.graph, "example_value")
        self._casts = casts_of(module)
        if self._compiler == "inductor":
            options = {"custom_partitioner_fn": _partitioner(self)}
            compiled = torch._inductor.compile(module, list(inputs), options=options)
            return compiled
        compiler = boxed_nop if self._compiler == "eager" else self._compiler
        compiled = aot_autograd(
            fw_compiler=compiler,
            bw_compiler=compiler,
            partition_fn=self.partition,
            decompositions=DECOMPOSITIONS,
            keep_inference_input_mutations=True,
        )(as_eager(module), inputs)
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
        given = {
            "num_fwd_outputs": num_fwd_outputs,
            "static_lifetime_input_indices": static_lifetime_input_indices,
        }
        joint.graph.eliminate_dead_code()
        if self._compiler != "inductor":
            has_backward = prepare(joint, self._casts)
        else:
            require_numbers(joint.graph)
            if self._within.budget is None:
                forward, backward = min_cut_rematerialization_partition(joint, joint_inputs, **given)
                self._stats.append(_stats_of(joint, forward, backward))
                return forward, backward
            leave_out_statistics(joint.graph)
            shrink(joint.graph)
            has_backward = put_in_phases(joint)
        if has_backward:
            joint = self._scheduled(joint)
        forward, backward = default_partition(joint, joint_inputs, **given)
        # What draws random numbers is left in both, and would draw more of them than the program does.
        backward.graph.eliminate_dead_code(lambda node: node.is_impure(impure_random=False))
        backward.recompile()
        return forward, backward

    def _scheduled(self, joint: GraphModule) -> GraphModule:
        if self._compiler != "inductor":
            mark_repeatable(joint)
        keep_readers_of_written(joint)
        step = forward_first(graph(joint))
        if self._compiler == "inductor":
            kinds = get_default_op_list()
            pairs = zip(operators(joint), step.seconds.tolist(), strict=True)
            step = step.with_seconds([0.0 if kinds.is_recomputable(node) else one for node, one in pairs])
        run, _, stats = self._within.write(joint, step, step.resident_bytes, RESIDENT)
        self._stats.append(stats)
        mark_backward(run)
        draw_again(run)
        return run


def compile_backend(
    budget: int | str | None = None,
    *,
    compiler: str | Compiler = "eager",
    solver: str = "auto",
    time_limit: float | None = None,
) -> CompileBackend:
    """Return a backend for ``torch.compile`` that keeps a training step's forward and backward within a budget.

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
        bound. A function: as ``fw_compiler`` of ``aot_autograd``.
    solver, time_limit
        As for `stowplan.scheduling.schedule`, for each graph.

    Returns
    -------
    CompileBackend
        Its ``stats`` tell what each graph takes. Where a graph cannot keep to the budget, or is none of operators, the
        first call raises what ``torch.compile`` makes of a backend's `.BudgetError` or `.GraphError`.

    Raises
    ------
    ScheduleError
        ``compiler`` is none of these.

    Notes
    -----
    Without a budget ``"eager"`` recomputes nothing, and PyTorch's own split may take less; with ``"inductor"`` that
    split is used. Within a budget of inductor's, what PyTorch's partitioner calls recomputable costs nothing, and what
    is random is kept. An operator whose backward pass would have other bits (``prod`` along a dimension, oneDNN's LSTM;
    not with inductor) is refused, and so are sizes that are symbols. Nothing compares a model that asks whether it is
    compiled. Annotations of ``torch.utils.checkpoint`` are ignored. What draws random numbers runs again on the host
    only, from the generator's state, of which the 5 KB for each such operator are not counted. Inductor's caches do not
    keep these graphs: each process makes its schedules again.
    """
    return CompileBackend(Within(budget, solver, time_limit), compiler)


def _partitioner(backend: CompileBackend) -> Any:
    """Return what inductor's option ``custom_partitioner_fn`` expects."""
    from torch._inductor.custom_graph_pass import CustomPartitionerFn

    class Partitioner(CustomPartitionerFn):  # type: ignore[misc]
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return backend.partition(*args, **kwargs)

        def uuid(self) -> str:
            """Keep other backends' graphs of this program apart in inductor's caches."""
            return f"{os.getpid()} {id(backend)} {len(backend.stats)}"

        def __reduce__(self) -> Any:
            """Let inductor copy its options, in which it has no other use of this."""
            return _partitioner, (backend,)

    return Partitioner()


def _stats_of(joint: GraphModule, forward: GraphModule, backward: GraphModule) -> GraphStats:
    """Return what two graphs take that PyTorch has split; bytes as without fusion."""

    def bytes_of(nodes: Iterable[Any]) -> int:
        found = {
            key: size for node in nodes if isinstance(node, Node) for key, size in storages(node).items()
        }
        return sum(found.values())

    given = forward.graph.find_nodes(op="placeholder")
    late = backward.graph.find_nodes(op="placeholder")
    names = {node.name for node in given}
    tangents = bytes_of(node for node in late if "tangents" in node.name)
    resident = bytes_of(given) + tangents
    kept = bytes_of(node for node in late if node.name not in names and "tangents" not in node.name)
    made = {node.name for node in operators(forward)}
    again = [node for node in operators(backward) if node.name in made]
    put_in_phases(joint)
    step = forward_first(graph(joint))
    whole = dict(zip(step.label, step.seconds.tolist(), strict=True))
    return GraphStats(
        resident + max(live_peak(forward.graph), kept + live_peak(backward.graph)),
        resident,
        resident + plain_peak(step),
        len(again),
        sum(whole.get(node.name, 0.0) for node in again) / sum(whole.values()),
    )
