"""The step finder: equal to its reference on any requests, and finds what repeats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, cycle, islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.profiler._recorder import StepFinder

from .reference import step_finder as reference

CONSTANTS = reference.Constants()

Script = list[tuple[int, int]]
"""The bytes of each request, and before how many requests from it the block is freed."""

requests = st.tuples(st.sampled_from([1, 2, 3, 100, 5000]), st.integers(1, 12))
scripts = st.lists(requests, min_size=1, max_size=12)


def run(script: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield each request's bytes, and those alive before it."""
    due: dict[int, int] = {}
    live = 0
    for number, (size, life) in enumerate(script):
        live -= due.pop(number, 0)
        yield size, live
        live += size
        due[number + life] = due.get(number + life, 0) + size


def beginnings(script: Iterable[tuple[int, int]]) -> list[int]:
    """Return at which requests steps are seen to begin; the first is the one at which the step is found."""
    finder = StepFinder()
    return [number for number, (size, live) in enumerate(run(script)) if finder.observe(size, 0, live)]


def require_equal(script: Iterable[tuple[int, int]], hints: dict[int, bool]) -> None:
    """Check a finder against its reference at each request of a program, some with a hint."""
    finder, expected = StepFinder(), reference.StepFinder(CONSTANTS)
    for number, (size, live) in enumerate(run(script)):
        cue = expected.observe(size, 0, live, hints.get(number))
        assert finder.observe(size, 0, live, hints.get(number)) == cue
        if cue == "found":
            assert finder.periods == expected.periods


@given(
    prefix=scripts,
    script=scripts,
    other=scripts,
    noise=st.dictionaries(st.integers(0, 150), requests, max_size=4),
    hints=st.dictionaries(st.integers(0, 200), st.booleans(), max_size=6),
)
def test_equals_its_reference(
    prefix: Script, script: Script, other: Script, noise: dict[int, tuple[int, int]], hints: dict[int, bool]
) -> None:
    program = list(chain(prefix, islice(cycle(script), 60), islice(cycle(other), 60), prefix))
    for number, request in noise.items():
        program.insert(number, request)
    require_equal(program, hints)


@given(
    calls=st.lists(
        st.tuples(st.sampled_from([0, 8]), st.sampled_from([0, 0, 0, 7]), st.sampled_from([0, 1, 50, 1000])),
        max_size=120,
    )
)
def test_equals_its_reference_where_nothing_adds_up(calls: list[tuple[int, int, int]]) -> None:
    """Frees on other threads, other streams, a caller that counts wrongly."""
    finder, expected = StepFinder(), reference.StepFinder(CONSTANTS)
    for size, stream, live in calls:
        assert finder.observe(size, stream, live) == expected.observe(size, stream, live)


@given(prefix=scripts, script=scripts)
@settings(settings.get_profile("usual"))
def test_what_repeats_is_found_after_any_prefix(prefix: Script, script: Script) -> None:
    period = len(script)
    found = beginnings(chain(prefix, islice(cycle(script), 30 * period + 100)))
    settled = [number for number in found if number >= len(prefix) + 15 * period + 50]
    assert settled
    # Where the script consists of alike parts, each of them may be taken for a step; then these recur.
    again = {number + period for number in settled}
    assert again - {number for number in again if number > found[-1]} <= set(settled)


@pytest.mark.parametrize("length", [1, 2, 3, 5, 20, 300])
def test_the_step_is_found_within_five(length: int) -> None:
    """A step of `length` requests of different sizes, of which each lives until the next but one."""
    init = [(10**6 + i, 10**9) for i in range(7)]
    step = [(1000 + i, 2) for i in range(length)]
    found = beginnings(chain(init, islice(cycle(step), 12 * length + 40)))
    assert found[0] <= len(init) + 4 + max(4 * length, 8)
    assert set(distances(found)) == {length}


def distances(found: list[int]) -> list[int]:
    return [b - a for a, b in pairwise(found)]


def network(layers: int, *, update: int) -> Script:
    """Forward, backward, update, with a loop in each.

    The layers' activations are freed on the way back, or, where there is an update, after it.
    """
    requests, ends = 3 * layers + 3 * update, 3 * layers + 3 * update
    step: Script = []
    for i in range(layers):
        freed = ends if update else 3 * layers - i
        step += [(4000, 1), (1000, freed - (2 * i + 1))]
    step += [(500, 1) for _ in range(layers)]
    step += [(200 + 8 * part, 1) for _ in range(update) for part in range(3)]
    assert len(step) == requests
    return step


@pytest.mark.parametrize("update", [0, 1, 5, 10])
def test_a_loop_within_the_step_is_not_the_step(update: int) -> None:
    step = network(20, update=update)
    found = beginnings(chain([(10**6, 10**9)], islice(cycle(step), 8 * len(step))))
    assert found[0] <= 4 * len(step)
    assert set(distances(found)) == {len(step)}


