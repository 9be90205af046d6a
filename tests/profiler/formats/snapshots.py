"""A snapshot as PyTorch 2 dumps it: a small one, written by hand after torch/cuda/memory.py's definition."""

from __future__ import annotations

from typing import Any

ARENA = 0x7F0640000000


def frames(line: int) -> list[dict[str, Any]]:
    """Innermost first, as PyTorch lists them."""
    return [
        {"filename": "??", "line": 0, "name": "torch::unwind::unwind()"},
        {"filename": "/site-packages/torch/nn/modules/linear.py", "line": 125, "name": "forward"},
        {"filename": "/home/me/train.py", "line": line, "name": "step"},
        {"filename": "/home/me/train.py", "line": 1, "name": "<module>"},
    ]


def entry(action: str, addr: int, size: int, line: int = 7, **more: Any) -> dict[str, Any]:
    traced = {
        "action": action,
        "addr": ARENA + addr,
        "size": size,
        "stream": 0,
        "time_us": 1_700_000_000_000_000,
    }
    return {**traced, "frames": frames(line), **more}


def snapshot() -> dict[str, Any]:
    """Four blocks on device 1: one within the step, one wrapped, one that escapes, one from before."""
    trace = [
        entry("segment_alloc", 0, 2097152),
        entry("alloc", 0, 512, 7),
        entry("free_requested", 1024, 4096),
        entry("free_completed", 1024, 4096),
        entry("alloc", 512, 300, 9, stream=139669),
        entry("free_requested", 0, 512),
        entry("free_completed", 0, 512),
        entry("alloc", 1024, 4096, 7),
        entry("free_completed", 1 << 20, 64),
        {"action": "oom", "device_free": 12, "size": 1 << 40, "stream": 0, "frames": []},
        {"action": "snapshot", "addr": 0, "size": 0, "stream": 0, "time_us": 1, "frames": []},
    ]
    block = {
        "address": ARENA,
        "size": 512,
        "requested_size": 300,
        "state": "active_allocated",
        "frames": frames(9),
    }
    segment = {
        "device": 1,
        "address": ARENA,
        "total_size": 2097152,
        "allocated_size": 512,
        "active_size": 512,
        "requested_size": 300,
        "stream": 0,
        "segment_type": "small",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": [
            block,
            {**block, "address": ARENA + 512, "size": 2096640, "state": "inactive", "frames": []},
        ],
    }
    settings = {
        "PYTORCH_CUDA_ALLOC_CONF": "",
        "garbage_collection_threshold": 0.0,
        "expandable_segments": False,
    }
    return {
        "segments": [segment],
        "device_traces": [[], trace],
        "allocator_settings": settings,
        "external_annotations": [],
    }
