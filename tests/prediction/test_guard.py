"""`stowplan.guard`: an error before the first byte, laws in the user's cache, and wrong laws dropped."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stowplan
from stowplan.prediction import guarding as guards
from stowplan.prediction.code import fingerprint
from stowplan.prediction.guarding import available, cache_file
from stowplan.units import parse_bytes

calls: list[tuple[int, ...]] = []


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls.clear()
    return tmp_path


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


def test_small_calls_are_not_looked_at(cache: Path) -> None:
    stowplan.guard(memory=1)(table)(np.ones(100))
    assert calls == [(100,)]
    assert not list(cache.iterdir())


PROGRAM = """
import numpy as np, stowplan
ran = []
@stowplan.guard(memory="1 GiB", learning_seconds=float("inf"))
def table(x):
    ran.append(x.shape)
    return x[:, None] * x[None, :] + {number}
table(np.ones(9000))
print(len(ran))
"""


def test_another_process_has_what_was_learnt(tmp_path: Path) -> None:
    def ran(number: int) -> int:
        file = tmp_path / "elsewhere" / "program.py"  # beside a folder "stowplan", the cache's
        file.parent.mkdir(exist_ok=True)
        file.write_text(PROGRAM.format(number=number))
        return int(subprocess.run([sys.executable, file], capture_output=True, text=True, check=True).stdout)

    assert ran(1) > 5
    assert ran(1) == 1
    assert ran(2) > 5  # other code


def test_a_wrong_law_is_dropped_and_said(cache: Path) -> None:
    def sometimes(x: Any) -> Any:
        return x * 2 if large[0] else x * 2 + (x * 3 + x * 4)

    large = [1, 2]  # no constant of the code
    guarded = stowplan.guard(memory="8 GiB", learning_seconds=math.inf)(sometimes)
    guarded(np.ones(2_000_000))
    (file,) = (cache / "stowplan" / "predict").iterdir()
    large[0] = 0
    with pytest.warns(RuntimeWarning, match="what was learned is dropped"):
        guarded(np.ones(3_000_000))
    assert not file.exists()


def test_a_right_law_stays(cache: Path, recwarn: pytest.WarningsRecorder) -> None:
    guarded = stowplan.guard(memory="8 GiB", learning_seconds=math.inf)(table)
    for n in (9_000, 9_001, 9_001):
        guarded(np.ones(n))
    assert not recwarn.list
    assert len(list((cache / "stowplan" / "predict").iterdir())) == 1


def helper(x: Any) -> Any:
    return x + CONSTANT


CONSTANT = 3


def outer(x: Any) -> Any:
    return helper(x) * 2


def test_the_fingerprint_has_code_constants_and_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    before, file = fingerprint(outer), cache_file(outer, "")
    assert fingerprint(outer) == before
    for name, value in (("CONSTANT", 4), ("helper", lambda x: x)):
        with monkeypatch.context() as patch:
            patch.setitem(globals(), name, value)
            assert fingerprint(outer) != before
            assert cache_file(outer, "") != file
    with monkeypatch.context() as patch:
        patch.setattr(np, "__version__", "0.1")
        assert fingerprint(table_of_numpy) != before


def table_of_numpy(x: Any) -> Any:
    return np.outer(x, x)


def test_the_tightest_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "_limits", lambda: [("the machine's", 1000), ("RLIMIT_AS", 400)])
    assert available() == (400, "RLIMIT_AS")
    assert available(0.5) == (200, "50% of 400 B, RLIMIT_AS")


def test_rlimit_is_seen() -> None:
    code = (
        "import resource\nfrom stowplan.prediction.guarding import available\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))\nprint(*available())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, name = done.stdout.split(maxsplit=1)
    assert (int(count) < 2**31, name.strip()) == (True, "RLIMIT_AS")


def switching(x: Any) -> Any:
    if x.size > 10**7:
        x = x * 1.0 + x[::-1] * (x * 3)
    return x * 2


def test_a_switch_in_the_code_is_said() -> None:
    prediction = stowplan.predict(switching, np.ones(100), learning_seconds=math.inf)
    assert prediction.peak(x=10**7 - 1).cannot_tell == ""
    assert "the code switches at a size of 10,000,000" in prediction.peak(x=10**8).cannot_tell


def test_a_function_with_a_pool_is_not_recorded() -> None:
    guarded: Callable[[Any], Any] = stowplan.guard(memory="8 GiB", learning_seconds=math.inf)(table)
    pool = stowplan.NumpyPool()
    with pool:
        assert guarded(np.ones(3_000)).shape == (3_000, 3_000)
