"""Chainer's MNIST example on digits made up here: a perceptron of three layers, with a Trainer."""

import sys
import tempfile

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import training
from chainer.training import extensions


class MLP(chainer.Chain):
    def __init__(self, units, classes):
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(None, units)
            self.l2 = L.Linear(None, units)
            self.l3 = L.Linear(None, classes)

    def forward(self, x):
        return self.l3(F.relu(self.l2(F.relu(self.l1(x)))))


def main(epochs):
    np.random.seed(0)
    data = np.random.default_rng(0)
    images = data.random((500, 784), dtype=np.float32)
    digits = chainer.datasets.TupleDataset(images, data.integers(0, 10, len(images), dtype=np.int32))
    model = L.Classifier(MLP(3000, 10))
    optimizer = chainer.optimizers.Adam()
    optimizer.setup(model)
    iterator = chainer.iterators.SerialIterator(digits, 100)
    updater = training.updaters.StandardUpdater(iterator, optimizer)
    trainer = training.Trainer(updater, (epochs, "epoch"), out=tempfile.mkdtemp())
    trainer.extend(extensions.LogReport())
    trainer.extend(extensions.PrintReport(["epoch", "main/loss", "main/accuracy"]))
    trainer.run()
    for parameter in model.params():
        print(parameter.name, repr(float(parameter.array.sum())))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
