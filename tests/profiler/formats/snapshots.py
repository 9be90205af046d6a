"""Snapshots as PyTorch 2 dumps them: a small one, written by hand after torch/cuda/memory.py's definition, and any."""

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
    traced = {"action": action, "addr": ARENA + addr, "size": size, "stream": 0}
    return {**traced, "time_us": 1_700_000_000_000_000, "frames": frames(line), **more}


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
    block = {"address": ARENA, "size": 512, "requested_size": 300, "frames": frames(9)}
    active = {**block, "state": "active_allocated"}
    rest = {**block, "address": ARENA + 512, "size": 2096640, "state": "inactive", "frames": []}
    sizes = {"total_size": 2097152, "allocated_size": 512, "active_size": 512, "requested_size": 300}
    kind = {"segment_type": "small", "segment_pool_id": (0, 0), "is_expandable": False, "stream": 0}
    segment = {"device": 1, "address": ARENA, **sizes, **kind, "frames": [], "blocks": [active, rest]}
    return {
        "segments": [segment],
        "device_traces": [[], trace],
        "allocator_settings": {"expandable_segments": False},
        "external_annotations": [],
    }


class CachingAllocator:
    """Makes snapshots: a block has a segment of its own, in units of 2 MiB, which is kept for others.

    Attributes
    ----------
    live, reserved
        Bytes, as asked for, of live blocks; and of segments.
    alive
        `live` after each allocation that is traced.
    most_reserved
        Since `trace` began.
    """

    UNIT = 1 << 21

    def __init__(self) -> None:
        self.live = self.reserved = self.most_reserved = 0
        self.alive: list[int] = []
        self._trace: list[dict[str, Any]] | None = None
        self._segments: dict[int, int] = {}  # sizes, by address
        self._blocks: dict[int, tuple[int, str]] = {}  # sizes and states, by address
        self._next = 0

    def trace(self) -> None:
        self._trace, self.alive, self.most_reserved = [], [], self.reserved

    def alloc(self, size: int, line: int = 7, stream: int = 0) -> int:
        fitting = [
            (whole, address)
            for address, whole in self._segments.items()
            if whole >= size and address not in self._blocks
        ]
        if fitting:
            _, address = min(fitting)
        else:
            address, whole = self._next, -(-size // self.UNIT) * self.UNIT
            self._next += whole
            self._segments[address] = whole
            self._reserve("segment_alloc", address, whole)
        self._blocks[address] = size, "active_allocated"
        self.live += size
        self._note("alloc", address, size, line, stream)
        self.alive += [self.live] if self._trace is not None else []
        return address

    def request_free(self, address: int) -> None:
        """Free a block that waits for another stream: it is alive until `free`."""
        size, _ = self._blocks[address]
        self._blocks[address] = size, "active_pending_free"
        self._note("free_requested", address, size)

    def free(self, address: int) -> None:
        size, state = self._blocks.pop(address)
        if state == "active_allocated":
            self._note("free_requested", address, size)
        self.live -= size
        self._note("free_completed", address, size)

    def empty_cache(self) -> None:
        for address in [address for address in self._segments if address not in self._blocks]:
            self._reserve("segment_free", address, self._segments.pop(address))

    def snapshot(self, device: int = 0) -> dict[str, Any]:
        segments = []
        for address, whole in self._segments.items():
            size, state = self._blocks.get(address, (whole, "inactive"))
            block = {"address": ARENA + address, "size": -(-size // 512) * 512, "requested_size": size}
            segment = {"device": device, "address": ARENA + address, "total_size": whole, "stream": 0}
            segments.append({**segment, "blocks": [{**block, "state": state}]})
        other = {"device": device + 1, "address": 1, "total_size": 1 << 30, "stream": 0, "blocks": []}
        return {"segments": [*segments, other], "device_traces": [[] for _ in range(device)] + [self._trace]}

    def _reserve(self, action: str, address: int, whole: int) -> None:
        self.reserved += whole if action == "segment_alloc" else -whole
        self.most_reserved = max(self.most_reserved, self.reserved)
        self._note(action, address, whole)

    def _note(self, action: str, address: int, size: int, line: int = 7, stream: int = 0) -> None:
        if self._trace is not None:
            self._trace.append(entry(action, address, size, line, stream=stream))
