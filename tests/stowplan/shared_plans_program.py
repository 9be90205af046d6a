"""Trains and evaluates a network in Chainer with a pool and a store of plans; prints what came of it, as JSON.

``shared_plans_program.py DIR``; without DIR, without a pool.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from typing import Any

import numpy as np

import stowplan.chainer  # noqa: F401  (it makes Chainer run on today's NumPy)
from stowplan import NumpyPool

import chainer  # isort: skip
import chainer.functions as F  # noqa: N812  # isort: skip
import chainer.links as L  # noqa: N812  # isort: skip

EPOCHS, STEPS = 3, 6


def main(plans: str | None) -> None:
    """Train for some epochs, each followed by an evaluation with a short last batch."""
    np.random.seed(0)  # noqa: NPY002 (Chainer draws its parameters from it)
    rng = np.random.default_rng(0)
    x, labels = rng.random((64, 50), dtype=np.float32), rng.integers(0, 10, 64).astype(np.int32)
    network = chainer.Sequential(L.Linear(50, 100), F.relu, L.Linear(100, 80), F.relu, L.Linear(80, 10))
    optimizer = chainer.optimizers.Adam().setup(network)
    pool = None if plans is None else NumpyPool(plans=plans)
    served: dict[str, list[list[int]]] = {"train": [], "eval": []}

    def train() -> None:
        network.cleargrads()
        loss = F.softmax_cross_entropy(network(x), labels)
        loss.backward()
        optimizer.update()

    def evaluate(n: int) -> None:
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            F.softmax_cross_entropy(network(x[:n]), labels[:n])

    def run(key: str, step: Any, *arguments: int) -> None:
        if pool is None:
            step(*arguments)
            return
        before = pool.stats
        with pool.step(key):
            step(*arguments)
        pool.wait()
        after = pool.stats
        served[key].append([after.replayed - before.replayed, after.requests - before.requests])

    with pool or contextlib.nullcontext():
        for _ in range(EPOCHS):
            for _ in range(STEPS):
                run("train", train)
            for n in (64, 64, 16):
                run("eval", evaluate, n)
    parameters = b"".join(p.array.tobytes() for _, p in sorted(network.namedparams()))
    stats = None if pool is None else pool.stats
    result = {
        "parameters": hashlib.sha256(parameters).hexdigest(),
        "served": served,
        "plans": 0 if stats is None else stats.plans,
        "packed": 0 if stats is None else stats.packed,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:] or [None])
