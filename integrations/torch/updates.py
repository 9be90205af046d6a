"""The optimizer's part of a step: what is done with gradients as they come, as operators of the graph.

While the step is planned this is ``stowplan::update(parameters, gradients, number)``, an operator that PyTorch's
dispatcher knows, so that the step graph sees what it reads and writes. When the step runs it is an `Update`, which has
the user's optimizer update these parameters alone, or leaves the gradients to later steps::

    parameter.grad = gradient        optimizer.step(), with one group of these parameters        parameter.grad = None

A gradient that an earlier step has left is added to, as autograd does. A parameter's update depends on nothing but its
gradient and its state in the optimizers of ``ELEMENTWISE``.

A joint graph has a gradient for each input. Early, each parameter is updated as soon as its gradient is complete, and
the gradient goes; together, one update takes all gradients. Small parameters of one group share an update, which costs
time of its own. How many bytes an update requests, and how many its state keeps, follows from two small parameters that
are updated apart. O(n log n) for n inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn, optim
from torch.fx import GraphModule, Node

from ..common.errors import GraphError, ScheduleError
from ..scheduling import Phase
from .meter import measure
from .nodes import PHASE, bytes_of, define, have_strides_alike, storage_of
from .seams import has_hooks, has_stepped, hooks_on_step
from .step_graph import KEEPS, WORKSPACE

ELEMENTWISE = (
    optim.SGD, optim.Adam, optim.AdamW, optim.Adamax, optim.NAdam, optim.RAdam, optim.RMSprop, optim.Adagrad,
    optim.Adadelta, optim.ASGD, optim.Rprop,
)  # fmt: skip
"""Optimizers that treat each element of a parameter for itself."""

PYTORCH = str(Path(torch.__file__).parent)

BeforeUpdate = Callable[[], object]

UPDATE = define(
    "update(Tensor(a!)[] parameters, Tensor[] gradients, int number) -> ()",
    lambda parameters, gradients, number: None,
)

LAID_OUT = define(
    "laid_out(Tensor gradient, Tensor parameter) -> Tensor",
    lambda gradient, parameter: torch.empty_like(parameter, dtype=gradient.dtype).copy_(gradient),
)
"""A copy of a gradient in its parameter's layout, which autograd makes where a gradient has another."""


class Update(nn.Module):  # type: ignore[misc]
    """Takes the gradients of some parameters as they come.

    Parameters
    ----------
    optimizer
        The user's; None: gradients are left in ``grad``.
    group
        Number of the group that all of them are in; None: they are all that get gradients, for one call of the
        optimizer.
    before
        Called when all gradients are in ``parameter.grad``.
    """

    def __init__(
        self, optimizer: optim.Optimizer | None, group: int | None = None, before: BeforeUpdate | None = None
    ) -> None:
        super().__init__()
        self._optimizer, self._group, self._before = optimizer, group, before

    def forward(self, parameters: list[torch.Tensor], gradients: list[torch.Tensor]) -> None:
        """Update the parameters, or add to what their ``grad`` is."""
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if parameter.grad is None:
                parameter.grad = gradient
            else:
                parameter.grad.add_(gradient)
        if self._optimizer is None:
            return
        if self._group is None:
            update_all(self._optimizer, self._before)
        else:
            _update_alone(self._optimizer, self._group, parameters)


def _update_alone(optimizer: optim.Optimizer, number: int, parameters: list[torch.Tensor]) -> None:
    """Let the optimizer update these parameters of a group only, by the group's own options, and drop their gradients.

    Without what `torch.optim.Optimizer` puts around ``step`` (hooks, a record for the profiler, the mode of gradients):
    there are no hooks then, and the mode is set for the whole step. It costs more than the update of a small parameter.
    """
    groups = optimizer.param_groups
    group = groups[number]
    every = group["params"]
    group["params"], optimizer.param_groups = parameters, [group]
    try:
        unwrapped_step(type(optimizer))(optimizer)
        has_stepped(optimizer)
    finally:
        group["params"], optimizer.param_groups = every, groups
        for parameter in parameters:
            parameter.grad = None


def unwrapped_step(kind: type[optim.Optimizer]) -> Any:
    """Return an optimizer's ``step`` without what is around it: ``inspect.unwrap`` takes as long as a small update."""
    step = kind.step
    while hasattr(step, "__wrapped__"):
        step = step.__wrapped__
    return step


def left(optimizer: optim.Optimizer) -> list[Any]:
    """Return the optimizer's parameters that have gradients."""
    every = (one for group in optimizer.param_groups for one in group["params"])
    return [one for one in every if one.grad is not None]


def update_all(optimizer: optim.Optimizer, before: BeforeUpdate | None) -> None:
    """Update every parameter that has a gradient, and drop the gradients: those of earlier steps, too."""
    try:
        if before is not None:
            before()
        optimizer.step()
    finally:
        for parameter in left(optimizer):
            parameter.grad = None


