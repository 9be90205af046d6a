"""Programs that users reported: what trained wrongly once, was refused unclearly, or left something behind."""

from __future__ import annotations

import copy
import faulthandler
import io
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; expected: make torch-test")

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (PyTorch's own name for it)

from stowplan.errors import GraphError
from stowplan.torch import measure, schedule

from .steps import assert_same, left, sgd

STEPS = 6


class Net(nn.Module):
    def __init__(self, case: str) -> None:
        super().__init__()
        self.case, self.scale, self.l2 = case, 1.0, 0.0
        self.a, self.bn, self.drop, self.head = (
            nn.Linear(8, 16),
            nn.BatchNorm1d(16),
            nn.Dropout(0.2),
            nn.Linear(16, 8),
        )
        self.register_buffer("mean", torch.zeros(16))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.bn(self.a(x)))
        if self.case == "dropout_p":
            h = self.drop(h)
        if self.case == "numpy_random":
            h = h * float(np.random.rand())  # noqa: NPY002 (as programs do)
        if self.case == "buffer_assigned":
            self.mean = 0.9 * self.mean + 0.1 * h.detach().mean(0)
            h = h - self.mean
        out = self.head(h) * self.scale
        return out * self.extra if hasattr(self, "extra") else out


def loss(model: Any, x: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(model(x), y) + model.l2 * sum((p**2).sum() for p in model.parameters())


def between(k: int, model: Any, optimizer: torch.optim.Optimizer) -> None:
    """Change what the case is about, before step k."""
    if model.case == "dropout_p":
        model.drop.p = [0.2, 0.5, 0.0][min(k, 2)]
    if model.case == "bn_momentum":
        model.bn.momentum = 0.1 * (k + 1)
    if model.case == "attribute":
        model.scale = 1.0 + k
    if model.case == "loss_weight":
        model.l2 = 0.01 * k
    if model.case == "head_replaced" and k == 2:
        torch.manual_seed(9)
        old, group = list(model.head.parameters()), optimizer.param_groups[0]
        model.head = nn.Linear(16, 8)
        rest = [p for p in group["params"] if all(p is not q for q in old)]
        group["params"] = rest + list(model.head.parameters())
    if model.case == "parameter_added" and k == 2:
        model.extra = nn.Parameter(torch.full((8,), 0.5))
        optimizer.add_param_group({"params": [model.extra]})


def trained(case: str, scheduled: bool) -> tuple[list[Any], Any]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = Net(case)
    optimizer = sgd(model)
    training = schedule(model, optimizer, loss) if scheduled else None
    generator, seen = torch.Generator().manual_seed(1), []
    torch.manual_seed(2)
    for k in range(STEPS):
        between(k, model, optimizer)
        x, y = torch.randn(12, 8, generator=generator), torch.randn(12, 8, generator=generator)
        if case == "same_then_two" and k < 2:
            y = x
        if training is not None:
            seen.append(training.step(x, y))
        else:
            optimizer.zero_grad()
            found = loss(model, x, y)
            found.backward()
            optimizer.step()
            seen.append(found.detach())
    return [*seen, *model.state_dict().values()], training


CASES = "none same_then_two head_replaced parameter_added dropout_p bn_momentum attribute loss_weight buffer_assigned"


@pytest.mark.parametrize("case", CASES.split())
def test_what_changes_between_steps_is_not_frozen(case: str) -> None:
    found, training = trained(case, scheduled=True)
    assert_same(found, trained(case, scheduled=False)[0])
    assert training.plain_steps == 0
    assert len(training.plans) == {"none": 1, "buffer_assigned": 1}.get(case, len(training.plans))


def test_what_no_graph_can_have_is_refused_with_its_line() -> None:
    class Draws(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.g = nn.Linear(8, 8), torch.Generator().manual_seed(3)

        def forward(self, x: Tensor) -> Tensor:
            return (self.a(x) + torch.randn(x.shape, generator=self.g)).pow(2).mean()

    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([2, 1]), batch_first=True)
            return self.a(packed.data).pow(2).mean()

    refused: list[tuple[nn.Module, tuple[Any, ...]]] = [
        (Draws(), (torch.randn(4, 8),)),
        (Packed(), (torch.randn(2, 3, 8),)),
    ]
    for model, batch in refused:
        before = copy.deepcopy(model.state_dict()), torch.get_rng_state()
        with pytest.raises(GraphError, match=r"not one graph at .*test_reported\.py:\d+ forward \("):
            schedule(model, sgd(model)).step(*batch)
        assert torch.equal(torch.get_rng_state(), before[1])
        assert_same(list(model.state_dict().values()), list(before[0].values()))
    with pytest.raises(GraphError, match=r"test_reported\.py:\d+ forward"):
        trained("numpy_random", scheduled=True)


def test_what_forward_keeps_can_be_read_and_saved() -> None:
    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.log = nn.Linear(8, 8), list[Tensor]()

        def forward(self, x: Tensor) -> Tensor:
            self.h = self.a(x)
            self.log.append(self.h.detach().mean())
            return self.h.pow(2).mean()

    model, x = Keeps(), torch.randn(4, 8)
    training = schedule(model, sgd(model))
    expected = model.a(x).detach()
    for _ in range(3):
        training.step(x)
    assert len(model.log) == 3
    assert float(model.log[0]) == float(expected.mean())
    assert torch.equal(copy.deepcopy(model).h, model.h)
    torch.save(model.state_dict(), io.BytesIO())


def test_values_in_the_batch_are_part_of_the_plan() -> None:
    model = nn.Linear(8, 8)
    twin = copy.deepcopy(model)
    optimizer, other = sgd(model), sgd(twin)

    def scaled(model: nn.Module, x: Tensor, options: dict[str, Any], name: str | None) -> Tensor:
        found = F.mse_loss(model(x) * options["scale"], options["y"])
        return found if name is None else found * 2

    training = schedule(model, optimizer, scaled)
    for k, (scale, name) in enumerate([(0.5, None), (1.0, None), (1.0, "twice"), (0.5, None)]):
        batch: Any = torch.randn(4, 8), {"y": torch.randn(4, 8), "scale": scale}, name
        found = training.step(*batch)
        loss = scaled(twin, *batch)
        loss.backward()
        other.step()
        other.zero_grad()
        assert torch.equal(found, loss), k
    assert_same(left(model, optimizer), left(twin, other))
    assert len(training.plans) == 3


def test_gradients_that_are_there_are_part_of_the_update() -> None:
    def squares(model: nn.Module, x: Tensor) -> Tensor:
        return model(x).pow(2).mean()

    one = nn.Linear(4, 1)
    other = copy.deepcopy(one)
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    for model in (one, other):
        squares(model, x).backward()
    squares(other, y).backward()
    sgd(other).step()
    schedule(one, sgd(one), squares).step(y)
    assert torch.equal(one.weight, other.weight)
    assert one.weight.grad is None


@pytest.mark.parametrize("budget", [None, "100%"])
def test_tensors_outside_of_the_model_count_once(budget: str | None) -> None:
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 5))
    teacher, x = copy.deepcopy(model).requires_grad_(False), torch.randn(16, 32)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    training = schedule(model, optimizer, lambda m, x: F.mse_loss(m(x), teacher(x)), budget=budget)
    training.step(x)
    measured, stats = measure(training.step, x), training.stats
    assert stats is not None
    assert stats.resident == 2 * sum(one.nbytes for one in model.parameters()) + x.nbytes
    assert measured.peak + stats.resident == stats.peak <= stats.plain_peak


