"""`experiments.device` without a device: the smallest amount that works, and which promises a row does not keep."""

from __future__ import annotations

from typing import Any

import pytest

from experiments import device
from experiments.measures.smallest import smallest

MiB = 2**20


@pytest.mark.parametrize("need", [3, 100, 5_000, 99_999, 100_000, 123_456, 10**7])
@pytest.mark.parametrize("guesses", [(), (5_050, 4_950), (10**9, 1)])
def test_bisection(need: int, guesses: tuple[int, ...]) -> None:
    tried: list[int] = []

    def works(amount: int) -> bool:
        tried.append(amount)
        return amount >= need

    found = smallest(works, 2, 100_000, share=0.01, guesses=guesses)
    assert need <= found <= max(1.01 * need + 1, need)
    assert found in tried
    assert len(tried) == len(set(tried)) < 40


def row(way: str, **changed: Any) -> dict[str, Any]:
    """Of a run that keeps every promise: 40 MiB retained, with the page that small blocks share, an arena of 20 MiB."""
    found = {
        "way": way,
        "in_use": [80 * MiB, 80 * MiB, 80 * MiB, 60 * MiB, 60 * MiB],
        "reserved": [80 * MiB, 80 * MiB, 80 * MiB, 60 * MiB, 60 * MiB],
        "replayed": [0.0, 0.0, 0.0, 0.99, 0.99],
        "most": 80 * MiB,
        "peak_reserved": 80 * MiB,
        "retained": 37 * MiB,
        "retained_in_pages": 38 * MiB,
        "arena": 20 * MiB,
        "fingerprint": "a",
        "smallest": 70 * MiB,
        "probes": [(70 * MiB, 4), (65 * MiB, None)],
    }
    return found | changed


CUPY = {"way": "cupy", "in_use": [80 * MiB] * 5, "most": 80 * MiB, "fingerprint": "a", "smallest": 75 * MiB}


def test_a_row_that_keeps_every_promise() -> None:
    assert device.broken(row("pool"), CUPY) == []
    assert device.broken(CUPY, CUPY) == []
    assert device.serving_from(row("pool")) == 4


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"in_use": [88 * MiB, *[60 * MiB] * 4]}, "1.10 times CuPy's after step 1"),
        ({"most": 88 * MiB, "peak_reserved": 88 * MiB}, "1.10 times CuPy's at most"),
        ({"in_use": [*[60 * MiB] * 4, 66 * MiB]}, "1.10 times retained + arena after the plan"),
        ({"replayed": [0.0] * 4 + [0.99]}, "the plan serves from step 5, not from 4"),
        ({"replayed": [0.0, 0.0, 0.0, 0.99, 0.2]}, "the plan serves never, not from 4"),
        ({"reserved": [80 * MiB, 80 * MiB, 80 * MiB, 60 * MiB, 60 * MiB - 1]}, "reserved_bytes is off by -1"),
        ({"peak_reserved": 80 * MiB + 5}, "peak_reserved_bytes is off by +5"),
        ({"fingerprint": "b"}, "OTHER BITS"),
        ({"smallest": 90 * MiB}, "needs a device 1.20 times CuPy's"),
        ({"probes": [(64 * MiB, 6), (60 * MiB, 6)]}, "no plan from step 4 on a device of 64.0 MiB"),
    ],
)
def test_a_broken_promise_is_named(changed: dict[str, Any], expected: str) -> None:
    found = row("pool", **changed)
    if "in_use" in changed:
        found["reserved"] = found["in_use"]
    assert device.broken(found, CUPY) == [expected]


def test_managed_memory_needs_no_more_than_the_plan() -> None:
    assert device.broken(row("managed", smallest=61 * MiB), CUPY) == []
    assert device.broken(row("managed"), CUPY) == ["needs a device 1.17 times retained + arena"]