def require_served(optimizer: object) -> None:
    """Raise unless the optimizer is one of ``ELEMENTWISE``."""
    if type(optimizer) not in ELEMENTWISE:
        names = ", ".join(kind.__name__ for kind in ELEMENTWISE)
        raise ScheduleError(
            f"optimizer is {type(optimizer).__name__}; expected one of torch.optim that updates each element for "
            f"itself: {names}"
        )


def reason_against_early(optimizer: optim.Optimizer, before: BeforeUpdate | None) -> str | None:
    """Return why all gradients have to be there before the first update; None if they need not."""
    if before is not None:
        return "before_update reads all gradients"
    own, step = vars(optimizer).get("step"), type(optimizer).step
    while step is not None and step.__code__.co_filename.startswith(PYTORCH):
        step = getattr(step, "__wrapped__", None)
    if step is not None or (own is not None and not hasattr(own, "_wrapped_by_lr_sched")):
        return "the optimizer's step is the program's own"
    return hooks_on_step(optimizer)


def group_of(optimizer: optim.Optimizer) -> dict[int, int]:
    """Return the number of the group of each parameter, by its id."""
    return {
        id(parameter): k for k, group in enumerate(optimizer.param_groups) for parameter in group["params"]
    }


def layout_of(optimizer: optim.Optimizer) -> Any:
    """Return what an optimizer's updates are planned by: parameters, which have gradients, and options but rates.

    Of numbers only whether they are zero matters.
    """
    return tuple(
        (
            tuple((id(one), one.grad is not None) for one in group["params"]),
            tuple(
                (name, _is_set(one))
                for name, one in group.items()
                if name not in ("params", "lr", "initial_lr")
            ),
        )
        for group in optimizer.param_groups
    )


def _is_set(option: Any) -> Any:
    several = math.prod(getattr(option, "shape", ())) != 1  # which PyTorch's optimizers have none of
    return id(option) if several else bool(option)


def are_shared(optimizer: optim.Optimizer, inputs: Sequence[torch.Tensor]) -> bool:
    """Whether what an update writes overlaps what another one, or the backward pass, is still to read.

    From the first to the last byte of each tensor, whatever its storage. O(n log n) for n tensors.
    """
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    own = set(map(id, parameters))
    written = [*parameters, *(one.grad for one in parameters)]
    written += [one for state in optimizer.state.values() for one in state.values()]
    rows = [(*_first_and_last(one), True) for one in written if isinstance(one, torch.Tensor)]
    rows += [(*_first_and_last(one), False) for one in inputs if id(one) not in own]
    last = {True: -1, False: -1}  # so far: of what is written, and of what is only read
    for first, end, writes in sorted(rows):
        if end < first:  # it has no elements
            continue
        if first <= last[True] or (writes and first <= last[False]):
            return True
        last[writes] = max(last[writes], end)
    return False


