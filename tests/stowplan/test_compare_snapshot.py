"""``stowplan compare`` of a snapshot of PyTorch's: what its allocator had reserved, and what a plan leaves of it."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from ..profiler.formats.snapshots import CachingAllocator
from .command_line import figures, stowplan

MIB = 1 << 20


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """A step that asks for 20 MiB, and then, when these are free, for 24: beside 8 MiB of parameters."""
    pool = CachingAllocator()
    pool.alloc(8 * MIB, line=3)
    pool.trace()
    pool.free(pool.alloc(20 * MIB, line=12))
    pool.free(pool.alloc(24 * MIB, line=14))
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(pool.snapshot()))
    return path


def test_compare_says_what_a_plan_would_save(snapshot: Path) -> None:
    found = figures("compare", snapshot)
    assert found["program"]["reserved"] == (8 + 20 + 24) * MIB
    assert found["program"]["library"] == "PyTorch on CUDA"
    assert found["live_peak"] == 32 * MIB
    assert found["arena"] == 24 * MIB
    assert found["saved_of_reserved"] == pytest.approx(1 - 32 / 52)
    assert "malloc" not in found["pools"]  # it is a device's
    text = stowplan("compare", snapshot).output
    assert "PyTorch on CUDA had at most 52.0 MiB reserved; the trace is read as one step" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["PyTorch", "on", "CUDA", "reserved", f"{52 * MIB:,}", "52.0", "MiB", "38.5%"] in rows
    assert ["with", "the", "plan", f"{32 * MIB:,}", "32.0", "MiB"] in rows


def test_a_profile_made_of_it_knows_the_same(snapshot: Path, tmp_path: Path) -> None:
    assert stowplan("convert", snapshot, tmp_path / "step.profile").exit_code == 0
    found = figures("show", tmp_path / "step.profile")
    assert found["saved_of_reserved"] == pytest.approx(1 - 32 / 52)


def test_without_segments_nothing_is_said(snapshot: Path) -> None:
    shot = pickle.loads(snapshot.read_bytes())
    del shot["segments"]
    snapshot.write_bytes(pickle.dumps(shot))
    assert figures("compare", snapshot)["saved_of_reserved"] is None
    assert "live peak of the program: not recorded" in stowplan("compare", snapshot).output
