"""TorchCudaPool on a GPU, each program in a process of its own: PyTorch takes an allocator once, before its first use.

Each program runs under PyTorch's own allocator, with and without expandable segments, and under the pool; losses and
parameters must be the same bits, the reserved bytes are printed side by side.
"""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest

from ..children import printed

pytestmark = pytest.mark.gpu

PROLOGUE = """
import hashlib, json, os, sys
import torch
from stowplan import TorchPool
if not torch.cuda.is_available():
    print(json.dumps({"skip": "PyTorch finds no CUDA device"})); sys.exit()
pool = None
if sys.argv[1] == "pool":
    pool = TorchPool(device="cuda", warmup=1)
    pool.install()
from contextlib import nullcontext
def step(key=None):
    return nullcontext() if pool is None else pool.step(key)
def ready():
    torch.cuda.synchronize()
    if pool is not None:
        pool.wait()
torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
torch.backends.cudnn.benchmark = False
def tell(losses, module=None):
    torch.cuda.synchronize()
    digest = hashlib.sha256()
    for value in [*losses, *(() if module is None else module.state_dict().values())]:
        digest.update(torch.as_tensor(value).detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    found = {"digest": digest.hexdigest()}
    if pool is None:
        found["reserved"] = torch.cuda.max_memory_reserved()
    else:
        s = pool.stats
        found.update(reserved=s.peak_reserved_bytes, replayed=s.replayed, reasons=s.reasons,
                     arena=s.arena_bytes, bound=s.lower_bound, graphs=pool.graph_bytes)
    print(json.dumps(found))
"""

TRAIN = """
losses = []
for i in range(24):
    x, y = batch(i)
    with step(len(y)):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
    losses.append(loss.detach()); del loss
    ready()
tell(losses, net)
"""

GPT = """
class Gpt(torch.nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.embed = torch.nn.Embedding(1000, width)
        layer = lambda: torch.nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.blocks = torch.nn.ModuleList([layer() for _ in range(2)])
        self.head = torch.nn.Linear(width, 1000)
    def forward(self, tokens):
        x = self.embed(tokens)
        mask = torch.nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        for block in self.blocks:
            x = block(x, src_mask=mask)
        return self.head(x).flatten(0, 1)
torch.backends.cuda.enable_flash_sdp(False)
torch.backends.cuda.enable_mem_efficient_sdp(False)
net = Gpt().cuda()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
def batch(i):
    length = (32, 64, 48, 128)[i % 4]
    tokens = torch.randint(1000, (4, length), generator=torch.Generator().manual_seed(i)).cuda()
    return tokens, tokens.flatten()
"""

STREAMS = """
side = torch.cuda.Stream()
results = []
for i in range(12):
    with step():
        batch = torch.full((1 << 20,), float(i), device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(20_000_000)  # the main stream has the place again long before
            doubled = batch * 2
        batch.record_stream(side)
        del batch
        other = torch.full((1 << 20,), -1.0, device="cuda")
        torch.cuda.current_stream().wait_stream(side)
        results.append(doubled.max().cpu() + other.min().cpu())
        doubled.record_stream(torch.cuda.current_stream())
        del doubled, other
    ready()
tell(results)
"""

GRAPHS = """
net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)).cuda()
static = torch.zeros(64, 256, device="cuda")
with torch.no_grad():
    warm = torch.cuda.Stream()
    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm):
        for _ in range(3):
            net(static)
    torch.cuda.current_stream().wait_stream(warm)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = net(static)
    results = []
    for i in range(6):
        with step():
            noise = torch.full((1 << 20,), 7.0, device="cuda")  # must not get an address of the graph's
            static.fill_(float(i))
            graph.replay()
            results.append(out.sum().cpu())
            assert float(noise.min()) == float(noise.max()) == 7
            del noise
        ready()
tell(results)
"""

PROGRAMS = {
    "gpt": GPT + TRAIN,
    "streams": STREAMS,
    "graphs": GRAPHS,
}


def run(program: str, allocator: str) -> dict[str, Any]:
    settings = "expandable_segments:True" if allocator == "expandable" else ""
    environment = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTORCH_CUDA_ALLOC_CONF": settings}
    out = printed("-W", "ignore", "-c", PROLOGUE + PROGRAMS[program], allocator, timeout=300, **environment)
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    if "skip" in found:
        pytest.skip(found["skip"])
    return found


@pytest.fixture(autouse=True)
def torch_with_cuda() -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed; expected: a build for CUDA")
    import torch

    if torch.version.cuda is None:
        pytest.skip(f"PyTorch {torch.__version__} is a build for CPUs")


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_pool_changes_no_bit(program: str) -> None:
    found = {allocator: run(program, allocator) for allocator in ("torch", "expandable", "pool")}
    for allocator, figures in found.items():
        print(program, allocator, figures)
    assert found["torch"]["digest"] == found["expandable"]["digest"], "not deterministic with PyTorch's own"
    assert found["pool"]["digest"] == found["torch"]["digest"]
    assert found["pool"]["replayed"] > 0
    assert (found["pool"]["graphs"] > 0) == (program == "graphs")


def test_pytorch_s_error_says_how_much_is_live() -> None:
    program = """
import sys, torch
from stowplan import TorchPool
if not torch.cuda.is_available():
    print("skip"); sys.exit()
pool = TorchPool(device="cuda", limit=1 << 28)
pool.install()
kept = torch.empty(1 << 27, dtype=torch.uint8, device="cuda")
try:
    torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    print(error)
print(torch.ones(3, device="cuda").sum().item())
"""
    out = printed("-c", program, timeout=300)
    if out.startswith("skip"):
        pytest.skip("PyTorch finds no CUDA device")
    assert "CUDA out of memory. Tried to allocate 268,435,456 bytes on device 0" in out
    assert "134,217,728 of them live" in out
    assert out.rstrip().endswith("3.0")
