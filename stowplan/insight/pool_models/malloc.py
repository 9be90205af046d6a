"""The C library's malloc, measured: a step's requests, replayed in a process of their own.

No model: what a host program has below its arrays depends on the library, its version and its settings, all of which
the process has as the program does. Nothing is written to the blocks, so what is measured is what malloc has mapped
(``mallinfo2``: arenas and blocks mapped by themselves), of which a program touches most.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from .replay import MOST_STEPS, STEADY_AFTER, PoolUse, Requests

_CHILD = Path(__file__).with_name("malloc_child.py")
_MOST_EVENTS = 2_000_000
"""Events of all steps together; a few seconds."""


def replay_malloc(requests: Requests) -> PoolUse | None:
    """Drive malloc with the requests of a step, as `replay` drives a model; None where malloc cannot be asked.

    Parameters
    ----------
    requests
        One step. Its blocks are mapped, all those alive at once.

    Notes
    -----
    glibc from 2.33 on can be asked.
    """
    events = len(requests.block)
    most = max(min(MOST_STEPS, _MOST_EVENTS // max(events, 1)), STEADY_AFTER)
    head = np.array([most, STEADY_AFTER, events, len(requests.size)], dtype=np.int64)
    sent = [head, requests.block.astype(np.int64), requests.allocate.astype(np.int64), requests.size]
    command = [sys.executable, "-I", "-S", str(_CHILD)]
    done = subprocess.run(
        command, input=b"".join(map(np.ndarray.tobytes, sent)), capture_output=True, check=False
    )
    if done.returncode or len(done.stdout) != 8 * (3 + events):
        return None
    (steps, steady, live), mapped = np.split(np.frombuffer(done.stdout, dtype=np.int64), [3])
    most_mapped = int(mapped.max(initial=0))
    return PoolUse(int(steps), bool(steady), most_mapped, int(live), mapped, np.empty(0, dtype=np.int64))
