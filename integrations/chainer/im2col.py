"""Unfold images for a convolution on the CPU into the matrix that BLAS reads, without a second copy of it.

Chainer writes the columns of an image as (n, c, kh, kw, oh, ow), and `numpy.tensordot` copies them, transposed, into
the matrix of its product::

    Chainer   image -> columns (n, c, kh, kw, oh, ow) -> matrix (n oh ow, c kh kw) -> dot     2 matrices
    here      image ---------------------------------> matrix (n oh ow, c kh kw) -> dot       1 matrix, in blocks

`im2col` writes the matrix at once, with Chainer's axes: to `tensordot` its transpose and reshape are views of it.
BLAS gets the same numbers in the same layout as before, so its result is the same, bit by bit. Where Chainer's columns
need no copy (one image, one output pixel, one number per column) they may have another layout: these are left to it.

Written in blocks that fit the cache, from images with their channels last, this takes less time than both
copies. In most convolutional networks on NumPy these matrices make the peak.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from chainer.utils import conv

BLOCK_BYTES = 512 * 1024
"""A block of the matrix: it is written once for each place in the kernel, and stays in the cache meanwhile."""


def im2col(
    img: Any,
    kh: int,
    kw: int,
    sy: int,
    sx: int,
    ph: int,
    pw: int,
    cover_all: bool = False,
    dy: int = 1,
    dx: int = 1,
) -> Any:
    """Return the columns of images (n, c, h, w) as an array (n, c, kh, kw, oh, ow), as `chainer.utils.conv.im2col_cpu`.

    With zeros around the images, as convolutions have it. Its memory has the axes in the order n, oh, ow, c, kh, kw.
    """
    n, c, h, w = img.shape
    oh = conv.get_conv_outsize(h, kh, sy, ph, cover_all, dy)
    ow = conv.get_conv_outsize(w, kw, sx, pw, cover_all, dx)
    if n < 2 or oh * ow < 2 or c * kh * kw < 2:
        return conv.im2col_cpu(img, kh, kw, sy, sx, ph, pw, 0, cover_all, dy, dx)
    columns = np.empty((n, oh, ow, c, kh, kw), dtype=img.dtype).transpose(0, 3, 4, 5, 1, 2)
    if kh == kw == 1 and not (ph or pw or cover_all):
        columns[:, :, 0, 0] = img[:, :, : sy * oh : sy, : sx * ow : sx]
        return columns
    # A row of the matrix is copied in runs: over the channels, or, where there are fewer of them, over the kernel.
    order = (0, 1, 2, 3) if c < kw else (0, 2, 3, 1)
    margins = np.array(((0, 0), (0, 0), (ph, ph + sy - 1), (pw, pw + sx - 1)))
    padded = np.zeros([img.shape[axis] + margins[axis].sum() for axis in order], dtype=img.dtype)
    padded = padded.transpose(np.argsort(order))
    padded[:, :, ph : ph + h, pw : pw + w] = img
    if c < kw:
        sn, sc, sh, sw = padded.strides
        strides = (sn, sc, dy * sh, dx * sw, sy * sh, sx * sw)
        columns[...] = np.lib.stride_tricks.as_strided(padded, columns.shape, strides, writeable=False)
        return columns
    row_bytes = ow * c * kh * kw * img.itemsize
    images = max(1, BLOCK_BYTES // (oh * row_bytes))
    rows = max(1, min(oh, BLOCK_BYTES // row_bytes))
    for image in range(0, n, images):
        some = slice(image, image + images)
        for row in range(0, oh, rows):
            end = min(oh, row + rows)
            for j in range(kh):
                vertical = slice(j * dy + row * sy, j * dy + (end - 1) * sy + 1, sy)
                for i in range(kw):
                    horizontal = slice(i * dx, i * dx + sx * ow, sx)
                    columns[some, :, j, i, row:end] = padded[some, :, vertical, horizontal]
    return columns