def test_a_loop_that_was_taken_for_the_step_is_given_up() -> None:
    """At the program's beginning there is nothing else that it could be."""
    loop = [(400, 1)] * 20
    step = [(1000, 200), *loop, *((5000 + i, 30) for i in range(180))]
    found = beginnings(chain(loop, islice(cycle(step), 12 * len(step))))
    assert found[0] < len(loop)
    assert distances(found)[-4:] == [len(step)] * 4


def test_steps_of_different_lengths_have_an_anchor() -> None:
    """Sentences: the first part of a step differs each time, the update at its end never does."""
    update = [(3000 + 10 * i, 1) for i in range(6)]
    starts, program = [], [(10**6, 10**9)]
    for number in range(12):
        starts.append(len(program))
        words = 20 + 7 * (number * 5 % 8)
        program += [(64 * (words - i) + number, words - i) for i in range(words)]
        program += update
    found = beginnings(program)
    assert found[0] <= starts[4]
    before = min(start - found[0] for start in starts if start >= found[0])
    assert before < len(update)
    assert {number + before for number in found} == {
        start for start in [*starts, len(program)] if start >= found[0]
    }


def test_another_loop_is_found_in_its_turn() -> None:
    one, other = [(100 + i, 2) for i in range(9)], [(900 + i, 3) for i in range(14)]
    program = [*islice(cycle(one), 900), *islice(cycle(other), 1400)]
    found = beginnings(program)
    assert distances(found)[:90] == [9] * 90
    assert set(distances(found)[-80:]) == {14}


def nested(inner: int, *, held: int) -> Script:
    """A time step: arrays that are held over the iterations of a solver, the solver, and an update."""
    body: Script = [(1000 + i, 2) for i in range(6)]
    length = 3 + 6 * inner
    return [(held + i, length - i) for i in range(3)] + inner * body + [(700 + i, 1) for i in range(4)]


@pytest.mark.parametrize("inner", [4, 10, 15])
def test_an_enclosing_loop_that_holds_much_is_the_step(inner: int) -> None:
    step = nested(inner, held=5000)
    found = beginnings(chain([(10**6, 10**9)], islice(cycle(step), 20 * len(step))))
    assert set(distances(found)[-12:]) == {len(step)}


def in_turn(words: int, *, layers: int = 6) -> Script:
    """A loop over words, one back over them, and one over the parameters: as a recurrent network is trained.

    What the first one computes is held until the last one.
    """
    held = words * (layers + 8)
    forward = [(1000 + place % layers, held - place) for place in range(words * layers)]
    backward = [(500 + i, 2) for i in range(8)] * words
    update = [(3000 + i, 1) for i in range(3)] * 12
    return [*forward, *backward, *update]


@pytest.mark.parametrize("words", [12, 20])
def test_a_step_of_several_loops_is_found_though_each_of_them_is(words: int) -> None:
    step = in_turn(words)
    found = beginnings(chain([(10**6, 10**9)], islice(cycle(step), 9 * len(step))))
    assert found[0] < len(step)  # an inner loop
    assert distances(found)[-2:] == [len(step)] * 2


@given(
    words=st.lists(st.sampled_from([6, 9, 12]), min_size=1, max_size=2),
    layers=st.sampled_from([3, 6]),
    hints=st.dictionaries(st.integers(0, 900), st.booleans(), max_size=4),
)
@settings(max_examples=20)
def test_loops_in_turn_equal_the_reference(words: list[int], layers: int, hints: dict[int, bool]) -> None:
    require_equal(chain.from_iterable(islice(cycle([in_turn(n, layers=layers) for n in words]), 7)), hints)


def test_an_enclosing_loop_that_holds_little_is_not() -> None:
    """An epoch of alike iterations."""
    step = nested(60, held=500)
    found = beginnings(chain([(10**6, 10**9)], islice(cycle(step), 20 * len(step))))
    assert distances(found)[-50:].count(6) > 45


@given(
    inner=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    held=st.sampled_from([50, 3000]),
    hints=st.dictionaries(st.integers(0, 400), st.booleans(), max_size=4),
)
def test_loops_in_loops_equal_the_reference(inner: list[int], held: int, hints: dict[int, bool]) -> None:
    require_equal(chain.from_iterable(islice(cycle([nested(i, held=held) for i in inner]), 16)), hints)


def test_too_long_a_step_is_given_up() -> None:
    finder = StepFinder()
    cues = [finder.observe(number, 0, 0) for number in range(CONSTANTS.longest + 1)]
    assert cues == [None] * CONSTANTS.longest + ["lost"]
