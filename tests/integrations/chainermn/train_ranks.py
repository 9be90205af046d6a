"""Trains an MLP on data of MNIST's shape, data-parallel: every rank prints, for each way, what came out as JSON.

::

    train_ranks.py WAY...    plain        without a pool
                             pool         with one
                             scheduled    with a pool and stowplan's schedule
                             differs      with a pool, where rank 1 has smaller batches
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import numpy as np

import stowplan.chainer  # first: it mends Chainer
from stowplan import NumpyPool

import chainer
import chainer.functions as F
import chainer.links as L
import chainermn

WARMUP = 2
"""Steps: ChainerMN's first update sends rank 0's parameters, the second one makes Adam's state."""

STEPS = 14
BATCH = 25


class MLP(chainer.Chain):
    """784 numbers, two layers of 100, 10 classes."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(784, 100)
            self.l2 = L.Linear(100, 100)
            self.l3 = L.Linear(100, 10)

    def forward(self, x: Any) -> Any:
        return self.l3(F.relu(self.l2(F.relu(self.l1(x)))))


def train(way: str, comm: Any) -> dict[str, Any]:
    """Return the parameters' digest, and what the pool has to say."""
    np.random.seed(comm.rank)  # ranks begin with parameters of their own
    model = L.Classifier(MLP())
    optimizer = chainermn.create_multi_node_optimizer(chainer.optimizers.Adam(), comm)
    optimizer.setup(model)
    data = None
    if comm.rank == 0:
        random = np.random.RandomState(0)
        images = random.rand(2 * BATCH * STEPS, 784).astype(np.float32)
        data = chainer.datasets.TupleDataset(images, random.randint(0, 10, len(images)).astype(np.int32))
    data = chainermn.scatter_dataset(data, comm, shuffle=True, seed=0)
    batch = BATCH - 5 * comm.rank if way == "differs" else BATCH
    iterator = chainer.iterators.SerialIterator(data, batch, shuffle=False)

    pool = None if way == "plain" else NumpyPool(warmup=WARMUP)
    updater: Any
    if way == "plain":
        updater = chainer.training.StandardUpdater(iterator, optimizer)
    else:
        updater = stowplan.chainer.Updater(iterator, optimizer, pool=pool, schedule=way == "scheduled")
    shares = []
    averaged: list[bool] = []
    for step in range(STEPS):
        if step == STEPS - 1 and pool is not None:
            note_places(comm, pool, averaged)
        before = None if pool is None else pool.stats
        updater.update()
        if pool is not None and before is not None:
            pool.wait()
            after = pool.stats
            replayed = after.replayed - before.replayed
            served = replayed + after.guests - before.guests + after.upstream - before.upstream
            shares.append(replayed / served if served else 0.0)
    digest = hashlib.sha256()
    for _, param in sorted(model.namedparams()):
        digest.update(param.array.tobytes())
    out: dict[str, Any] = {"way": way, "rank": comm.rank, "parameters": digest.hexdigest()}
    if pool is not None:
        out |= {"shares": shares, "plans": pool.stats.plans}
        out["averaged"] = averaged
    if way == "scheduled":
        out["keeps_gradients"] = updater.scheduler.stats.keeps_gradients
    return out


def note_places(comm: Any, pool: NumpyPool, planned: list[bool]) -> None:
    """Have an all-reduce of 1033 bytes and more note whether a live block of its buffer's size is planned.

    Others of that size, the parameter and its state, lie upstream.
    """
    average = type(comm)._multi_node_mean.__get__(comm)

    def noting(sent: Any, received: Any) -> None:
        if received.nbytes >= 1033:
            blocks = pool.report(as_dict=True)["largest"]
            planned.append(any(b["size"] == received.nbytes and b["place"] == "planned" for b in blocks))
        average(sent, received)

    comm._multi_node_mean = noting


def main() -> None:
    """Train in all ways that are asked for, one after the other."""
    comm = chainermn.create_communicator("naive")
    for way in sys.argv[1:]:
        print(json.dumps(train(way, comm)), flush=True)
        vars(comm).pop("_multi_node_mean", None)


if __name__ == "__main__":
    main()
