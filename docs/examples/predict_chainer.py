"""Will a batch fit? A training step of Chainer, predicted at any batch and image size from small ones."""

import numpy as np

import stowplan
import stowplan.chainer  # before chainer, which it mends for today's NumPy and Python

import chainer
import chainer.functions as F
import chainer.links as L

model = chainer.Sequential(
    L.Convolution2D(3, 8, 3, pad=1),
    F.relu,
    L.Convolution2D(8, 16, 3, pad=1),
    F.relu,
    lambda h: F.mean(h, axis=(2, 3)),
    L.Linear(16, 10),
)
optimizer = chainer.optimizers.MomentumSGD().setup(model)


def step(x, t):
    """Train on one batch."""
    loss = F.softmax_cross_entropy(model(x), t)
    model.cleargrads()
    loss.backward()
    optimizer.update()


data = np.random.default_rng(0)
images = data.random((40, 3, 40, 40), dtype=np.float32)
labels = data.integers(0, 10, 40, dtype=np.int32)
prediction = stowplan.predict(
    step, images, labels, learning_seconds=60
)  # a step takes longer than most functions

large = {"x": (32, 3, 128, 128), "t": 32}
peak = prediction.peak(**large)
print(peak)
print(f"the largest batch within 16 GiB: {prediction.largest('x', memory='16 GiB', **large)}")

recorder = stowplan.NumpyRecorder()
x, t = np.ones((32, 3, 128, 128), np.float32), np.zeros(32, np.int32)
with recorder:
    step(x, t)
    step(x, t)
measured = recorder.program().live_peak
print(f"measured at that batch: {measured / peak.asked:.4f} of what was predicted")
assert 0.99 <= measured / peak.asked <= 1.01
