"""Chainer's ImageNet example on synthetic images. ``python -m experiments.examples.train_imagenet --pool``."""

from __future__ import annotations

from typing import Any

import click
import numpy as np

import stowplan
import stowplan.chainer  # before chainer, which it mends

import chainer
import chainer.functions as F
import chainer.links as L
from chainer import training
from chainer.training import extensions


class Alex(chainer.Chain):
    """AlexNet without its two columns, as in the example: the loss of images (batch, 3, 227, 227)."""

    insize = 227

    def __init__(self, classes: int) -> None:
        super().__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(None, 96, 11, stride=4)
            self.conv2 = L.Convolution2D(None, 256, 5, pad=2)
            self.conv3 = L.Convolution2D(None, 384, 3, pad=1)
            self.conv4 = L.Convolution2D(None, 384, 3, pad=1)
            self.conv5 = L.Convolution2D(None, 256, 3, pad=1)
            self.fc6 = L.Linear(None, 4096)
            self.fc7 = L.Linear(None, 4096)
            self.fc8 = L.Linear(None, classes)

    def forward(self, x: Any, t: Any) -> chainer.Variable:
        """Return the loss, and report it with the accuracy."""
        h = F.max_pooling_2d(F.local_response_normalization(F.relu(self.conv1(x))), 3, stride=2)
        h = F.max_pooling_2d(F.local_response_normalization(F.relu(self.conv2(h))), 3, stride=2)
        h = F.relu(self.conv4(F.relu(self.conv3(h))))
        h = F.max_pooling_2d(F.relu(self.conv5(h)), 3, stride=2)
        h = F.dropout(F.relu(self.fc7(F.dropout(F.relu(self.fc6(h))))))
        h = self.fc8(h)
        loss = F.softmax_cross_entropy(h, t)
        chainer.report({"loss": loss, "accuracy": F.accuracy(h, t)}, self)
        return loss


class GoogLeNet(chainer.Chain):
    """Chainer's GoogLeNet with its auxiliary classifiers, as in the example; images (batch, 3, 224, 224)."""

    insize = 224

    def __init__(self, classes: int) -> None:
        super().__init__()
        with self.init_scope():
            self.net = L.GoogLeNet(pretrained_model=None)

    def forward(self, x: Any, t: Any) -> chainer.Variable:
        """Return the loss, and report it with the accuracy."""
        y = self.net(x, layers=["loss1_fc2", "loss2_fc2", "loss3_fc"])
        loss = F.softmax_cross_entropy(y["loss3_fc"], t)
        for name in ("loss1_fc2", "loss2_fc2"):
            loss += 0.3 * F.softmax_cross_entropy(y[name], t)
        chainer.report({"loss": loss, "accuracy": F.accuracy(y["loss3_fc"], t)}, self)
        return loss


class NIN(chainer.Chain):
    """Network in network, as in the example, the smallest of the three: the loss of images (batch, 3, 227, 227)."""

    insize = 227

    def __init__(self, classes: int) -> None:
        super().__init__()
        with self.init_scope():
            self.mlpconv1 = L.MLPConvolution2D(None, (96, 96, 96), 11, stride=4)
            self.mlpconv2 = L.MLPConvolution2D(None, (256, 256, 256), 5, pad=2)
            self.mlpconv3 = L.MLPConvolution2D(None, (384, 384, 384), 3, pad=1)
            self.mlpconv4 = L.MLPConvolution2D(None, (1024, 1024, classes), 3, pad=1)

    def forward(self, x: Any, t: Any) -> chainer.Variable:
        """Return the loss, and report it with the accuracy."""
        h = F.max_pooling_2d(F.relu(self.mlpconv1(x)), 3, stride=2)
        h = F.max_pooling_2d(F.relu(self.mlpconv2(h)), 3, stride=2)
        h = F.max_pooling_2d(F.relu(self.mlpconv3(h)), 3, stride=2)
        h = self.mlpconv4(F.dropout(h))
        h = F.reshape(F.average_pooling_2d(h, 6), (x.shape[0], -1))
        loss = F.softmax_cross_entropy(h, t)
        chainer.report({"loss": loss, "accuracy": F.accuracy(h, t)}, self)
        return loss


