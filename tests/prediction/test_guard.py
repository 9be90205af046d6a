"""`stowplan.guard`: an error before the first byte, what cannot be judged said, and wrong formulas dropped."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stowplan
from stowplan.common.units import parse_bytes
from stowplan.prediction import available, child, fit_function
from stowplan.prediction import guarding as guards

from ..children import printed

calls: list[tuple[int, ...]] = []
pytestmark = pytest.mark.usefixtures("modest")


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


def table(x: Any) -> Any:
    calls.append(x.shape)
    return x[:, None] * x[None, :] + 1


def test_an_error_before_the_call_says_what_would_fit() -> None:
    guarded = stowplan.guard(memory="1 GiB", learning_seconds=math.inf)(table)
    with pytest.raises(MemoryError) as error:
        guarded(np.ones(20_000))
    assert (20_000,) not in calls
    text = str(error.value)
    assert text.startswith("table needs 3.0 GiB, and 1.0 GiB are free (as asked); most at ")
    assert "test_guard.py" in text
    found = re.search(r"at most ([\d,]+) of x\[0\] fit", text)
    assert found is not None
    largest = int(found[1].replace(",", ""))
    assert 8 * largest**2 <= parse_bytes("1 GiB") < 8 * (largest + 1) ** 2 + 8
    assert guarded(np.ones(9_000)).shape == (9_000, 9_000)


def spread(x: Any, axis: int, memory: float) -> Any:
    return np.expand_dims(x, axis) * np.expand_dims(x, 1 - axis) + memory


class Model:
    def spread(self, x: Any, axis: int, memory: float) -> Any:
        return spread(x, axis, memory)


@pytest.mark.parametrize(("function", "first"), [(spread, ()), (Model.spread, (Model(),))])
def test_arguments_may_have_any_names(function: Callable[..., Any], first: tuple[Any, ...]) -> None:
    guarded = stowplan.guard(memory="1 GiB", learning_seconds=math.inf)(function)
    assert guarded(*first, np.ones(3000), 0, 2.0)[2999, 0] == 3
    with pytest.raises(MemoryError, match=r"at most [\d,]+ of x\[0\] fit"):
        guarded(*first, np.ones(20_000), 0, 2.0)


def test_chunks_warn_and_go_on() -> None:
    guarded = stowplan.guard(memory="8 MiB", chunks=0, learning_seconds=math.inf)(table)
    with pytest.warns(RuntimeWarning, match=r"at most 1,02\d of x\[0\] fit"):
        result = guarded(x=np.ones(9_000))
    assert result.shape == (9_000, 9_000)


def test_the_program_s_places_in_files_stay(tmp_path: Path) -> None:
    with (tmp_path / "numbers").open("w+b") as file:
        np.ones(1000).tofile(file)
        file.seek(0)
        guarded = stowplan.guard(learning_seconds=2)(lambda n: np.fromfile(file, count=n))
        assert len(guarded(100)) == 100


def in_list(arrays: Any) -> Any:
    return [one * 2 for one in arrays]


@pytest.mark.parametrize(
    ("function", "arguments", "why"),
    [
        (in_list, ([np.ones(1000)] * 4,), "arrays of in_list is a list of ndarray"),
        (
            lambda x: x[x > 0.5],
            (np.random.default_rng(0).random(1_000_000),),
            "its bytes depend on the values",
        ),
    ],
)
def test_what_cannot_be_judged_is_said_once(
    function: Callable[..., Any], arguments: tuple[Any, ...], why: str, recwarn: pytest.WarningsRecorder
) -> None:
    guarded = stowplan.guard(memory="50 MiB")(function)
    for _ in range(2):
        guarded(*arguments)
    (said,) = recwarn.list
    assert why in str(said.message)
    assert len(str(said.message).splitlines()) == 1
    with pytest.raises(MemoryError, match=re.escape(why)):
        stowplan.guard(memory="50 MiB", strict=True)(function)(*arguments)


def pixels(x: Any) -> Any:
    calls.append(x.shape)
    return np.broadcast_to(x, (400, *x.shape)).copy()


def made(n: int) -> Any:
    calls.append((n,))
    return np.zeros((n, 100)) + 1


@pytest.mark.parametrize(
    ("function", "small", "large"), [(pixels, np.ones(50), np.ones(20_000)), (made, 50, 10**5)]
)
def test_small_arguments_and_numbers_are_judged_by_what_they_need(
    function: Callable[..., Any], small: Any, large: Any
) -> None:
    guarded = stowplan.guard(memory="50 MiB")(function)
    guarded(small)
    with pytest.raises(MemoryError, match=r"at most [\d,]+ of .* fit"):
        guarded(large)
    assert len(calls) == 1


def test_what_lies_beyond_its_runs_is_said(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setattr(fit_function, "available", lambda share: (1 << 20, "a test"))
    guarded, large = stowplan.guard(memory="1 GiB")(np.negative), np.ones(2_000_000)
    guarded(large)
    assert "times beyond what was run" in str(recwarn.pop(RuntimeWarning).message)
    with pytest.raises(MemoryError, match="times beyond what was run"):
        stowplan.guard(memory="1 GiB", strict=True)(np.negative)(large)


def noisy(x: Any) -> Any:
    return x + np.random.standard_normal(x.shape)  # noqa: NPY002  # the program's own state


def test_a_guard_without_parentheses_is_one_with_the_defaults() -> None:
    @stowplan.guard
    def table(x: Any) -> Any:
        return x[:, None] * x[None, :]

    assert table(np.ones(100)).shape == (100, 100)
    with pytest.raises(MemoryError, match="table needs"):
        table(np.empty(10_000_000, np.int8))


@pytest.mark.filterwarnings("default")
def test_a_call_that_is_not_recorded_is_named_once() -> None:
    @stowplan.guard
    def doubled(x: Any) -> Any:
        return x * 2

    doubled(np.ones(1000))
    with stowplan.NumpyPool(), pytest.warns(RuntimeWarning, match="not recorded") as warned:
        doubled(doubled(np.ones(1000)))
    assert len(warned) == 1


def test_the_first_call_returns_what_it_would_return_without_the_guard() -> None:
    results = []
    for function in (noisy, stowplan.guard(memory="1 GiB")(noisy)):
        np.random.seed(0)  # noqa: NPY002
        results.append(function(np.ones(1_000_000)))
    assert (results[0] == results[1]).all()


def test_kinds_of_arguments_that_are_too_many_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "MOST_KINDS", 2)
    guarded = stowplan.guard(memory="1 GiB")(lambda x, share: x * share)
    with pytest.warns(RuntimeWarning, match="are of more than 2 kinds"):
        deque((guarded(np.ones(1000), share / 10) for share in range(8)), maxlen=0)


def test_a_wrong_formula_is_dropped_and_said() -> None:
    def sometimes(x: Any) -> Any:
        return x * 2 if large[0] else x * 2 + (x * 3 + x * 4)

    large = [1, 2]  # no constant of the code
    guarded = stowplan.guard(memory="8 GiB", learning_seconds=math.inf)(sometimes)
    guarded(np.ones(2_000_000))
    large[0] = 0
    with pytest.warns(RuntimeWarning, match="what was learned is dropped"):
        guarded(np.ones(3_000_000))


def test_a_right_formula_stays(recwarn: pytest.WarningsRecorder) -> None:
    guarded = stowplan.guard(memory="8 GiB", learning_seconds=math.inf)(table)
    for n in (4_000, 4_001, 4_001):
        guarded(np.ones(n))
    assert not recwarn.list


def test_the_tightest_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_limits", lambda: [("the machine's", 1000), ("RLIMIT_AS", 400)])
    assert available() == (400, "RLIMIT_AS")
    assert available(0.5) == (200, "50% of 400 B, RLIMIT_AS")


def test_rlimit_is_seen() -> None:
    code = (
        "import resource\nfrom stowplan.prediction import available\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))\nprint(*available())"
    )
    count, name = printed("-c", code).split(maxsplit=1)
    assert (int(count) < 2**31, name.strip()) == (True, "RLIMIT_AS")
