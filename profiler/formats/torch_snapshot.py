"""PyTorch's memory snapshot: a pickle of ``torch.cuda.memory._snapshot()``, read, and written for its viewer.

::

    {"segments": [{"device": 0, "address": a, "total_size": n, "stream": 0, "segment_type": "large", ...,
                   "blocks": [{"address": a, "size": s, "requested_size": r, "state": "active_allocated",
                               "frames": []}, ...]}, ...],
     "device_traces": [[{"action": "alloc", "addr": a, "size": s, "stream": 0, "time_us": t,
                         "frames": [{"filename": "train.py", "line": 7, "name": "forward"}]}, ...],   # device 0
                       ...]}                                                                          # device 1

=================  ====================================================================================
action             read as
=================  ====================================================================================
alloc              an allocation
free_requested     nothing: another stream may still use the block
free_completed     the free. (The viewer's own ``free``, one event for both, is read as well.)
segment_alloc/map  the caching allocator asks the device for as many bytes; ``segment_free`` and ``_unmap``
                   give them back
oom                a request that was refused: counted
snapshot, …        nothing
=================  ====================================================================================

A snapshot has traces only where ``torch.cuda.memory._record_memory_history()`` was called before. A block's call site
is the innermost frame of a Python file outside PyTorch, or else the innermost frame.

The segments are those at the end of the trace, so that both together tell what was alive, and what was reserved, at any
moment of it: the profile knows the program's live peak, older blocks included, and the most that the caching allocator
had reserved. Where the two contradict each other, or there are no segments, it knows neither.

What is written is one step as its plan serves it: one segment, the arena, with every planned block at its offset; any
other block has a segment of its own. Wrapped blocks exist when the trace begins. It uses only what the viewer's
reader understands, and opens at pytorch.org/memory_viz.

Source: ``torch/cuda/memory.py``, ``torch/cuda/_memory_viz.py`` and ``torch/utils/viz/MemoryViz.js`` of PyTorch 2;
"Understanding CUDA Memory Usage" in its documentation. Reading: `safe_pickle`, not Python's pickle.
"""

from __future__ import annotations

import os
import pickle
import re
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np

from ...common.errors import FormatError
from ...common.files import atomic_write
from ..events import IntArray
from ..profile import UNKNOWN_NS, UNKNOWN_SITE, Profile
from ..program_summary import Program
from .event_log import EventLog
from .registry import Format, register
from .safe_pickle import UnsafePickleError, loads

Frame = dict[str, Any]

LIBRARY = "PyTorch on CUDA"
"""What a profile calls the program's library."""

ARENA_ADDRESS = 1 << 40
_GRANULARITY = 512
_RESERVES = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
_PROTOCOL = 4  # the newest that the viewer reads
_SITE = re.compile(r"(.*):([0-9]{1,9})(?: (.*))?", re.DOTALL)
_LONGEST_NAME = 256  # a pickle of n bytes can mention a name of n bytes n times over
_BACKWARD = re.compile(r"torch::autograd::generated::(\w{1,99})::apply\(")


def read(path: str | os.PathLike[str], device: int | None = None) -> Profile:
    """Read the trace of one device as the profile of one step; see `event_log` for blocks that cross its two ends.

    Parameters
    ----------
    path
        The file.
    device
        Which device; None: the only one with a trace.

    Raises
    ------
    FormatError
        Naming the file and the entry: not a pickle, or one of more than lists, dictionaries, text and numbers; a field
        that is missing or malformed; no trace, or traces of several devices and none chosen.
    OSError
        The file cannot be opened.
    """
    segments, traces = _parts(path)
    device = _choose(path, traces, device)
    log = EventLog(path, f"device_traces[{device}][{{}}]")
    alive: list[int] = []  # its changes
    refused: list[tuple[int, int]] = []  # requests: how many changes of `alive` came before, and bytes
    reserved: list[int] = []
    allocations: list[int] = []  # how many changes of `alive` there were after each
    sites: dict[int, str | None] = {}  # by the identity of the frames, which many entries share
    for log.at, entry in enumerate(traces[device]):
        action = entry.get("action") if isinstance(entry, dict) else None
        if not isinstance(action, str):
            raise log.refusal("no action; expected an entry of a trace")
        if action in _RESERVES:
            reserved.append(_RESERVES[action] * log.integer(entry, "size"))
        if action == "oom":
            refused.append((len(alive), log.integer(entry, "size")))
        if action not in ("alloc", "free_completed", "free"):
            continue
        address, size = log.integer(entry, "addr"), log.integer(entry, "size")
        if not size:
            continue
        time = entry.get("time_us")
        ns = time * 1000 if type(time) is int and 0 <= time < 2**63 // 1000 else UNKNOWN_NS
        alive.append(size if action == "alloc" else -size)
        if action != "alloc":
            log.free(address, ns, size)
            continue
        allocations.append(len(alive))
        frames = entry.get("frames")
        if id(frames) not in sites:
            sites[id(frames)] = _site(frames)
        log.allocate(address, size, log.integer(entry, "stream", 0), ns, sites[id(frames)])
    profile = log.profile()
    program = Program(LIBRARY, requests=len(profile), bytes=int(profile.size.sum()), failed=len(refused))
    at_the_end = _at_the_end(segments, device)
    if at_the_end is None:
        return replace(profile, program=program)
    in_segments, in_blocks = _ending_at(reserved, at_the_end[0]), _ending_at(alive, at_the_end[1])
    if in_segments is None or in_blocks is None or not in_segments.any():
        return replace(profile, program=program)
    wanted, asked = max(((int(in_blocks[at]) + size, size) for at, size in refused), default=(0, 0))
    program = replace(
        program,
        live_peak=int(in_blocks.max()),
        reserved=int(in_segments.max()),
        before=int(in_blocks[0]),
        wanted=wanted,
        refused=asked,
    )
    return replace(profile, alive=in_blocks[allocations], program=program)


