"""``stowplan fit`` of snapshots, as programs of PyTorch dump them: what it answers, when that batch is recorded."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stowplan.insight.on_device import FITS, NOT, POOLS, TOO_CLOSE, UNKNOWN

from ..profiler.formats.snapshots import CachingAllocator
from .command_line import figures

KIB, MIB = 1 << 10, 1 << 20
BATCHES = (2, 3, 4)

Program = Callable[[CachingAllocator, int], Iterator[None]]
"""Allocates what it has before its trace begins, yields, and runs a step of a batch size."""


def training(pool: CachingAllocator, batch: int) -> Iterator[None]:
    """Activations and gradients; the optimizer makes its state in the step."""
    weights = [pool.alloc(4 * MIB) for _ in range(4)]
    yield
    saved = [pool.alloc(batch * (1 + k) * MIB) for k in range(4)]
    gradients = []
    for activation in reversed(saved):
        passed = pool.alloc(batch * MIB)
        gradients.append(pool.alloc(4 * MIB))
        pool.free(activation)
        pool.free(passed)
    for gradient, _ in zip(gradients, weights, strict=True):
        pool.alloc(8 * MIB)
        pool.free(gradient)


def whole_script(pool: CachingAllocator, batch: int) -> Iterator[None]:
    """The trace begins before the model is made, so that its weights escape."""
    yield
    for _ in range(4):
        pool.alloc(16 * MIB)
    first = pool.alloc(batch * MIB)
    second = pool.alloc(batch * MIB // 2)
    pool.free(second)
    pool.free(first)


def attention(pool: CachingAllocator, batch: int) -> Iterator[None]:
    """The batch is the number of words: scores are its square."""
    pool.alloc(4 * MIB)
    yield
    words = pool.alloc(batch * 64 * KIB)
    scores = pool.alloc(batch**2 * 16 * KIB)
    shares = pool.alloc(batch**2 * 16 * KIB)
    pool.free(scores)
    out = pool.alloc(batch * 64 * KIB)
    for address in (shares, out, words):
        pool.free(address)


def workspace(pool: CachingAllocator, batch: int) -> Iterator[None]:
    """A library takes a workspace of one size from the second batch size on, as cuBLAS does."""
    pool.alloc(21 * MIB)
    yield
    for _ in range(60):
        hidden = pool.alloc(4 * batch * MIB)
        out = pool.alloc(4 * batch * MIB)
        pool.free(hidden)
        pool.free(out)
    if batch > BATCHES[0]:
        pool.free(pool.alloc(64 * KIB))


def accumulating(pool: CachingAllocator, batch: int) -> Iterator[None]:
    """Gradients of the step before, which the update replaces; sizes are no multiples of anything."""
    gradients = [pool.alloc(3 * MIB + 1) for _ in range(3)]
    yield
    saved = [pool.alloc(batch * 1_000_003 + k) for k in range(3)]
    for k, activation in enumerate(saved):
        made = pool.alloc(3 * MIB + 1)
        pool.free(activation)
        pool.free(gradients[k])
        gradients[k] = made


PROGRAMS = [training, whole_script, attention, workspace, accumulating]


def snapshot(program: Program, batch: int, folder: Path) -> Path:
    """Run a program and dump its snapshot."""
    pool = CachingAllocator()
    step = program(pool, batch)
    next(step)
    pool.trace()
    assert next(step, "done") == "done"
    path = folder / f"{batch}.pickle"
    path.write_bytes(pickle.dumps(pool.snapshot()))
    return path


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("memory", ["100MiB", "200MiB", "400MiB"])
def test_the_batch_that_is_named_fits_when_it_is_recorded(
    program: Program, memory: str, tmp_path: Path
) -> None:
    files = [f"{batch}={snapshot(program, batch, tmp_path)}" for batch in BATCHES]
    found = figures("fit", *files, "--memory", memory)
    batch = found["largest"]["batch"]
    taken = figures("compare", snapshot(program, batch, tmp_path))["with_plan"]
    assert taken <= found["memory"]
    assert found["largest"]["total"] == pytest.approx(taken, rel=0.03)
    assert (
        figures("compare", snapshot(program, batch + max(batch // 20, 1), tmp_path))["with_plan"]
        > found["memory"]
    )
    assert (found["largest"]["extrapolated"] is None) == (batch <= 8 * BATCHES[-1])


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_device_s_pools_take_what_the_recorded_batch_takes(program: Program, tmp_path: Path) -> None:
    files = [f"{batch}={snapshot(program, batch, tmp_path)}" for batch in BATCHES]
    asked = ["fit", *files, "--batch", 24, "--device"]
    (found,) = figures(*asked, "cuda:24GiB")["predictions"]
    real = figures("compare", snapshot(program, 24, tmp_path))
    steps = {name: real["pools"][name]["reserved"] for name in POOLS} | {"plan": real["arena"]}
    assert {way["name"]: way["step"] for way in found["ways"]} == steps
    kept = real["unplanned_peak"]
    assert all(way["total"] - way["step"] == pytest.approx(kept, rel=0.03, abs=KIB) for way in found["ways"])
    assert found["pool"] == "pytorch"
    total = steps["pytorch"] + kept
    for room, verdict, status in (
        (UNKNOWN * 21 // 20, FITS, 0),
        (UNKNOWN // 2, TOO_CLOSE, 1),
        (-(total // 20), NOT, 1),
    ):
        (one,) = figures(*asked, f"cuda:{total + room}B", status=status)["predictions"]
        assert one["verdict"] == verdict
