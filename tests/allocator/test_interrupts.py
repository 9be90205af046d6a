"""What keeps a plan from being made never reaches the program, and later steps have it: Ctrl-C, no thread, no file."""

from __future__ import annotations

import gc
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stowplan import NumpyPool

from ..children import printed
from ..running import run
from ..updates import update


def work() -> None:
    a = np.ones(3000)
    b = a * 2
    del a
    b + b


@pytest.mark.parametrize("trials", [12, pytest.param(5000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["numpy", "numpy-told", "cupy"])
def test_a_program_that_ctrl_c_stops_at_any_moment_goes_on(name: str, trials: int) -> None:
    if name == "cupy":
        pytest.importorskip("cupy")
    assert json.loads(printed("-m", "tests.interrupts", name, trials, timeout=3600)) == {"replays": trials}


@pytest.mark.parametrize("trials", [60, pytest.param(5000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["numpy", "recorded", "chainer"])
def test_what_a_signal_s_handler_raises_reaches_the_program(name: str, trials: int) -> None:
    assert json.loads(printed("-m", "tests.signals", name, trials, timeout=3600)) == []


def test_a_pool_that_ctrl_c_stops_as_it_is_entered_or_installed_serves_or_does_not() -> None:
    assert json.loads(printed("-m", "tests.interrupts", "numpy-entered", 12)) == {"serves": 12}


FORK = """if True:
    import os, signal, sys
    import numpy as np
    from stowplan import NumpyPool
    from tests.allocator.test_interrupts import run, work

    pool = NumpyPool(warmup=0)
    held = pool._on(0)._mutex

    def stop(*_):
        held.release()
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, stop)
    ignored = []
    sys.unraisablehook = lambda error: ignored.append(error.exc_type)
    with pool:
        run(pool, 4, work)
        held.acquire()  # as another thread might, until the signal has come
        signal.setitimer(signal.ITIMER_REAL, 0.01)  # comes whenever it comes: the fork waits for it
        child = os.fork()
        run(pool, 4, work)
        if child == 0:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    print(ignored == [KeyboardInterrupt], pool.stats.replayed > 0)
    """


def test_a_signal_as_a_fork_waits_for_a_lock_leaves_none_held() -> None:
    assert printed("-c", FORK).split() == ["True", "True"]


@pytest.fixture
def no_thread() -> Iterator[None]:
    """No thread can be started: there is no memory for its stack."""
    threading.stack_size(1 << 46)
    yield
    threading.stack_size(0)


@pytest.mark.parametrize("options", [{"warmup": 0}, {"auto_step": True}])
def test_a_plan_for_which_there_is_no_thread_is_made_later(no_thread: None, options: dict[str, int]) -> None:
    def steps() -> None:
        for _ in range(30):
            if "auto_step" in options:
                work()
                update()
                pool.wait()
            else:
                run(pool, 1, work)
        assert pool.wait(600)

    threading.stack_size(0)
    pool = NumpyPool(**options)  # type: ignore[arg-type]
    threading.stack_size(1 << 46)
    with pool:
        steps()
        assert (pool.stats.replayed, pool.stats.plans) == (0, 0)
        assert pool.stats.plans_failed > 0
        assert "a later step orders it again: NoThreadError: can't start new thread" in pool.report()
        threading.stack_size(0)
        steps()
        work()
    assert pool.stats.replayed > 0


@pytest.mark.parametrize(
    "leave", ["resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))", "os.chroot(sys.argv[1])"]
)
def test_a_program_that_can_open_no_file_any_more_has_its_plans(leave: str, tmp_path: Path) -> None:
    if "chroot" in leave and os.geteuid() != 0:
        pytest.skip("only root changes its root")
    program = f"""if True:
        import os, resource, sys
        import numpy as np
        from stowplan import NumpyPool
        from tests.allocator.test_interrupts import run, work
        pool = NumpyPool(warmup=0)
        {leave}
        with pool:
            run(pool, 4, work)
        print(pool.stats.replayed)
        """
    assert int(printed("-c", program, tmp_path)) > 0


def test_a_thread_that_ends_in_a_step_blocks_no_other_one() -> None:
    pool = NumpyPool(warmup=0)

    def left_open() -> Iterator[None]:
        with pool.step():
            work()
            yield

    def abandon() -> None:
        with pool:
            steps.append(left_open())
            next(steps[-1])

    steps: list[Iterator[None]] = []
    for _ in range(3):
        thread = threading.Thread(target=abandon)
        thread.start()
        thread.join(600)
    with pool:
        run(pool, 4, work)
        assert pool.stats.replayed > 0
        with pool.step():
            before = pool.stats.steps
            steps.clear()  # their ends come now
            gc.collect()
            assert pool.stats.steps == before
            assert pool.report(as_dict=True)["step"]["running"]
