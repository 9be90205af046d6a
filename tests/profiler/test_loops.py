"""Which loops of the source an instruction lies in."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest

from stowplan.profiler.loops import is_call, line_of, loops_at

SOURCE = """
def decorated(function):
    return function

@decorated
def numbers(count):
    for number in range(count):
        see("generator")
        yield number

def main():
    for a in see("before") or range(2):
        see("for")
        while see("test") is None:
            see("while")
            break
        else:
            see("else")
        for b in numbers(1):
            see("nested")
        [see("list") for c in range(2)]
        sum((see("genexpr") or 0 for c in range(2)), start=(
            see("argument") or 0))
        def inner():
            see("inner")
            return [see("inlined") for c in [(lambda: see("lambda"))()]]
        inner()
        try:
            raise KeyError
        except KeyError:
            see("handler")
            continue
    see("after")

main()
"""
LINES = SOURCE.splitlines()


def line(text: str) -> int:
    return next(number for number, row in enumerate(LINES, 1) if text in row)


FOR, WHILE, NESTED = line("for a in"), line("while"), line("for b in")
LOOPS = {
    "before": [],
    "for": [FOR],
    "test": [FOR, WHILE],
    "while": [FOR, WHILE],
    "nested": [FOR, NESTED],
    "generator": [FOR, NESTED, line("for number in")],
    "list": [FOR, line('"list"')],
    "genexpr": [FOR, line('"genexpr"')],
    "argument": [FOR],
    "inner": [FOR],
    "inlined": [FOR, line('"inlined"')],
    "lambda": [FOR],
    "handler": [FOR],
    "after": [],
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    """What the program saw: by name of the place, the lines of the loops, those of the calling frames first."""
    path: Path = tmp_path_factory.mktemp("program") / "program.py"
    path.write_text(SOURCE)
    found: dict[str, list[int]] = {}

    def see(name: str) -> None:
        frame: FrameType | None = sys._getframe(1)
        lines: list[int] = []
        while frame is not None and frame.f_code.co_filename == str(path):
            place = frame.f_lineno if sys.version_info < (3, 11) else frame.f_lasti
            lines[:0] = [loop.line for loop in loops_at(frame.f_code, place)]
            if not found.get(name):
                assert is_call(sys._getframe(1).f_code, sys._getframe(1).f_lasti)
                assert line_of(frame.f_code, place)[0] == frame.f_lineno
            frame = frame.f_back
        found[name] = lines

    exec(compile(SOURCE, str(path), "exec"), {"see": see})
    return found


@pytest.mark.parametrize("name", LOOPS)
def test_loops_around_a_place(seen: dict[str, list[int]], name: str) -> None:
    if sys.version_info < (3, 11) and name in ("before", "generator", "list", "genexpr", "inlined"):
        pytest.skip("until Python 3.10 only lines are known")
    assert seen[name] == LOOPS[name]


def test_there_are_no_loops_without_a_source() -> None:
    code = compile("for a in b:\n  c()\n", "nowhere.py", "exec")
    assert loops_at(code, len(code.co_code) // 4 * 2) == ()
