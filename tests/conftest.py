"""For all tests: what coverage leaves out; Chainer, and Chainer on CUDA.

To trace what tests compute in Python takes as long again, or twice as long. So coverage leaves out properties of what
is compiled, and comparisons with references (marker ``no_cover``).

BLAS runs on one thread, here and in the programs that tests start: there is a worker for each core, and threads that
share a core wait for each other busily.
"""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import is_hypothesis_test

from . import hypothesis_profiles  # noqa: F401 (registers them)

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")  # before anything imports NumPy, which reads it then

COMPILED = ("allocator", "packing", "profiler", "scheduling")
"""Folders of tests whose subject is C++ for the most part."""
UNTRACED = ("experiments", "golden", "properties")
"""Folders of tests whose subject is not measured, or has tests of its own."""


def pytest_configure(config: pytest.Config) -> None:
    """Without coverage, its plugin fails at tests that are marked `no_cover`."""
    if config.getoption("no_cov", False) and config.pluginmanager.hasplugin("_cov"):
        config.pluginmanager.unregister(name="_cov")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave properties of what is compiled, and the tests of what is not measured, untraced."""
    for item in items:
        room = item.path.relative_to(Path(__file__).parent).parts[0]
        is_property = is_hypothesis_test(getattr(item, "obj", None))
        if room in UNTRACED or (is_property and room in COMPILED):
            item.add_marker("no_cover")


def require_chainer() -> Any:
    """Return Chainer; skip where it is not installed."""
    from stowplan.compat import enable_chainer
    from stowplan.errors import MissingDependencyError

    try:
        enable_chainer()
    except MissingDependencyError as error:
        pytest.skip(str(error))
    import chainer

    return chainer


@pytest.fixture
def chainer() -> Any:
    """Chainer; skips where it is not installed."""
    return require_chainer()


@pytest.fixture
def chainer_on_cuda() -> Any:
    """Chainer, with the CUDA libraries that it needs; skips where they are not found."""
    chainer = require_chainer()
    from chainer.backends import cuda

    if not cuda.available:
        pytest.skip(f"Chainer finds no CUDA libraries: {cuda._resolution_error}")
    return chainer


@pytest.fixture(scope="session", autouse=True)
def orders_are_carried_out() -> Iterator[None]:
    """What planning costs decides nothing in a test, but in those of its budget."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stowplan.allocator.planning_budget.FIRST", 1 << 30)
        yield


@pytest.fixture(autouse=True)
def memory_is_traced_no_longer() -> Iterator[None]:
    """Traced memory makes each allocation slow: a test that leaves the trace on slows all that come after it."""
    yield
    left = tracemalloc.is_tracing()
    tracemalloc.stop()
    assert not left, "memory is still traced; expected tracemalloc.stop()"
