"""Forks, exits, pools within pools, threads: each correct, or refused. In processes of their own, which may hang."""

from __future__ import annotations

import contextvars
import textwrap

import numpy as np
import pytest

from stowplan import NumpyPool
from stowplan.errors import PoolError

from ..children import end_quietly
from ..running import in_threads

PRELUDE = """
import os, sys, threading, time
import numpy as np
from stowplan import NumpyPool
from stowplan.errors import PoolError

def work(value=1.0):
    a = np.full(5000, value)
    b = a * 2
    c = np.concatenate([a, b])
    return float(c.sum())

def steps(pool, n):
    for _ in range(n):
        with pool.step("train"):
            assert work() == 15000
        assert pool.wait(600)

def plan_slowly(wait):
    '''Register a solver, "slow", that waits first.'''
    from stowplan.packing import registry, solvers

    @registry.register("slow")
    def slow(problem, options):
        wait()
        return solvers["best_fit"](problem, options)

def in_child(function):
    '''Fork; return the exit status of the child, which runs the function.'''
    child = os.fork()
    if child == 0:
        status = 1
        try:
            function()
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def run(program: str) -> None:
    end_quietly(PRELUDE + textwrap.dedent(program))


# -------------------------------------------------------------------------------------------------------------- forks


def test_a_fork_in_a_step_goes_on_in_its_own_arena() -> None:
    run("""
        pool = NumpyPool(warmup=0)
        with pool:
            steps(pool, 4)
            with pool.step("train"):
                planned = np.full(5000, 7.0)
                assert pool.stats.replayed > 0

                def child():
                    assert (planned == 7).all()
                    planned[:] = 8
                    assert (planned * 2 == 16).all()  # the child is in the step, too

                assert in_child(child) == 0
                assert (planned == 7).all()
                del planned
            before = pool.stats
            steps(pool, 3)
            assert pool.stats.upstream == before.upstream
    """)


def test_a_child_replays_and_makes_plans_of_its_own() -> None:
    run("""
        pool = NumpyPool(warmup=0)
        with pool:
            steps(pool, 4)

            def child():
                replayed = pool.stats.replayed
                steps(pool, 2)
                assert pool.stats.replayed == replayed + 6, pool.stats
                for _ in range(4):
                    with pool.step("other"):
                        np.ones(7000) + np.ones(7000)
                    assert pool.wait(600)
                assert pool.stats.plans == 2, pool.stats

            assert in_child(child) == 0
            assert pool.stats.plans == 1
            steps(pool, 2)
    """)


def test_a_forked_worker_may_enter_its_parent_s_pool() -> None:
    run("""
        import multiprocessing
        pool = NumpyPool(warmup=0)

        def job(n):
            with pool.step("train"):
                work()
            return n

        with pool:
            def child():
                with pool:
                    steps(pool, 4)
                    try:
                        with pool:
                            raise AssertionError("entered twice")
                    except PoolError:
                        pass
                steps(pool, 1)  # it serves as in the parent
                assert pool.stats.replayed

            assert in_child(child) == 0
            with multiprocessing.get_context("fork").Pool(1, initializer=pool.__enter__) as workers:
                assert workers.map(job, range(5)) == list(range(5))
            steps(pool, 4)
            assert pool.stats.replayed
    """)


def test_a_fork_while_a_plan_is_being_made() -> None:
    run("""
        solving, go_on = threading.Event(), threading.Event()
        plan_slowly(lambda: (solving.set(), go_on.wait(600)))
        pool = NumpyPool(warmup=0, solver="slow")
        with pool:
            for _ in range(2):
                with pool.step("train"):
                    work()
            assert solving.wait(600)
            assert not pool.wait(0)

            def child():
                assert pool.wait(0)  # nobody there to wait for
                go_on.set()
                steps(pool, 4)
                assert pool.stats.plans == 1, pool.stats
                assert pool.stats.replayed > 0

            assert in_child(child) == 0
            go_on.set()
            assert pool.wait(600)
            steps(pool, 2)
            assert pool.stats.replayed > 0
    """)


def test_a_fork_while_other_threads_are_in_steps() -> None:
    """The child has neither the other thread's step nor the handler that the thread had set."""
    run("""
        pool, stop, running = NumpyPool(warmup=0), threading.Event(), threading.Event()

        def loop():
            with pool:
                while not stop.is_set():
                    with pool.step("train"):
                        work()
                        running.set()

        thread = threading.Thread(target=loop)
        thread.start()
        assert running.wait(600)

        def child():
            with pool:
                steps(pool, 6)
            assert pool.stats.replayed > 0

        statuses = [in_child(child) for _ in range(10)]
        stop.set()
        thread.join()
        assert statuses == [0] * 10, statuses
    """)


