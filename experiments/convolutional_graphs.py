"""Graphs of convolutional networks, as those that Checkmate's authors schedule: by their layers' shapes alone.

Seven networks, each as it infers and as it trains (P. Jain et al., *Checkmate: Breaking the Memory Wall with Optimal
Tensor Rematerialization*, MLSys 2020, section 6; Moccasin takes the same). An operator is a layer, writes one value,
and takes as long as its multiplications. In training graphs each layer has an operator that goes back: it reads what
the layer reads and writes, and the gradients of what the layer writes, and writes those of what it reads. Any operator
may run again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from stowplan.scheduling import StepGraph

__all__ = ["NETWORKS", "graph_of"]

PIXELS, CLASSES = 224, 1000
SEGMENT_CLASSES = 21
BYTES = 4


class Layers:
    """The layers of a network so far; each method adds one and returns its number."""

    def __init__(self) -> None:
        self.reads: list[list[int]] = []
        self.shape: list[tuple[int, int]] = []  # channels, pixels of one side
        self.work: list[float] = []
        self.add([], 3, PIXELS, 0)

    def add(self, inputs: Sequence[int], channels: int, pixels: int, per_element: float) -> int:
        """Add a layer with this work for each element that it writes."""
        self.reads.append(list(inputs))
        self.shape.append((channels, pixels))
        self.work.append(1.0 + per_element * channels * pixels**2)
        return len(self.reads) - 1

    def conv(self, x: int, channels: int, window: int = 3, stride: int = 1, grouped: bool = False) -> int:
        """Convolve; grouped: each channel for itself."""
        before, pixels = self.shape[x]
        per_element = window**2 * (1 if grouped else before)
        return self.add([x], channels, -(-pixels // stride), per_element)

    def each(self, x: int, count: int = 1) -> int:
        """Normalize, or activate: this many layers of the same shape."""
        for _ in range(count):
            x = self.add([x], *self.shape[x], 1)
        return x

    def pool(self, x: int, by: int = 2) -> int:
        """Take the maximum of squares."""
        return self.add([x], self.shape[x][0], -(-self.shape[x][1] // by), by**2)

    def grow(self, x: int, by: int = 2) -> int:
        """Repeat each pixel."""
        return self.add([x], self.shape[x][0], self.shape[x][1] * by, 1)

    def join(self, *xs: int) -> int:
        """Add arrays of one shape."""
        return self.add(xs, *self.shape[xs[0]], len(xs))

    def stack(self, *xs: int) -> int:
        """Put channels side by side."""
        return self.add(xs, sum(self.shape[x][0] for x in xs), self.shape[xs[0]][1], 1)

    def dense(self, x: int, channels: int) -> int:
        """Multiply by a matrix."""
        before, pixels = self.shape[x]
        return self.add([x], channels, 1, before * pixels**2)


def _vgg_body(net: Layers, repeats: Sequence[int], after: int = 0) -> list[int]:
    """Add the convolutions of a VGG, with layers after each; return the pooled ones."""
    x, pooled = 0, []
    for channels, count in zip((64, 128, 256, 512, 512), repeats, strict=True):
        for _ in range(count):
            x = net.each(net.conv(x, channels), after)
        x = net.pool(x)
        pooled.append(x)
    return pooled


def _vgg(net: Layers, repeats: Sequence[int]) -> int:
    x = _vgg_body(net, repeats)[-1]
    for channels in (4096, 4096, CLASSES):
        x = net.dense(x, channels)
    return x


def _mobilenet(net: Layers) -> int:
    x = net.each(net.conv(0, 32, stride=2), 2)
    plan = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for channels, stride in plan:
        x = net.each(net.conv(x, net.shape[x][0], stride=stride, grouped=True), 2)
        x = net.each(net.conv(x, channels, window=1), 2)
    return net.dense(net.pool(x, by=7), CLASSES)


def _resnet(net: Layers) -> int:
    x = net.pool(net.each(net.conv(0, 64, window=7, stride=2), 2))
    for channels, count in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for number in range(count):
            stride = 2 if number == 0 and channels > 64 else 1
            y = net.each(net.conv(x, channels, window=1, stride=stride), 2)
            y = net.each(net.conv(y, channels), 2)
            y = net.each(net.conv(y, 4 * channels, window=1))
            beside = net.each(net.conv(x, 4 * channels, window=1, stride=stride)) if number == 0 else x
            x = net.each(net.join(y, beside))
    return net.dense(net.pool(x, by=7), CLASSES)


def _fcn(net: Layers) -> int:
    *_, third, fourth, fifth = _vgg_body(net, (2, 2, 3, 3, 3))
    x = net.conv(net.conv(fifth, 4096, window=7), 4096, window=1)
    x = net.grow(net.conv(x, SEGMENT_CLASSES, window=1))
    x = net.grow(net.join(x, net.conv(fourth, SEGMENT_CLASSES, window=1)))
    x = net.join(x, net.conv(third, SEGMENT_CLASSES, window=1))
    return net.each(net.grow(x, by=8))


def _segnet(net: Layers) -> int:
    x = _vgg_body(net, (2, 2, 3, 3, 3), after=2)[-1]
    for channels, count in ((512, 3), (512, 3), (256, 3), (128, 2), (64, 2)):
        x = net.grow(x)
        for _ in range(count):
            x = net.each(net.conv(x, channels), 2)
    return net.each(net.conv(x, SEGMENT_CLASSES, window=1))


def _unet(net: Layers) -> int:
    x, kept = 0, []
    for channels in (64, 128, 256, 512):
        x = net.conv(net.conv(x, channels), channels)
        kept.append(x)
        x = net.pool(x)
    x = net.conv(net.conv(x, 1024), 1024)
    for beside in reversed(kept):
        channels = net.shape[beside][0]
        x = net.stack(beside, net.conv(net.grow(x), channels, window=2))
        x = net.conv(net.conv(x, channels), channels)
    return net.conv(x, SEGMENT_CLASSES, window=1)


NETWORKS: dict[str, Callable[[Layers], int]] = {
    "FCN-8": _fcn,
    "MobileNet": _mobilenet,
    "ResNet-50": _resnet,
    "SegNet": _segnet,
    "U-Net": _unet,
    "VGG-16": lambda net: _vgg(net, (2, 2, 3, 3, 3)),
    "VGG-19": lambda net: _vgg(net, (2, 2, 4, 4, 4)),
}


def graph_of(network: str, trains: bool) -> StepGraph:
    """Return the graph of a network, for one image.

    Raises
    ------
    KeyError
        There is no network of this name.
    """
    net = Layers()
    last = NETWORKS[network](net)
    reads, work = list(net.reads), list(net.work)
    size = [BYTES * channels * pixels**2 for channels, pixels in net.shape]
    if trains:
        reads.append([last])  # the loss
        work.append(float(prod(net.shape[last])))
        size.append(BYTES)
        readers: list[list[int]] = [[] for _ in size]  # the operators that go back by what reads each layer
        readers[last].append(len(reads) - 1)
        for layer in range(last, 0, -1):
            for x in dict.fromkeys(net.reads[layer]):
                readers[x].append(len(reads))
            reads.append(sorted({*net.reads[layer], layer, *readers[layer]}))
            size.append(sum(size[x] for x in net.reads[layer]))
            work.append(2 * net.work[layer])
    seconds = [1e-9 * one for one in work]
    return StepGraph(reads, [[i] for i in range(len(reads))], size, seconds=seconds)
