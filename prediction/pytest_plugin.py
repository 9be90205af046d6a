"""``@pytest.mark.peak("200 MiB")``: the test fails if its arrays have more alive at once, and tells which line asked.

The limit is on the live peak of NumPy's arrays, on the test's thread and those that it starts, from its call on;
fixtures are not counted. The test is wrapped as what it is, a function or a coroutine, so it runs where its plugin runs
it (asyncio, anyio), in `unittest`'s classes, too; one that nothing runs fails. Other memory (PyTorch's tensors, arrays
in a pool, C libraries') is not counted: where a test takes more of it than the limit allows, a warning says so. The
message has the planned peak: what the test's blocks would need in one arena. Loaded by pytest from stowplan's entry
point; an import of it imports nothing heavy.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .traced_run import Recording, Run

LINES = 3
"""Lines of the message that name what holds the peak."""


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers",
        'peak(limit): fail if NumPy\'s arrays have more alive at once than limit, like "200 MiB" (stowplan)',
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    """Record a marked test."""
    marker = item.get_closest_marker("peak")
    if marker is None or not isinstance(item, pytest.Function):
        yield
        return
    limit = _limit(item.nodeid, marker)
    from .traced_run import Recording

    test, recording = item.obj, Recording(outside=True)
    item.obj = _recorded(test, recording)
    in_class = getattr(item, "instance", None) if hasattr(type(item), "addError") else None  # unittest's
    if in_class is not None:
        setattr(in_class, item.name, item.obj)
    try:
        outcome = yield
    finally:
        item.obj = test
        vars(in_class).pop(item.name, None) if in_class is not None else None
    itself = outcome.excinfo or getattr(item, "_excinfo", None)  # its own failure comes first
    if not itself and (message := _message(recording.runs, limit)):
        outcome.force_exception(pytest.fail.Exception(message, pytrace=False))


def _limit(name: str, marker: pytest.Mark) -> int:
    from ..common.units import parse_bytes

    if len(marker.args) != 1 or marker.kwargs:
        raise pytest.fail.Exception(
            f"{name}: the mark peak takes a limit; expected like peak('200 MiB')", pytrace=False
        )
    try:
        return parse_bytes(marker.args[0])
    except ValueError as error:
        raise pytest.fail.Exception(f"{name}: the mark peak: {error}", pytrace=False) from None


def _recorded(test: Callable[..., Any], recording: Recording) -> Callable[..., Any]:
    """Return a test that is recorded where it runs: within the coroutine, if it is one."""

    @functools.wraps(test)
    async def coroutine(*arguments: Any, **fixtures: Any) -> Any:
        with recording, recording.call():
            return await test(*arguments, **fixtures)

    @functools.wraps(test)
    def function(*arguments: Any, **fixtures: Any) -> Any:
        with recording, recording.call():
            return test(*arguments, **fixtures)

    return coroutine if inspect.iscoroutinefunction(test) else function


def _message(runs: list[Run], limit: int) -> str:
    """Return why a test fails that did not fail itself, empty if it passes; warn of memory that is not counted."""
    from ..common.units import counted, human_bytes
    from ..planning import make_plan

    if not runs:
        return "the test is a coroutine that nothing has run; expected a plugin that does (pytest-asyncio, anyio)"
    (found,) = runs
    if found.most <= limit:
        if max(found.traced, found.resident) > limit and (unseen := found.unseen(limit)):
            warnings.warn(pytest.PytestWarning(f"the mark peak cannot tell: {unseen}"), stacklevel=2)
        return ""
    arena = make_plan(found.profile, alignment=64).arena_bytes
    _, lines = found.at(int(found.live.argmax())) if len(found.live) else (0, {})
    most = sorted(((name, count) for name, count in lines.items() if count), key=lambda line: -line[1])
    rest = sum(count for _, count in most[LINES:])
    return "\n".join(
        [
            f"the live peak is {human_bytes(found.most)}; expected at most {human_bytes(limit)} "
            f"(planned peak: {human_bytes(arena)})",
            *(f"  {human_bytes(count)}  {line}" for line, count in most[:LINES]),
            *([f"  {human_bytes(rest)}  in {counted(len(most) - LINES, 'other line')}"] if rest else []),
        ]
    )
