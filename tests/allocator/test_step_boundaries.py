"""Steps that a framework tells: where an optimizer's update has ended."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stowplan import NumpyPool, PoolError
from stowplan.compat import enable_chainer

from ..children import ROOT, printed, python, stowplan
from ..running import in_threads, run
from ..updates import update

pytest.importorskip("chainer", reason="Chainer is not installed; expected: pip install 'stowplan[chainer]'")
enable_chainer()

import chainer  # noqa: E402


def work(size: int = 3000) -> None:
    """Ask for three blocks."""
    a = np.ones(size)
    b = a * 2
    del a
    b + b


def iterate(pool: NumpyPool, times: int, size: int = 3000) -> None:
    """Run iterations, each with an update at its end, and with plans ready for the next."""
    for _ in range(times):
        work(size)
        update()
        pool.wait()


def is_running(pool: NumpyPool) -> bool:
    return bool(pool.report(as_dict=True)["step"]["running"])


# -------------------------------------------------------------------------------------------------- whole programs

PROGRAM = """
import hashlib, json
import numpy as np
import waiting
import chainer
import chainer.functions as F
import chainer.links as L

np.random.seed(0)
draw = np.random.default_rng(1)
one = chainer.Sequential(L.Convolution2D(1, 8, 3), L.BatchNormalization(8), F.relu, L.Linear(None, 10))
two = chainer.Sequential(L.Linear(10, 300), F.tanh, L.Linear(300, 100))
first, second = chainer.optimizers.Adam().setup(one), chainer.optimizers.MomentumSGD().setup(two)

def images(count):
    return draw.standard_normal((count, 1, 10, 10), dtype=np.float32)

served = []
for number in range(50):
    one.cleargrads()
    for _ in range(4):
        F.softmax_cross_entropy(one(images(16)), draw.integers(0, 10, 16).astype(np.int32)).backward()
    first.update()
    second.update(lambda: F.mean(two(draw.standard_normal((64, 10), dtype=np.float32)) ** 2))
    if number % 10 == 9:
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            one(images(32))
    served.append(waiting.replayed_and_requests())
bits = hashlib.sha256()
for model in (one, two):
    for name, parameter in sorted(model.namedparams()):
        bits.update(parameter.array.tobytes())
print(json.dumps([bits.hexdigest(), served]))
"""
"""A training that does not know of stowplan: gradients are summed over four batches, there are two optimizers, and an
evaluation every ten iterations."""


def program(folder: Path, *, serve: bool) -> Any:
    """Return what it prints: bits of all parameters, and the counts after each iteration."""
    (folder / "program.py").write_text(PROGRAM)
    shutil.copy(ROOT / "tests/stowplan/waiting.py", folder)
    enabled = "from stowplan.compat import enable_chainer; enable_chainer(); import runpy; runpy.run_path('program.py')"
    words = ("-m", "stowplan", "run", "--auto-step", "program.py") if serve else ("-c", enabled)
    return json.loads(printed(*words, folder=folder))


def test_an_unmarked_training_is_replayed_from_the_sixth_update_on(tmp_path: Path) -> None:
    (bits, _), (same_bits, counts) = (program(tmp_path, serve=serve) for serve in (False, True))
    assert bits == same_bits
    (replayed, requests), (all_replayed, all_requests) = counts[4], counts[-1]
    assert all_replayed - replayed >= 0.93 * (all_requests - requests) > 0


# ----------------------------------------------------------------------------------------------------------- a pool


def test_pools_that_are_not_to_be_told_and_such_that_do_not_serve_here_are_not() -> None:
    marked, elsewhere, told = NumpyPool(), NumpyPool(auto_step=True), NumpyPool(auto_step=True)
    with marked:
        iterate(marked, 3)
    with told:
        iterate(told, 3)
    assert (marked.stats.steps, elsewhere.stats.steps, told.stats.steps) == (0, 0, 3)


class Twice(chainer.optimizers.SGD):  # type: ignore[misc]
    """Its update is that of the class that it is of, and has another optimizer update."""

    def update(self, lossfun: Any = None, *args: Any, **named: Any) -> None:
        super().update(lossfun, *args, **named)


def test_an_update_within_an_update_is_none() -> None:
    def loss() -> Any:
        update()
        return chainer.functions.sum(link(np.ones((1, 1), np.float32)))

    link = chainer.links.Linear(1, 1)
    optimizer = Twice().setup(link)
    pool = NumpyPool(auto_step=True)
    with pool:
        for _ in range(5):
            optimizer.update(loss)
    assert pool.stats.steps == 5


class UpdateError(Exception):
    """What an update's hook raises."""


