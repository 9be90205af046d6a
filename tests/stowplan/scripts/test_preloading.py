"""``stowplan run --preload``: whole processes, with the library under malloc and a pool."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stowplan.allocator.backends.malloc_pool import MallocPool, is_preloaded
from stowplan.errors import PoolError

from ..kept_plans import placements

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not os.confstr("CS_GNU_LIBC_VERSION"), reason="goes below glibc's malloc"
)

LOOP = """
import numpy as np
x = np.linspace(0, 1, 40_000).reshape(200, 200)
for _ in range(300):
    y = x @ x
    z = np.exp(-y) + y
    x = z / z.max()
print(x.sum().hex())
"""

THREADS = """
import threading
import numpy as np
def work(seed):
    random = np.random.default_rng(seed)
    kept = [random.random(20_000)]
    for i in range(200):
        kept.append(kept[-1] * kept[0] + i)
        if len(kept) > 7:
            del kept[1:5]
    sums[seed] = kept[-1].sum().hex()
sums = {}
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sorted(sums.items()))
"""

LEARNING = """
import numpy as np
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
x = np.random.default_rng(0).normal(size=(2000, 30))
print(KMeans(4, n_init=2, random_state=0).fit(x).inertia_.hex())
print(np.abs(PCA(3).fit_transform(x)).sum().hex())
"""

PROCESSES = """
import multiprocessing, os, subprocess, sys
import numpy as np
def work(n):
    x = np.ones(100_000 + n)
    for i in range(50):
        x = x * 1.01 + i
    return x.sum().hex()
