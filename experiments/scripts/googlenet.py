"""Train GoogLeNet, batch 2, on images made up here."""

import sys

import chainer
import chainer.functions as F
import numpy as np
from chainer.links.model.vision.googlenet import GoogLeNet


class Classifier(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.predictor = GoogLeNet(pretrained_model=None)

    def forward(self, x, t):
        scores = self.predictor(x, layers=["loss1_fc2", "loss2_fc2", "loss3_fc"])
        auxiliary = [F.softmax_cross_entropy(scores[name], t) for name in ("loss1_fc2", "loss2_fc2")]
        return F.softmax_cross_entropy(scores["loss3_fc"], t) + 0.3 * sum(auxiliary)


def train(model, optimizer, data):
    images = data.standard_normal((2, 3, 224, 224), dtype=np.float32)
    labels = data.integers(0, 1000, 2, dtype=np.int32)
    optimizer.update(model, images, labels)


def main(steps):
    np.random.seed(0)
    data = np.random.default_rng(0)
    model = Classifier()
    optimizer = chainer.optimizers.MomentumSGD(lr=0.001).setup(model)
    for _ in range(steps):
        train(model, optimizer, data)
    print("parameters:", sum(parameter.size for parameter in model.params()))


main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