def test_a_step_of_which_an_update_failed_is_no_record() -> None:
    def fail(_: object) -> None:
        raise UpdateError

    optimizer = chainer.optimizers.SGD()
    optimizer.setup(chainer.Link())
    pool = NumpyPool(auto_step=True)
    with pool:
        for _ in range(10):
            work()
            optimizer.add_hook(fail, "fail")
            with pytest.raises(UpdateError):
                optimizer.update()
            optimizer.remove_hook("fail")
            work()
            optimizer.update()
            pool.wait()
        assert (pool.stats.steps, pool.stats.plans) == (9, 0)
        iterate(pool, 8)
    assert (pool.stats.plans, pool.plan().profile.size.tolist()) == (1, [24_000] * 3)


def test_an_interrupted_part_tells_nothing() -> None:
    pool = NumpyPool(auto_step=True)
    with pool:
        with pool.interrupt():
            iterate(pool, 3)
            assert not is_running(pool)
        iterate(pool, 3)
        with pool.interrupt():
            update()
        assert pool.stats.steps == 2
        iterate(pool, 3)
    assert pool.stats.steps == 6


def test_the_first_step_that_is_marked_ends_it_for_good() -> None:
    pool = NumpyPool(auto_step=True)

    def mark() -> None:
        with pool, pool.step("other"):
            work()

    with pool:
        iterate(pool, 8)
        assert is_running(pool)
        told = pool.stats
        in_threads(mark)
        assert not is_running(pool)
        iterate(pool, 3)
        assert pool.stats.steps == told.steps + 2  # the one under way, and the marked one
        run(pool, 6, work, "marked")
        assert pool.stats.replayed >= told.replayed + 3 * 2
        with pool.step(), pytest.raises(PoolError, match="steps do not nest"), pool.step():
            pass


def test_a_step_ends_where_the_pool_serves_no_longer() -> None:
    pool = NumpyPool(auto_step=True)
    with pool:
        iterate(pool, 4)
        assert is_running(pool)
    assert (is_running(pool), pool.stats.steps) == (False, 4)
    pool.install()
    update()
    thread, done = threading.Event(), threading.Event()
    other = threading.Thread(target=lambda: [update(), thread.set(), done.wait(600)])
    other.start()
    thread.wait(600)
    pool.uninstall()
    done.set()
    other.join(600)
    assert (is_running(pool), pool.stats.steps) == (False, 6)
    with pool:
        iterate(pool, 8)
        assert pool.stats.replayed > 0


def test_threads_that_train_have_steps_of_their_own() -> None:
    pool = NumpyPool(auto_step=True)
    update()  # imported once

    def train(size: int) -> None:
        with pool:
            iterate(pool, 30, size)

    in_threads(*(lambda size=size: train(size) for size in (1000, 2000, 3000)))
    assert pool.stats.steps == 3 * 30
    assert pool.stats.replayed > 0.5 * pool.stats.requests


def test_a_forked_child_goes_on_being_told() -> None:
    done = python(
        "-W",
        "ignore",
        "-c",
        """if True:
        import os, sys
        from stowplan import NumpyPool
        from tests.allocator.test_step_boundaries import iterate
        pool = NumpyPool(auto_step=True)
        with pool:
            iterate(pool, 8)
            before, child = pool.stats.replayed, os.fork()
            iterate(pool, 8)
            assert pool.stats.replayed - before == 3 * 8
            if child == 0:
                os._exit(0)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
    )
    assert done.returncode == 0, done.stderr


# --------------------------------------------------------------------------------------------- where nobody tells any

ABSENT = "import sys; sys.modules['chainer'] = sys.modules['torch'] = None"


def test_a_pool_that_nobody_can_tell_says_what_to_do() -> None:
    done = python("-c", f"{ABSENT}\nfrom stowplan import NumpyPool\nNumpyPool()\nNumpyPool(auto_step=True)")
    error = done.stderr.splitlines()[-1]
    assert "neither is installed; expected the loop's body within `with pool.step():`" in error
    assert "--step-function MODULE:FUNCTION" in error


def test_run_says_before_the_program_that_nobody_can_tell(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(ABSENT)
    (tmp_path / "script.py").write_text("import numpy\nprint(numpy.ones(10**6).sum())")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = stowplan("run", "--auto-step", "script.py", folder=tmp_path, PYTHONPATH=path)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        "Error: steps are told by the optimizers of Chainer and PyTorch, and neither is installed"
    )
    done = stowplan("run", "script.py", folder=tmp_path, PYTHONPATH=path)
    assert (done.returncode, done.stdout) == (0, "1000000.0\n"), done.stderr


def test_run_says_after_the_program_that_nobody_has_told(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import numpy\nfor _ in range(9): numpy.ones(10**6)")
    (tmp_path / "marked.py").write_text(
        "import numpy, stowplan\nfor _ in range(9):\n  with stowplan.step(): numpy.ones(10**6)"
    )
    nothing, *_ = stowplan("run", "--auto-step", "script.py", folder=tmp_path).stderr.splitlines()
    assert nothing.startswith("stowplan: --auto-step: no optimizer of Chainer's or PyTorch's has updated")
    for words in (["script.py"], ["--auto-step", "marked.py"]):
        assert "no optimizer" not in stowplan("run", *words, folder=tmp_path).stderr
