"""Stores of plans: what a placement depends on, and that nothing in a store is trusted."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stowplan import NumpyPool
from stowplan.errors import PoolError
from stowplan.packing import Problem, pack
from stowplan.packing.check import check
from stowplan.planning import DirectoryStore, MemoryStore, Plan, PlanStore
from stowplan.planning.co_placement import NO_RANGES
from stowplan.planning.job import Arena, PlanJob
from stowplan.planning.making import Options, plan_record
from stowplan.planning.packer import Packer
from stowplan.planning.shared import SharedPlans
from stowplan.planning.store import open_store
from stowplan.planning.store_directory import STALE, SUFFIX
from stowplan.planning.store_packing import MAGIC, _digest, encode, key_of

from ..children import printed
from ..running import in_threads
from .logs import Used, log

PROBLEM = Problem([64, 128, 192, 64], [0, 1, 2, 3], [4, 3, 5, 6], gaps=[(0, 1, 2)], alignment=64)


def one_above_the_other(problem: Problem, apart: int = 0) -> np.ndarray:
    """Return offsets at which nothing overlaps, and which need as much as there can be."""
    return np.cumsum(problem.size) - problem.size + apart * np.arange(len(problem))


def written(problem: Problem, offsets: np.ndarray, **changed: object) -> bytes:
    """Return bytes with a valid digest, whatever they hold."""
    placement = replace(pack(problem), offsets=np.asarray(offsets, dtype=np.int64))
    data = encode(key_of(problem, "auto"), placement)
    end = data.index(b"\n", len(MAGIC))
    header = {**json.loads(data[len(MAGIC) : end]), **changed}
    body = MAGIC + json.dumps(header).encode() + data[end:-16]
    return body + _digest(body)


@pytest.fixture(params=["memory", "directory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> PlanStore:
    return MemoryStore() if request.param == "memory" else DirectoryStore(tmp_path / "plans")


# ----------------------------------------------------------------------------------------------------------- the key


@pytest.mark.parametrize(
    "other",
    [
        {"size": [64, 128, 192, 128]},
        {"start": [0, 1, 2, 4]},
        {"end": [4, 3, 5, 7]},
        {"gaps": [(0, 2, 3)]},
        {"gaps": None},
        {"alignment": 32},
        {"fixed": [-1, -1, -1, 0]},
    ],
)
def test_problems_that_differ_have_other_keys(other: dict[str, object]) -> None:
    columns = {
        name: getattr(PROBLEM, name) for name in ("size", "start", "end", "gaps", "alignment", "fixed")
    }
    same, changed = Problem(**columns), Problem(**{**columns, **other})
    assert key_of(same, "auto") == key_of(PROBLEM, "auto")
    assert key_of(changed, "auto") != key_of(PROBLEM, "auto")


def test_solvers_and_versions_have_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {key_of(PROBLEM, "auto"), key_of(PROBLEM, "best_fit")}
    monkeypatch.setattr("stowplan.planning.store_packing.__version__", "0.0.0")
    keys.add(key_of(PROBLEM, "auto"))
    assert len(keys) == 3


# -------------------------------------------------------------------------------------------------- found and packed


def test_what_one_has_packed_others_find(store: PlanStore) -> None:
    first, second = Packer(store), Packer(store)
    one, other = first(PROBLEM, "auto"), second(PROBLEM, "auto")
    assert (first.packed, second.packed) == (1, 0)
    assert one.offsets.tolist() == other.offsets.tolist()
    assert (one.peak, one.lower_bound, one.solver, one.status) == (
        other.peak,
        other.lower_bound,
        other.solver,
        other.status,
    )
    assert second(PROBLEM, "best_fit").solver == "best_fit"
    assert second.packed == 1


def test_without_a_store_everything_is_packed() -> None:
    packer = Packer(None)
    assert packer(PROBLEM, "auto").peak == packer(PROBLEM, "auto").peak
    assert packer.packed == 2


def test_a_plan_is_right_beside_other_neighbours(store: PlanStore) -> None:
    """The placement alone is shared; what depends on neighbours is another problem."""

    def planned(text: str, packer: Packer, *neighbours: Used) -> Plan:
        arena = Arena(1 << 20, NO_RANGES)
        job = PlanJob(log(text), log(text), neighbours=neighbours, arena=arena)
        plan = plan_record(job, SharedPlans(4), Options(64, packer=packer)).plan
        assert isinstance(plan, Plan)
        return plan

    shorter, other = (Used(planned(text, Packer(None))) for text in ("640 ~1 640 -0", "~0 6400 -1"))
    plans, packed = [], []
    for neighbours in ([], [shorter], [other], [other, shorter], [shorter]):
        packer = Packer(store)
        plan = planned("640 1280 ~1 640 -0", packer, *neighbours)
        check(plan.problem, plan.placement.offsets)
        plans.append(plan.placement.offsets.tolist())
        packed.append(packer.packed)
    assert packed[0] == 1
    assert packed[-1] == 0
    assert plans[-1] == plans[1]
    assert plans[0] != plans[2]


def test_the_last_that_were_asked_for_stay_in_memory() -> None:
    store = MemoryStore(2)
    for key in "ab":
        store.keep(key, b"")
    assert store.find("a") == b""
    store.keep("c", b"")
    assert [store.find(key) for key in "abc"] == [b"", None, b""]


# ------------------------------------------------------------------------------------------------ what is not trusted

SOUND = written(PROBLEM, one_above_the_other(PROBLEM))
OVERLAPPING = written(PROBLEM, np.zeros(4))


def shuffled(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (OVERLAPPING, "conflict: block"),
        (written(PROBLEM, one_above_the_other(PROBLEM) + 1), "multiple of its alignment"),
        (written(PROBLEM, one_above_the_other(PROBLEM) - 64), "expected 0 or more"),
        (written(PROBLEM, one_above_the_other(PROBLEM, 1 << 60)), "64-bit|one above the other"),
        (written(PROBLEM, one_above_the_other(PROBLEM, 1 << 40)), "one above the other"),
        (written(PROBLEM, one_above_the_other(PROBLEM), key="0" * 64), "another problem"),
        (written(PROBLEM, one_above_the_other(PROBLEM), key=7), "header"),
        (written(PROBLEM, one_above_the_other(PROBLEM), solver=None), "header"),
        (written(PROBLEM, one_above_the_other(PROBLEM)[:3]), "offsets"),
        (SOUND.replace(b"plan 1", b"plan 2"), "another version"),
        (b"", "not a plan"),
        (b"\x80\x04\x95 a pickle", "not a plan"),
        *((SOUND[:length], "torn|another version") for length in range(3, len(SOUND), 23)),
        *((shuffled(SOUND, at), "torn|another version") for at in range(0, len(SOUND), 17)),
    ],
)
def test_what_is_not_the_placement_is_refused_and_replaced(data: bytes, why: str, tmp_path: Path) -> None:
    store, key = DirectoryStore(tmp_path), key_of(PROBLEM, "auto")
    store.keep(key, data)
    packer = Packer(store)
    with pytest.warns(RuntimeWarning, match=why) as told:
        placement = packer(PROBLEM, "auto")
    assert len(told) == 1
    assert str(tmp_path / (key + SUFFIX)) in str(told[0].message)
    check(PROBLEM, placement.offsets)
    assert placement.optimal
    assert packer.packed == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert packer(PROBLEM, "auto").offsets.tolist() == placement.offsets.tolist()
    assert packer.packed == 1


def test_a_sound_file_of_another_hand_is_followed(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    store.keep(key_of(PROBLEM, "auto"), SOUND)
    packer = Packer(store)
    assert packer(PROBLEM, "auto").offsets.tolist() == one_above_the_other(PROBLEM).tolist()
    assert packer.packed == 0


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_folder(path: Path) -> None:
    path.mkdir()


def a_large_file(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("make", [a_pipe, a_folder, a_large_file])
def test_nobody_waits_for_what_is_no_plan(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / (key_of(PROBLEM, "auto") + SUFFIX))
    packer = Packer(DirectoryStore(tmp_path))
    with pytest.warns(RuntimeWarning):
        assert packer(PROBLEM, "auto").optimal


class Broken(PlanStore):
    """A store whose other end is gone."""

    def find(self, key: str) -> bytes | None:
        raise ConnectionError("the other end is gone")

    def keep(self, key: str, data: bytes) -> None:
        raise ConnectionError("the other end is gone")


def test_a_store_that_fails_is_reported_and_done_without() -> None:
    packer = Packer(Broken())
    with pytest.warns(RuntimeWarning, match="the other end is gone") as told:
        found = [packer(PROBLEM, "auto") for _ in range(2)]
    assert all(placement.optimal for placement in found)
    assert len(told) == 2  # one for each thing that does not work
    assert packer.packed == 2


# ------------------------------------------------------------------------------------------------------ the directory


def key(n: int) -> str:
    return f"{n:064x}"


def test_a_directory_keeps_to_its_bound_and_the_last_used_stay(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path, limit=250)
    (tmp_path / "notes.txt").write_bytes(bytes(1000))
    now = time.time()
    for n, used in ((1, now - 3 * STALE), (2, now - 2 * STALE)):
        store.keep(key(n), bytes(100))
        os.utime(store.where(key(n)), (used, used))
    assert store.find(key(1)) == bytes(100)  # noted: it is the last used now
    store.keep(key(3), bytes(100))
    assert {file.key for file in store.kept()} == {key(1), key(3)}
    store.keep(key(4), bytes(251))
    assert store.find(key(4)) is None
    assert (tmp_path / "notes.txt").exists()
    store.remove(key(1))
    assert [file.key for file in store.kept()] == [key(3)]


def test_what_a_killed_process_was_writing_goes_after_a_while(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    old, new, foreign = (
        tmp_path / name for name in (f".{key(1)}.{'0' * 16}", f".{key(1)}.{'1' * 16}", ".hidden")
    )
    for path in (old, new, foreign):
        path.write_bytes(b"half a pl")
    for path in (old, foreign):
        os.utime(path, (0, 0))
    store.keep(key(2), b"")
    assert [path.exists() for path in (old, new, foreign)] == [False, True, True]


def test_a_directory_that_is_not_there_has_nothing(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "a" / "b")
    assert store.find(key(1)) is None
    assert store.kept() == []
    store.keep(key(1), b"1")
    assert store.find(key(1)) == b"1"


def test_a_directory_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "plans")
    (tmp_path / "plans").write_text("a file, by now")
    packer = Packer(store)
    with pytest.warns(RuntimeWarning, match="plans"):
        assert packer(PROBLEM, "auto").optimal


def test_threads_that_keep_one_plan_leave_one_file(tmp_path: Path) -> None:
    def ask() -> None:
        Packer(DirectoryStore(tmp_path))(PROBLEM, "auto")

    in_threads(ask, ask, ask, ask)
    assert os.listdir(tmp_path) == [key_of(PROBLEM, "auto") + SUFFIX]


@pytest.mark.parametrize("limit", [0, -1, 1.5, True])
def test_a_bound_is_a_number_of_bytes(limit: int, tmp_path: Path) -> None:
    with pytest.raises(PoolError, match="expected a number of bytes"):
        DirectoryStore(tmp_path, limit)


def test_a_pool_says_what_it_takes_for_a_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PoolError, match="is a file; expected the path of a directory"):
        NumpyPool(plans=tmp_path / "file")
    with pytest.raises(PoolError, match="plans is 3; expected"):
        NumpyPool(plans=3)  # type: ignore[arg-type]


def test_killed_processes_leave_no_torn_plan_and_no_lock(tmp_path: Path) -> None:
    script = Path(__file__).parent / "store_kills.py"
    assert "300 kills" in printed(script, tmp_path, "300", "1")


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PoolError, match="there is no such directory"):
        open_store(tmp_path / "file" / "plans")
    with pytest.raises(PoolError, match="which is a file"):
        open_store(tmp_path / "file")
    assert open_store(tmp_path / "new" / "plans").find("0" * 64) is None
