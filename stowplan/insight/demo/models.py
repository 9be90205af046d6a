"""The networks that the demo trains, each with the loss of its paper.

GoogLeNet and ResNet-50 are Chainer's own (`chainer.links.model.vision`), without pretrained weights. Chainer has
AlexNet in an example only, so it is written here from its paper: A. Krizhevsky, I. Sutskever, G. Hinton, *ImageNet
Classification with Deep Convolutional Neural Networks*, NIPS 2012, sections 3.3 to 3.5 and 4.2, on one device.

This module imports Chainer: call `stowplan.compat.enable_chainer` before importing it.
"""

from __future__ import annotations

from typing import Any

import chainer
import chainer.functions as F  # noqa: N812 (Chainer's own habit)
import chainer.links as L  # noqa: N812

CLASSES = 1000


class _Network(chainer.Chain):  # type: ignore[misc]
    """A network whose loss is that of its scores, on images of 224 × 224."""

    insize = 224

    def forward(self, x: Any, t: Any) -> Any:
        """Return the loss for images (batch, 3, insize, insize) float32 and labels (batch,) int32."""
        return F.softmax_cross_entropy(self.predict(x), t)


class AlexNet(_Network):
    """Five convolutions and three fully connected layers, on images of 227 × 227."""

    insize = 227

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(3, 96, 11, stride=4)
            self.conv2 = L.Convolution2D(96, 256, 5, pad=2, groups=2)
            self.conv3 = L.Convolution2D(256, 384, 3, pad=1)
            self.conv4 = L.Convolution2D(384, 384, 3, pad=1, groups=2)
            self.conv5 = L.Convolution2D(384, 256, 3, pad=1, groups=2)
            self.fc6 = L.Linear(256 * 6 * 6, 4096)
            self.fc7 = L.Linear(4096, 4096)
            self.fc8 = L.Linear(4096, CLASSES)

    def predict(self, x: Any) -> Any:
        """Return the scores of the classes, (batch, 1000)."""
        h = F.max_pooling_2d(F.local_response_normalization(F.relu(self.conv1(x))), 3, stride=2)
        h = F.max_pooling_2d(F.local_response_normalization(F.relu(self.conv2(h))), 3, stride=2)
        h = F.relu(self.conv3(h))
        h = F.relu(self.conv4(h))
        h = F.max_pooling_2d(F.relu(self.conv5(h)), 3, stride=2)
        h = F.dropout(F.relu(self.fc6(h)))
        h = F.dropout(F.relu(self.fc7(h)))
        return self.fc8(h)


class GoogLeNet(_Network):
    """Chainer's GoogLeNet with its two auxiliary classifiers, which count 0.3 (the network's paper, section 5)."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.net = L.GoogLeNet(pretrained_model=None)

    def forward(self, x: Any, t: Any) -> Any:
        """Return the loss for images (batch, 3, 224, 224) float32 and labels (batch,) int32."""
        y = self.net(x, layers=["loss1_fc2", "loss2_fc2", "loss3_fc"])
        auxiliary = F.softmax_cross_entropy(y["loss1_fc2"], t) + F.softmax_cross_entropy(y["loss2_fc2"], t)
        return F.softmax_cross_entropy(y["loss3_fc"], t) + 0.3 * auxiliary

    def predict(self, x: Any) -> Any:
        """Return the scores of the classes, (batch, 1000); the auxiliary classifiers are not asked."""
        return self.net(x, layers=["loss3_fc"])["loss3_fc"]


class ResNet50(_Network):
    """Chainer's ResNet-50."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.net = L.ResNet50Layers(pretrained_model=None)

    def predict(self, x: Any) -> Any:
        """Return the scores of the classes, (batch, 1000)."""
        return self.net(x, layers=["fc6"])["fc6"]


NETWORKS: dict[str, Any] = {"googlenet": GoogLeNet, "alexnet": AlexNet, "resnet50": ResNet50}
