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
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (PyTorch's own name for it)

from stowplan.errors import GraphError
from stowplan.torch import measure, schedule

from .steps import assert_same, sgd, stepped


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
    model = nn.Linear(8, 8)
    drawn = schedule(model, sgd(model), lambda model, x: model(x).mean() * float(np.random.rand()))  # noqa: NPY002
    with pytest.raises(GraphError, match=r"test_reported\.py:\d+ <lambda>"):
        drawn.step(torch.randn(4, 8))


def test_what_forward_keeps_is_as_in_plain_pytorch() -> None:
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
    assert model.h.requires_grad
    with pytest.raises(RuntimeError, match="created explicitly by the user"):
        copy.deepcopy(model)
    with pytest.raises(RuntimeError, match="has run backward"):
        model.h.sum().backward()
    torch.save(model.state_dict(), io.BytesIO())


@pytest.mark.parametrize("budget", [None, "100%"])
def test_tensors_outside_of_the_model_count_once(budget: str | None) -> None:
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 5))
    teacher, x = copy.deepcopy(model).requires_grad_(False), torch.randn(16, 32)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    training = schedule(model, optimizer, lambda m, x: F.mse_loss(m(x), teacher(x)), budget=budget)
    training.step(x)
    measured, stats = measure(training.step, x), training.stats
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
            torch.distributed.all_reduce(one.grad.div_(2))

    optimizer, other = sgd(model), sgd(ranks)
    training = schedule(model, optimizer, loss, before_update=reduced)
    same = True
    for batch in batches:
        same = same and torch.equal(training.step(*batch), stepped(ranks, other, batch, loss))
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
