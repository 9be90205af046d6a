"""A small training program, and kinds of things that programs change between its steps.

Each kind takes the program and random numbers, and does the same to two programs that are alike.
"""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (PyTorch's own name for it)
from torch.nn.utils import parametrize

WIDTH = 6


class Net(nn.Module):
    """Layers that programs change: normalization, dropout, a head, and what a program hangs on it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(4, WIDTH), nn.BatchNorm1d(WIDTH)
        self.drop, self.head = nn.Dropout(0.2), nn.Linear(WIDTH, 4)
        self.act: Any = nn.ReLU()
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.scale, self.mode, self.options = 1.0, "plain", {"shift": 0.0}
        self.extra: Any = None
        self.seen: Any = None
        self.calls: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        h = self.act(self.norm(self.first(x)))
        if self.mode == "centred":
            self.mean.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
            h = h - self.mean
        elif self.mode == "assigned":
            self.mean = 0.9 * self.mean + 0.1 * h.detach().mean(0)
            h = h - self.mean
        elif self.mode == "parts":
            h = h * 2
            h[:, 1:3].sigmoid_()
        elif self.mode == "kept":
            self.seen = h
        elif self.mode == "cast":
            with torch.autocast("cpu", torch.bfloat16):
                h = F.linear(h, self.first.weight @ self.first.weight.t())
        h = self.drop(h)
        if self.extra is not None:
            h = h * self.extra
        return self.head(h) * self.scale + self.options["shift"]


class Program:
    """A model, an optimizer, a loss and batches, as a seed has them."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = Net()
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(self.model.parameters(), 0.1, momentum=0.9)
        self.weight, self.teacher = 0.0, nn.Linear(4, 4).requires_grad_(False)
        self.batch: Callable[[Tensor, Tensor], tuple[Any, ...]] = lambda x, y: (x, y)
        self.rows, self.handles = 8, list[Any]()
        self.numbers = torch.Generator().manual_seed(seed)

    def loss(self, model: nn.Module, x: Tensor, y: Any, *rest: Any) -> Tensor:
        """Return the loss of a batch, by whatever the program has changed."""
        if isinstance(x, dict):
            x, y = x["x"], x["y"]
        found = F.mse_loss(model(x), y if isinstance(y, Tensor) else torch.zeros(len(x), 4, dtype=x.dtype))
        for one in rest:
            found = found if one is None else found * (1 + one)
        if self.weight:
            found = found + self.weight * sum((one**2).sum() for one in model.parameters())
        return found

    def taught(self, model: nn.Module, x: Tensor, y: Any, *rest: Any) -> Tensor:
        """Return the loss beside a module that is not trained."""
        return Program.loss(self, model, x, y, *rest) + (model(x) - self.teacher(x)).square().mean()

    def draw(self) -> tuple[Any, ...]:
        """Return the next batch."""
        kind = self.model.first.weight.dtype
        x, y = (torch.randn(self.rows, 4, generator=self.numbers).to(kind) for _ in range(2))
        return self.batch(x, y)

    def state(self) -> list[Any]:
        """Return copies of all that a step may leave."""
        trained = {id(one) for group in self.optimizer.param_groups for one in group["params"]}
        gradients = [one.grad for one in self.model.parameters() if id(one) not in trained]
        states = [
            torch.utils._pytree.tree_leaves(self.optimizer.state.get(one))
            for group in self.optimizer.param_groups
            for one in group["params"]
        ]
        values = self.model.state_dict().values()
        return copy.deepcopy([*values, *gradients, states, torch.get_rng_state(), self.model.calls])


Change = Callable[[Program, random.Random], Any]


def _set(place: str, *values: Any) -> Change:
    """Set an attribute of the program, or of what it has: to this value, or to one of these that is drawn."""
    *owner, name = place.split(".")

    def change(program: Program, draw: random.Random) -> None:
        whose = functools.reduce(getattr, owner, program)
        setattr(whose, name, draw.choice(values) if len(values) > 1 else values[0])

    return change


def _hung(hang: Callable[[Program], Any]) -> Change:
    """Hang a hook on something; until `hooks_are_removed`."""
    return lambda program, draw: program.handles.append(hang(program))


def _group(program: Program) -> dict[str, Any]:
    return program.optimizer.param_groups[0]


def _replace_head(program: Program, draw: random.Random) -> None:
    """Put another head in the place of the model's; the optimizer is told of it."""
    old = {id(one) for one in program.model.head.parameters()}
    program.model.head = nn.Linear(WIDTH, 4)
    params = [one for one in _group(program)["params"] if id(one) not in old]
    _group(program)["params"] = params + list(program.model.head.parameters())


CHANGES: dict[str, Change] = {
    "nothing": lambda program, draw: None,
    # --- modules, parameters, buffers
    "head_is_replaced": _replace_head,
    "activation_is_another": lambda program, draw: setattr(
        program.model, "act", draw.choice([nn.Tanh(), nn.GELU(), nn.ReLU(inplace=True), nn.Sigmoid()])
    ),
    "parameter_is_replaced": lambda program, draw: setattr(
        program.model.first, "weight", nn.Parameter(program.model.first.weight.detach() * 0.5)
    ),
    "data_are_rebound": lambda program, draw: setattr(
        program.model.first.weight, "data", program.model.first.weight.data * 0.5
    ),
    "data_are_changed_in_place": lambda program, draw: program.model.first.weight.detach().mul_(0.9),
    "data_are_shared": lambda program, draw: setattr(
        program.model.norm.bias, "data", program.model.norm.weight.data
    ),
    "buffer_is_replaced": lambda program, draw: setattr(program.model, "mean", torch.full((WIDTH,), 0.25)),
    # --- numbers and ways
    "way_through_forward": _set("model.mode", "plain", "centred", "assigned", "parts", "kept", "cast"),
    "dropout": _set("model.drop.p", 0.0, 0.15, 0.2, 0.5),
    "momentum_of_the_statistics": _set("model.norm.momentum", 0.1, 0.3, None),
    "number_on_the_model": _set("model.scale", 1.0, 0.5, 2.0),
    "entry_of_a_dictionary": lambda program, draw: program.model.options.update(
        shift=draw.choice([0.0, 0.5])
    ),
    "weight_of_the_loss": _set("weight", 0.0, 0.01, 0.02),
    "random_numbers": lambda program, draw: torch.manual_seed(draw.randrange(100)),
    # --- hooks
    "forward_hook": _hung(
        lambda program: program.model.first.register_forward_hook(lambda module, args, found: found * 1.5)
    ),
    "backward_hook": _hung(
        lambda program: program.model.head.register_full_backward_hook(
            lambda module, given, found: (given[0] * 2,)
        )
    ),
    "hook_on_the_optimizer": _hung(
        lambda program: program.optimizer.register_step_pre_hook(lambda *_: program.model.calls.append(1))
    ),
    "hook_on_all_modules": _hung(
        lambda program: torch.nn.modules.module.register_module_forward_hook(
            lambda module, args, found: found * 1.25 if module is program.model.head else None
        )
    ),
    # --- the batch
    "rows_of_the_batch": _set("rows", 8, 5),
    "same_tensor_twice": _set("batch", lambda x, y: (x, x), lambda x, y: (x, y)),
    "views_of_one_tensor": _set("batch", lambda x, y: tuple(torch.cat([x, y]).split(len(x)))),
    "strides_of_the_batch": _set("batch", lambda x, y: (x.t().contiguous().t(), y)),
    "batch_is_a_dictionary": _set("batch", lambda x, y: ({"x": x, "y": y}, None)),
    "inputs_that_require_gradients": _set(
        "batch", lambda x, y: (x.requires_grad_(), y), lambda x, y: ((x * 2).detach(), y)
    ),
    # --- the optimizer
    "rate": lambda program, draw: _group(program).update(lr=draw.choice([0.0, 0.01, 0.1])),
    "state_is_forgotten": lambda program, draw: program.optimizer.state.clear(),
    "gradients_are_there": lambda program, draw: program.loss(program.model, *program.draw()).backward(),
}
"""Kinds of changes, by their names."""


def change(function: Change) -> Change:
    """List a kind of change by its name."""
    CHANGES[function.__name__] = function
    return function


@change
def parameter_is_added(program: Program, draw: random.Random) -> None:
    if not isinstance(program.model.extra, nn.Parameter):
        program.model.extra = nn.Parameter(torch.full((WIDTH,), 0.5))
        program.optimizer.add_param_group({"params": [program.model.extra]})


@change
def parameter_is_frozen_or_not(program: Program, draw: random.Random) -> None:
    one = draw.choice([program.model.first.weight, program.model.norm.bias])
    one.requires_grad_(not one.requires_grad)


@change
def layers_are_tied(program: Program, draw: random.Random) -> None:
    if type(program.model.head) is nn.Linear:
        program.model.head.bias = nn.Parameter(torch.zeros(4))
        program.model.teacher_bias = program.model.head.bias


@change
def weights_are_shared_and_parted(program: Program, draw: random.Random) -> None:
    norm = program.model.norm
    norm.bias = norm.weight if norm.bias is not norm.weight else nn.Parameter(torch.zeros(WIDTH))


@change
def gradients_are_shared(program: Program, draw: random.Random) -> None:
    norm = program.model.norm
    norm.weight.grad = norm.bias.grad = torch.ones(WIDTH, dtype=norm.weight.dtype)


@change
def layout_of_a_parameter(program: Program, draw: random.Random) -> None:
    weight = program.model.first.weight
    weight.data = weight.data.t().contiguous().t() if weight.is_contiguous() else weight.data.contiguous()


@change
def evaluation_or_training(program: Program, draw: random.Random) -> None:
    part = draw.choice([program.model, program.model.norm, program.model.drop])
    part.train(not part.training)


@change
def teacher_is_another(program: Program, draw: random.Random) -> None:
    program.teacher = nn.Linear(4, 4).requires_grad_(False)
    program.loss = program.taught  # type: ignore[method-assign]


@change
def hook_on_a_gradient(program: Program, draw: random.Random) -> None:
    if program.model.first.weight.requires_grad:
        program.handles.append(program.model.first.weight.register_hook(lambda gradient: gradient * 2))


def _halve(parameter: Tensor) -> None:
    parameter.grad.mul_(0.5)


@change
def hook_after_a_gradient(program: Program, draw: random.Random) -> None:
    if program.model.first.weight.requires_grad:
        program.handles.append(program.model.first.weight.register_post_accumulate_grad_hook(_halve))


@change
def hooks_are_removed(program: Program, draw: random.Random) -> None:
    while program.handles:
        program.handles.pop().remove()


@change
def forward_of_an_instance(program: Program, draw: random.Random) -> None:
    first = program.model.first
    first.forward = lambda x: F.linear(x, first.weight, first.bias) * 1.5  # type: ignore[method-assign]


@change
def parametrization(program: Program, draw: random.Random) -> None:
    if type(program.model.head) is nn.Linear and not parametrize.is_parametrized(program.model.head):
        parametrize.register_parametrization(program.model.head, "bias", nn.Tanh())


@change
def type_of_all(program: Program, draw: random.Random) -> None:
    program.optimizer.state.clear()
    kind = torch.float64 if program.model.first.weight.dtype == torch.float32 else torch.float32
    program.model.to(kind)
    program.teacher.to(kind)


@change
def values_in_the_batch(program: Program, draw: random.Random) -> None:
    value = draw.choice([0.5, None, True, 2])
    program.batch = lambda x, y: (x, y, value)


@change
def options_of_the_optimizer(program: Program, draw: random.Random) -> None:
    options = {"momentum": [0.0, 0.9], "weight_decay": [0.0, 0.1], "nesterov": [0], "maximize": [0, 1]}
    name = draw.choice(sorted(set(options) & set(_group(program))))
    value = draw.choice(options[name])
    _group(program)[name] = value if isinstance(value, float) else bool(value)


@change
def optimizer_is_told_to_loop(program: Program, draw: random.Random) -> None:
    for group in program.optimizer.param_groups:
        group["foreach"] = draw.choice([None, False])


@change
def groups_are_parted(program: Program, draw: random.Random) -> None:
    if len(_group(program)["params"]) > 2:
        one = _group(program)["params"].pop()
        program.optimizer.add_param_group({"params": [one], "lr": 0.05})


@change
def parameter_leaves_the_optimizer(program: Program, draw: random.Random) -> None:
    if len(_group(program)["params"]) > 2:
        program.optimizer.state.pop(_group(program)["params"].pop(), None)


@change
def state_is_loaded(program: Program, draw: random.Random) -> None:
    every = {id(one) for group in program.optimizer.param_groups for one in group["params"]}
    for one in [one for one in program.optimizer.state if id(one) not in every]:
        del program.optimizer.state[one]  # PyTorch saves no state of a parameter that has left
    program.optimizer.load_state_dict(copy.deepcopy(program.optimizer.state_dict()))
