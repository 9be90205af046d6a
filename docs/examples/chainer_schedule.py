"""A Chainer loop in less memory: lean, and within a budget; the parameters are the same, bit by bit."""

import numpy as np

import stowplan.chainer  # before chainer, which it patches for today's NumPy and Python

import chainer
import chainer.functions as F
import chainer.links as L

data = np.random.default_rng(0)
xs = data.standard_normal((14, 1024, 256), dtype=np.float32)
ts = data.integers(0, 256, (14, 1024), dtype=np.int32)


def train(budget=None):
    """Train ten layers; return the parameters, the scheduler's statistics and the arena's bytes."""
    np.random.seed(0)  # noqa: NPY002 (Chainer draws from it)
    model = chainer.Sequential(L.Linear(256, 256), F.relu).repeat(10)
    optimizer = chainer.optimizers.MomentumSGD().setup(model)
    pool = stowplan.NumpyPool()
    scheduler = stowplan.chainer.Scheduler(optimizer, pool, budget)
    for x, t in zip(xs, ts, strict=True):
        with scheduler.step():
            optimizer.update(lambda x, t: F.softmax_cross_entropy(model(x), t), x, t)
        scheduler.wait()  # for the schedule; a program that runs for hours need not
        pool.wait()  # for the plan
    print(f"{pool.stats.replayed:,} allocations replayed")
    return [param.array for param in model.params()], scheduler.stats, pool.plan().arena_bytes


lean, stats, arena = train()
less, stats, smaller = train(budget=stats.retained_bytes + arena * 6 // 10)
print(f"an arena of {smaller:,} bytes instead of {arena:,}; {stats.recomputed} operators ran again")
print("the same, bit by bit:", all(map(np.array_equal, lean, less)))
