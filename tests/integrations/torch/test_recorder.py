"""TorchRecorder beside PyTorch's own profiler; call sites, threads, blocks that outlive it; ``stowplan profile``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity
from torch.profiler import profile as pytorchs_profiler

from stowplan import Profile, TorchPool, TorchRecorder

from ...children import stowplan

SMALL = 4096
HERE = __file__


class Doubled(torch.autograd.Function):
    """Its backward is Python."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2  # in Doubled.backward


def network() -> tuple[nn.Module, Callable[[], float]]:
    """Return a network, and its training step."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    convolution, recurrent, linear = nn.Conv2d(3, 8, 3), nn.LSTM(36, 32), nn.Linear(32, 400)
    module = nn.ModuleList([convolution, recurrent, linear])
    optimizer = torch.optim.Adam(module.parameters())
    inputs = torch.randn(16, 3, 8, 8)

    def step() -> float:
        hidden = convolution(inputs).relu()
        sequence, _ = recurrent(hidden.flatten(2))
        loss = Doubled.apply(linear(sequence)).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    return module, step


def recorded(step: Callable[[], object], **options: Any) -> Profile:
    """Return the profile of three steps."""
    recorder = TorchRecorder(small=SMALL, **options)
    with recorder:
        for _ in range(3):
            with recorder.step():
                step()
    return recorder.profile()


def heard_by_pytorch(step: Callable[[], object], folder: Path) -> list[int]:
    """Return the sizes of the blocks that PyTorch's profiler reports, frees as negative, in order."""
    with pytorchs_profiler(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        step()
    recorded.export_chrome_trace(str(folder / "trace.json"))
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    memory = [event for event in events if event.get("name") == "[memory]"]
    return [event["args"]["Bytes"] for event in sorted(memory, key=lambda event: event["ts"])]


def test_a_step_is_what_pytorchs_profiler_reports_with_and_without_it(tmp_path: Path) -> None:
    _, step = network()
    for _ in range(2):
        step()
    reported = [size for size in heard_by_pytorch(step, tmp_path) if size >= SMALL]
    with TorchRecorder(small=SMALL):
        assert [size for size in heard_by_pytorch(step, tmp_path) if size >= SMALL] == reported
    profile = recorded(step)
    assert profile.size.tolist() == reported
    assert len(profile) > 20
    assert (profile.program.library, profile.program.repeats) == ("PyTorch", 3)


def test_a_step_is_found_and_values_are_as_without() -> None:
    module, step = network()
    plain = [step() for _ in range(12)]
    parameters = [parameter.detach().clone() for parameter in module.parameters()]
    module, step = network()
    recorder = TorchRecorder(auto_step=True, sites=True, small=SMALL)
    with recorder:
        assert [step() for _ in range(12)] == plain
    assert all(torch.equal(*pair) for pair in zip(parameters, module.parameters(), strict=True))
    profile = recorder.profile()
    assert profile.program.coverage[1] > 0.5
    assert profile.planned_peak > 0


def line_of(text: str) -> int:
    """Return the number of the first line of this file with a text in it."""
    lines = Path(HERE).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_call_sites_are_lines_and_operators() -> None:
    _, step = network()
    profile = recorded(step, sites=True)
    assert (profile.site >= 0).all()
    sites = {profile.sites[number] for number in profile.site.tolist()}
    forward, backward = line_of("hidden = convolution"), line_of("loss.backward()")
    assert f"{HERE}:{forward} step > aten::conv2d" in sites
    assert f"{HERE}:{forward} step > aten::relu" in sites
    assert f"{HERE}:{backward} step > ConvolutionBackward0 > aten::convolution_backward" in sites
    inner = line_of("# in Doubled.backward")
    assert f"{HERE}:{inner} backward > DoubledBackward > aten::mul" in sites
    assert {site.rpartition(":")[0] for site in sites if " > " not in site} == set()


def test_requests_of_kernel_threads_have_their_operator_s_site() -> None:
    query = torch.randn(8, 4, 256, 64, requires_grad=True)
    torch.set_num_threads(2)
    try:
        recorder = TorchRecorder(sites=True)
        with recorder, recorder.step():
            # Its backward asks for memory on a second thread, too.
            nn.functional.scaled_dot_product_attention(query, query, query).sum().backward()
    finally:
        torch.set_num_threads(1)
    profile = recorder.whole()
    assert len(profile) > 10
    assert (profile.site >= 0).all()


def test_a_pool_that_serves_goes_on_after_it() -> None:
    pool = TorchPool(small=SMALL)
    recorder = TorchRecorder(small=SMALL)
    with pool:
        torch.ones(10_000)
        before = pool.stats.requests
        assert before > 0
        with recorder:
            kept = torch.ones(10_000)
        assert (recorder.requests, pool.stats.requests) == (1, before)
        torch.ones(10_000)
        assert pool.stats.requests == before + 1
    del kept


SCRIPT = """
import sys
import numpy as np
import torch

weight = torch.ones(100, 400)

def train(inputs):
    hidden = inputs @ weight
    return (hidden * 2).sum()

def main():
    for _ in range(20):
        np.ones(int(sys.argv[1])).sum()
        train(torch.ones(100, 100))

main()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def test_a_programs_profile_goes_through_the_other_commands(script: Path) -> None:
    folder = script.parent
    done = stowplan("profile", "-o", "step.profile", "script.py", "10", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "stowplan: PyTorch: the step that it repeats: 3 blocks" in done.stderr
    assert "not recorded: memory that PyTorch's kernels take from the C library" in done.stderr
    profile = Profile.load(folder / "step.profile")
    assert sorted(profile.size.tolist()) == [40_000, 160_000, 160_000]
    assert {site.rpartition("/")[2] for site in profile.sites} == {
        "script.py:9 train > aten::matmul",
        "script.py:10 train > aten::mul",
        "script.py:15 main > aten::ones",
    }
    compared = json.loads(stowplan("compare", "--json", "step.profile", folder=folder).stdout)
    assert (compared["alignment"], compared["arena"]) == (64, profile.planned_peak)


def test_whoever_asks_for_more_is_recorded_or_who_is_named(script: Path) -> None:
    done = stowplan("profile", "script.py", "1000000", folder=script.parent)
    assert "stowplan: NumPy: the step that it repeats" in done.stderr
    done = stowplan("profile", "--device", "torch", "script.py", "1000000", folder=script.parent)
    assert "stowplan: PyTorch: the step that it repeats" in done.stderr


def test_without_a_compiler_numpy_is_recorded(script: Path) -> None:
    nothing = {"XDG_CACHE_HOME": str(script.parent), "CXX": "/nowhere/c++"}
    done = stowplan("profile", "script.py", "1000", folder=script.parent, **nothing)
    assert done.returncode == 0, done.stderr
    assert "PyTorch's tensors are not recorded: no C++ compiler found" in done.stderr
    assert "stowplan: NumPy: the step that it repeats" in done.stderr
