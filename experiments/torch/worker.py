"""A process that runs turns of steps: ``python -m experiments.torch.worker NETWORK``.

It reads numbers of steps from standard input, a line each, and answers each with the turn's usage as a line of JSON. At
the end of its input it answers with the digest of what it has come to and, if it has a pool, the pool's counts.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
import torch

from .networks import NETWORKS
from .session import OPTIMIZERS, PHASES, Session

if TYPE_CHECKING:
    from stowplan import TorchPool

PLAIN, MARKED, AUTO = "plain", "marked", "auto"


@click.command()
@click.argument("network", type=click.Choice(list(NETWORKS)))
@click.option("--phase", type=click.Choice(PHASES), default=PHASES[0], show_default=True)
@click.option("--optimizer", type=click.Choice(list(OPTIMIZERS)), default="adam", show_default=True)
@click.option("--pool", "way", type=click.Choice([PLAIN, MARKED, AUTO]), default=PLAIN, show_default=True)
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="Of an operator.")
@click.option("--quick", is_flag=True, help="A small network.")
def main(network: str, phase: str, optimizer: str, way: str, threads: int, quick: bool) -> None:
    """Run turns of a network's steps, as standard input says."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # so that nothing else that is printed reaches the answers
    torch.set_num_threads(threads)
    pool = None if way == PLAIN else _pool(way == AUTO)
    with nullcontext() if pool is None else pool:
        session = Session(NETWORKS[network], phase, quick, optimizer)
        for line in sys.stdin:
            usage = session.run(int(line), pool, way == MARKED)
            if pool is not None:
                pool.wait()
            print(json.dumps(asdict(usage)), file=answers, flush=True)
    end = {"digest": session.digest(), "stats": None if pool is None else asdict(pool.stats)}
    print(json.dumps(end), file=answers, flush=True)


def _pool(auto_step: bool) -> TorchPool:
    from stowplan import TorchPool  # not in a process that has none

    return TorchPool(auto_step=auto_step)


if __name__ == "__main__":
    main()
