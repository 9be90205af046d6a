"""Digits with Chainer: a trainer, its updater and its extensions."""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import training
from chainer.training import extensions


class Net(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(1, 8, 3, pad=1)
            self.l1 = L.Linear(8 * 7 * 7, 64)
            self.l2 = L.Linear(64, 10)

    def forward(self, x):
        h = F.max_pooling_2d(F.relu(self.conv(x)), 2)
        return self.l2(F.relu(self.l1(h)))


def data(count):
    rng = np.random.RandomState(count)
    labels = rng.randint(0, 10, count).astype(np.int32)
    images = rng.rand(count, 1, 14, 14).astype(np.float32)
    images[np.arange(count), 0, labels] += 1
    return chainer.datasets.TupleDataset(images, labels)


def main():
    np.random.seed(0)
    model = L.Classifier(Net())
    optimizer = chainer.optimizers.Adam().setup(model)
    train = chainer.iterators.SerialIterator(data(640), 32)
    test = chainer.iterators.SerialIterator(data(128), 64, repeat=False, shuffle=False)
    updater = training.updaters.StandardUpdater(train, optimizer)
    trainer = training.Trainer(updater, (3, "epoch"))
    evaluator = extensions.Evaluator(test, model)
    log = extensions.LogReport(filename=None)
    trainer.extend(evaluator)
    trainer.extend(log)
    trainer.run()
    print(len(log.log))


main()
