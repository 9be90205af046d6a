"""Images unfolded in the layout of the product: Chainer's bits, and half of the workspace."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import chainer.functions as F  # noqa: N812
import numpy as np
import pytest
from chainer.functions.connection import convolution_2d
from chainer.utils import conv
from hypothesis import given
from hypothesis import strategies as st

from stowplan.chainer import im2col, patches

from ...running import traced


@st.composite
def unfoldings(draw: st.DrawFn) -> tuple[Any, ...]:
    """An image, and the other arguments of `im2col`."""
    kernel, stride, pad, dilate = (draw(st.tuples(*[st.integers(low, 3)] * 2)) for low in (1, 1, 0, 1))
    least = [(k - 1) * d + 1 for k, d in zip(kernel, dilate, strict=True)]
    shape = (draw(st.integers(1, 3)), draw(st.integers(1, 4)), *(draw(st.integers(n, n + 5)) for n in least))
    image = np.random.default_rng(draw(st.integers(0, 99))).random(shape, dtype=np.float32)
    if draw(st.booleans()):
        image = np.ascontiguousarray(image.transpose(2, 3, 0, 1)).transpose(2, 3, 0, 1)
    return image, *kernel, *stride, *pad, draw(st.booleans()), *dilate


@given(unfoldings(), st.integers(1, 4000))
def test_columns_are_those_of_chainer(unfolding: tuple[Any, ...], block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(im2col, "BLOCK_BYTES", block)
        ours = im2col.im2col(*unfolding)
    theirs = conv.im2col_cpu(*unfolding[:7], 0, *unfolding[7:])
    assert ours.dtype == theirs.dtype
    assert np.array_equal(ours, theirs)
    # The matrix of the product has one layout, whether or not it is a copy: BLAS cannot tell them apart.
    matrices = [a.transpose(0, 4, 5, 1, 2, 3).reshape(-1, np.prod(a.shape[1:4])) for a in (ours, theirs)]
    assert matrices[0].strides == matrices[1].strides
    assert np.shares_memory(matrices[0], ours)


def plain_step() -> Any:
    from stowplan.chainer.execution import ScheduledStep

    return ScheduledStep(release=False)


def peak() -> int:
    """Return the most bytes that a convolution takes."""
    x, w = np.ones((8, 32, 32, 32), np.float32), np.ones((1, 32, 5, 5), np.float32)
    with traced():
        F.convolution_2d(x, w, pad=2)
        return tracemalloc.get_traced_memory()[1]


def test_a_convolution_takes_half_of_the_workspace() -> None:
    peak()
    alone = peak()
    with patches.running(plain_step()):
        assert peak() == pytest.approx(0.5 * alone, rel=0.1)


def test_other_threads_unfold_as_chainer_does() -> None:
    image = np.ones((2, 2, 4, 4), np.float32)
    unfold = [3, 3, 1, 1, 1, 1]

    def layout() -> Any:
        return convolution_2d.conv.im2col_cpu(image, *unfold).strides

    plain = layout()
    with patches.running(plain_step()), ThreadPoolExecutor(1) as executor:
        assert layout() != plain
        assert executor.submit(layout).result() == plain
    assert layout() == plain