def write(path: str | os.PathLike[str], profile: Profile, offsets: IntArray) -> None:
    """Write one step of a plan, atomically.

    Parameters
    ----------
    path
        The file; replaced if it exists.
    profile
        The step.
    offsets
        Where each block of the profile lies in the arena, int64 (n,); -1 for what is not planned.

    Raises
    ------
    OSError
        The file cannot be written. The old one, if any, is untouched.
    """
    with atomic_write(path) as file:
        pickle.dump(_snapshot(profile, np.asarray(offsets)), file, protocol=_PROTOCOL)


def _parts(path: str | os.PathLike[str]) -> tuple[Any, list[list[Any]]]:
    """Return the segments of a snapshot, whatever they are, and the traces of its devices."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        snapshot = loads(data)
    except UnsafePickleError as error:
        raise FormatError(path, str(error)) from None
    traces = snapshot.get("device_traces") if isinstance(snapshot, dict) else None
    if not isinstance(traces, list) or not all(isinstance(trace, list) for trace in traces):
        raise FormatError(path, "not a memory snapshot of PyTorch; expected a dictionary with device_traces")
    return snapshot.get("segments"), traces


def _choose(path: str | os.PathLike[str], traces: list[list[Any]], device: int | None) -> int:
    found = [k for k, trace in enumerate(traces) if trace]
    if device is None and len(found) == 1:
        return found[0]
    if device in found:
        return device
    listed = ", ".join(map(str, found[:8]))
    if not found:
        hint = "call torch.cuda.memory._record_memory_history() before what is to be seen"
        raise FormatError(path, f"the snapshot has no trace; expected one: {hint}")
    if device is None:
        raise FormatError(path, f"traces of the devices {listed}; expected one, or a choice")
    raise FormatError(path, f"no trace of device {device}; expected one of {listed}")


def _ending_at(changes: list[int], last: int) -> IntArray | None:
    """Return the bytes before each change and after the last one; None if they were negative, or beyond 64 bits."""
    found = list(accumulate(changes, initial=last - sum(changes)))
    return np.array(found, dtype=np.int64) if 0 <= min(found) <= max(found) < 2**63 else None


def _at_the_end(segments: Any, device: int) -> tuple[int, int] | None:
    """Return bytes of a device's segments, and of the blocks alive in them; None if they are not as PyTorch lists them.

    A block that waits for another stream is alive. Its bytes are those that were requested.
    """
    reserved = alive = 0
    try:
        for segment in segments:
            if segment.get("device", 0) == device:
                reserved += int(segment["total_size"])
                alive += sum(
                    int(block.get("requested_size", block["size"]))
                    for block in segment["blocks"]
                    if block["state"].startswith("active")
                )
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return None
    return reserved, alive


def _site(frames: Any) -> str | None:
    """Return the call site that the frames, innermost first, stand for; None if they name no file.

    A step of the backward pass is known by its name in C++ alone, as no Python frame called it on its thread.
    """
    innermost = None
    backward = ""
    for frame in frames if isinstance(frames, (list, tuple)) else ():
        known = frame if isinstance(frame, dict) else {}
        filename, line, name = (known.get(key) for key in ("filename", "line", "name"))
        if not isinstance(filename, str) or type(line) is not int or not isinstance(name, str):
            continue
        if abs(line) > 10**9:  # a number of thousands of digits has no text
            continue
        innermost = innermost or (filename, line, name)
        if filename.endswith(".py") and "/torch/" not in filename:
            return f"{_text(filename, line, name)} > {backward}" if backward else _text(filename, line, name)
        if not backward and (step := _BACKWARD.match(name)):
            backward = step[1]
    return backward or (innermost and _text(*innermost))


def _text(filename: str, line: int, name: str) -> str:
    filename, name = filename[-_LONGEST_NAME:], name[:_LONGEST_NAME]
    text = filename if (line, name) == (0, "") else f"{filename}:{line} {name}".rstrip()
    # Lone surrogates, which a pickle may hold, cannot be written to any file.
    return text.encode("utf-8", "replace").decode("utf-8")


# ------------------------------------------------------------------------------------------------------------- writing


def _snapshot(profile: Profile, offsets: IntArray) -> dict[str, Any]:
    planned = offsets >= 0
    arena = int((offsets + profile.size)[planned].max(initial=0))
    address = np.where(planned, ARENA_ADDRESS + offsets, 0)
    # Above the arena, one after the other.
    rounded = (np.maximum(profile.size, 1) + _GRANULARITY - 1) // _GRANULARITY * _GRANULARITY
    arena = -(-arena // _GRANULARITY) * _GRANULARITY
    address[~planned] = ARENA_ADDRESS + arena + np.cumsum(rounded[~planned]) - rounded[~planned]
    frames = [_frames(site) for site in profile.sites]

    def event(action: str, block: int, size: int, ns: int) -> dict[str, Any]:
        site = int(profile.site[block])
        return {
            "action": action,
            "addr": int(address[block]),
            "size": size,
            "stream": int(profile.stream[block]),
            "time_us": max(ns, 0) // 1000,
            "frames": [] if site == UNKNOWN_SITE else frames[site],
        }

    trace: list[dict[str, Any]] = []
    for block, allocates in _in_order(profile):
        size, ns = int(profile.size[block]), int((profile.alloc_ns if allocates else profile.free_ns)[block])
        entries = [("alloc", size)] if allocates else [("free_requested", size), ("free_completed", size)]
        if not planned[block]:  # around them, its own segment comes and goes
            around = [("segment_alloc" if allocates else "segment_free", int(rounded[block]))]
            entries = around + entries if allocates else entries + around
        trace += [event(action, block, count, ns) for action, count in entries]

    left = np.flatnonzero(profile.escaped | profile.wrapped)
    stream = int(profile.stream[planned].max(initial=0))  # plans are made for one
    segments = [_segment(stream, ARENA_ADDRESS, arena)] if arena else []
    segments += [
        _segment(int(profile.stream[k]), int(address[k]), int(rounded[k])) for k in left if not planned[k]
    ]
    by_address = {segment["address"]: segment for segment in segments}
    for k in sorted(left.tolist(), key=lambda k: int(address[k])):
        own = by_address[ARENA_ADDRESS if planned[k] else int(address[k])]
        site = int(profile.site[k])
        _fill(own, int(address[k]), int(profile.size[k]), [] if site == UNKNOWN_SITE else frames[site])
    for segment in segments:
        _fill(segment, segment["address"] + segment["total_size"], 0, [])
    return {"segments": segments, "device_traces": [trace]}


def _in_order(profile: Profile) -> list[tuple[int, bool]]:
    """Allocations and frees of the step in time order, frees first: block, whether it is allocated."""
    kept = np.flatnonzero(~profile.escaped)
    tick = np.concatenate([profile.end[kept] % max(profile.period, 1), profile.start])
    block = np.concatenate([kept, np.arange(len(profile))])
    allocates = np.arange(len(tick)) >= len(kept)
    order = np.lexsort((block, allocates, tick))
    return list(zip(block[order].tolist(), allocates[order].tolist(), strict=True))


def _segment(stream: int, address: int, size: int) -> dict[str, Any]:
    return {
        "device": 0,
        "address": address,
        "total_size": size,
        "allocated_size": 0,
        "active_size": 0,
        "requested_size": 0,
        "stream": stream,
        "segment_type": "large",
        "frames": [],
        "blocks": [],
    }


def _fill(segment: dict[str, Any], address: int, size: int, frames: list[Frame]) -> None:
    """Add a live block to a segment, and what is free below it; the blocks of a segment leave no gap."""
    blocks: list[dict[str, Any]] = segment["blocks"]
    below = blocks[-1]["address"] + blocks[-1]["size"] if blocks else segment["address"]

    def block(at: int, count: int, state: str) -> dict[str, Any]:
        return {"address": at, "size": count, "requested_size": count, "state": state, "frames": frames}

    if address > below:
        blocks.append({**block(below, address - below, "inactive"), "frames": []})
    if size:
        blocks.append(block(address, size, "active_allocated"))
        for name in ("allocated_size", "active_size", "requested_size"):
            segment[name] += size


def _frames(site: str) -> list[Frame]:
    match = _SITE.fullmatch(site)
    if match is None:
        return [{"filename": site, "line": 0, "name": ""}]
    return [{"filename": match[1], "line": int(match[2]), "name": match[3] or ""}]


register(
    Format(
        "torch",
        "PyTorch's memory snapshot, a pickle; for pytorch.org/memory_viz",
        suffixes=(".pickle", ".pkl"),
        recognizes=lambda head: head.startswith(b"\x80"),  # PROTO: every pickle of today begins with it
        read=read,
        write=write,
        shows_plan=True,
    )
)
