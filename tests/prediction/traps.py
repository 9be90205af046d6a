"""Functions that are hard to predict, each with arguments of a size. `trap_account` says what they take."""

from __future__ import annotations

import asyncio
import bisect
import ctypes
import functools
import itertools
import math
import mmap
import threading
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import stowplan

from .trap import line, number, square, trap

BIG = 2_000_000
RNG = np.random.default_rng(0)


in_square = trap(square, 100, 2500)
by_number = trap(number, 5000, 8_000_000)

# --- switches, in any spelling --------------------------------------------------------------------------------------


@trap()
def walrus(x: Any) -> Any:
    return np.repeat(x, 5) if (n := x.size) > BIG and n else x + 1


@trap()
def by_table(x: Any) -> Any:
    return {False: np.negative, True: lambda x: np.repeat(x, 3)}[len(x) > BIG](x)


@trap()
def bisected(x: Any) -> Any:
    return np.repeat(x, 1 + bisect.bisect([1_000_000, 3_000_000, 6_000_000], len(x)))


@trap()
def logarithm(x: Any) -> Any:
    return np.repeat(x, int(math.log2(len(x))) // 5)


@trap()
def saturated(x: Any) -> Any:
    return np.zeros((min(len(x), 3_000_000), 4)) + 1


@trap()
def in_chunks(x: Any) -> Any:
    return sum(float((x[k : k + 1_000_000] * 2 + 1).sum()) for k in range(0, len(x), 1_000_000))


@trap(asked=1 << 23)
def of_powers_of_two(x: Any) -> Any:
    return np.repeat(x, 3) if len(x) & (len(x) - 1) == 0 else x + 1


@trap()
def of_thousands(x: Any) -> Any:
    return np.repeat(x, 4) if len(x) % 1000 == 0 else x + 1


@trap(asked=8_000_001)
def of_odd_lengths(x: Any) -> Any:
    return np.repeat(x, 4) if len(x) % 2 else x + 1


@trap()
def unpacked(x: Any) -> Any:
    (n,) = x.shape
    return np.repeat(x, 5) if n > 4_000_000 else x + 1


class Settings:
    limit = 24.0

    def is_large(self, x: Any) -> bool:
        return bool(x.nbytes / 1e6 > self.limit)


# --- layouts --------------------------------------------------------------------------------------------------------


def laid(view: Callable[[Any], Any]) -> Callable[[int], tuple[Any, ...]]:
    return lambda n: (view(np.ones((n, 2 * n))),)


@trap(laid(lambda x: x.T), 100, 2500)
def of_a_transpose(x: Any) -> Any:
    return np.ascontiguousarray(x).sum()


@trap(laid(lambda x: np.ma.masked_less(x, 0)), 100, 2500)
def of_a_mask(x: Any) -> Any:
    return x * 2


@trap(lambda n: (np.lib.stride_tricks.sliding_window_view(np.ones(n), 50),), 500, 200_000)
def of_overlapping(x: Any) -> Any:
    return x.copy()


# --- state ----------------------------------------------------------------------------------------------------------


@functools.lru_cache
def window_of(n: int) -> Any:
    return np.hanning(n)


@trap()
def cached(x: Any) -> Any:
    return (x * window_of(len(x))).sum()


kept: list[Any] = []


@trap()
def keeping(x: Any) -> Any:
    kept.append(x * 2)
    return len(kept)


tables: dict[str, Any] = {}


@trap(asked=100_000)
def with_a_table(x: Any) -> Any:
    if "sine" not in tables:
        tables["sine"] = np.sin(np.arange(4_000_000))
    return tables["sine"][: len(x)] + x


calls = itertools.count()


@trap()
def of_every_third_call(x: Any) -> Any:
    return np.repeat(x, 4) if next(calls) % 3 == 2 else x + 1


@trap()
def of_chance(x: Any) -> Any:
    return np.repeat(x, np.random.randint(1, 6))  # noqa: NPY002  # the state that predict may not change


# --- threads --------------------------------------------------------------------------------------------------------


@trap()
def threaded(x: Any) -> Any:
    threads = [threading.Thread(target=lambda: np.exp(x) * 2) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return x + 1


@trap()
def threaded_beyond(x: Any) -> Any:
    if len(x) > BIG:
        return threaded(x)
    return (x * 2 + 1).sum()


POOL = ThreadPoolExecutor(1)


@trap()
def on_a_thread_of_the_program(x: Any) -> Any:
    return POOL.submit(lambda: (x * 2 + 1).sum()).result()


# --- windows and filters --------------------------------------------------------------------------------------------


@trap(line, 20_000, 4_000_000)
def frames(x: Any) -> Any:
    cut = np.lib.stride_tricks.sliding_window_view(x, 512)[::128]
    return np.abs(np.fft.rfft(cut * np.hanning(512), axis=1)).sum()


@trap(line, 20_000)
def moving_mean(x: Any, width: int = 1000) -> Any:
    total = np.cumsum(x)
    return (total[width:] - total[:-width]) / width


@in_square
def blurred(x: Any) -> Any:
    return sum(np.pad(x, 8)[k : k + len(x), 8:-8] for k in range(17)) / 17


@in_square
def fast_convolved(x: Any) -> Any:
    from scipy import signal

    return signal.fftconvolve(x, np.ones((5, 5)))


# --- numbers as sizes -----------------------------------------------------------------------------------------------


@by_number
def zeros(n: int) -> Any:
    return np.zeros(n)


@by_number
def random_walk(n: int) -> Any:
    return np.cumsum(np.random.default_rng(0).standard_normal(n))


@trap(lambda n: (n, n // 2), 60, 4000)
def grid(rows: int, columns: int) -> Any:
    y, x = np.mgrid[0:rows, 0:columns]
    return np.hypot(x, y)


@trap(lambda n: (np.ones(n), n))
def with_its_length(x: Any, n: int) -> Any:
    return x[:n] + np.arange(n)


@trap(number, 10, 26)
def of_two_to_the(n: int) -> Any:
    return np.zeros(2**n)


@trap(lambda n: (1 / n,), 1000)
def of_a_step(step: float) -> Any:
    return np.arange(0, 1, step)


@trap(lambda n: (str(n),), 1000)
def of_a_text(n: str) -> Any:
    return np.zeros(int(n))


@trap(lambda n: ([np.ones(n)] * 3,), 100)
def of_a_list(arrays: list[Any]) -> Any:
    return [one * 2 for one in arrays]


@trap(lambda n: (range(n), np.ones(50)), asked=2_000_000)
def of_a_range(values: Any, x: Any) -> Any:
    return np.array(values) + x[0]


@trap(lambda n: (np.array([n]),), 100)
def of_a_number_in_an_array(sizes: Any) -> Any:
    return np.zeros(int(sizes[0]))


# --- memory that is no array's --------------------------------------------------------------------------------------


@trap()
def of_malloc(x: Any) -> Any:
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    block = ctypes.c_void_p(libc.malloc(ctypes.c_size_t(3 * x.nbytes)))
    ctypes.memset(block, 1, 3 * x.nbytes)
    libc.free(block)
    return x.sum()


@trap(lambda n: (np.random.default_rng(n).random((n, n)) > 0.5,), 80, 3000)
def labelled(x: Any) -> Any:
    from scipy import ndimage

    return int(ndimage.label(x, output=np.int32)[1])


@in_square
def inverted(x: Any) -> Any:
    return np.linalg.inv(x)


@trap()
def of_bytearray(x: Any) -> Any:
    return len(bytearray(2 * x.nbytes))


@trap(asked=2_000_000)
def of_floats(x: Any) -> Any:
    return sum(x.tolist())


@trap(asked=2_000_000)
def of_objects(x: Any) -> Any:
    return x.astype(object) + 1


@trap()
def of_a_mapping(x: Any) -> Any:
    with mmap.mmap(-1, 2 * x.nbytes) as block:
        block.write(b"1" * 1000)
        for k in range(0, len(block), 4096):
            block[k] = 1
    return x + 1


@trap()
def of_an_array_of_python(x: Any) -> Any:
    return array("d", bytes(x.nbytes)).buffer_info()[1]


pool = stowplan.NumpyPool()


@trap()
def in_a_pool(x: Any) -> Any:
    with pool:
        return ((x * 2) + 1).sum()


@trap(line, asked=1_000_000)
def in_a_dictionary(x: Any) -> Any:
    return len({float(value): None for value in x})


# --- sizes that values decide ---------------------------------------------------------------------------------------


@trap(line)
def positive(x: Any) -> Any:
    return x[x > 0] * 2


@trap(line)
def distinct(x: Any) -> Any:
    return np.unique(np.round(x, 3))


@trap(lambda n: (np.arange(n),))
def counted(x: Any) -> Any:
    return np.bincount(x)


@trap(lambda n: (np.ones(n), np.random.default_rng(n).integers(0, 9, n)), 5000, 2_000_000)
def repeated(x: Any, times: Any) -> Any:
    return np.repeat(x, times)


@trap(line)
def halving(x: Any) -> Any:
    steps = [x]
    while np.abs(steps[-1]).max() > 1:
        steps.append(steps[-1] / 2)
    return len(steps)


# --- work that is still to be done, and other kinds -----------------------------------------------------------------


@trap()
def lazily(x: Any) -> Any:
    yield x * 2


@trap()
async def awaited(x: Any) -> Any:
    await asyncio.sleep(0)
    return x * 2


@trap()
def mapped(x: Any) -> Any:
    return map(np.negative, np.array_split(x, 4))


@trap(asked=400_000)
def recursive(x: Any) -> Any:
    return x if len(x) < 1000 else np.concatenate([recursive(x[::2]), recursive(x[1::2])])


@trap(lambda n: (np.ones((n, 2)), np.ones((n // 2, 2))), 60, 5000)
def distances(x: Any, y: Any) -> Any:
    return np.sqrt(((x[:, None] - y[None]) ** 2).sum(axis=-1))


@trap(lambda n: (np.ones(n, np.float32),))
def widened(x: Any) -> Any:
    return x.astype(float) * 2.5 + x


@trap(lambda n: (np.ones(n, [("a", "f8"), ("b", "i2")]),), asked=200_000)
def of_records(x: Any) -> Any:
    return np.sort(x, order="b")["a"] * 2


@in_square
def of_contraction(x: Any) -> Any:
    return np.einsum("ij,jk,kl->il", x, x, x, optimize=True)


def slope(field: Any, axis: int) -> Any:
    return (np.roll(field, -1, axis) - np.roll(field, 1, axis)) / 2


@trap(lambda n: (np.ones((n, n)), np.ones((n, n)), np.ones((n, n))), 50, 1500)
def shallow_water(h: Any, u: Any, v: Any) -> Any:
    rates = [-slope(a * b, 0) - slope(b, 1) * a for a, b in ((h, u), (u, v), (v, h))]
    return [one + slope(one * rate, 0) + rate for one, rate in zip((h, u, v), rates, strict=True)]


@trap(lambda n: (np.ones((n, n // 3)),), 300, 4000)
def shorter_side(x: Any) -> Any:
    return np.zeros((min(x.shape), 5000)) + 1
