"""``stowplan.step()`` on functions of all kinds, with a stepper that counts."""

from __future__ import annotations

import asyncio
import sys
import types
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stowplan import step
from stowplan.cli.scripts.step_functions import mark_imported, mark_own
from stowplan.cli.scripts.step_markers import steps_go_to
from stowplan.errors import ScriptError


@contextmanager
def counting() -> Iterator[list[str]]:
    seen: list[str] = []

    @contextmanager
    def stepper(key: Any) -> Iterator[None]:
        assert seen.count("begin") == seen.count("end"), "steps nest"
        seen.append("begin")
        yield
        seen.append("end")

    with steps_go_to(stepper):
        yield seen


def test_a_coroutine_s_step_lasts_until_its_end() -> None:
    with counting() as seen:

        @step()
        async def work() -> int:
            seen.append("first part")
            await asyncio.sleep(0)
            seen.append("second part")
            return 3

        async def main() -> int:
            return await work() + await work()

        assert asyncio.run(main()) == 6
    assert seen == ["begin", "first part", "second part", "end"] * 2
    with step():  # nobody looks any more
        assert len(seen) == 8


def test_coroutines_that_take_turns_are_one_step_and_said_so() -> None:
    with counting() as seen:

        @step()
        async def work() -> None:
            await asyncio.sleep(0)

        async def main() -> None:
            await asyncio.gather(*(work() for _ in range(3)))

        with pytest.warns(RuntimeWarning, match="await them one after the other"):
            asyncio.run(main())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            asyncio.run(work())  # the former one has ended
    assert seen == ["begin", "end"] * 2


def test_generators_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def parts() -> Iterator[int]:
        yield 1

    async def asynchronous() -> AsyncIterator[int]:
        yield 1

    for function in (parts, asynchronous):
        with pytest.raises(ScriptError, match=r"is a generator: .* expected a function whose call is"):
            step()(function)
    with pytest.raises(ScriptError, match="f is a generator"):
        mark_own("def f():\n    x = yield\n", "p.py", "f", "mark")
    module = types.ModuleType("generators")
    module.__dict__["parts"] = parts
    monkeypatch.setitem(sys.modules, "generators", module)
    with pytest.raises(ScriptError, match="is a generator"):
        mark_imported("generators", "parts")


def test_generators_within_a_step_function_are_its_own_matter() -> None:
    source = """
def f():
    def g():
        yield 1
    return [lambda: (yield)] and sum(g())
async def h():
    return 2
"""
    names: dict[str, Any] = {}
    for function in ("f", "h"):
        code, names["mark"] = mark_own(source, "p.py", function, "mark")
        with counting() as seen:
            exec(code, names)
            result = names[function]()
            assert (asyncio.run(result) if function == "h" else result) == {"f": 1, "h": 2}[function]
        assert seen == ["begin", "end"]


def test_what_cannot_be_marked() -> None:
    for module, name in (
        ("math", "pi"),
        ("builtins", "int.bit_length"),
        ("absent", "f"),
        ("math", "nothing"),
    ):
        with pytest.raises(ScriptError, match=name):
            mark_imported(module, name)
