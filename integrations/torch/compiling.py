"""A backend of ``torch.compile`` that has PyTorch's own partitioner cut a training step within a budget of bytes.

AOTAutograd traces forward and backward into one *joint* graph, and PyTorch's partitioner cuts it in two: what the first
hands to the second is kept, and all else that the second reads is made again. Tags bind the partitioner, as those of
``torch.utils.checkpoint`` do. Here they are a schedule's::

    joint graph    f1  f2  f3 | b3  b2  b1
    schedule       f1  f2  f3 | b3  f2'  b2  b1         f2 runs again
    tags           f2 MUST_RECOMPUTE, f1 and f3 MUST_SAVE
    PyTorch        forward f1 f2 f3 | backward b3  f2'  b2  b1

The order, what random operators draw again, and the code are PyTorch's, and so the peak is predicted from the two
graphs (`live`), not bounded: the schedule's target falls by what a cut is above the budget, `TRIES` times, and the best
cut is used. PyTorch's own, without tags, is the first; one that keeps more is none. Inductor recomputes at no cost
what it fuses (He & Yu, Transcending runtime-memory tradeoffs in checkpointing by being fusion aware, MLSys 2023,
section 3), and PyTorch's cut knows that.

O(t c) for t tries and a cut's time c, a maximum flow in the graph.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from functorch.compile import min_cut_rematerialization_partition as min_cut
from torch.fx import Graph, GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

from ..common.errors import BudgetError, GraphError, ScheduleError
from ..common.units import human_bytes
from ..scheduling import Phase, StepGraph
from ..scheduling.solve import schedule
from . import seams
from .budgets import GraphStats, Within, plain_peak
from .capture import require_unreplaced
from .eager import DECOMPOSITIONS, ONCE, as_eager, casts_of
from .joint import prepare, refuse
from .layouts import require_layouts
from .live import live_peak
from .nodes import BATCH_NORM, bytes_of, is_random, named_by, storages
from .rewriting import mark_repeatable
from .step_graph import REPEATABLE, graph, operators

TRIES = 4
"""Schedules that are tried for a graph."""

Compiler = Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]
Cut = tuple[GraphModule, GraphModule]

WRITE = torch.ops.aten.copy_.default
RECOMPUTE = "recompute"
"""Key of a tag in a node's ``meta``."""
DRAWN = "stowplan_drawn"
"""Key in a node's ``meta``, if it draws again."""


@dataclass(frozen=True)
class CutStats(GraphStats):
    """What a graph takes that was cut in two, as predicted.

    Attributes
    ----------
    kept
        Bytes that forward hands to backward, beside its inputs. With graph breaks they are alive in the forward and the
        backward pass of all later graphs, whose peaks are without them.
    """

    kept: int


