"""Whether a log fits so much memory under a pool, against pools of a few lines that know addresses alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.errors import ProfileError
from stowplan.insight.capacity import POOLS, UNIT, Failure, first_failure, log_of, smallest_capacity
from stowplan.profiler import Profile, formats
from stowplan.profiler.program_summary import Program

from ..command_line import figures, refused, stowplan

MIB = 1 << 20


def write(path: Path, events: list[tuple[int, int]]) -> Path:
    """Write a log of RMM's: (block, bytes), or (block, 0) for its end."""
    size = {block: size for block, size in events if size}
    rows = [
        f"1,{time}.0,{'allocate' if bytes_ else 'free'},{block + 1 << 40:#x},{size[block]},0"
        for time, (block, bytes_) in enumerate(events, 1)
    ]
    path.write_text("\n".join(["Thread,Time,Action,Pointer,Size,Stream", *rows, ""]))
    return path


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[int, int]]:
    events: list[tuple[int, int]] = []
    live: list[int] = []
    for block in range(draw(st.integers(1, 40))):
        while draw(st.booleans()) and live:
            events.append((live.pop(draw(st.integers(0, len(live) - 1))), 0))
        events.append((block, draw(st.integers(1, 12 * MIB))))
        live.append(block)
    return events


def best_fit(events: list[tuple[int, int]], capacity: int) -> Iterator[tuple[int, int, int]]:
    """One range of addresses, blocks of 256 bytes, the smallest hole: yield what fails, as (event, live, hole)."""
    capacity = capacity // 256 * 256
    held: dict[int, tuple[int, int]] = {}
    asked: dict[int, int] = {}
    for number, (block, size) in enumerate(events, 1):
        if not size:
            del held[block], asked[block]
            continue
        at, holes = 0, []
        for begin, end in [*sorted(held.values()), (capacity, capacity)]:
            holes.append((begin - at, at))
            at = end
        room = -(-size // 256) * 256
        fit = min((hole for hole in holes if hole[0] >= room), default=None)
        if fit is None:
            yield number, sum(asked.values()), max(holes)[0]
            return
        held[block], asked[block] = (fit[1], fit[1] + room), size


@given(logs(), st.integers(1, 80 * MIB))
def test_rmm_s_pool_fails_where_a_plain_best_fit_does(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[int, int]], capacity: int
) -> None:
    log = log_of(formats.read(write(tmp_path_factory.mktemp("log") / "log.csv", events)))
    expected = next(best_fit(events, capacity), None)
    failure = first_failure(log, "rmm", capacity)
    assert expected == (None if failure is None else (failure.event, failure.live, failure.hole))
    for pool in POOLS:
        smallest, least = smallest_capacity(log, pool, also=capacity)
        for enough in (smallest, least):
            assert first_failure(log, pool, enough) is None
            assert enough == UNIT or first_failure(log, pool, enough - UNIT) is not None
        assert smallest > capacity // UNIT * UNIT or first_failure(log, pool, capacity // UNIT * UNIT) is None
    assert next(best_fit(events, smallest_capacity(log, "rmm")[0]), None) is None


def test_reservations_go_back_when_memory_has_run_out(tmp_path: Path) -> None:
    # Two of 30 MiB, side by side; both end, and then 60 MiB in one piece: no pool has it without giving back.
    events = [(0, 30 * MIB), (1, 30 * MIB), (0, 0), (1, 0), (2, 60 * MIB)]
    log = log_of(formats.read(write(tmp_path / "log.csv", events)))
    assert {pool: smallest_capacity(log, pool)[0] // MIB for pool in POOLS} == dict.fromkeys(POOLS, 60)
    assert first_failure(log, "cupy", 59 * MIB) == Failure(2, 30 * MIB, 30 * MIB, 0, 29 * MIB)


def test_a_size_between_two_mebibytes_is_tried_as_it_is(tmp_path: Path) -> None:
    events = [(0, 1963259), (1, 1937879), (2, 1542169), (1, 0), (3, 1195292), (0, 0), (4, 2591747)]
    log, asked = log_of(formats.read(write(tmp_path / "log.csv", events))), 7440032
    assert next(best_fit(events, asked), None) is not None
    assert smallest_capacity(log, "rmm", also=asked)[0] > asked


def test_the_command_names_the_size_that_does(tmp_path: Path) -> None:
    events = [(0, 20 * MIB), (1, 20 * MIB), (2, 20 * MIB), (0, 0), (2, 0), (3, 40 * MIB), (1, 0), (3, 0)]
    path = write(tmp_path / "log.csv", events)
    found = figures("compare", path, "--size", "80MiB")
    assert {name: pool["smallest"] for name, pool in found["pools"].items()} == {
        **dict.fromkeys(("cupy", "pytorch", "none", "plan"), 60 * MIB),
        "rmm": 80 * MIB,
    }
    short = stowplan("compare", path, "--size", "79MiB", "--json")
    assert not json.loads(short.output)["pools"]["rmm"]["fits"]
    assert (
        "RMM's pool fails at event 6: 40.0 MiB requested, 20.0 MiB live"
        in stowplan("compare", path, "--size", "79MiB").output
    )
    assert stowplan("compare", path, "--size", "59MiB", "--json").exit_code == 1
    path.write_text(f"{path.read_text()}1,9.0,allocate failure,(nil),{50 * MIB},0\n")
    for command in (("show", path), ("compare", path, "--size", "80MiB")):
        said = stowplan(*command).output
        assert (
            "1 request of the log failed, not counted here: with 50.0 MiB more 50.0 MiB would have been live"
            in said
        )


def one_block(program: Program, size: int = 8, start: int = 0, end: int = 1) -> Profile:
    return Profile(np.array([size]), np.array([start]), np.array([end]), period=2, program=program)


def test_a_step_is_no_log(tmp_path: Path) -> None:
    one_block(Program(library="NumPy", steps=3, repeats=3)).save(tmp_path / "step")
    assert "expected a whole log" in refused("compare", tmp_path / "step", "--size", "1GiB")


def test_what_was_live_before_a_log_counts() -> None:
    program = Program(library="PyTorch on CUDA", reserved=1, before=10 * MIB)
    # A wrapped block of 4 MiB: live when the log begins and when it ends; 6 MiB more are known by their sum.
    log = log_of(one_block(program, 4 * MIB, 1, 2))
    assert (log.older, log.older_bytes, len(log.requests.block)) == (2, 6 * MIB, 4)
    assert smallest_capacity(log, "none") == (10 * MIB, 10 * MIB)
    with pytest.raises(ProfileError, match="expected a whole log"):
        log_of(one_block(Program(library="CuPy")))
