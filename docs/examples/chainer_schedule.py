"""A Chainer loop in less memory: as it is, lean, and under a budget; the parameters are the same, bit by bit."""

import numpy as np

import stowplan.chainer  # before chainer, which it mends for today's NumPy and Python

import chainer
import chainer.functions as F
import chainer.links as L


data = np.random.default_rng(0)
batches = [
    (data.standard_normal((1024, 256), dtype=np.float32), data.integers(0, 256, 1024, dtype=np.int32))
    for _ in range(14)
]


def train(budget=None):
    """Train a network of ten layers; return its parameters, the scheduler's statistics and the pool."""
    np.random.seed(0)  # noqa: NPY002 (Chainer draws from it)
    model = chainer.Sequential(L.Linear(256, 256), F.relu).repeat(10)
    optimizer = chainer.optimizers.MomentumSGD().setup(model)
    pool = stowplan.NumpyPool()
    scheduler = stowplan.chainer.Scheduler(optimizer, pool, budget)
    for x, t in batches:
        with scheduler.step():
            loss = F.softmax_cross_entropy(model(x), t)
            model.cleargrads()
            loss.backward()
            optimizer.update()
            del loss  # and with it the graph, within the step
        scheduler.wait()  # for the schedule; a program that runs for hours need not
        pool.wait()  # for the plan
    return [param.array for param in model.params()], scheduler.stats, pool


lean, stats, pool = train()
arena = pool.plan().arena_bytes
print(f"lean: an arena of {arena:,} bytes, beside {stats.retained_bytes:,} of parameters and momentum")

budget = stats.retained_bytes + arena * 6 // 10
less, stats, pool = train(budget)
print(f"under a budget of {budget:,} for all: {pool.plan().arena_bytes:,}, beside the same parameters")
print(
    f"{stats.scheduled} scheduled steps, {stats.recomputed} operators ran again; {pool.stats.replayed:,} replayed"
)
print("the same, bit by bit:", all(map(np.array_equal, lean, less)))
