"""A process that runs turns of a network's steps: ``python -m experiments.torch.worker NETWORK``; see `turns`."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
import torch

from ..measures.apart import take_answers
from .networks import NETWORKS
from .session import OPTIMIZERS, PHASES, Session
from .turns import serve

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
    answers = take_answers()
    torch.set_num_threads(threads)
    pool = None if way == PLAIN else _pool(way == AUTO)
    with nullcontext() if pool is None else pool:
        session = Session(NETWORKS[network], phase, quick, optimizer)

        def turn(steps: int) -> dict[str, Any]:
            usage = asdict(session.run(steps, pool, way == MARKED))
            if pool is None:
                return usage
            pool.wait()
            stats = pool.stats
            return usage | {
                "pool": asdict(stats) | {"requests": stats.requests, "fragmentation": stats.fragmentation}
            }

        serve(answers, turn, lambda: {"digest": session.digest()})


def _pool(auto_step: bool) -> TorchPool:
    from stowplan import TorchPool  # not in a process that has none

    return TorchPool(auto_step=auto_step)


if __name__ == "__main__":
    main()