if __name__ == "__main__":
    before = np.full(300_000, 7.0)
    for i in range(50):
        before = before * 1.0 + 0.0
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as workers:
            print(method, workers.map(work, range(6)))
    program = (
        "import ctypes, os; "
        "print(os.environ.get('LD_PRELOAD'), hasattr(ctypes.CDLL(None), 'stow_malloc_install'))"
    )
    print(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
    print(before.sum(), [name for name in os.environ if "STOWPLAN_LD" in name])
"""

NOTHING_REPEATS = """
import random, resource
import numpy as np
chance = random.Random(5)
kept = []
for i in range(3000):
    kept.append(np.ones(chance.randrange(70_000, 1_000_000), np.uint8))
    while sum(block.nbytes for block in kept) > 40_000_000:
        del kept[chance.randrange(len(kept))]
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""

Runner = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def python(tmp_path: Path) -> Runner:
    """Run a program with the words before its name; return what came of it."""

    def run(
        source: str, *words: str, status: int = 0, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        file = tmp_path / "program.py"
        file.write_text(source)
        outcome = subprocess.run(
            [sys.executable, *words, str(file)],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **environment},
        )
        assert outcome.returncode == status, outcome.stderr
        return outcome

    return run


PRELOAD = ("-m", "stowplan", "run", "--preload")


def figures(outcome: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return what ``--json`` has said of malloc."""
    malloc: dict[str, Any] = json.loads(outcome.stdout.splitlines()[-1])["malloc"]
    return malloc


def test_steps_are_found_under_malloc_and_replayed(python: Runner, tmp_path: Path) -> None:
    plain = python(LOOP)
    outcome = python(LOOP, *PRELOAD, "--json", "--stats", str(tmp_path / "stats.json"))
    assert outcome.stdout.splitlines()[0] == plain.stdout.strip()
    found = figures(outcome)
    assert found["replayed"] > 0.5 * found["requests"] > 0
    assert found["arena_bytes"] >= found["lower_bound"] > 0
    assert json.loads((tmp_path / "stats.json").read_text())["malloc"] == found
    assert "stowplan: malloc: " in python(LOOP, *PRELOAD).stderr


def test_plans_are_kept_for_the_next_run(python: Runner, tmp_path: Path) -> None:
    words = (*PRELOAD, "--json", "--plans", str(tmp_path / "plans"))
    first, again = (figures(python(LOOP, *words)) for _ in range(2))
    assert first["packed"] >= 1
    assert first["packed"] + again["packed"] == placements(tmp_path / "plans")
    assert again["replayed"] > 0.5 * again["requests"]


@pytest.mark.parametrize("program", [THREADS, PROCESSES], ids=["threads", "processes"])
def test_a_program_says_what_it_says_without_it(python: Runner, program: str) -> None:
    assert python(program, *PRELOAD).stdout == python(program).stdout


def test_scikit_learn_learns_the_same(python: Runner) -> None:
    pytest.importorskip("sklearn")
    assert python(LEARNING, *PRELOAD).stdout == python(LEARNING).stdout


def test_what_is_freed_stays_bounded_where_nothing_repeats(python: Runner) -> None:
    plain = int(python(NOTHING_REPEATS).stdout)
    outcome = python(NOTHING_REPEATS, *PRELOAD)
    assert int(outcome.stdout) < plain + 60_000_000  # of 40 MB alive, at random
    assert "no step that repeats was found" in outcome.stderr


@pytest.mark.parametrize(
    ("last", "status"),
    [
        ("raise SystemExit(3)", 3),
        ("import os; os._exit(4)", 4),
        ("raise ValueError(1)", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    ],
)
def test_a_program_ends_as_it_does_without_it(python: Runner, last: str, status: int) -> None:
    python(LOOP + last, *PRELOAD, status=status)


def test_the_program_may_come_from_standard_input() -> None:
    words = [sys.executable, *PRELOAD, "-", "a word"]
    program = "import sys; print(sys.argv)"
    outcome = subprocess.run(words, input=program, capture_output=True, text=True, timeout=60)
    assert outcome.stdout.strip() == "['-', 'a word']", outcome.stderr
    assert "no request for a block that is large enough" in outcome.stderr


# ------------------------------------------------------------------------------------------------------- C programs


def compiled(source: Path, to: Path) -> Path:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler: c++")
    options = ["-std=c++17", "-O1", "-shared", "-fPIC", "-pthread", "-fno-builtin"]
    words = [compiler, *options, str(source), "-o", str(to)]
    subprocess.run(words, check=True, timeout=120)
    return to


EDGES = """
import ctypes
edges = ctypes.CDLL({library!r})
for name in ("plain", "too_much", "alignments", "resizes", "threads", "forks", "plain", "leave_for_exit"):
    line = getattr(edges, name)()
    print(name, f"line {{line}} does not hold" if line else "ok")
"""


def test_malloc_and_its_kin_do_what_their_manual_says(python: Runner, tmp_path: Path) -> None:
    source = Path(__file__).parents[2] / "allocator" / "preload_edges.cpp"
    program = EDGES.format(library=str(compiled(source, tmp_path / "edges.so")))
    outcome = python(program, *PRELOAD)
    assert "not hold" not in outcome.stdout, outcome.stdout
    assert outcome.stdout.count("ok") == 8
    assert "freed at exit" in outcome.stderr
    assert python(program).stdout == outcome.stdout  # the C library's own


# ----------------------------------------------------------------------------------------------------------- errors


def test_another_allocator_in_mallocs_place_is_named(python: Runner, tmp_path: Path) -> None:
    source = tmp_path / "other.cpp"
    source.write_text(
        '#include <cstddef>\nextern "C" { void* __libc_malloc(std::size_t);\n'
        "void* malloc(std::size_t size) { return __libc_malloc(size); } }\n"
    )
    other = compiled(source, tmp_path / "libother.so")
    outcome = python(LOOP, *PRELOAD, status=2, LD_PRELOAD=str(other))
    assert f"malloc is {other}'s, not glibc's" in outcome.stderr
    assert outcome.stdout == ""


def test_a_loader_that_ignores_the_library_is_no_endless_loop(python: Runner) -> None:
    outcome = python(LOOP, *PRELOAD, status=2, STOWPLAN_LD_PRELOAD="")
    assert "was ignored" in outcome.stderr


def test_a_pool_under_malloc_wants_the_library() -> None:
    if is_preloaded():
        pytest.skip("this process has it")
    with pytest.raises(PoolError, match="stowplan run --preload"):
        MallocPool()
