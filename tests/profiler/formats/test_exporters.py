"""What is written for other tools' viewers, checked against what those viewers need."""

from __future__ import annotations

import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.profiler import ESCAPED, Profile
from stowplan.profiler.formats import torch_snapshot

# What `unpickle` in PyTorch's MemoryViz.js understands.
VIEWER = """
PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT SHORT_BINUNICODE BINUNICODE
EMPTY_LIST APPEND APPENDS LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_DICT SETITEM SETITEMS DICT
MEMOIZE BINPUT LONG_BINPUT BINGET LONG_BINGET
"""
PROFILE = Profile(
    [1000, 64, 300, 0],
    [0, 2, 3, 5],
    [4, 9, ESCAPED, 6],  # within the step, wrapped, escaped, of no size
    period=8,
    site=np.array([0, 1, -1, 0], dtype=np.int32),
    sites=("train.py:7 step", "nowhere"),
)
OFFSETS = np.array([0, 1024, -1, 2048])


def dumped(path: Path, profile: Profile, offsets: Any) -> dict[str, Any]:
    torch_snapshot.write(path, profile, offsets)
    return pickle.loads(path.read_bytes())  # our own file


def test_a_snapshot_has_only_what_the_viewer_reads(tmp_path: Path) -> None:
    many = Profile(np.full(2000, 5), np.arange(2000) * 2, np.arange(2000) * 2 + 1, period=4000)
    for profile, offsets in ((PROFILE, OFFSETS), (many, np.zeros(2000, dtype=np.int64))):
        path = tmp_path / "plan.pickle"
        torch_snapshot.write(path, profile, offsets)
        assert {opcode.name for opcode, _, _ in pickletools.genops(path.read_bytes())} <= set(VIEWER.split())


def test_blocks_of_a_segment_leave_no_gap(tmp_path: Path) -> None:
    segments = dumped(tmp_path / "plan.pickle", PROFILE, OFFSETS)["segments"]
    assert [segment["total_size"] for segment in segments] == [2048, 512]
    for segment in segments:
        address = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == address
            address += block["size"]
        assert address == segment["address"] + segment["total_size"]
        active = sum(block["size"] for block in segment["blocks"] if block["state"] == "active_allocated")
        assert segment["allocated_size"] == active
    arena = [(block["state"], block["size"]) for block in segments[0]["blocks"]]
    assert arena == [("inactive", 1024), ("active_allocated", 64), ("inactive", 960)]


def test_the_trace_begins_with_the_wrapped_blocks_alive(tmp_path: Path) -> None:
    (trace,) = dumped(tmp_path / "plan.pickle", PROFILE, OFFSETS)["device_traces"]
    told = [(event["action"], event["addr"] - torch_snapshot.ARENA_ADDRESS) for event in trace]
    assert told[:4] == [("alloc", 0), ("free_requested", 1024), ("free_completed", 1024), ("alloc", 1024)]
    assert told[4:6] == [("segment_alloc", 2048), ("alloc", 2048)]  # not planned: above the arena
    assert trace[0]["frames"] == [{"filename": "train.py", "line": 7, "name": "step"}]


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """Any profile: an event a tick, each block freed within the step, in the next one, or never."""
    kinds = draw(st.lists(st.sampled_from(["within", "wrapped", "escaped"]), max_size=8))
    events = draw(
        st.permutations(
            [
                (k, what)
                for k, kind in enumerate(kinds)
                for what in ("start", "end")[: 2 - (kind == "escaped")]
            ]
        )
    )
    tick = {event: t for t, event in enumerate(events)}
    start, end = [], []
    for k, kind in enumerate(kinds):
        a, b = tick[k, "start"], tick.get((k, "end"), ESCAPED)
        if (kind == "within" and b < a) or (kind == "wrapped" and b > a):
            a, b = b, a
        start.append(a)
        end.append(b + len(events) if kind == "wrapped" else b)
    sizes = draw(st.lists(st.integers(1, 5000), min_size=len(kinds), max_size=len(kinds)))
    blocks = np.array(sorted(zip(start, end, sizes, strict=True)), dtype=np.int64).reshape(-1, 3)
    return Profile(blocks[:, 2], blocks[:, 0], blocks[:, 1], period=len(events))


@settings(settings.get_profile("dear"))
@given(profiles())
def test_a_snapshot_is_read_back_as_the_same_profile(
    tmp_path_factory: pytest.TempPathFactory, profile: Profile
) -> None:
    path = tmp_path_factory.mktemp("snapshot") / "plan.pickle"
    rounded = -(-profile.size // 512) * 512
    torch_snapshot.write(path, profile, np.where(profile.escaped, -1, np.cumsum(rounded) - rounded))
    if len(profile):
        assert torch_snapshot.read(path).same_blocks(profile)
