"""A Chainer trainer on a pool: two lines differ from a script without one."""

import numpy as np

import stowplan.chainer  # before chainer, which it patches for today's NumPy and Python

import chainer
import chainer.functions as F
import chainer.links as L
from chainer import training
from chainer.training import extensions

data = np.random.default_rng(0)
images = data.random((600, 784), dtype=np.float32)
labels = data.integers(0, 10, 600, dtype=np.int32)
train_set = chainer.datasets.TupleDataset(images[:500], labels[:500])
test_set = chainer.datasets.TupleDataset(images[500:], labels[500:])

model = L.Classifier(chainer.Sequential(L.Linear(None, 100), F.relu, L.Linear(100, 10)))
optimizer = chainer.optimizers.Adam().setup(model)
train_iter = chainer.iterators.SerialIterator(train_set, 50)
test_iter = chainer.iterators.SerialIterator(test_set, 40, repeat=False, shuffle=False)

pool = stowplan.NumpyPool()  # stowplan.CupyPool() where the model is on a GPU
updater = stowplan.chainer.Updater(train_iter, optimizer, pool=pool)  # was: training.updaters.StandardUpdater
trainer = training.Trainer(updater, (5, "epoch"))
trainer.extend(extensions.Evaluator(test_iter, model))
trainer.extend(stowplan.chainer.MemoryReport(pool))  # statistics into the log, evaluation in steps
trainer.extend(extensions.LogReport())
trainer.run()

print(pool.report())
