"""What is written for other tools' viewers, checked against what those viewers need."""

from __future__ import annotations

import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np

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
