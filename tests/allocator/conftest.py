"""What tests share: a pool of CuPy's over host memory, and calls that fail. CuPy is imported where it is asked for."""

from __future__ import annotations

import gc
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from stowplan import CupyPool

    from .cupy_host import HostUpstream


@pytest.fixture
def upstream() -> Iterator[HostUpstream]:
    from .cupy_host import HostUpstream

    upstream = HostUpstream()
    yield upstream
    gc.collect()
    assert not upstream.overwritten


@pytest.fixture
def pool(upstream: HostUpstream) -> Iterator[CupyPool]:
    """A pool that serves this thread."""
    from stowplan import CupyPool

    from .cupy_host import cupy

    pool = CupyPool(upstream, device=0)
    with cupy.cuda.using_allocator(pool.malloc):
        yield pool


@pytest.fixture(scope="module")
def failing_calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a library that makes calls fail, to be preloaded."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler; expected: c++")
    source = Path(__file__).with_name("failing_calls.cpp")
    library = tmp_path_factory.mktemp("failing") / "failing_calls.so"
    subprocess.run([compiler, "-std=c++17", "-shared", "-fPIC", source, "-o", library], check=True)
    return library
