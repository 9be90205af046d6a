"""The intermediate tensors of five networks that Pisarchyk & Lee 2020 (arXiv 2001.03288) plan, from their layers.

One image, float32. What goes into a network and what comes out of it is not counted. An operator makes one tensor;
batch normalization and activation are part of the convolution before them, and the reshape before the softmax is an
operator. Channels are padded to a multiple of four. With these, the sums of all sizes and the lower bounds of the two
MobileNets and of DeepLab are those that the paper prints; of Inception v3 and PoseNet the bound for offsets is, and
the sum is 0.02 % below and 5.7 % above. BlazeFace is not here: its sums could not be made.
"""

from __future__ import annotations

from stowplan.packing import Problem

FLOAT = 4
CLASSES = 1001


class Tensors:
    """Tensors in the order of the operators that make them; a lifetime ends after the last operator that reads it."""

    def __init__(self) -> None:
        self.size: list[int] = []
        self.last: list[int] = []

    def make(self, channels: int, side: int, *reads: int, width: int = 0) -> int:
        """Run one operator on the tensors that it reads; return what it makes, as wide as high if nothing is said."""
        self.size.append(-(-channels // 4) * 4 * side * (width or side) * FLOAT)
        self.last.append(-1)
        new = len(self.size) - 1
        for tensor in reads:
            self.last[tensor] = new
        return new

    def problem(self) -> Problem:
        """All tensors; those that nothing here has read are read by the operator that comes next."""
        n = len(self.size)
        return Problem(self.size, range(n), [(n if last < 0 else last) + 1 for last in self.last])


def classify(tensors: Tensors, channels: int, x: int) -> Problem:
    """Pool, the logits, and the reshape that the softmax reads."""
    pooled = tensors.make(channels, 1, x)
    logits = tensors.make(CLASSES, 1, pooled)
    tensors.make(CLASSES, 1, logits)
    return tensors.problem()


def mobilenet_v1() -> Problem:
    """MobileNet v1 at 224 pixels: depthwise and pointwise convolutions in turn."""
    tensors, side, channels = Tensors(), 112, 32
    x = tensors.make(channels, side)
    layers = [
        (1, 64),
        (2, 128),
        (1, 128),
        (2, 256),
        (1, 256),
        (2, 512),
        *[(1, 512)] * 5,
        (2, 1024),
        (1, 1024),
    ]
    for stride, made in layers:
        side //= stride
        x = tensors.make(channels, side, x)
        x = tensors.make(made, side, x)
        channels = made
    return classify(tensors, channels, x)


def mobilenet_v2_features(width: float, side: int, most_halvings: int) -> tuple[Tensors, int, int, int]:
    """MobileNet v2 up to its last bottleneck: tensors, the last one, its channels and side."""
    tensors = Tensors()
    side, halvings = -(-side // 2), 1
    channels = int(32 * width)
    x = tensors.make(channels, side)
    for expansion, full, repeats, stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        made = int(full * width)
        for repeat in range(repeats):
            shortcut, inner = x, channels * expansion
            if expansion > 1:
                x = tensors.make(inner, side, x)
            if repeat == 0 and stride == 2 and halvings < most_halvings:  # later ones are dilated instead
                side, halvings = -(-side // 2), halvings + 1
            x = tensors.make(inner, side, x)
            x = tensors.make(made, side, x)
            if repeat > 0:
                x = tensors.make(made, side, shortcut, x)
            channels = made
    return tensors, x, channels, side


def mobilenet_v2() -> Problem:
    """MobileNet v2 at 224 pixels."""
    tensors, x, _, side = mobilenet_v2_features(1, 224, 5)
    x = tensors.make(1280, side, x)
    return classify(tensors, 1280, x)


def deeplab_v3() -> Problem:
    """DeepLab v3 at 257 pixels over half of MobileNet v2 with an output stride of 8; 21 classes."""
    tensors, x, channels, side = mobilenet_v2_features(0.5, 257, 3)
    near = tensors.make(256, side, x)
    pooled = tensors.make(channels, 1, x)
    projected = tensors.make(256, 1, pooled)
    far = tensors.make(256, side, projected)
    both = tensors.make(512, side, near, far)
    x = tensors.make(256, side, both)
    tensors.make(21, side, x)
    return tensors.problem()


def inception_v3() -> Problem:
    """Inception v3 at 299 pixels; branches that split are joined with the others at once."""
    tensors = Tensors()
    make = tensors.make

    def chain(x: int, side: int, *channels: int) -> int:
        for made in channels:
            x = make(made, side, x)
        return x

    x = make(64, 147, make(32, 147, make(32, 149)))
    x = make(192, 35, make(192, 71, make(80, 73, make(64, 73, x))))
    channels = 192
    for pooled in (32, 64, 64):
        branches = [chain(x, 35, 64), chain(x, 35, 48, 64), chain(x, 35, 64, 96, 96)]
        branches.append(chain(x, 35, channels, pooled))
        channels = 224 + pooled
        x = make(channels, 35, *branches)
    x = make(768, 17, make(384, 17, x), make(96, 17, chain(x, 35, 64, 96)), make(288, 17, x))
    for inner in (128, 160, 160, 192):
        branches = [chain(x, 17, 192), chain(x, 17, inner, inner, 192), chain(x, 17, *[inner] * 4, 192)]
        x = make(768, 17, *branches, chain(x, 17, 768, 192))
    branches = [make(320, 8, chain(x, 17, 192)), make(192, 8, chain(x, 17, 192, 192, 192)), make(768, 8, x)]
    x = make(1280, 8, *branches)
    for channels in (1280, 2048):
        branches = [make(320, 8, x)]
        for root in (make(384, 8, x), chain(x, 8, 448, 384)):
            branches += [make(384, 8, root), make(384, 8, root)]
        x = make(2048, 8, *branches, chain(x, 8, channels, 192))
    return classify(tensors, 2048, x)


def posenet() -> Problem:
    """PoseNet on 353 by 257 pixels: three quarters of MobileNet v1 with an output stride of 16; the heads go out."""
    tensors, side, width, channels = Tensors(), 177, 129, 24
    x = tensors.make(channels, side, width=width)
    layers = [(1, 48), (2, 96), (1, 96), (2, 192), (1, 192), (2, 384), *[(1, 384)] * 5, *[(1, 768)] * 2]
    for stride, made in layers:
        side, width = -(-side // stride), -(-width // stride)
        x = tensors.make(channels, side, x, width=width)
        x = tensors.make(made, side, x, width=width)
        channels = made
    return tensors.problem()


NETWORKS = {
    "mobilenet_v1": mobilenet_v1,
    "mobilenet_v2": mobilenet_v2,
    "deeplab_v3": deeplab_v3,
    "inception_v3": inception_v3,
    "posenet": posenet,
}
