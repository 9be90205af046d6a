"""Plans that are shared: by the next run of real training, on the command line, in worker processes."""

from __future__ import annotations

import json
import os
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stowplan import NumpyPool
from stowplan.planning import MemoryStore

from ..children import printed as python
from ..running import run
from .command_line import refused, stowplan
from .kept_plans import placements

TRAINING = Path(__file__).parent / "shared_plans_program.py"
DETERMINISTIC = """
import hashlib, sys
import numpy as np
from stowplan.packing import Problem, pack
rng = np.random.default_rng(0)
for n in (60, 120, 2500):
    start = np.sort(rng.integers(0, 2 * n, n))
    problem = Problem(64 * rng.integers(1, 4000, n), start, start + rng.integers(1, 120, n), alignment=64)
    placement = pack(problem)
    print(n, placement.solver, hashlib.sha256(placement.offsets.tobytes()).hexdigest())
"""


def steps(pool: NumpyPool, n: int = 6) -> None:
    with pool:
        run(pool, n, lambda: float((np.ones(1000) * 2).sum() + (np.ones(3000) * 3).sum()))


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Return a directory of one placement."""
    steps(NumpyPool(plans=tmp_path / "plans"))
    return tmp_path / "plans"


@pytest.mark.skipif(find_spec("chainer") is None, reason="Chainer is not installed")
def test_the_second_run_of_a_training_packs_nothing(tmp_path: Path) -> None:
    runs: list[dict[str, Any]] = [json.loads(python(TRAINING, tmp_path / "plans")) for _ in range(2)]
    first, second = runs
    without = json.loads(python(TRAINING))
    assert first["parameters"] == second["parameters"] == without["parameters"]
    assert first["packed"] == 3
    assert second["packed"] == 0
    for one in runs:
        assert all(replayed == requests > 0 for replayed, requests in one["served"]["train"][3:])
        assert all(replayed == requests > 0 for replayed, requests in one["served"]["eval"][3:])


def test_pools_of_one_process_share_a_store() -> None:
    store = MemoryStore()
    pools = [NumpyPool(plans=store) for _ in range(2)]
    for pool in pools:
        steps(pool)
    assert [pool.stats.packed for pool in pools] == [1, 0]
    assert [pool.stats.plans for pool in pools] == [1, 1]
    assert [pool.stats.replayed for pool in pools] == [4 * 3, 4 * 3]


def test_a_pool_without_a_store_packs_its_own() -> None:
    pools = [NumpyPool() for _ in range(2)]
    for pool in pools:
        steps(pool)
    assert [pool.stats.packed for pool in pools] == [1, 1]


def test_a_poisoned_directory_costs_a_packing_and_no_more(kept: Path) -> None:
    (path,) = kept.iterdir()
    sound = path.read_bytes()
    path.write_bytes(sound.replace(b"solver", b"silver"))
    pool = NumpyPool(plans=kept)
    with pytest.warns(RuntimeWarning, match=path.name):
        steps(pool)
    assert pool.stats.packed == 1
    assert pool.stats.replayed == 4 * 3
    pool = NumpyPool(plans=kept)
    steps(pool)
    assert pool.stats.packed == 0


def test_packing_does_not_depend_on_the_process() -> None:
    """Ranks that plan alone agree: not on the order of sets, and not on the clock of a busy machine."""
    found = {
        python("-c", DETERMINISTIC, PYTHONHASHSEED=seed, OMP_NUM_THREADS=threads)
        for seed, threads in (("1", "1"), ("2", "4"))
    }
    assert len(found) == 1
    solvers = {line.split()[1] for line in found.pop().splitlines()}
    assert len(solvers) > 1  # not the cheapest one alone


# -------------------------------------------------------------------------------------------------- the command line


def test_the_list_has_what_is_kept(kept: Path) -> None:
    (entry,) = json.loads(stowplan("plans", "list", kept, "--json").output)
    (path,) = kept.iterdir()
    assert entry["path"] == str(path)
    assert (entry["blocks"], entry["bytes"]) == (4, path.stat().st_size)
    table = stowplan("plans", "list", kept)
    assert table.exit_code == 0
    assert entry["key"][:12] in table.output
    assert "1 placement," in table.output
    shown = stowplan("plans", "show", kept, entry["key"][:5])
    assert shown.exit_code == 0
    assert entry["key"] in shown.output


def test_files_that_would_be_refused_are_bad_news(kept: Path) -> None:
    bad = kept / f"{0:064x}.plan"
    bad.write_text("no plan")
    for arguments in (("list", kept), ("show", kept, "000000"), ("show", kept, "000000", "--json")):
        result = stowplan("plans", *arguments)
        assert result.exit_code == 1
        assert "not a plan" in result.output
    assert stowplan("plans", "remove", kept, "000000").exit_code == 0
    assert stowplan("plans", "list", kept).exit_code == 0


def test_what_is_not_used_can_be_removed(kept: Path) -> None:
    (path,) = kept.iterdir()
    notes = kept / "notes.txt"
    notes.write_text("not a plan")
    assert stowplan("plans", "remove", kept, "--unused-for", "30").exit_code == 0
    assert path.exists()
    long_ago = time.time() - 31 * 86400
    os.utime(path, (long_ago, long_ago))
    assert stowplan("plans", "list", kept).exit_code == 0  # which is no use
    assert "removed: 1 placement," in stowplan("plans", "remove", kept, "--unused-for", "30").output
    assert list(kept.iterdir()) == [notes]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("list", "nowhere"), "there is no such directory"),
        (("show", ".", "abc"), "no keys in"),
        (("remove", "."), "one of them only"),
        (("remove", ".", "abc", "--all"), "one of them only"),
    ],
)
def test_bad_input_is_said(arguments: tuple[str, ...], expected: str) -> None:
    assert expected in refused("plans", *arguments)


def test_a_key_that_is_not_the_only_one_is_refused(kept: Path) -> None:
    for n in (1, 2):
        (kept / f"{n:064x}.plan").write_text("")
    assert "2 keys in" in refused("plans", "remove", kept, "000")
    assert stowplan("plans", "remove", kept, "--all").exit_code == 0
    assert list(kept.iterdir()) == []


def test_run_shares_plans_between_runs(tmp_path: Path) -> None:
    script = tmp_path / "loop.py"
    script.write_text(
        "import numpy as np\na = np.ones(50_000)\n"
        "def step():\n    b = a * 2; c = b + a; d = np.sqrt(c); float(d.sum())\n"
        "for i in range(200):\n    step()\n"
    )
    packed = []
    for _ in range(3):
        output = python(
            "-m",
            "stowplan",
            "run",
            "--json",
            "--plans",
            tmp_path / "plans",
            "--step-function",
            "__main__:step",
            script,
        )
        packed.append(json.loads(output.splitlines()[-1])["numpy"]["packed"])
    assert packed[0] > 0
    assert sum(packed) == placements(tmp_path / "plans")
