"""What follows a first step: an expectation for a run that begins alike, and nothing that is trusted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stowplan import NumpyPool
from stowplan.packing.check import check
from stowplan.planning import DirectoryStore, MemoryStore, Plan, make_plan
from stowplan.planning.store import DamagedError
from stowplan.planning.store_packing import MAGIC, _digest
from stowplan.planning.store_steps import decode_step, encode_step, key_after, recall

from .logs import log, profile

KEY = "5" * 64
STEP = "640 1280 -0 320 -1 -2"


def a_plan() -> Plan:
    return make_plan(profile(STEP), alignment=64)


def changed(numbers: Callable[[np.ndarray], object] = lambda columns: None, **header: object) -> bytes:
    """Return the bytes of a plan with something changed, and a valid digest."""
    data = encode_step(KEY, a_plan())
    end = data.index(b"\n", len(MAGIC))
    known = {**json.loads(data[len(MAGIC) : end]), **header}
    columns = np.frombuffer(data[end + 1 : -16], dtype="<i8").copy()
    numbers(columns)
    body = MAGIC + json.dumps(known).encode() + b"\n" + columns.tobytes()
    return body + _digest(body)


def test_a_plan_comes_back_as_it_was() -> None:
    plan = a_plan()
    found = decode_step(encode_step(KEY, plan), KEY, 64)
    assert found.profile.same_blocks(plan.profile)
    assert found.profile.period == plan.profile.period
    assert found.placement.offsets.tolist() == plan.placement.offsets.tolist()
    assert (found.arena_bytes, found.steps) == (plan.arena_bytes, 1)
    assert decode_step(changed(), KEY, 64).arena_bytes == plan.arena_bytes


@pytest.mark.parametrize(
    "data",
    [
        changed(lambda numbers: numbers.__setitem__(slice(-3, None), 0)),  # everything in one place
        changed(lambda numbers: numbers.__setitem__(-1, 32)),
        changed(lambda numbers: numbers.__setitem__(-1, 1 << 40)),
        changed(lambda numbers: numbers.__setitem__(0, -1)),
        changed(lambda numbers: numbers.__setitem__(1, 1 << 20)),  # larger than its place
        changed(lambda numbers: numbers.__setitem__(3, 99)),
        changed(requests=2),
        changed(requests=4),
        changed(requests=-1),
        changed(requests="3"),
        changed(requests=10**30),
        changed(period=1),
        changed(period=10**30),
        changed(steps=0),
        changed(steps=2),
        changed(steps=99),
        changed(key="4" * 64),
        encode_step(KEY, a_plan())[:-9],
        b"no plan",
    ],
)
def test_what_is_not_valid_is_refused(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(DamagedError):
        decode_step(data, KEY, 64)
    store = DirectoryStore(tmp_path)
    store.keep(KEY, data)
    with pytest.warns(RuntimeWarning, match=KEY):
        assert recall(store, KEY, 64) is None


def test_a_valid_plan_of_another_hand_does_not_overlap() -> None:
    plan = decode_step(changed(lambda numbers: numbers.__setitem__(slice(-3, None), (0, 640, 1920))), KEY, 64)
    check(plan.problem, plan.placement.offsets)


def test_steps_that_differ_are_told_apart() -> None:
    def key(text: str = STEP, step: object = "train", **other: object) -> str | None:
        options = {"alignment": 64, "solver": "auto", "small": 1033, **other}
        return key_after(log(text), step, **options)  # type: ignore[arg-type]

    keys = [
        key(),
        key("640 1280 -0 384 -1 -2"),
        key(step="eval"),
        key(step=None),
        key(step="None"),
        key(step=1),
        key(step="1"),
        key(alignment=512),
        key(solver="best_fit"),
        key(small=512),
    ]
    assert len(set(keys)) == len(keys)
    assert key() == key()
    assert key(step=(1, 2)) is key(step=object()) is key(step=True) is None


def run(pool: NumpyPool, sizes: list[int]) -> list[int]:
    """Run a step for each number of elements; return how many requests of each were replayed."""
    replayed = []
    with pool:
        for size in sizes:
            before = pool.stats.replayed
            with pool.step():
                float((np.ones(size) * 2).sum() + (np.ones(3000) * 3).sum())
            pool.wait()
            replayed.append(pool.stats.replayed - before)
    return replayed


def test_a_run_that_begins_alike_replays_its_second_step() -> None:
    store = MemoryStore()
    begin = [500]  # the first step is not like the others
    assert run(NumpyPool(plans=store), begin + 5 * [1000]) == [0, 0, 0, 4, 4, 4]
    again = NumpyPool(plans=store)
    assert run(again, begin + 5 * [1000]) == [0, 4, 4, 4, 4, 4]
    assert (again.stats.packed, again.stats.plans) == (0, 1)


def test_what_lasts_is_made_before_a_run_replays() -> None:
    """Where the second step makes what stays, the plan is expected for the third, as it was made there."""

    def run_that_keeps(pool: NumpyPool) -> list[int]:
        kept, replayed = [], []
        with pool:
            for number in range(8):
                before = pool.stats.replayed
                with pool.step():
                    if number == 1:
                        kept.append(np.zeros(5000))
                    float((np.ones(1000) * 2).sum() + (np.ones(3000) * 3).sum())
                pool.wait()
                replayed.append(pool.stats.replayed - before)
        return replayed

    store = MemoryStore()
    assert run_that_keeps(NumpyPool(warmup=2, plans=store)) == [0, 0, 0, 0, 4, 4, 4, 4]
    again = NumpyPool(warmup=2, plans=store)
    assert run_that_keeps(again) == [0, 0, 4, 4, 4, 4, 4, 4]
    assert again.stats.packed == 0


def test_a_run_that_begins_alike_and_goes_on_otherwise_loses_nothing() -> None:
    store = MemoryStore()
    run(NumpyPool(plans=store), [500, *5 * [1000]])
    other = NumpyPool(plans=store)
    replayed = run(other, [500, *9 * [2000]])
    assert replayed[-3:] == [4, 4, 4]
    assert other.stats.packed == 1
    assert run(NumpyPool(plans=store), [501, *5 * [1000]]) == [0, 0, 0, 4, 4, 4]
