"""The intermediate tensors of five networks that Pisarchyk & Lee 2020 (arXiv 2001.03288) plan, from their layers.

One image, float32. What goes into a network and what comes out of it is not counted. An operator makes one tensor;
batch normalization and activation are part of the convolution before them, and the reshape before the softmax is an
operator. Channels are padded to a multiple of four. With these, the sums of all sizes and the lower bounds of the two
MobileNets, of DeepLab and of PoseNet are those that the paper prints; Inception v3's are 0.02 % below. BlazeFace is not
here: its sums could not be made.
"""

from __future__ import annotations

from collections.abc import Sequence

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


MOBILENET_V1 = ((1, 64), (2, 128), (1, 128), (2, 256), (1, 256), (2, 512), *((1, 512),) * 5)
"""Stride and channels of its first blocks."""


def mobilenet_v1_features(side: int, width: int, share: float, *more: tuple[int, int]) -> tuple[Tensors, int]:
    """MobileNet v1 of a share of its channels, depthwise and pointwise convolutions in turn: tensors, and the last."""
    tensors, channels = Tensors(), int(32 * share)
    x = tensors.make(channels, side, width=width)
    for stride, full in (*MOBILENET_V1, *more):
        side, width = -(-side // stride), -(-width // stride)
        x = tensors.make(channels, side, x, width=width)
        channels = int(full * share)
        x = tensors.make(channels, side, x, width=width)
    return tensors, x


def mobilenet_v1() -> Problem:
    """MobileNet v1 at 224 pixels."""
    tensors, x = mobilenet_v1_features(112, 112, 1, (2, 1024), (1, 1024))
    return classify(tensors, 1024, x)


def mobilenet_v2_features(width: float, side: int, most_halvings: int) -> tuple[Tensors, int, int, int]:
    """MobileNet v2 up to its last bottleneck: tensors, the last one, its channels and side."""
    tensors = Tensors()
    side, halvings = -(-side // 2), 1
    channels = int(32 * width)
    x = tensors.make(channels, side)
    rows = (16, 1, 1), (24, 2, 2), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 2), (320, 1, 1)
    for full, repeats, stride in rows:
        made, expansion = int(full * width), 1 if full == 16 else 6
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
    """Inception v3 at 299 pixels; operators level by level over a block's branches: 1x1, pooled, and the other two."""
    tensors = Tensors()
    make = tensors.make

    def block(x: int, made: tuple[int, int], *branches: Sequence[tuple[int, int]]) -> int:
        """Run branches of (channels, side); those that split have their last two levels read the one before."""
        ends, at = [], [x] * len(branches)
        for level in range(max(map(len, branches))):
            for k, branch in enumerate(branches):
                if level < len(branch):
                    channels, side = branch[level]
                    if channels < 0:  # it splits in two
                        ends += [make(-channels, side, at[k]) for _ in range(2)]
                    else:
                        at[k] = make(channels, side, at[k])
                        ends += [at[k]] if level + 1 == len(branch) else []
        return make(*made, *ends)

    def those(side: int, *channels: int) -> list[tuple[int, int]]:
        return [(made, side) for made in channels]

    x = make(64, 147, make(32, 147, make(32, 149)))
    x = make(192, 35, make(192, 71, make(80, 73, make(64, 73, x))))
    channels = 192
    for pooled in (32, 64, 64):
        branches = those(35, 64), those(35, channels, pooled), those(35, 48, 64), those(35, 64, 96, 96)
        channels = 224 + pooled
        x = block(x, (channels, 35), *branches)
    x = block(x, (768, 17), those(17, 384), [*those(35, 64, 96), (96, 17)], those(17, 288))
    for inner in (128, 160, 160, 192):
        middle = those(17, inner, inner, 192), those(17, *[inner] * 4, 192)
        x = block(x, (768, 17), those(17, 192), those(17, 768, 192), *middle)
    long = [*those(17, 192, 192, 192), (192, 8)]
    x = block(x, (1280, 8), [(192, 17), (320, 8)], long, those(8, 768))
    for channels in (1280, 2048):
        split = those(8, 384, -384), those(8, 448, 384, -384)
        x = block(x, (2048, 8), those(8, 320), those(8, channels, 192), *split)
    return classify(tensors, 2048, x)


def posenet() -> Problem:
    """PoseNet on 353 by 257 pixels: three quarters of MobileNet v1 with an output stride of 16.

    The last blocks have 384 channels, and the two displacement heads, which are joined, are intermediate.
    """
    tensors, x = mobilenet_v1_features(177, 129, 0.75, (1, 512), (1, 512))
    for _ in range(2):
        tensors.make(32, 23, x, width=17)
    return tensors.problem()


_ALL = mobilenet_v1, mobilenet_v2, deeplab_v3, inception_v3, posenet
NETWORKS = {network.__name__: network for network in _ALL}