ARCHITECTURES = {"alex": Alex, "googlenet": GoogLeNet, "nin": NIN}
CLASSES = 1000


class Photographs(chainer.dataset.DatasetMixin):
    """Images of `size` × `size` and a random crop of each, as `PreprocessedDataset` in the example makes them.

    They are drawn when they are asked for, as files would be read.
    """

    def __init__(self, samples: int, crop: int, seed: int, random: bool = True) -> None:
        self._samples, self._crop, self._seed = samples, crop, seed
        self._random = np.random.default_rng(seed) if random else None

    def __len__(self) -> int:
        return self._samples

    def get_example(self, i: int) -> tuple[Any, np.int32]:
        """Return an image (3, crop, crop) float32 and its label."""
        data = np.random.default_rng((self._seed, i))
        image = data.random((3, 256, 256), dtype=np.float32)
        free = 256 - self._crop
        top, left = (free // 2, free // 2) if self._random is None else self._random.integers(0, free, 2)
        image = image[:, top : top + self._crop, left : left + self._crop]
        return image - np.float32(0.5), np.int32(data.integers(CLASSES))


def train(
    pool: stowplan.NumpyPool | stowplan.CupyPool | None,
    *,
    out: str,
    arch: str = "alex",
    device: str = "@numpy",
    batch: int = 32,
    epochs: int = 10,
    samples: tuple[int, int] = (320, 80),
    val_batch: int = 25,
    seed: int = 0,
) -> training.Trainer:
    """Train from scratch and return the trainer; `samples` for training and for evaluation."""
    np.random.seed(seed)  # noqa: NPY002 (Chainer draws its parameters from it)
    model = ARCHITECTURES[arch](CLASSES)
    chainer.get_device(device).use()
    model.to_device(device)
    optimizer = chainer.optimizers.MomentumSGD(lr=0.01, momentum=0.9)
    optimizer.setup(model)

    train_iter = chainer.iterators.SerialIterator(Photographs(samples[0], model.insize, seed), batch)
    val_iter = chainer.iterators.SerialIterator(
        Photographs(samples[1], model.insize, seed + 1, random=False), val_batch, repeat=False, shuffle=False
    )

    if pool is None:
        updater = training.updaters.StandardUpdater(train_iter, optimizer, device=device)
    else:
        updater = stowplan.chainer.Updater(train_iter, optimizer, device=device, pool=pool)
    trainer = training.Trainer(updater, (epochs, "epoch"), out=out)
    trainer.extend(extensions.Evaluator(val_iter, model, device=device))
    if pool is not None:
        trainer.extend(stowplan.chainer.MemoryReport(pool))
    trainer.extend(extensions.LogReport())
    columns = ["main/loss", "validation/main/loss", "main/accuracy", "validation/main/accuracy"]
    trainer.extend(extensions.PrintReport(["epoch", *columns, "pool/replayed", "pool/reserved"]))
    trainer.run()
    return trainer


@click.command(help=__doc__)
@click.option("--pool", is_flag=True, help="Train through a pool.")
@click.option("--arch", default="alex", show_default=True, type=click.Choice(sorted(ARCHITECTURES)))
@click.option(
    "--device", default="@numpy", show_default=True, help="A device of Chainer's: @numpy or @cupy:0."
)
@click.option("--batch", default=32, show_default=True, type=click.IntRange(1))
@click.option("--epochs", default=10, show_default=True, type=click.IntRange(1))
@click.option("--samples", default=(320, 80), show_default=True, type=click.Tuple([int, int]))
@click.option("--out", default="result", show_default=True, type=click.Path())
def main(
    pool: bool, arch: str, device: str, batch: int, epochs: int, samples: tuple[int, int], out: str
) -> None:
    """Run the example."""
    kind = stowplan.CupyPool if device.startswith("@cupy") else stowplan.NumpyPool
    made = kind() if pool else None
    train(made, out=out, arch=arch, device=device, batch=batch, epochs=epochs, samples=samples)


if __name__ == "__main__":
    main()
