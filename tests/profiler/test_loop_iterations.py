"""Which loop a request was made in, and in which of its passes: programs made at random, which count for themselves."""

from __future__ import annotations

import linecache
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan import NumpyRecorder
from stowplan.profiler.loop_iterations import LoopNode, loops_of
from stowplan.profiler.program_log import ProgramLog
from stowplan.profiler.recorders.call_sites import ROOMS, call_sites

SMALL = 1033

# A body: each item is a request, a call of a function with a body, or a loop with passes and a body.
bodies = st.recursive(
    st.just([None]),
    lambda inner: st.lists(
        st.one_of(st.none(), st.tuples(st.just("call"), inner), st.tuples(st.integers(2, 4), inner)),
        min_size=1,
    ),
    max_leaves=8,
)


def test_every_room_is_stowplans_own() -> None:
    rooms = Path(__file__).parents[2].joinpath("tools/rooms.txt").read_text().split()
    assert {"stowplan", *(room.partition("/")[0] for room in rooms)} == set(ROOMS)


def source(body: list[object]) -> str:
    """Write a program: each body asks first, so that no two passes run into one another."""
    functions: list[str] = []
    loops = iter(range(1_000))

    def lines(body: list[object], indent: str) -> list[str]:
        text = [f"{indent}ask()"]
        for item in body:
            if item is None:
                text.append(f"{indent}ask()")
            elif item[0] == "call":
                name = f"f{len(functions)}"
                functions.append("")
                functions[int(name[1:])] = "\n".join([f"def {name}():", *lines(item[1], "    ")])
                text.append(f"{indent}{name}()")
            else:
                loop = next(loops)
                text.append(f"{indent}for i{loop} in range({item[0]}):")
                text.append(f"{indent}    passes({loop})")
                text += lines(item[1], f"{indent}    ")
        return text

    main = lines(body, "")
    return "\n".join([*functions, *main, "ask()", ""])


def recorded(text: str, file: Path, **names: object) -> tuple[ProgramLog, list[LoopNode]]:
    file.write_text(text)
    linecache.checkcache(str(file))
    sites = call_sites()
    recorder = NumpyRecorder(auto_step=True, sites=sites, small=SMALL)
    code = compile(text, str(file), "exec")
    with recorder:
        exec(code, {"np": np, **names})
    log = ProgramLog.of_segments(recorder._watch.segments())
    return log, [
        node for node in loops_of(log, sites) if node.loop is not None and node.loop.file == str(file)
    ]


@settings(settings.get_profile("usual"))
@given(bodies)
def test_passes_are_those_that_the_program_counts(tmp_path_factory: object, body: list[object]) -> None:
    number = iter(range(1_000_000))
    starts: dict[int, list[int]] = {}
    asked = [0]

    def passes(loop: int) -> None:
        starts.setdefault(loop, []).append(asked[0])

    text = source(body).replace("ask()", "asked[0] += 1; np.ones(200)")
    folder = tmp_path_factory.mktemp("program")  # type: ignore[attr-defined]
    log, nodes = recorded(text, folder / f"p{next(number)}.py", passes=passes, asked=asked)
    assert len(log) == asked[0]
    # Two calls of one function are two loops: here each function is called from one place.
    found = {
        int(node.loop.text.split()[1][1:]): node.starts.tolist() for node in nodes if node.loop is not None
    }
    total = asked[0]
    notable = {loop for loop in starts if found.get(loop) is not None}
    assert {loop: starts[loop] for loop in notable} == found
    assert len(found) == len(starts) or total > 20  # the others are too small to be listed


def test_what_asks_only_in_its_own_loop_is_called_again_where_sizes_come_again(tmp_path: Path) -> None:
    text = "def cycle():\n    for n in (300, 200, 300):\n        np.ones(n)\nfor step in range(40):\n    cycle()\n"
    _, nodes = recorded(text, tmp_path / "cycles.py")
    assert {node.loop.line: node.passes for node in nodes if node.loop is not None} == {2: 120, 4: 40}


def test_of_functions_that_call_themselves_no_loop_is_told(tmp_path: Path) -> None:
    """The loop around them is told of where it asks itself: or else nothing tells its passes from other calls."""
    tree = "def tree(n):\n    for k in range(2):\n        np.ones(200)\n        if n: {}(n - 1)\n"
    other = "def other(n): tree(n)\n"
    for own, passes in (("np.ones(400); ", 9), ("", 1)):
        for functions in (other + tree.format("tree"), other + tree.format("other")):
            text = f"{functions}for step in range(9): {own}tree(3)\n"
            _, nodes = recorded(text, tmp_path / f"recursive{len(text)}.py")
            assert [(node.loop.line, node.passes) for node in nodes] == [(6, passes)]
