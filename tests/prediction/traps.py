"""Functions that are hard to predict, each with arguments of a size. `trap_account` says what they take."""

from __future__ import annotations

import asyncio
import bisect
import ctypes
import itertools
import mmap
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import stowplan

from .trap import line, number, trap

by_number = trap(number, 5000, 8_000_000)

# --- switches, in any spelling --------------------------------------------------------------------------------------


@trap()
def bisected(x: Any) -> Any:
    return np.repeat(x, 1 + bisect.bisect([1_000_000, 3_000_000, 6_000_000], len(x)))


@trap()
def saturated(x: Any) -> Any:
    return np.zeros((min(len(x), 3_000_000), 4)) + 1


@trap(asked=1 << 23)
def of_powers_of_two(x: Any) -> Any:
    return np.repeat(x, 3) if len(x) & (len(x) - 1) == 0 else x + 1


@trap()
def unpacked(x: Any) -> Any:
    (n,) = x.shape
    return np.repeat(x, 5) if n > 4_000_000 else x + 1


# --- state ----------------------------------------------------------------------------------------------------------


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


POOL = ThreadPoolExecutor(1)


@trap()
def on_a_thread_of_the_program(x: Any) -> Any:
    return POOL.submit(lambda: (x * 2 + 1).sum()).result()


# --- numbers as sizes -----------------------------------------------------------------------------------------------


@by_number
def zeros(n: int) -> Any:
    return np.zeros(n)


@trap(number, 10, 26)
def of_two_to_the(n: int) -> Any:
    return np.zeros(2**n)


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


@trap(asked=2_000_000)
def of_floats(x: Any) -> Any:
    return sum(x.tolist())


@trap()
def of_a_mapping(x: Any) -> Any:
    with mmap.mmap(-1, 2 * x.nbytes) as block:
        block.write(b"1" * 1000)
        for k in range(0, len(block), 4096):
            block[k] = 1
    return x + 1


pool = stowplan.NumpyPool()


@trap()
def in_a_pool(x: Any) -> Any:
    with pool:
        return ((x * 2) + 1).sum()


# --- sizes that values decide ---------------------------------------------------------------------------------------


@trap(line)
def positive(x: Any) -> Any:
    return x[x > 0] * 2


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
