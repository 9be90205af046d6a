"""Packing is lossless, whatever the bits; and gives what it promises on the arrays that it is for."""

from __future__ import annotations

import tracemalloc
from typing import Any

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.chainer import bit_packing
from stowplan.chainer.bit_packing import pack, unpack

from ...running import traced

DTYPES = ["?", "i1", "u2", "i8", "f2", "f4", "f8", "c8", "c16", ">f4", ">i8", "M8[s]", "m8[us]", "S3", "g"]


@pytest.fixture(autouse=True, params=[8, 1 << 18], ids=["small pieces", "pieces"])
def piece(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bit_packing, "PIECE", request.param)


def same(array: Any, again: Any) -> None:
    assert array.dtype == again.dtype
    assert array.shape == again.shape
    assert array.tobytes("A") == again.tobytes("A")
    assert array.flags.c_contiguous == again.flags.c_contiguous
    assert array.flags.f_contiguous == again.flags.f_contiguous


@st.composite
def two_valued(draw: Any) -> Any:
    dtype = np.dtype(draw(st.sampled_from(["?", "i1", "u2", "i4", "i8", "f2", "f4", "f8", "c8", ">f4"])))
    shape = draw(arrays.array_shapes(min_dims=0, max_dims=4, max_side=9))
    where = draw(arrays.arrays(bool, shape))
    pattern = st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize)
    if dtype.kind == "b":
        pattern = st.sampled_from([b"\0", b"\1"])
    low, high = (np.frombuffer(draw(pattern), np.dtype(f"u{dtype.itemsize}"))[0] for _ in range(2))
    bits = np.array(np.where(where, high, low), order=draw(st.sampled_from("CF")))
    return bits.view(dtype) if bits.ndim else bits.reshape(1).view(dtype).reshape(())


@given(two_valued())
def test_two_patterns_are_packed_whatever_they_are(array: Any) -> None:
    packed = pack(array, least=0)
    if packed is None:
        assert -(-array.size // 8) >= array.nbytes
        assert len(np.unique(np.frombuffer(array.tobytes(), f"u{array.itemsize}"))) == 2
    else:
        assert packed.nbytes in (0, -(-array.size // 8))
        same(array, unpack(packed))


@given(st.sampled_from(DTYPES), st.data())
def test_what_is_packed_comes_back(dtype: str, data: Any) -> None:
    shape = data.draw(arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6))
    raw = data.draw(st.binary(min_size=0, max_size=64))
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if dtype == "?":
        raw = bytes(byte & 1 for byte in raw)
    content = (raw * (size // max(len(raw), 1) + 1) if raw else bytes(size))[:size]
    array = np.frombuffer(content, dtype).reshape(shape)
    packed = pack(array, least=0)
    if packed is not None:
        assert packed.nbytes < array.nbytes
        same(array, unpack(packed))


@given(st.lists(st.integers(-130, 300), min_size=30), st.sampled_from(["i2", "i4", "i8", ">i8"]))
def test_integers_are_kept_in_the_narrowest_type(values: list[int], dtype: str) -> None:
    array = np.array([*values, 0, 1, 2], dtype)
    packed = pack(array, least=0)
    fits = [
        t for t in ("u1", "i1", "i2") if np.iinfo(t).min <= min(values) and max(values) <= np.iinfo(t).max
    ]
    width = min((np.dtype(t).itemsize for t in fits if array.min() >= np.iinfo(t).min), default=2)
    if width >= array.itemsize:
        assert packed is None
    else:
        assert packed is not None
        assert packed.nbytes == array.size * width
        same(array, unpack(packed))


def test_a_third_value_is_seen() -> None:
    assert pack(np.tile(np.array([0.0, -0.0, 1.0, 1.0], np.float32), 512)) is None
    assert pack(np.array([2, *[0] * 100_000, 3], np.float32)) is None


def test_views_that_are_not_contiguous_are_left() -> None:
    assert pack(np.zeros((64, 64))[:, ::2]) is None
    assert pack(np.zeros((8, 8, 8)).transpose(0, 2, 1)) is None


def test_temporaries_are_those_of_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bit_packing, "PIECE", 1 << 16)
    array = (np.random.default_rng(0).random(4 << 20) < 0.5).astype(np.float32)
    with traced():
        packed = pack(array)
        peak = tracemalloc.get_traced_memory()[1]
        assert packed is not None
        assert peak < packed.nbytes + 8 * bit_packing.PIECE
        tracemalloc.reset_peak()
        again = unpack(packed)
        assert tracemalloc.get_traced_memory()[1] < packed.nbytes + array.nbytes + 16 * bit_packing.PIECE
    same(array, again)
