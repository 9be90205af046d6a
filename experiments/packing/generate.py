"""Generate packing problems of any size, for the benchmarks that have no recorded data.

Blocks arrive one by one. Sizes are ``512 round(2^U(0, 14))`` bytes, so that they spread over four orders of
magnitude; lifetimes are exponential, so that about ``live`` blocks are alive at a time. The logical clock
numbers the events::

    python experiments/packing/generate.py 1000000 --live 100 --output million.csv
"""

from __future__ import annotations

import click
import numpy as np

from stowplan.packing import Problem


def generate(n: int, live: float, seed: int = 0) -> Problem:
    """Return a problem of ``n`` blocks of which about ``live`` are alive at a time.

    Parameters
    ----------
    n
        Blocks, 0 or more.
    live
        Mean lifetime in arrivals, which is the mean number alive away from the ends.
    seed
        The seed of NumPy's default generator.
    """
    rng = np.random.default_rng(seed)
    size = 512 * np.rint(2.0 ** rng.uniform(0, 14, n)).astype(np.int64)
    arrival = np.arange(n, dtype=np.float64)
    departure = arrival + rng.exponential(live, n)
    clock = np.empty(2 * n, dtype=np.int64)
    clock[np.argsort(np.concatenate([arrival, departure]), kind="stable")] = np.arange(2 * n)
    return Problem(size, clock[:n], clock[n:])


@click.command(help=__doc__.split("\n", maxsplit=1)[0] if __doc__ else None)
@click.argument("n", type=click.IntRange(min=1))
@click.option("--live", default=100.0, show_default=True, help="Blocks alive at a time, about.")
@click.option("--seed", default=0, show_default=True)
@click.option("--output", type=click.Path(dir_okay=False), required=True, help="A minimalloc CSV.")
def main(n: int, live: float, seed: int, output: str) -> None:
    """Write one problem."""
    generate(n, live, seed).to_csv(output)


if __name__ == "__main__":
    main()
