"""``stowplan compare`` of a snapshot of PyTorch's: what its allocator had reserved, and what a plan leaves of it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
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
    assert ["PyTorch", "on", "CUDA", "reserved", "52.0", "MiB", "38.5%"] in rows
    assert ["with", "the", "plan", "32.0", "MiB"] in rows


def kept_after_peak(pool: CachingAllocator) -> None:
    """64 MiB of activations; and then state, of 60 MiB, that takes their place."""
    pool.trace()
    pool.free(pool.alloc(64 * MIB))
    pool.alloc(60 * MIB)


def freed_before(pool: CachingAllocator) -> None:
    """60 MiB of another step's, which go before this step's 64 MiB come."""
    former = pool.alloc(60 * MIB)
    pool.trace()
    pool.free(former)
    pool.free(pool.alloc(64 * MIB))


@pytest.mark.parametrize("program", [kept_after_peak, freed_before])
def test_the_arena_stays_while_other_blocks_come_and_go(
    program: Callable[[CachingAllocator], None], tmp_path: Path
) -> None:
    pool, path = CachingAllocator(), tmp_path / "snapshot.pickle"
    program(pool)
    path.write_bytes(pickle.dumps(pool.snapshot()))
    for command in ("compare", "show"):
        found = figures(command, path)
        assert (found["live_peak"], found["unplanned_peak"], found["planned_peak"]) == (
            64 * MIB,
            60 * MIB,
            64 * MIB,
        )
        assert found["with_plan"] == (60 + 64) * MIB
        assert found["saved_of_reserved"] == 1 - (60 + 64) * MIB / pool.most_reserved
        assert found["pools"]["pytorch-expandable"]["saved"] == (80 - 64) / (60 + 80)
        said = "60.0 MiB allocated after the peak stay" in stowplan(command, path).output
        assert said == (program is kept_after_peak)


def test_two_steps_have_the_state_at_the_fullest_moment(tmp_path: Path) -> None:
    pool, path = CachingAllocator(), tmp_path / "snapshot.pickle"
    kept_after_peak(pool)
    pool.free(pool.alloc(64 * MIB))
    path.write_bytes(pickle.dumps(pool.snapshot()))
    assert (figures("compare", path)["live_peak"], figures("compare", path)["with_plan"]) == (
        124 * MIB,
        124 * MIB,
    )
    assert "record two steps" not in stowplan("compare", path).output


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
