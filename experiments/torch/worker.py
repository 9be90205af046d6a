"""A process that runs turns of a network's steps, as `measure` asks it to.

Each line of its input is a number of steps, and is answered with a line of JSON: what the turn used, with a pool's
counts. A last line says what the network has come to.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from ..measures.apart import take_answers
from .networks import NETWORKS
from .session import Session

if TYPE_CHECKING:
    from stowplan import TorchPool


def main(network: str, phase: str, threads: int, quick: bool, pool: bool) -> None:
    """Run turns of a network's steps, as standard input says, with a pool or without."""
    answers = take_answers()
    torch.set_num_threads(threads)
    made = _pool() if pool else None
    with nullcontext() if made is None else made:
        session = Session(NETWORKS[network], phase, quick)
        for line in sys.stdin:
            found: dict[str, Any] = asdict(session.run(int(line), made, pool))
            if made is not None:
                made.wait()
                stats = made.stats
                counts = {"requests": stats.requests, "fragmentation": stats.fragmentation}
                found["pool"] = asdict(stats) | counts
            print(json.dumps(found), file=answers, flush=True)
        print(json.dumps({"digest": session.digest()}), file=answers, flush=True)


def _pool() -> TorchPool:
    from stowplan import TorchPool  # not in a process that has none

    return TorchPool()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
