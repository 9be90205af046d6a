"""The memory under NumpyPool: whose the small blocks are, and which pages the arena has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stowplan import NumpyPool

from ..children import printed


def test_small_requests_are_neither_planned_nor_counted() -> None:
    pool = NumpyPool()
    with pool:
        for _ in range(6):
            with pool.step():
                small = [np.ones(129) for _ in range(10)]  # 1032 bytes
                large = np.ones(130)
                assert sum(float(a.sum()) for a in [*small, large]) == 10 * 129 + 130
            pool.wait()
    assert set(pool.profile().size.tolist()) == {1040}
    assert pool.stats.replayed + pool.stats.upstream == 6


def test_what_is_kept_for_later_is_reserved() -> None:
    pool = NumpyPool()
    with pool:
        arrays = [np.ones(1_000_000) for _ in range(20)]
        alive = pool.stats
        del arrays
        freed = pool.stats
        pool.trim()
    assert alive.reserved_bytes - alive.kept_bytes == alive.live_bytes == 160_000_000
    assert freed.reserved_bytes == freed.kept_bytes > 0
    assert freed.peak_reserved_bytes >= alive.reserved_bytes
    assert pool.stats.reserved_bytes == 0


def test_what_is_kept_for_later_goes_before_a_limit_is_met() -> None:
    pool = NumpyPool(limit=30_000_000)
    with pool:
        for number in range(1, 10):
            kept = np.ones(number * 300_000)
            assert pool.stats.reserved_bytes <= 30_000_000
            del kept
    assert pool.stats.peak_reserved_bytes <= 30_000_000


def test_blocks_that_cross_the_limit_by_resizing() -> None:
    pool = NumpyPool()
    with pool:
        for _ in range(8):
            with pool.step():
                grows, shrinks = np.arange(10), np.arange(1000)
                grows.resize(1000, refcheck=False)
                shrinks.resize(10, refcheck=False)
                assert (grows[:10] == np.arange(10)).all()
                assert (shrinks == np.arange(10)).all()
            pool.wait()
    del grows, shrinks
    assert pool.stats.live_bytes == 0


def test_a_free_with_a_wrong_size_is_put_right() -> None:
    """NumPy's size at a free is a best guess; here it says that a large block is a small one."""
    import ctypes

    class Header(ctypes.Structure):  # the beginning of PyArrayObject
        _fields_ = (("refcount", ctypes.c_ssize_t), ("type", ctypes.c_void_p), ("data", ctypes.c_void_p),
                    ("nd", ctypes.c_int), ("dimensions", ctypes.POINTER(ctypes.c_ssize_t)))  # fmt: skip

    pool = NumpyPool()
    with pool:
        for _ in range(50):
            lying = np.ones(200)
            Header.from_address(id(lying)).dimensions[0] = 2
            del lying
            honest = [np.full(200, 3.0) for _ in range(20)]
            assert all((a == 3).all() for a in honest)
            del honest
    assert pool.stats.live_bytes <= 50 * 1600


def mapping(address: int) -> tuple[int, str]:
    """Return the size and the flags of the mapping that an address is in."""
    inside, size = False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, _, rest = line.partition(" ")
        if not first.endswith(":"):
            begin, end = (int(bound, 16) for bound in first.split("-"))
            inside, size = begin <= address < end, end - begin
        elif inside and first == "VmFlags:":
            return size, rest
    raise AssertionError(f"no mapping has {address:#x}")


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(),
    reason="the kernel has no huge pages: there is no /sys/kernel/mm/transparent_hugepage",
)
@pytest.mark.parametrize(
    ("size", "accessible"), [(4_000_000, 4 << 20), (3 << 20, 3 << 20), (33 << 20, 34 << 20)]
)
def test_the_arena_is_whole_huge_pages_where_they_add_little(size: int, accessible: int) -> None:
    pool = NumpyPool(warmup=0)
    with pool:
        for _ in range(4):
            with pool.step():
                address = np.empty(size, np.uint8).ctypes.data
            pool.wait()
    assert pool.stats.replayed > 0
    assert pool.stats.arena_bytes == -(-size // 64) * 64
    length, flags = mapping(address)
    assert length == accessible
    assert "hg" in flags.split()


OLDER = """
import numpy as np
from pathlib import Path
from stowplan import NumpyPool

def resident():
    return next(int(line.split()[1]) for line in Path("/proc/self/status").open() if line.startswith("VmRSS")) >> 10

older = [np.ones(1 << 16) for _ in range(200)]  # 100 MiB, with blocks between them that stay
between = older[1::2]
with NumpyPool():
    begin = resident()
    del older
    fresh = [np.ones(1 << 20) for _ in range(6)]
    print(resident() - begin)
"""


def test_what_the_c_library_keeps_goes_when_more_is_in_use_than_ever() -> None:
    grown = int(printed("-c", OLDER, GLIBC_TUNABLES="glibc.malloc.mmap_threshold=4294967296"))
    assert -10 <= grown <= 10  # 48 MiB more, and 50 MiB of older blocks less
