"""A plugin of pytest's for CuPy's own tests: which allocator they run with, and what each came to.

``STOWPLAN_CUPY_POOL``: ``cupy`` is CuPy's own pool; ``marked`` a `CupyPool`, each test a step. Each test's body runs
`TIMES` times, with each pool, so that a plan serves the last ones.
Of each file run at most ``STOWPLAN_CUPY_MOST`` tests, evenly spread. ``STOWPLAN_CUPY_OUTCOMES`` names the file that
gets, as JSON, each test's outcome and the first line of its reason.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

TIMES = 5

outcomes: dict[str, tuple[str, str]] = {}
pool: Any = None


def pytest_configure(config: pytest.Config) -> None:
    """Set the allocator before a test module is imported."""
    global pool
    import cupy

    if os.environ["STOWPLAN_CUPY_POOL"] == "marked":
        from stowplan import CupyPool

        pool = CupyPool()
        cupy.cuda.set_allocator(pool.malloc)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of graphs, which CuPy leaves out on ROCm, where its wheel has them; of others an even sample."""
    most = int(os.environ["STOWPLAN_CUPY_MOST"])
    items[:] = items[:: max(1, -(-len(items) // most))]
    for item in items:
        if item.path.name == "test_graph.py":
            for node in item.listchain():
                node.own_markers[:] = [mark for mark in node.own_markers if mark.name != "skipif"]


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Run the test's body several times."""
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    for _ in range(TIMES - 1):
        with step(pyfuncitem):
            pyfuncitem.obj(**arguments)
        if pool is not None:
            pool.wait(10)
    with step(pyfuncitem):
        return (yield)


def step(item: pytest.Function) -> contextlib.AbstractContextManager[Any]:
    """Return a step with the test's name as its key, if there is a pool."""
    return contextlib.nullcontext() if pool is None else pool.step(item.nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep an outcome; that of a set-up or tear-down where it is not a pass."""
    if report.when == "call" or report.outcome != "passed":
        if isinstance(report.longrepr, tuple):
            reason = report.longrepr[2]
        else:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = str(crash.message if crash else report.longrepr or "")
        lines = reason.splitlines()
        outcomes[report.nodeid] = (report.outcome, lines[0][:200] if lines else "")


def pytest_sessionfinish() -> None:
    """Write the outcomes, and what the pool did."""
    stats = None if pool is None else {"replayed": pool.stats.replayed, "requests": pool.stats.requests}
    Path(os.environ["STOWPLAN_CUPY_OUTCOMES"]).write_text(json.dumps({"outcomes": outcomes, "stats": stats}))