class CompileBackend:
    """What `compile_backend` returns: a backend of ``torch.compile``.

    Attributes
    ----------
    stats
        Statistics of each graph that was cut, in the order in which they were compiled: a tuple.
    """

    def __init__(self, within: Within, compiler: str | Compiler) -> None:
        if isinstance(compiler, str) and compiler not in ("eager", "inductor"):
            raise ScheduleError(f"compiler is {compiler!r}; expected 'eager', 'inductor', or a function")
        self.__name__ = "stowplan"  # as PyTorch's messages call it
        self._within, self._compiler = within, compiler
        self.stats: tuple[CutStats, ...] = ()
        self._casts = ONCE  # of the graph that is compiled now

    def __call__(self, module: GraphModule, inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
        """Compile a graph that ``torch.compile`` has captured."""
        compiled: Callable[..., Any]
        self._casts = casts_of(module)
        require_unreplaced(module.graph)
        if self._compiler == "inductor":
            options = {"custom_partitioner_fn": seams.partitioner(self.partition, self._uuid)}
            compiled = seams.inductor.compile(module, list(inputs), options=options)
            return compiled
        compiler = seams.boxed_nop if self._compiler == "eager" else self._compiler
        compile_both = seams.aot_autograd(
            fw_compiler=compiler,
            bw_compiler=compiler,
            partition_fn=self.partition,
            decompositions=DECOMPOSITIONS,
            keep_inference_input_mutations=True,
        )
        drawing = seams.inductor.config.patch(fallback_random=True)  # what nothing reads, too
        casting = seams.functorch.config.patch(backward_pass_autocast="off")  # as backward() after the block
        with drawing, casting:
            compiled = compile_both(as_eager(module), inputs)
        return compiled

    def _uuid(self) -> str:
        return f"{os.getpid()} {id(self)} {len(self.stats)}"

    def partition(self, joint: GraphModule, joint_inputs: Any, **given: Any) -> Cut:
        """Cut a joint graph in two: ``partition_fn`` of ``aot_autograd``.

        Raises
        ------
        GraphError
            The graph would have other bits than the program.
        """
        for node in operators(joint):
            if is_random(node):  # PyTorch's cut knows its own random operators alone
                node.meta.setdefault(RECOMPUTE, CheckpointPolicy.MUST_SAVE)
        if self._compiler == "inductor":
            return self._cut(joint, joint_inputs, given)
        refuse(joint.graph)
        require_layouts(joint.graph)
        with seams.functorch.config.patch(cse=False):  # which would merge others
            return self._cut(joint, joint_inputs, given)

    def _cut(self, joint: GraphModule, inputs: Any, given: dict[str, Any]) -> Cut:
        joint.graph.eliminate_dead_code()
        step = None
        try:
            if prepare(joint, None if self._compiler == "inductor" else self._casts):
                mark_repeatable(joint, anywhere=True)
                _keep_readers_of_written(joint)
                step = self._costed(joint, graph(joint))
        except GraphError as error:
            what = "a graph is cut as PyTorch does, within no budget, and last bits may differ"
            warnings.warn(f"stowplan: {what}: {error}", stacklevel=2)
        if step is None:
            unplanned: Cut = min_cut(joint, inputs, **given)
            return unplanned
        best, plain = self._best(joint, step, inputs, given)
        peak = best.resident + best.peak
        self.stats += (CutStats(peak, best.resident, plain, best.again, best.extra, best.kept),)
        return best.forward, best.backward

    def _costed(self, joint: GraphModule, step: StepGraph) -> StepGraph:
        """Let what inductor fuses have no seconds."""
        if self._compiler != "inductor":
            return step
        kinds = seams.get_default_op_list()
        pairs = zip(operators(joint), step.seconds.tolist(), strict=True)
        return step.with_seconds([0.0 if kinds.is_recomputable(node) else one for node, one in pairs])

    def _best(self, joint: GraphModule, step: StepGraph, inputs: Any, given: Any) -> tuple[_Cut, int]:
        """Return the first cut within the budget, or else the least, and the peak without recomputation."""

        def cut(again: set[int], *, keep: bool) -> _Cut:
            forward, backward = min_cut(_tagged(joint, step, again, keep=keep), inputs, **given)
            return _Cut(forward, backward, step)

        best = own = cut(set(), keep=False)
        plain = own.resident + plain_peak(step)
        budget = self._within.total(plain)
        if budget is None:
            return own, plain
        bound = budget - own.resident
        target = max(bound, 0)
        for _ in range(TRIES if own.peak > bound else 0):
            again = self._again(step, target)
            found = [cut(again, keep=keep) for keep in ((True, False) if again else ())]
            best = min([best, *(one for one in found if one.kept <= own.kept)], key=lambda one: one.peak)
            if best.peak <= bound or not found or not target:
                break
            target = max(target - min(one.peak for one in found) + bound - bound // 100, 0)
        if best.peak > bound:
            takes = f"{human_bytes(own.resident + best.peak)}, above the budget of {human_bytes(budget)}"
            warnings.warn(
                f"stowplan: a graph takes {takes}; stowplan.torch.schedule keeps to it", stacklevel=2
            )
        return best, plain

    def _again(self, step: StepGraph, target: int) -> set[int]:
        """Return the operators that the schedule within a target, or the least one, has run again."""
        try:
            solution = schedule(step, target, self._within.solver, self._within.time_limit)
        except BudgetError as error:
            solution = error.solution
        return {operator for _, row in solution.outcome.recomputed for operator in row}


class _Cut:
    """Two graphs, and what they take beside what exists before."""

    def __init__(self, forward: GraphModule, backward: GraphModule, step: StepGraph) -> None:
        self.forward, self.backward = forward, backward
        # Random operators of which nothing is read are left in both, and would draw more than the program does.
        backward.graph.eliminate_dead_code(lambda node: node.is_impure(impure_random=False))
        backward.recompile()
        _give_shapes(backward.graph)
        given, late = (one.graph.find_nodes(op="placeholder") for one in (forward, backward))
        before = [*given, *(node for node in late if "tangents" in node.name)]
        older = bytes_of([node.meta.get("val") for node in before])
        kept: dict[int, int] = {}
        handed: list[Node] = []
        for node in late:
            new = {
                key: count for key, count in storages(node).items() if key not in older and key not in kept
            }
            if new:
                handed.append(node)
                kept |= new
        made = {node.name for node in operators(forward)}
        seconds = dict(zip(step.label, step.seconds.tolist(), strict=True))
        again = [node.name for node in operators(backward) if node.name in made or DRAWN in node.meta]
        self.resident, self.kept = sum(older.values()), sum(kept.values())
        self.peak = max(live_peak(forward.graph), live_peak(backward.graph, handed))
        self.again = len(again)
        self.extra = sum(seconds.get(name, 0.0) for name in again) / (sum(seconds.values()) or 1.0)


def _give_shapes(backward: Graph) -> None:
    """Let what PyTorch has drawn again, ``run_with_rng_state(state, operator, ...)``, have its shape."""
    for node in backward.nodes:
        place = next((k for k, one in enumerate(node.args) if isinstance(one, seams.OpOverload)), None)
        if place is not None and "val" not in node.meta:
            options = {key: one for key, one in node.kwargs.items() if key != "rng_state"}
            given = (node.args[place + 1 :], options)
            args, kwargs = seams.pytree.tree_map_only(Node, lambda one: one.meta["val"], given)
            tensors = [one for one in seams.pytree.tree_leaves(given) if isinstance(one, Node)]
            with tensors[0].meta["val"].fake_mode if tensors else seams.FakeTensorMode():
                node.meta |= {"val": node.args[place](*args, **kwargs), DRAWN: True}


def _tagged(joint: GraphModule, step: StepGraph, again: set[int], *, keep: bool) -> GraphModule:
    """Return a copy whose partitioner is to recompute these operators; the others it is to `keep`, or may.

    Operators that are not to run again have to be kept. Tags of the program's ``torch.utils.checkpoint`` stay.
    """
    copied = Graph()
    copies: dict[Node, Node] = {}
    results = copied.graph_copy(joint.graph, copies)
    copied.output(results).meta = dict(joint.graph.output_node().meta)
    found = GraphModule(joint, copied)
    found.meta = dict(joint.meta)
    for number, node in enumerate(operators(found)):
        if step.phase[number] == Phase.FORWARD:
            if number in again:
                node.meta |= {RECOMPUTE: CheckpointPolicy.MUST_RECOMPUTE, "ac_graph_id": 1}
            elif keep or not step.repeatable[number]:
                node.meta.setdefault(RECOMPUTE, CheckpointPolicy.MUST_SAVE)
    return found


def _keep_readers_of_written(joint: GraphModule) -> None:
    """Let what reads inputs that forward writes run once: backward would find them written."""
    for node in joint.graph.find_nodes(op="call_function", target=WRITE):
        given = node.args[0]
        for one in (given, *named_by(given)) if given.op == "placeholder" else ():
            for reader in one.users:
                if one in reader.args[:3] or not _only_writes_statistics(reader):
                    reader.meta[REPEATABLE] = False


def _only_writes_statistics(node: Node) -> bool:
    """Whether a node normalizes by the batch, and nothing else reads the running statistics that it returns.

    Its other results do not depend on those that it reads.
    """
    new = [one for one in node.users if node.target is BATCH_NORM and one.args[1] >= 3]
    return bool(new) and all(user.target is WRITE for one in new for user in one.users)


def compile_backend(
    budget: int | str | None = None,
    *,
    compiler: str | Compiler = "eager",
    solver: str = "auto",
    time_limit: float | None = None,
) -> CompileBackend:
    """Return a backend for ``torch.compile`` that cuts a training step into forward and backward within a budget.

    ``torch.compile(model, backend=stowplan.torch.compile_backend("2 GiB"), dynamic=False)``

    Parameters
    ----------
    budget
        For what is alive at once in forward and backward of each graph: parameters, buffers, inputs, gradients and all
        that is made; without the optimizer's state. Bytes, a text like ``"2 GiB"``, or a share like ``"60%"`` of the
        peak without recomputation. None: PyTorch's own cut.
    compiler
        ``"eager"`` runs PyTorch's own operators: the bits are those of plain PyTorch, and the peak is as predicted.
        Where a graph breaks, gradients are handed over contiguous, and last bits may differ (a convolution's bias).
        ``"inductor"`` generates code for the two graphs, which fuses operators and may reorder them: what is kept is
        as predicted. A function: as ``fw_compiler`` of ``aot_autograd``.
    solver, time_limit
        As for `stowplan.scheduling.schedule`, for each try of each graph.

    Returns
    -------
    CompileBackend
        Its ``stats`` tell what each graph takes. The program's loop and optimizer stay as they are.

    Raises
    ------
    ScheduleError
        ``compiler`` is none of these.

    Warns
    -----
    UserWarning
        A graph takes more than the budget: the least that was found is used. Or it cannot be scheduled, as its sizes
        are symbols or it calls what is no operator of PyTorch's: PyTorch's own cut is used, and not in ``stats``.

    Notes
    -----
    Nothing keeps more for backward than PyTorch's own cut does. An operator whose backward pass would have other bits
    (``prod`` along a dimension, oneDNN's LSTM; not with inductor) is refused: the first call raises what
    ``torch.compile`` makes of a backend's `.GraphError`. A model that asks whether it is compiled is told so. Random
    operators that run again draw from a copy of the generator's state, which counts. Each graph has the whole budget
    for itself: what earlier graphs keep (``kept``) is beside it. Inductor's caches do not keep these graphs: each
    process makes its schedules again.
    """
    return CompileBackend(Within(budget, solver, time_limit), compiler)
