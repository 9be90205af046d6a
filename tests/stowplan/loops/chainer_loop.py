"""An autoencoder with Chainer, and a loop of one's own."""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np


class Autoencoder(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.encode = L.Linear(256, 64)
            self.code = L.Linear(64, 8)
            self.decode = L.Linear(8, 64)
            self.out = L.Linear(64, 256)

    def forward(self, x):
        h = F.tanh(self.encode(x))
        return self.out(F.tanh(self.decode(self.code(h))))


np.random.seed(1)
data = np.random.rand(1_500, 256).astype(np.float32)
model = Autoencoder()
optimizer = chainer.optimizers.Adam()
optimizer.setup(model)
iterator = chainer.iterators.SerialIterator(data, 50, shuffle=True)

losses = []
while iterator.epoch < 4:
    batch = np.stack(iterator.next())
    loss = F.mean_squared_error(model(batch), batch)
    model.cleargrads()
    loss.backward()
    optimizer.update()
    losses.append(float(loss.array))
    if iterator.is_new_epoch:
        with chainer.no_backprop_mode(), chainer.using_config("train", False):
            print(iterator.epoch, f"{float(F.mean_squared_error(model(data), data).array):.4f}")