def test_a_fork_of_a_process_that_has_used_a_device_is_refused() -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed; expected: pip install 'stowplan[cupy]'")
    run("""
        from stowplan import CupyPool
        from tests.allocator.cupy_host import HostUpstream, cupy, fill, holds

        pool, unused = CupyPool(HostUpstream(), device=0, warmup=0), CupyPool(HostUpstream(), device=0)
        with cupy.cuda.using_allocator(pool.malloc):
            for _ in range(4):
                with pool.step():
                    kept = fill(cupy.empty(3000, cupy.uint8), 1)
                pool.wait(600)

            def child():
                global kept
                try:
                    with pool.step():
                        pass
                except PoolError as error:
                    assert "spawn" in str(error)
                else:
                    raise AssertionError("not refused")
                with unused.step():
                    pass
                kept = None

            assert in_child(child) == 0
            assert holds(kept, 1)
            with pool.step():
                cupy.empty(3000, cupy.uint8)
    """)


# --------------------------------------------------------------------------------------------------------------- exits


def test_exit_while_a_plan_is_being_made_and_arrays_live() -> None:
    run("""
        plan_slowly(lambda: time.sleep(0.3))
        pool = NumpyPool(warmup=0, solver="slow")
        pool.__enter__()
        for _ in range(2):
            with pool.step("train"):
                kept = np.ones(5000)
        pool.step("train").__enter__()
        more = np.ones(5000)
    """)


def test_exit_while_a_daemon_thread_is_in_steps() -> None:
    run("""
        pool, running = NumpyPool(warmup=0), threading.Event()

        def loop():
            with pool:
                while True:
                    with pool.step("train"):
                        work()
                    running.set()

        threading.Thread(target=loop, daemon=True).start()
        for _ in range(50):
            running.clear()
            assert running.wait(600)
    """)


def test_a_pool_dropped_while_it_serves_and_its_blocks_live() -> None:
    run("""
        import gc
        pool = NumpyPool(warmup=0)
        pool.__enter__()
        for i in range(5):
            with pool.step("train"):
                kept = np.full(5000, float(i))
            pool.wait(600)
        with pool.step("train"):
            inside = np.full(5000, 9.0)
            del pool
            gc.collect()
            other = np.full(5000, 3.0)  # the context still has its handler
        assert (kept == 4).all() and (inside == 9).all() and (other == 3).all()
    """)


# ---------------------------------------------------------------------------------------------- pools within pools


def test_the_same_pool_twice_is_refused() -> None:
    pool = NumpyPool()
    with pool:
        with pytest.raises(PoolError, match="entered this pool already"), pool:
            pass
        assert pool.serving() is not pool  # it serves here already
    with pool:
        pass


def test_pools_that_are_left_in_another_order_are_refused() -> None:
    outer, inner = NumpyPool(small=0), NumpyPool(small=0)
    with outer, inner:
        with pytest.raises(PoolError, match="leave pools that were entered after it first"):
            outer.__exit__(None, None, None)
        np.ones(100)
        assert (inner.stats.reasons.keys(), outer.stats.reasons) == ({"outside"}, {})
    with outer:
        pass


def test_a_pool_is_left_in_the_thread_that_entered_it() -> None:
    pool = NumpyPool()
    with pool:
        with pytest.raises(PoolError, match="leave it in the thread or task that entered it"):
            in_threads(lambda: pool.__exit__(None, None, None))
        in_threads(lambda: [pool.__enter__(), pool.__exit__(None, None, None)])
        context = contextvars.copy_context()  # in which the pool serves, too
        with pytest.raises(PoolError, match="leave it in the thread or task that entered it"):
            in_threads(lambda: context.run(pool.__exit__, None, None, None))
