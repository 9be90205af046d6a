"""Pack arrays of few distinct values without loss: masks to one bit an element, indexes to one byte.

::

    dropout's mask      float32  0  2  2  0  ...    ->  bits 0 1 1 0 ... and the two values       1/32
    max-pooling's       int64    3  0  2  1  ...    ->  uint8                                     1/8
    all alike           any      7  7  7  7  ...    ->  the value                                 0

An array of at most two distinct bit patterns (so -0.0 is not 0.0, and NaNs differ by their payload) is kept as one bit
an element and the two patterns; integers that all fit into a narrower type are kept in that. `unpack` gives the same
type, shape, order and bits. The same with CuPy's arrays, where every piece waits for the device.

Two passes over the array, O(n); the first piece mostly shows if an array is neither. Temporaries: those of one
piece of `PIECE` elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from chainer.backend import get_array_module

PIECE = 1 << 18
"""Elements of a piece, which are packed together; a multiple of 8."""

LEAST_BYTES = 1024
"""Smaller arrays are left as they are."""

_PATTERNS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True)
class Packed:
    """A packed array.

    Attributes
    ----------
    data
        uint8 of ceil(size / 8) elements, the bits; or the narrower integers, shape (size,); None if all are alike.
    low, high
        The bit patterns that stand for 0 and 1, as unsigned integers; None with narrower integers.
    shape, dtype, order
        The array's shape, type and order; order is ``"C"`` or ``"F"``.
    xp
        The array's module: NumPy or CuPy.
    """

    data: Any
    low: int | None
    high: int | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: str
    xp: Any

    @property
    def nbytes(self) -> int:
        """Bytes kept."""
        return 0 if self.data is None else int(self.data.nbytes)


def pack(array: Any, least: int = LEAST_BYTES) -> Packed | None:
    """Pack an array, if that makes it smaller.

    Parameters
    ----------
    array
        An array of NumPy or CuPy; contiguous in C's or Fortran's order.
    least
        Bytes below which an array is not packed.

    Returns
    -------
    Packed or None
        None if nothing is gained: the array is small or empty, holds more than two bit patterns and no small
        integers, is not contiguous, or has elements that are not numbers of 1 to 8 bytes.
    """
    xp = get_array_module(array)
    contiguous = type(array) is xp.ndarray and (array.flags.c_contiguous or array.flags.f_contiguous)
    if not contiguous or array.size == 0 or array.nbytes < least or array.dtype.kind not in "biufcmM":
        return None
    packed = _pack_two(array, xp) or _pack_narrow(array, xp)
    return packed if packed is not None and packed.nbytes < array.nbytes else None


def unpack(packed: Packed) -> Any:
    """Unpack an array from `pack`: same type, shape, order and bits as before."""
    out = packed.xp.empty(packed.shape, packed.dtype, packed.order)
    elements = flat(out)
    if packed.low is None:
        elements[:] = packed.data
        return out
    bits = elements.view(_PATTERNS[out.itemsize])
    if packed.data is None:
        bits[:] = packed.low
        return out
    eight = _patterns_of_bytes(packed, bits.dtype)
    for start in range(0, bits.size, PIECE):
        stop = min(start + PIECE, bits.size)
        bits[start:stop] = eight.take(packed.data[start // 8 : -(-stop // 8)], axis=0).reshape(-1)[
            : stop - start
        ]
    return out


def _patterns_of_bytes(packed: Packed, dtype: np.dtype[Any]) -> Any:
    """Return the eight patterns that each byte of the data stands for: shape (256, 8)."""
    low, high = dtype.type(packed.low), dtype.type(packed.high)
    is_high = np.unpackbits(np.arange(256, dtype=np.uint8)).reshape(256, 8).view(np.bool_)
    return packed.xp.asarray(np.where(is_high, high, low))


def _pack_two(array: Any, xp: Any) -> Packed | None:
    """Pack an array of at most two bit patterns; None if there are more."""
    if array.itemsize not in _PATTERNS:
        return None
    bits = flat(array).view(_PATTERNS[array.itemsize])
    low = bits[:1]
    high: Any = None
    data: Any = None
    for start in range(0, bits.size, PIECE):
        piece = bits[start : start + PIECE]
        is_high = piece != low
        if high is None:
            if not bool(is_high.any()):
                continue
            where = int(is_high.argmax())
            high = piece[where : where + 1]
            data = xp.zeros(-(-bits.size // 8), np.uint8)
        if not bool(((piece == high) == is_high).all()):
            return None
        data[start // 8 : start // 8 + -(-piece.size // 8)] = xp.packbits(is_high)
    return _packed(array, xp, data, int(low[0]), int(low[0] if high is None else high[0]))


def _pack_narrow(array: Any, xp: Any) -> Packed | None:
    """Pack integers into the narrowest type that holds them all; None if that is no narrower."""
    if array.dtype.kind not in "iu" or array.itemsize == 1:
        return None
    elements = flat(array)
    least = most = int(elements[0])
    for start in range(0, elements.size, PIECE):
        piece = elements[start : start + PIECE]
        least, most = min(least, int(piece.min())), max(most, int(piece.max()))
        if _narrowest(least, most, array.itemsize) is None:
            return None
    data = elements.astype(_narrowest(least, most, array.itemsize))
    return _packed(array, xp, data, None, None)


def _narrowest(least: int, most: int, itemsize: int) -> np.dtype[Any] | None:
    """Return the narrowest type of integers from the least to the most; None if it has as many bytes as these."""
    kind = np.min_scalar_type(most if least >= 0 else min(least, -most - 1))
    return kind if kind.itemsize < itemsize else None


def _packed(array: Any, xp: Any, data: Any, low: int | None, high: int | None) -> Packed:
    return Packed(data, low, high, array.shape, array.dtype, "C" if array.flags.c_contiguous else "F", xp)


def flat(array: Any) -> Any:
    """Return the elements of a contiguous array in the order of its memory, as a view."""
    return (array if array.flags.c_contiguous else array.T).reshape(-1)
