"""Programs that ask whether they are compiled, and threads that run while one is: never other bits without a word."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.fx._symbolic_trace import is_fx_symbolic_tracing

from stowplan.errors import GraphError
from stowplan.torch import schedule, trace_training

from .steps import same_as_plain


def by_attribute(x: Tensor) -> Tensor:
    return x * 2 if torch.compiler.is_compiling() else x + x


def by_an_import(x: Tensor) -> Tensor:
    from torch.compiler import is_dynamo_compiling as ask

    return x * 2 if ask() else x + x


def in_a_comprehension(x: Tensor) -> Tensor:
    return x * sum(2 for ask in [torch.compiler.is_compiling] if ask())


ASKS = (
    by_attribute,
    by_an_import,
    in_a_comprehension,
)


@pytest.mark.parametrize("function", ASKS, ids=lambda one: one.__name__)
def test_a_step_that_asks_whether_it_is_compiled_warns_or_is_refused(
    function: Callable[[Tensor], Tensor],
) -> None:
    model, x = nn.Linear(4, 4), torch.ones(3, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def loss(model: nn.Module, x: Tensor) -> Tensor:
        return function(model(x)).sum()

    with pytest.warns(UserWarning, match=r"asks whether it is compiled \(.*test_asking.py:[0-9]+\)"):
        schedule(model, optimizer, loss).plan(x)
    before = model.weight.clone()
    training = schedule(model, optimizer, loss, strict=True)
    for _ in range(2):
        with pytest.raises(GraphError, match="expected a step that does not ask"):
            training.step(x)
    assert torch.equal(model.weight, before)


class Head(nn.Module):
    """Has attention of which PyTorch asks, in evaluation mode, whether it is traced."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.linear = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.attention(x, x, x)[0]).square().mean()


def test_attention_that_pytorch_runs_in_one_operator_is_no_silent_difference() -> None:
    model, batch = Head(), (torch.ones(2, 3, 8),)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="stowplan")
        trace_training(model, batch, lambda loss: loss)
    model.attention.eval().requires_grad_(False)
    with pytest.warns(UserWarning, match="activation.py:[0-9]+"):
        trace_training(model, batch, lambda loss: loss)


@torch.compiler.allow_in_graph
def _asks_below(x: Tensor) -> Tensor:
    return x * 2 if torch.compiler.is_compiling() else x * 3


def test_what_the_backend_runs_is_told_what_a_plain_run_is() -> None:
    same_as_plain(nn.Linear(4, 1), [(torch.ones(3, 4),)] * 2, lambda model, x: _asks_below(model(x)).sum())


_beside: list[threading.Thread] = []


@torch.compiler.allow_in_graph
def _traced(h: Tensor) -> Tensor:
    while _beside and is_fx_symbolic_tracing():
        thread = _beside.pop()
        thread.start()
        thread.join(0.2)  # it may go on when the trace is over
    return h.relu()


def test_a_step_runs_in_another_thread_while_one_is_planned() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters())
    training = schedule(model, optimizer, lambda model, x: model(x).sum())
    planned = nn.Linear(4, 4)
    other = schedule(
        planned, torch.optim.Adam(planned.parameters()), lambda model, x: _traced(model(x)).sum()
    )
    training.step(torch.ones(3, 4))
    found: list[Tensor] = []
    thread = threading.Thread(target=lambda: found.append(training.step(torch.ones(3, 4))))
    _beside.append(thread)
    other.plan(torch.ones(3, 4))
    assert not _beside
    thread.join()
    assert len(found) == 1