def _first_and_last(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the addresses of a tensor's first and last byte."""
    first = tensor.data_ptr()
    if tensor.is_contiguous() or not tensor.numel():
        return first, first + tensor.nbytes - 1
    steps = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return first, first + (steps + 1) * tensor.itemsize - 1


def update_name(number: int) -> str:
    """Return the name of the submodule that runs an update."""
    return f"update_{number}"


def require_own_gradient(tensor: Any) -> None:
    """Raise if a tensor's gradient is to go where no graph of the step leads."""
    what = f"a tensor of shape {tuple(tensor.shape)} that the step reads"
    if not tensor.is_leaf:
        raise GraphError(
            f"{what} was computed from others that require gradients; expected it detached, or computed in the loss"
        )
    if has_hooks(tensor):
        raise GraphError(f"{what} has hooks on its gradient, which no graph calls; expected none")


def add_updates(
    joint: GraphModule,
    inputs: Sequence[Any],
    optimizer: optim.Optimizer,
    before: BeforeUpdate | None,
    *,
    together: bool,
    accumulates: bool,
) -> tuple[int, set[int]]:
    """Let updates take the place of the gradients in a joint graph.

    Parameters
    ----------
    joint, inputs
        The graph of a step whose parameters are among its inputs.
    optimizer, before
        The user's: see `Update`.
    together
        Whether one update takes all gradients.
    accumulates
        Whether gradients are left in ``grad`` instead.

    Returns
    -------
    tuple
        The bytes of state that the updates make, and the ids of the parameters that then have some.
    """
    groups, costs = group_of(optimizer), Costs(optimizer)
    output, given = joint.graph.output_node(), joint.graph.find_nodes(op="placeholder")
    results, count = list(output.args[0]), len(output.args[0]) - len(inputs)
    taken = {storage_of(one) for one in results[:count] if isinstance(one, Node)}
    rows: list[tuple[int, Node, int | None]] = []
    for number, (tensor, gradient) in enumerate(zip(inputs, results[count:], strict=True)):
        if gradient is not None:
            require_own_gradient(tensor)
            own = _laid_out(joint, gradient, given[number], taken)
            rows.append((number, own, groups.get(id(tensor))))
    early = [] if accumulates else sorted((row for row in rows if row[2] is not None), key=lambda row: row[1])
    parts = [early] if together and early else _parts([(inputs[row[0]].nbytes, row) for row in early])
    with joint.graph.inserting_before(output):
        for number, part in enumerate([*parts, *([row] for row in rows if row not in early)]):
            updates, numbers = number < len(parts), [row[0] for row in part]
            arguments = ([given[k] for k in numbers], [row[1] for row in part], number)
            node = joint.graph.call_function(UPDATE, arguments)
            node.meta = {PHASE: Phase.UPDATE, "val": None, WORKSPACE: 0}
            if updates:
                node.meta[WORKSPACE] = costs.at_once([(inputs[k], groups[id(inputs[k])]) for k in numbers])
            elif inputs[numbers[0]].grad is None:
                node.meta[KEEPS] = True
            group = None if together else part[0][2]
            joint.add_module(update_name(number), Update(optimizer if updates else None, group, before))
    output.args = (tuple(results[:count]),)
    joint.graph.eliminate_dead_code()
    joint.recompile()
    # What a step that accumulates leaves to the next one gets its state there.
    updated = [inputs[number] for number, _, group in rows if group is not None] + left(optimizer)
    new = {id(one): one for one in updated if not optimizer.state.get(one)}
    state = sum(costs.of(one, groups[id(one)]).state for one in new.values())
    return state, {*new, *map(id, optimizer.state)}


def _laid_out(joint: GraphModule, gradient: Node, parameter: Node, taken: set[Node]) -> Node:
    """Return a gradient in its parameter's layout, on a storage that is nobody else's: as autograd has it."""
    value, root = gradient.meta["val"], storage_of(gradient)
    like = torch.empty_like(parameter.meta["val"])
    if have_strides_alike(value, like) and root not in taken and root.op != "placeholder":
        taken.add(root)
        return gradient
    with joint.graph.inserting_after(gradient):
        copied: Node = joint.graph.call_function(LAID_OUT, (gradient, parameter))
    copied.meta = {PHASE: Phase.BACKWARD, "val": like}
    return copied


def _parts(rows: Sequence[tuple[int, Any]]) -> list[list[Any]]:
    """Divide updates, of so many bytes each, into runs of one group: an update of its own costs time.

    What a run holds back until its last gradient exists is a hundredth of all gradients at most.
    """
    few = max(sum(size for size, _ in rows) // 100, FEW_BYTES)
    parts: list[list[Any]] = []
    held = 0
    for size, row in rows:
        if not parts or parts[-1][0][2] != row[2] or held + size > few:
            parts.append([])
            held = 0
        parts[-1].append(row)
        held += size
    return parts


class Bytes(NamedTuple):
    """Bytes of an update: alive while it runs, of the state that it keeps, and alive while the next one runs.

    The last are what a loop over parameters still has names for.
    """

    workspace: int
    state: int
    left: int


class Costs:
    """The bytes of updates of an optimizer's parameters: ``a + b * elements``, found from small updates."""

    def __init__(self, optimizer: optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._tries: dict[Any, tuple[Bytes, Bytes]] = {}

    def of(self, parameter: torch.Tensor, group: int) -> Bytes:
        """Return the bytes of one parameter's update."""
        key = (group, parameter.dtype, parameter.device)
        if key not in self._tries:
            self._tries[key] = self._tried(_FEW, *key), self._tried(2 * _FEW, *key)
        more = parameter.numel() / _FEW - 1
        return Bytes(
            *(max(0, round(few + more * (twice - few))) for few, twice in zip(*self._tries[key], strict=True))
        )

    def at_once(self, parameters: list[tuple[torch.Tensor, int]]) -> int:
        """Return the bytes alive while one call updates parameters, each with its group, in this order."""
        found = [self.of(*one) for one in parameters]
        if any(group.get("foreach") for group in self._optimizer.param_groups):
            return sum(one.workspace for one in found)
        before = [0, *(one.left for one in found)]
        return max((one.workspace + left for one, left in zip(found, before, strict=False)), default=0)

    def _tried(self, elements: int, *key: Any) -> Bytes:
        (one, state), (two, _) = (self._taken(count, elements, *key) for count in (1, 2))
        return Bytes(one, state, max(two - one, 0))

    def _taken(
        self, count: int, elements: int, group: int, dtype: torch.dtype, device: torch.device
    ) -> tuple[int, int]:
        """Return the bytes alive in an update of so many parameters, and those of one's state."""
        parameters = [nn.Parameter(torch.ones(elements, dtype=dtype, device=device)) for _ in range(count)]
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        twin = type(self._optimizer)(parameters)  # some make their state here
        twin.param_groups = [{**self._optimizer.param_groups[group], "params": parameters}]
        step = unwrapped_step(type(twin))  # without the hooks that the user has put on it
        with torch.no_grad():
            step(twin)
            peak = measure(step, twin).peak
            for kept in twin.state.values():
                if "step" in kept:  # some updates take more later on: RAdam's, ASGD's
                    kept["step"] = kept["step"] * 0 + _LATE
            step(twin)
            peak = max(peak, measure(step, twin).peak)
            return peak, sum(bytes_of(twin.state[parameters[0]]).values())


FEW_BYTES = 64 << 10
_FEW = 1024
_LATE = 10_000_000
"""A number of steps after which an update is as it will be."""
