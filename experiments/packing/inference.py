"""Memory requests of the inference of AlexNet, GoogLeNet and ResNet-50, from their layers alone.

What Chainer asks for when it runs one image through a network without recording a graph, in the order in which it asks:
every function allocates its result; a convolution also allocates a workspace, only while it runs; what no variable
refers to any more is freed. The image and its label live throughout. Parameters are not in it: they are retained.
Sizes are float32, rounded up to 512 bytes, the granularity of CuPy's pool; the workspace has 8 MiB, Chainer's default.

Of the first two, Sekiyama et al. 2018 (arXiv 1804.10001) report the optima that `PUBLISHED` holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stowplan.packing import Problem

PUBLISHED = {"alexnet": 10_169_344, "googlenet": 12_202_496}

GRANULARITY = 512
WORKSPACE = 8 * 2**20
FLOAT = 4


@dataclass(eq=False)
class Tensor:
    """A result alive: its shape, and its block in the log."""

    shape: tuple[int, ...]
    block: int


Function = Callable[[Tensor], Tensor]


class Net:
    """Chainer's functions, as requests on a logical clock. Each reads its argument and leaves it alive."""

    def __init__(self, side: int) -> None:
        self.rows: list[list[int]] = []  # size, start, end
        self.clock = 0
        self.image = self.allocate(3, side, side)
        self.label = self.allocate(1, item=4)

    def allocate(self, *shape: int, item: int = FLOAT) -> Tensor:
        """Allocate an array."""
        size = item
        for length in shape:
            size *= length
        self.rows.append([-(-size // GRANULARITY) * GRANULARITY, self.clock, -1])
        self.clock += 1
        return Tensor(shape, len(self.rows) - 1)

    def free(self, *tensors: Tensor) -> None:
        """Free arrays, one after the other."""
        for tensor in tensors:
            self.rows[tensor.block][2] = self.clock
            self.clock += 1

    def problem(self) -> Problem:
        """Return the blocks; what is not freed lives to the end."""
        size, start, end = zip(*self.rows, strict=True)
        return Problem(size, start, [self.clock if tick < 0 else tick for tick in end])

    def convolution(self, channels: int, kernel: int, stride: int = 1, pad: int = 0) -> Function:
        """Allocate the result, then a workspace for as long as the convolution runs."""

        def apply(x: Tensor) -> Tensor:
            side = (x.shape[1] + 2 * pad - kernel) // stride + 1
            y = self.allocate(channels, side, side)
            self.free(self.allocate(WORKSPACE, item=1))
            return y

        return apply

    def elementwise(self, x: Tensor) -> Tensor:
        """ReLU, softmax and the like: a result of the same shape."""
        return self.allocate(*x.shape)

    def normalization(self, x: Tensor) -> Tensor:
        """Local response normalization: two intermediate arrays of the same shape, freed with the function."""
        unit_scale, scale, y = (self.allocate(*x.shape) for _ in range(3))
        self.free(unit_scale, scale)
        return y

    def pooling(self, kernel: int, stride: int, pad: int = 0, cover_all: bool = True) -> Function:
        """Max and average pooling; Chainer's max pooling covers all pixels."""

        def apply(x: Tensor) -> Tensor:
            channels, side, _ = x.shape
            reach = side + 2 * pad - kernel + (stride - 1 if cover_all else 0)
            return self.allocate(channels, reach // stride + 1, reach // stride + 1)

        return apply

    def linear(self, width: int) -> Function:
        """Matrix product."""
        return lambda x: self.allocate(width)

    def chain(self, x: Tensor, *functions: Function) -> Tensor:
        """Apply one function after another, freeing what lies between; the argument stays."""
        h = x
        for function in functions:
            y = function(h)
            if h is not x:
                self.free(h)
            h = y
        return h

    def step(self, h: Tensor, *functions: Function) -> Tensor:
        """``h = f(h)``: apply the functions and free the argument, unless it is the image."""
        y = self.chain(h, *functions)
        if h is not self.image:
            self.free(h)
        return y


def alexnet() -> Problem:
    """Krizhevsky et al. 2012 as in Chainer's ImageNet example: one column, 227 pixels, 1000 classes."""
    net = Net(227)
    conv, pool, relu, lrn = net.convolution, net.pooling(3, 2), net.elementwise, net.normalization
    h = net.step(net.image, conv(96, 11, stride=4), relu, lrn, pool)
    h = net.step(h, conv(256, 5, pad=2), relu, lrn, pool)
    h = net.step(h, conv(384, 3, pad=1), relu)
    h = net.step(h, conv(384, 3, pad=1), relu)
    h = net.step(h, conv(256, 3, pad=1), relu, pool)
    # Dropout does nothing at inference.
    for width in (4096, 4096, 1000):
        h = net.step(h, net.linear(width), net.elementwise)
    return net.problem()


# Output channels of the inception modules: 1x1; 3x3 reduced and 3x3; 5x5 reduced and 5x5; pooled.
INCEPTIONS = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}


def googlenet() -> Problem:
    """Szegedy et al. 2014, table 1, without the auxiliary classifiers: 224 pixels, 1000 classes."""
    net = Net(224)
    conv, pool, relu, lrn = net.convolution, net.pooling(3, 2), net.elementwise, net.normalization

    def inception(name: str) -> Function:
        one, reduce3, three, reduce5, five, pooled = INCEPTIONS[name]

        def module(x: Tensor) -> Tensor:
            branches = [
                net.chain(x, conv(one, 1)),
                net.chain(x, conv(reduce3, 1), relu, conv(three, 3, pad=1)),
                net.chain(x, conv(reduce5, 1), relu, conv(five, 5, pad=2)),
                net.chain(x, net.pooling(3, 1, pad=1), conv(pooled, 1)),
            ]
            side = x.shape[1]
            joined = net.allocate(sum(b.shape[0] for b in branches), side, side)
            net.free(*branches)
            y = relu(joined)
            net.free(joined)
            return y

        return module

    h = net.step(net.image, conv(64, 7, stride=2, pad=3), relu, pool, lrn)
    h = net.step(h, conv(64, 1), relu)
    h = net.step(h, conv(192, 3, pad=1), relu, lrn, pool)
    for name in INCEPTIONS:
        h = net.step(h, inception(name))
        if name in ("3b", "4e"):
            h = net.step(h, pool)
    h = net.step(h, net.pooling(7, 1, cover_all=False))
    net.step(h, net.linear(1000), net.elementwise)
    return net.problem()


def resnet50() -> Problem:
    """He et al. 2015 as in Chainer's ImageNet example: 224 pixels, 1000 classes."""
    net = Net(224)

    conv, relu, norm = net.convolution, net.elementwise, net.elementwise

    def bottleneck(channels: int, stride: int, widens: bool) -> Function:
        def block(x: Tensor) -> Tensor:
            branch = (
                *(conv(channels, 1, stride), norm, relu),
                *(conv(channels, 3, pad=1), norm, relu),
                *(conv(4 * channels, 1), norm),
            )
            branches = [net.chain(x, *branch)]
            if widens:
                branches.append(net.chain(x, conv(4 * channels, 1, stride), norm))
            total = net.elementwise(branches[0])
            y = relu(total)
            net.free(total, *branches)
            return y

        return block

    h = net.step(net.image, conv(64, 7, stride=2, pad=3), norm, relu, net.pooling(3, 2))
    for stage, count in enumerate((3, 4, 6, 3)):
        for k in range(count):
            h = net.step(h, bottleneck(64 << stage, 2 if stage and k == 0 else 1, k == 0))
    h = net.step(h, net.pooling(7, 1, cover_all=False))
    net.step(h, net.linear(1000), net.elementwise)
    return net.problem()


NETWORKS = {"alexnet": alexnet, "googlenet": googlenet}
