"""``@pytest.mark.peak("200 MiB")``: the test fails if its arrays have more alive at once, and tells which line asked.

The limit is on the live peak of NumPy's arrays, on the test's thread and those that it starts, from its call on;
fixtures are not counted. The message has the planned peak, too: what the test's blocks would need in one arena. Loaded
by pytest from stowplan's entry point; an import of it imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .runs import Run

LINES = 3
"""Lines of the message that name what holds the peak."""


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers",
        'peak(limit): fail if NumPy\'s arrays have more alive at once than limit, like "200 MiB" (stowplan)',
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, None]:
    """Record a marked test."""
    marker = pyfuncitem.get_closest_marker("peak")
    if marker is None:
        yield
        return
    from ..units import parse_bytes
    from .runs import run

    if len(marker.args) != 1 or marker.kwargs:
        raise pytest.UsageError(
            f"{pyfuncitem.nodeid}: the mark peak takes a limit; expected like peak('200 MiB')"
        )
    try:
        limit = parse_bytes(marker.args[0])
    except ValueError as error:
        raise pytest.UsageError(f"{pyfuncitem.nodeid}: the mark peak: {error}") from None
    test, runs = pyfuncitem.obj, []

    def recorded(**fixtures: Any) -> None:
        runs.extend(run(test, (), fixtures, quiet=False, sites=True))

    pyfuncitem.obj = recorded
    try:
        outcome = yield
    finally:
        pyfuncitem.obj = test
    if outcome.excinfo is None and runs[0].most > limit:  # a failure of the test itself comes first
        outcome.force_exception(pytest.fail.Exception(_message(runs[0], limit), pytrace=False))


def _message(found: Run, limit: int) -> str:
    from ..planning import make_plan
    from ..units import human_bytes

    arena = make_plan(found.profile, alignment=64).arena_bytes
    _, lines = found.at(int(found.live.argmax())) if len(found.live) else (0, {})
    most = sorted(lines.items(), key=lambda item: -item[1])[:LINES]
    return "\n".join(
        [
            f"the live peak is {human_bytes(found.most)}; expected at most {human_bytes(limit)} "
            f"(planned peak: {human_bytes(arena)})",
            *(f"  {human_bytes(count)}  {line}" for line, count in most),
        ]
    )
