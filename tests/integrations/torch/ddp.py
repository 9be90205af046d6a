"""One of two processes that train together, by gloo: ``torchrun --nproc-per-node 2 ddp.py``; writes what it found."""

from __future__ import annotations

import copy
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from experiments.torch.metered import metered
from stowplan.errors import GraphError
from stowplan.torch import Meter, compile_backend, schedule


class Net(nn.Module):
    """Dynamo captures no frame of PyTorch's own modules beneath DistributedDataParallel's."""

    def __init__(self) -> None:
        super().__init__()
        parts = [part for _ in range(6) for part in (nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.1))]
        self.body = nn.Sequential(*parts)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the body does."""
        y: Tensor = self.body(x)
        return y


def main(folder: Path) -> None:
    """Train a model and its copy, plainly and by the backend."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Net()
    batches = [torch.randn(256, 64, generator=torch.Generator().manual_seed(2 * k + rank)) for k in range(4)]
    meters: list[Meter] = []

    def trained(backend: Any) -> tuple[list[Tensor], int]:
        own = DistributedDataParallel(copy.deepcopy(model))
        optimizer = torch.optim.Adam(own.parameters(), 1e-3)
        forward = own if backend is None else torch.compile(own, backend=backend, dynamic=False)
        torch.manual_seed(rank)
        for k, batch in enumerate(batches):
            meter = Meter()
            if backend is not None and k == len(batches) - 1:
                meters.append(meter)
            optimizer.zero_grad()
            forward(batch).square().mean().backward()
            optimizer.step()
        meters.clear()
        return [one.detach() for one in own.parameters()], max(meter.live, default=0)

    backend = compile_backend("60%", compiler=metered(meters))
    expected, _ = trained(None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, measured = trained(backend)
    try:
        distributed = DistributedDataParallel(copy.deepcopy(model))
        schedule(distributed, torch.optim.SGD(distributed.parameters(), 0.1), lambda m, x: m(x).sum()).step(
            batches[0]
        )
        refused = ""
    except GraphError as error:
        refused = str(error)
    digest = [one.double().sum().item().hex() for one in found]
    row = {
        "same": all(map(torch.equal, found, expected)),
        "digest": digest,
        "measured": measured,
        "said": [stats.peak - stats.resident for stats in backend.stats],
        "recomputed": sum(stats.recomputed for stats in backend.stats),
        "refused": refused,
    }
    (folder / f"{rank}.json").write_text(json.dumps(row))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
