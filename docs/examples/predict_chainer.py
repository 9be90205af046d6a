"""Will a batch fit? A training step of Chainer, predicted at any batch and image size from small ones."""

import numpy as np

import stowplan.chainer  # before chainer, which it patches for today's NumPy and Python

import chainer
import chainer.functions as F
import chainer.links as L

model = chainer.Sequential(
    L.Convolution2D(3, 16, 3, pad=1), F.relu, lambda h: F.mean(h, axis=(2, 3)), L.Linear(16, 10)
)
optimizer = chainer.optimizers.MomentumSGD().setup(model)


def step(x, t):
    """Train on one batch."""
    loss = F.softmax_cross_entropy(model(x), t)
    model.cleargrads()
    loss.backward()
    optimizer.update()


images, labels = np.ones((40, 3, 40, 40), np.float32), np.zeros(40, np.int32)
prediction = stowplan.predict(step, images, labels, learning_seconds=20)
large = {"x": (32, 3, 128, 128), "t": 32}
print(prediction.peak(**large))
print(f"the largest batch within 16 GiB: {prediction.largest('x', memory='16 GiB', **large)}")