# --- two processes ----------------------------------------------------------------------------------------------------


def _distributed(rank: int, results: str) -> None:
    faulthandler.dump_traceback_later(500, exit=True)  # a rank that waits says where
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    store = torch.distributed.FileStore(f"{results}/store", 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
    twin = copy.deepcopy(model)
    ranks = nn.parallel.DistributedDataParallel(twin, broadcast_buffers=False)
    before = copy.deepcopy(model.state_dict())
    torch.manual_seed(rank)
    batches = [(torch.randn(6, 8), torch.randn(6, 4)) for _ in range(3)]

    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(model(x), y)

    refused = ""
    try:
        schedule(ranks, sgd(ranks), loss).step(*batches[0])
    except GraphError as error:
        refused = str(error)
    untouched = all(torch.equal(one, before[key]) for key, one in twin.state_dict().items())

    def reduced() -> None:
        for one in model.parameters():
            assert one.grad is not None
            torch.distributed.all_reduce(one.grad.div_(2))

    optimizer, other = sgd(model), sgd(ranks)
    training = schedule(model, optimizer, loss, before_update=reduced)
    same = True
    for batch in batches:
        other.zero_grad()
        expected = loss(ranks, *batch)
        expected.backward()
        other.step()
        same = same and torch.equal(training.step(*batch), expected)
    same = same and all(torch.equal(one, twin.state_dict()[key]) for key, one in model.state_dict().items())
    torch.save((refused, untouched, same), f"{results}/{rank}")
    torch.distributed.barrier()
    os._exit(0)  # gloo's threads, and what they wait for, are no part of this


def test_distributed_training_is_refused_and_reduced_gradients_are_served(tmp_path: Any) -> None:
    start: Callable[..., Any] = torch.multiprocessing.spawn
    ranks = start(_distributed, (str(tmp_path),), nprocs=2, join=False)
    while not ranks.join():
        pass
    for rank in range(2):
        refused, untouched, same = torch.load(tmp_path / str(rank))
        assert "distributed (DistributedDataParallel)" in refused
        assert untouched
        assert same
