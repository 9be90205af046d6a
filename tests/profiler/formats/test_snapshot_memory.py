"""What a snapshot's segments and trace tell together: what was alive and reserved, beside an allocator that counts."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import pytest

from stowplan.profiler import Profile, formats
from stowplan.profiler.program_summary import Program

from .snapshots import CachingAllocator, snapshot

MIB = 1 << 20


def program_of(profile: Profile) -> Program:
    assert profile.program is not None
    return profile.program


def read(folder: Path, what: Any) -> Profile:
    path = folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps(what))
    return formats.read(path)


@pytest.mark.parametrize("seed", range(20))
def test_it_is_what_the_allocator_counts(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    pool = CachingAllocator()
    live: list[int] = []
    for number in range(200):
        if number == 60:
            pool.trace()
        chance = draw.random()
        if chance < 0.5 or not live:
            live.append(pool.alloc(draw.choice([1, 700, 3 * MIB, draw.randrange(1, 9 * MIB)])))
        elif chance < 0.9:
            pool.free(live.pop(draw.randrange(len(live))))
        elif chance < 0.95:
            pool.request_free(live[-1])
        else:
            pool.empty_cache()
    profile = read(tmp_path, pool.snapshot(device=draw.randrange(3)))
    assert profile.alive.tolist() == pool.alive
    program = profile.program
    assert program is not None
    assert (program.library, program.reserved) == ("PyTorch on CUDA", pool.most_reserved)
    assert program.live_peak >= max(pool.alive)


def test_the_parts_of_a_step(tmp_path: Path) -> None:
    pool = CachingAllocator()
    pool.alloc(8 * MIB)  # parameters
    former = pool.alloc(MIB)
    pool.trace()
    pool.free(pool.alloc(20 * MIB))
    pool.free(former)
    escaped = pool.alloc(3 * MIB)
    pool.free(pool.alloc(24 * MIB))
    assert escaped
    profile = read(tmp_path, pool.snapshot())
    parts = profile.at_live_peak()
    assert parts is not None
    assert parts._asdict() == {"tick": 3, "older": 8 * MIB, "escaped": 3 * MIB, "planned": 24 * MIB}
    profile.save(tmp_path / "step.profile")
    again = formats.read(tmp_path / "step.profile")
    assert (again.program, again.live_peak) == (profile.program, 35 * MIB)


@pytest.mark.parametrize(
    "change",
    [
        lambda shot: shot.pop("segments"),
        lambda shot: shot.update(segments=[]),
        lambda shot: shot["segments"][0].update(blocks=[]),  # 3 MiB were allocated, and are not there
        lambda shot: shot.update(segments=[[1, 2]]),
        lambda shot: shot["segments"][0].update(total_size=float("inf")),
    ],
)
def test_segments_that_tell_nothing(tmp_path: Path, change: Any) -> None:
    pool = CachingAllocator()
    pool.trace()
    pool.alloc(3 * MIB)
    shot = pool.snapshot()
    assert read(tmp_path, shot).live_peak == 3 * MIB
    change(shot)
    profile = read(tmp_path, shot)
    assert (profile.size.tolist(), profile.live_peak) == ([3 * MIB], None)
    assert profile.program == Program("PyTorch on CUDA", requests=1, bytes=3 * MIB)


def test_a_trace_without_its_segments(tmp_path: Path) -> None:
    assert not program_of(read(tmp_path, snapshot())).reserved  # more was freed than the one segment holds


def test_requests_that_were_refused(tmp_path: Path) -> None:
    pool = CachingAllocator()
    pool.trace()
    pool.alloc(3 * MIB)
    shot = pool.snapshot()
    shot["device_traces"][0].append({"action": "oom", "size": 90 * MIB, "stream": 0, "device_free": 0})
    program = program_of(read(tmp_path, shot))
    assert (program.failed, program.wanted, program.live_peak) == (1, 93 * MIB, 3 * MIB)
