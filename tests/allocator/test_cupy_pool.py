"""CupyPool through real CuPy arrays, over host memory: see cupy_host."""

from __future__ import annotations

import ctypes
import gc
import io
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stowplan import CupyPool
from stowplan.allocator._core import DeviceRouter
from stowplan.compat import enable_chainer
from stowplan.errors import MissingDependencyError, PoolError, ProfileError, StowplanError
from stowplan.packing import registry, solvers

from .cupy_host import HostUpstream, address, cupy, fill, holds

SIZES = (3000, 700, 1500, 900)


def empty(size: int, byte: int = 1) -> Any:
    return fill(cupy.empty(size, cupy.uint8), byte)


def chain(sizes: tuple[int, ...] = SIZES) -> None:
    """A step with two blocks alive at a time, each read before it goes."""
    previous = empty(64, 99)
    for byte, size in enumerate(sizes):
        current = empty(size, byte)
        assert holds(previous, byte - 1 if byte else 99)
        previous = current


def run(pool: CupyPool, steps: int, work: Callable[[], object] = chain, key: object = None) -> None:
    for _ in range(steps):
        with pool.step(key):
            work()
        pool.wait()  # so that plans are taken up where the tests say


@pytest.fixture
def upstream() -> Iterator[HostUpstream]:
    upstream = HostUpstream()
    yield upstream
    gc.collect()
    assert not upstream.overwritten


@pytest.fixture
def pool(upstream: HostUpstream) -> Iterator[CupyPool]:
    """A pool that serves this thread."""
    pool = CupyPool(upstream, device=0)
    with cupy.cuda.using_allocator(pool.malloc):
        yield pool


# ------------------------------------------------------------------------------------------------------------- replay


def test_steps_are_replayed(pool: CupyPool, upstream: HostUpstream) -> None:
    run(pool, 4)
    before = len(upstream.sizes)
    run(pool, 6)
    stats = pool.stats
    assert stats.plans == 1
    assert set(stats.reasons) == {"no_plan"}  # warm-up, record and confirm only
    assert stats.replayed == 7 * len(pool.profile())
    assert stats.live_bytes == 0
    assert len(upstream.sizes) == before


def test_the_arena_is_at_the_lower_bound_and_the_only_memory_held(
    pool: CupyPool, upstream: HostUpstream
) -> None:
    run(pool, 10)
    stats = pool.stats
    assert stats.arena_bytes == stats.lower_bound == pool.plan().arena_bytes == upstream.live_bytes
    assert stats.fragmentation == 0
    assert pool.plan().arena_bytes % 512 == 0


def test_addresses_are_aligned_and_come_again(pool: CupyPool) -> None:
    seen: list[list[int]] = []

    def work() -> None:
        seen.append([address(empty(size)) for size in SIZES])

    run(pool, 8, work)
    assert all(a % 512 == 0 for step in seen for a in step)
    assert seen[-1] == seen[-2] == seen[-3]


def test_set_allocator_serves_the_process(upstream: HostUpstream) -> None:
    pool = CupyPool(upstream, device=0)
    before = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(pool.malloc)
    try:
        run(pool, 8)
    finally:
        cupy.cuda.set_allocator(before)
    assert pool.stats.replayed > 0
    assert set(pool.stats.reasons) == {"no_plan"}


def test_wrapped_blocks_are_planned(pool: CupyPool) -> None:
    gradient = None

    def work() -> None:
        nonlocal gradient
        activation = empty(5000, 1)
        assert gradient is None or holds(gradient, 2)
        gradient = None  # of the step before
        gradient = empty(5000, 2)
        assert holds(activation, 1)

    run(pool, 8, work)
    assert pool.profile().wrapped.sum() == 1
    assert set(pool.stats.reasons) == {"no_plan"}
    assert holds(gradient, 2)


def test_a_block_replaced_by_its_successor_is_served(pool: CupyPool) -> None:
    kept = None

    def work() -> None:
        nonlocal kept
        kept = empty(5000, 7)  # the old one dies only now that the new one lives

    run(pool, 8, work)
    assert pool.profile().escaped.all()
    assert pool.stats.reasons["escaped"] == 5
    assert holds(kept, 7)


def test_late_blocks_keep_their_bytes(pool: CupyPool) -> None:
    kept: list[Any] = []

    def work(keep: bool = False) -> None:
        a = empty(4000, 1)
        if keep:
            kept.append(a)
        del a
        b = empty(4000, 2)  # planned at the same address
        assert holds(b, 2)

    run(pool, 5, work)
    assert pool.stats.arena_bytes == 4096
    for _ in range(3):
        run(pool, 1, lambda: work(keep=True))
    run(pool, 3, work)
    assert pool.stats.reasons["late"] > 0
    assert all(holds(a, 1) for a in kept)


def test_a_block_kept_for_many_steps_keeps_its_bytes(pool: CupyPool) -> None:
    kept: list[Any] = []

    def work(keep: bool = False) -> None:
        for byte, size in enumerate(SIZES):
            array = empty(size, byte)
            if keep and byte == 2:
                kept.append(array)

    run(pool, 5, work)
    for _ in range(6):
        run(pool, 1, lambda: work(keep=True))
        run(pool, 10, work)
    assert all(holds(a, 2) for a in kept)
    assert len({address(a) for a in kept}) == 6
    kept.clear()
    replayed = pool.stats.replayed
    run(pool, 3, work)
    assert pool.stats.replayed - replayed == 3 * len(SIZES)


@pytest.mark.parametrize("size", [1, 777, 500_000])
def test_an_extra_request_costs_few_others_their_place(pool: CupyPool, size: int) -> None:
    run(pool, 5)
    before = pool.stats
    with pool.step():
        extra = empty(size, 3)
        chain()
    assert holds(extra, 3)
    assert 1 <= (len(pool.profile()) + 1) - (pool.stats.replayed - before.replayed) <= 3


def test_larger_smaller_and_missing_requests(pool: CupyPool) -> None:
    run(pool, 5)
    for sizes in ((4000, 700, 1500, 900), (2000, 700, 1500, 900), (3000, 1500, 900), SIZES[::-1], (9, 9)):
        run(pool, 1, lambda sizes=sizes: chain(sizes))
        run(pool, 1)
    stats = pool.stats
    assert stats.smaller >= 1
    assert stats.missing >= 1
    assert stats.reasons["mismatch"] >= 2
    assert stats.live_bytes == 0


def test_a_larger_step_brings_a_new_plan_and_a_new_arena(pool: CupyPool, upstream: HostUpstream) -> None:
    larger = tuple(2 * size for size in SIZES)
    run(pool, 5)
    first = pool.plan().arena_bytes
    run(pool, 6, lambda: chain(larger))
    assert pool.stats.plans == 2
    assert pool.plan().arena_bytes > first
    assert (
        upstream.live_bytes == pool.stats.arena_bytes == pool.plan().arena_bytes
    )  # the first arena has gone


def test_an_old_arena_stays_while_a_block_lives_in_it(pool: CupyPool, upstream: HostUpstream) -> None:
    run(pool, 4)
    with pool.step():
        chain()
        kept = empty(600, 5)
    run(pool, 1)
    with pool.step():
        kept = empty(64, 6)  # takes the first slot
        chain(SIZES)
    run(pool, 5, lambda: chain(tuple(20 * size for size in SIZES)))
    assert holds(kept, 6)
    del kept
    run(pool, 2, lambda: chain(tuple(20 * size for size in SIZES)))
    assert upstream.live_bytes == pool.stats.arena_bytes == pool.plan().arena_bytes


def test_empty_arrays(pool: CupyPool) -> None:
    def work() -> None:
        arrays = [cupy.empty(0) for _ in range(5)]
        between = empty(100, 4)
        arrays.append(cupy.empty((3, 0, 2)))
        assert holds(between, 4)
        assert all(a.size == 0 for a in arrays)

    run(pool, 8, work)
    assert set(pool.stats.reasons) == {"no_plan"}


def test_a_slice_keeps_the_block(pool: CupyPool) -> None:
    def work() -> Any:
        part = empty(5000, 1)[1000:1100]
        other = empty(5000, 2)
        assert holds(part, 1)
        return other

    run(pool, 8, work)
    assert set(pool.stats.reasons) == {"no_plan"}
    assert pool.stats.live_bytes == 0
    with pool.step():
        part = work()[2:7]
    run(pool, 2, work)
    assert holds(part, 2)


# ------------------------------------------------------------------------------------------------ keys, interruptions


TRAIN, EVALUATE, SHORT = (3000, 700, 1500, 900), (5000, 100), (3000, 700, 20)


@pytest.mark.parametrize("keys", [("train", "eval", "short"), (None, None, None)])
def test_alternating_steps_make_three_plans_and_no_more(
    upstream: HostUpstream, keys: tuple[str | None, ...]
) -> None:
    pool = CupyPool(upstream, device=0, warmup=0)
    with cupy.cuda.using_allocator(pool.malloc):
        for round_ in range(10):
            before = pool.stats
            for key, sizes in zip(keys, (TRAIN, EVALUATE, SHORT), strict=True):
                run(pool, 1, lambda sizes=sizes: chain(sizes), key)
            if round_ >= 2:
                assert pool.stats.reasons == before.reasons
    assert (pool.stats.plans, pool.stats.reoptimizations) == (3, 0)
    assert upstream.live_bytes == pool.stats.arena_bytes  # one arena for all


def test_interrupted_parts_stay_out_of_the_profile(pool: CupyPool) -> None:
    kept: list[Any] = []

    @pool.interrupt
    def decorated(size: int) -> None:
        empty(size)

    for i in range(10):
        with pool.step():
            born_before = empty(300, 1)
            with pool.interrupt():
                kept.append(empty(1000 + 100 * i, 4))  # another size each time
                assert holds(born_before, 1)
                del born_before
                with pool.interrupt():
                    empty(70 * i + 1)
                empty(90 * i + 1)
            chain()
            pool.interrupt()
            empty(10 + i)
            pool.resume()
            decorated(20 + i)
        pool.wait()
    assert pool.stats.plans == 1
    assert set(pool.stats.reasons) == {"no_plan", "interrupted"}
    assert all(holds(a, 4) for a in kept)


def test_misuse_of_interruptions_and_steps_is_refused(pool: CupyPool) -> None:
    with pytest.raises(PoolError, match="resume without interrupt"):
        pool.resume()
    with pool.interrupt(), pytest.raises(PoolError, match="in an interrupted part"), pool.step():
        pass
    with pool.step(), pytest.raises(PoolError, match="steps do not nest"), pool.step():
        pass
    with pytest.raises(ProfileError, match="no plan yet"):
        pool.profile()
    run(pool, 6)
    assert pool.stats.plans == 1


def test_an_exception_leaves_the_pool_usable(pool: CupyPool) -> None:
    def broken() -> None:
        empty(1234)
        raise KeyError("user's")

    for _ in range(3):
        with pytest.raises(KeyError, match="user's"):
            run(pool, 1, broken)
    run(pool, 5)
    with pytest.raises(KeyError, match="user's"):
        run(pool, 1, broken)
    before = pool.stats
    run(pool, 1)
    assert pool.stats.replayed - before.replayed == len(pool.profile())


# ------------------------------------------------------------------------------------- threads, garbage, shutting down


def test_frees_on_another_thread(pool: CupyPool) -> None:
    for _ in range(8):
        with pool.step():
            box = [empty(5000), empty(300)]
            thread = threading.Thread(target=box.clear)
            thread.start()
            thread.join()
            chain()
        pool.wait()
    assert pool.stats.live_bytes == 0
    assert set(pool.stats.reasons) == {"no_plan"}


def test_requests_of_another_thread_are_served_and_change_no_plan(pool: CupyPool) -> None:
    def elsewhere() -> None:
        with cupy.cuda.using_allocator(pool.malloc):
            for _ in range(20):
                chain((500, 800))

    run(pool, 5)
    for _ in range(5):
        with pool.step():
            threads = [threading.Thread(target=elsewhere) for _ in range(3)]
            for thread in threads:
                thread.start()
            chain()
            for thread in threads:
                thread.join()
    assert pool.stats.reasons["thread"] == 5 * 3 * 20 * 3
    assert "mismatch" not in pool.stats.reasons
    assert pool.stats.plans == 1


class Cycle:
    """An array that only the garbage collector frees."""

    def __init__(self, size: int, byte: int) -> None:
        self.array = empty(size, byte)
        self.byte = byte
        self.me = self

    def __del__(self) -> None:
        assert holds(self.array, self.byte)


def test_arrays_in_cycles_die_within_allocations(pool: CupyPool) -> None:
    def work() -> None:
        for byte, size in enumerate(SIZES):
            Cycle(size, byte)
            assert holds(empty(size, 50 + byte), 50 + byte)

    thresholds = gc.get_threshold()
    gc.set_threshold(5, 2, 2)
    try:
        run(pool, 60, work)
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    assert pool.stats.live_bytes == 0


def test_a_pool_dies_in_a_cycle_with_its_blocks(upstream: HostUpstream) -> None:
    holder: dict[str, Any] = {}

    def allocate(size: int, held: object = holder) -> Any:  # upstream holds the pool and its arrays
        return upstream(size)

    holder["pool"] = pool = CupyPool(allocate, device=0)
    with cupy.cuda.using_allocator(pool.malloc):
        run(pool, 5)
        with pool.step():
            holder["array"] = empty(64, 1)
    assert upstream.live_bytes > 0
    del pool, holder, allocate
    gc.collect()
    assert upstream.live_bytes == 0


def test_blocks_outlive_their_pool(upstream: HostUpstream) -> None:
    pool = CupyPool(upstream, device=0)
    with cupy.cuda.using_allocator(pool.malloc):
        run(pool, 5)
        with pool.step():
            planned, other = empty(64, 1), empty(5000, 2)
    assert pool.stats.arena_bytes > 0
    del pool
    gc.collect()
    assert holds(planned, 1)
    assert holds(other, 2)
    del planned, other
    gc.collect()
    assert upstream.live_bytes == 0


@pytest.mark.parametrize("when", ["in a step", "between steps", "after the pool", "with a hook"])
def test_interpreter_exit_with_live_arrays(when: str) -> None:
    program = f"""
import sys, warnings
sys.path.insert(0, {str(Path(__file__).parent)!r})
warnings.simplefilter("ignore")
from cupy_host import HostUpstream, cupy, fill, holds
from stowplan import CupyPool
pool = CupyPool(HostUpstream(), device=0)
cupy.cuda.set_allocator(pool.malloc)
if {when!r} == "with a hook":
    hook = cupy.cuda.memory_hooks.DebugPrintHook(file=open("/dev/null", "w"), flush=False)
    hook.__enter__()
kept = []
for i in range(8):
    with pool.step():
        a = fill(cupy.empty(5000, cupy.uint8), i)
        kept.append(a[:10]) if i > 5 else None
        temporary = cupy.empty(5000, cupy.uint8)
        del a, temporary
        if i == 7 and {when!r} == "in a step":
            sys.exit(0)
    pool.wait()
assert pool.stats.replayed > 0
if {when!r} == "between steps":
    sys.exit(0)
class Late:
    def __del__(self):
        assert holds_here(kept_here[-1], 7)
kept_here, holds_here, late = kept, holds, Late()
if {when!r} == "after the pool":
    del pool
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# -------------------------------------------------------------------------------------------------------------- hooks


class Counting(cupy.cuda.MemoryHook):
    """Keep what CuPy's interface says of every event."""

    name = "Counting"

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, int]]] = []

    def malloc_preprocess(self, **event: int) -> None:
        self.events.append(("about to malloc", event))

    def malloc_postprocess(self, **event: int) -> None:
        self.events.append(("malloc", event))

    def free_preprocess(self, **event: int) -> None:
        self.events.append(("about to free", event))

    def free_postprocess(self, **event: int) -> None:
        self.events.append(("free", event))


def test_memory_hooks_see_what_the_default_pool_would_tell(pool: CupyPool) -> None:
    run(pool, 5)
    hook = Counting()
    with hook:
        with pool.step():
            a = empty(64, 1)
            a_address = address(a)
            del a
            b = empty(3000, 1)
            c = cupy.empty(0)
            del b, c
        outside = empty(100)
        outside_address = address(outside)
        del outside
    kinds = [kind for kind, _ in hook.events]
    block = ["about to malloc", "malloc", "about to free", "free"]
    assert kinds == [*block, *block[:2], *block[:2], *block[2:], *block]
    first = [event for _, event in hook.events[:4]]
    assert first[0] == {"device_id": 0, "size": 64, "mem_size": 512}
    told = {"device_id": 0, "mem_size": 512, "mem_ptr": a_address, "pmem_id": first[1]["pmem_id"]}
    assert first[1] == {**told, "size": 64}
    assert first[2] == first[3] == told
    assert (
        hook.events[7][1]["mem_size"] == hook.events[7][1]["size"] == 0
    )  # an empty block is not told of again
    assert hook.events[-1][1]["mem_ptr"] == outside_address
    assert pool.stats.replayed > 2 * len(pool.profile())  # served from the plan all the same


def test_hooks_are_a_thread_s_own(pool: CupyPool) -> None:
    def elsewhere() -> None:
        with cupy.cuda.using_allocator(pool.malloc), theirs:
            chain()
        arrays.pop()

    mine, theirs = Counting(), Counting()
    with mine:
        arrays = [empty(700)]
        for _ in range(3):  # a thread's number may come again, its hooks do not
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            arrays.append(empty(700))
    assert [kind for kind, _ in mine.events] == ["about to malloc", "malloc"] * 4
    assert len(theirs.events) == 3 * 4 * (len(SIZES) + 1)
    arrays.clear()
    assert len(mine.events) == 8  # the last one dies unseen: no hook watches any more


def test_a_hook_s_error_reaches_the_program_and_loses_no_block(pool: CupyPool) -> None:
    class Broken(Counting):
        def malloc_postprocess(self, **event: int) -> None:
            raise ArithmeticError("the hook's")

    with Broken(), pytest.raises(ArithmeticError, match="the hook's"):
        empty(100)
    assert pool.stats.live_bytes == 0
    run(pool, 5)
    assert pool.stats.replayed > 0


def test_cupy_s_line_profile_hook_sees_the_pool(pool: CupyPool) -> None:
    hook = cupy.cuda.memory_hooks.LineProfileHook()
    with hook:
        run(pool, 6)
    report = io.StringIO()
    hook.print_report(file=report)
    assert Path(__file__).name in report.getvalue()
    assert "chain" in report.getvalue()


def test_chainer_s_memory_profile_hook_sees_the_pool(pool: CupyPool) -> None:
    try:
        enable_chainer()
    except MissingDependencyError as error:
        pytest.skip(str(error))
    from chainer import FunctionNode, Variable
    from chainer.backends import cuda
    from chainer.function_hooks import CupyMemoryProfileHook

    try:
        hook = CupyMemoryProfileHook()
    except RuntimeError:
        pytest.skip(f"Chainer finds no CUDA libraries: {cuda._resolution_error}")

    class Copy(FunctionNode):  # type: ignore[misc]
        def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(fill(cupy.empty_like(x), 1) for x in inputs)

    with hook:
        run(pool, 6, lambda: Copy().apply((Variable(cupy.empty(1000, cupy.float32)),)))
    assert [used for _, used, *_ in hook.call_history] == [4096] * 6


# ------------------------------------------------------------------------------------------------------------- faults


def tolerant(failures: list[Exception]) -> None:
    """A step that survives upstream's failures, and looks at what it has."""
    kept: list[tuple[Any, int]] = []
    for byte, size in enumerate(SIZES):
        try:
            kept.append((empty(size, byte), byte))
        except MemoryError as error:
            failures.append(error.with_traceback(None))  # its frames hold arrays
        assert all(holds(a, b) for a, b in kept)
        del kept[:-2]


def requests_of_a_program() -> int:
    upstream = HostUpstream()
    pool = CupyPool(upstream, device=0)
    with cupy.cuda.using_allocator(pool.malloc):
        run(pool, 6, lambda: tolerant([]))
    return len(upstream.sizes)


@pytest.mark.parametrize("lasting", [False, True])
def test_upstream_fails_at_every_single_request(lasting: bool) -> None:
    n = requests_of_a_program()
    assert n == 3 * len(SIZES) + 1  # warm-up, record, confirm; the arena
    for failing in range(n):
        upstream = HostUpstream()
        pool = CupyPool(upstream, device=0)
        upstream.errors = []
        upstream.fails = lambda number, size, at=failing: number >= at if lasting else number == at
        failures: list[Exception] = []
        with cupy.cuda.using_allocator(pool.malloc):
            run(pool, 6, lambda failures=failures: tolerant(failures))
            assert bool(failures) == (lasting or failing < n - 1)  # no program hears of the arena's
            assert all(any(error is own for own in upstream.errors) for error in failures)
            upstream.errors = None
            upstream.fails = lambda number, size: False
            run(pool, 8)
            before = pool.stats
            run(pool, 1)
        assert pool.stats.reasons == before.reasons
        assert pool.stats.live_bytes == 0
        assert upstream.live_bytes == pool.stats.arena_bytes


def test_no_memory_for_the_arena(pool: CupyPool, upstream: HostUpstream) -> None:
    upstream.fails = lambda number, size: size > max(SIZES)
    upstream.errors = []
    run(pool, 12)
    assert pool.stats.replayed == 0
    assert pool.stats.plans == 0
    assert upstream.errors
    upstream.fails = lambda number, size: False
    run(pool, 8)
    assert pool.stats.replayed > 0


def test_a_retired_arena_goes_before_upstream_s_failure_is_the_program_s(upstream: HostUpstream) -> None:
    pool = CupyPool(upstream, device=0)
    capacity = 40_000
    upstream.fails = lambda number, size: upstream.live_bytes + size > capacity
    with cupy.cuda.using_allocator(pool.malloc):
        run(pool, 5, lambda: chain((8000, 8000)))
        with pool.step():
            kept = empty(64, 3)  # in the first arena, 16,896 bytes
        run(pool, 4, lambda: chain((9000, 9000)))
        assert pool.plan().arena_bytes > pool.stats.lower_bound - 1
        assert upstream.live_bytes > 20_000
        del kept
        assert holds(empty(20_000, 1), 1)
    assert pool.stats.live_bytes == 0


def test_an_upstream_that_answers_nonsense(upstream: HostUpstream) -> None:
    pool = CupyPool(lambda size: upstream(size).ptr, device=0)
    with pytest.raises(PoolError, match=r"upstream returned .*; expected a cupy.cuda.MemoryPointer"):
        pool.malloc(10)
    assert pool.stats.live_bytes == 0


def _wrong(problem: Any, options: Any) -> Any:
    return np.zeros(len(problem), dtype=np.int64)  # all at one place


def _raising(problem: Any, options: Any) -> Any:
    raise RuntimeError("no answer")


def _misshapen(problem: Any, options: Any) -> Any:
    return np.zeros(1, dtype=np.float32)


@pytest.mark.parametrize("solver", [_wrong, _raising, _misshapen])
def test_a_solver_that_fails(upstream: HostUpstream, monkeypatch: pytest.MonkeyPatch, solver: Any) -> None:
    monkeypatch.setitem(registry._solvers, "under test", solver)
    pool = CupyPool(upstream, device=0, planner="under test")
    with cupy.cuda.using_allocator(pool.malloc):
        run(pool, 10)
        assert pool.stats.replayed == pool.stats.plans == pool.stats.arena_bytes == 0
        monkeypatch.setitem(registry._solvers, "under test", solvers["best_fit"])
        run(pool, 10)
    assert pool.stats.replayed > 0


def test_a_solver_that_takes_its_time(upstream: HostUpstream, monkeypatch: pytest.MonkeyPatch) -> None:
    may_answer = threading.Event()

    def slow(problem: Any, options: Any) -> Any:
        may_answer.wait(60)
        return solvers["best_fit"](problem, options)

    monkeypatch.setitem(registry._solvers, "slow", slow)
    pool = CupyPool(upstream, device=0, planner="slow")
    with cupy.cuda.using_allocator(pool.malloc):
        for _ in range(10):
            with pool.step():
                chain()
        assert not pool.wait(0.01)
        assert pool.stats.replayed == 0
        may_answer.set()
        assert pool.wait()
        run(pool, 3)
    assert pool.stats.replayed == 3 * len(pool.profile())


def test_bad_arguments_are_refused(upstream: HostUpstream) -> None:
    for warmup in (-1, 1.5, "2", True):
        with pytest.raises(PoolError, match="number of steps"):
            CupyPool(upstream, device=0, warmup=warmup)  # type: ignore[arg-type]
    with pytest.raises(PoolError, match="max_plans is 0"):
        CupyPool(upstream, device=0, max_plans=0)
    with pytest.raises(PoolError, match="sample is 'host'; expected 'device' or 'managed'"):
        CupyPool(upstream, device=0, sample="host")
    for device in (-1, "0", 1.0, False):
        with pytest.raises(PoolError, match=r"device is .*; expected a device number"):
            CupyPool(upstream, device=device)  # type: ignore[arg-type]
    for bad in (5, "pool", object()):
        with pytest.raises(PoolError, match=r"upstream is .*; expected an allocator"):
            CupyPool(bad, device=0)
    with pytest.raises(StowplanError, match="nobody"):
        CupyPool(upstream, device=0, planner="nobody")
    with pytest.raises(TypeError, match="warm_up"):
        CupyPool(upstream, device=0, warm_up=3)  # type: ignore[call-arg]


def test_sizes_that_are_none(pool: CupyPool) -> None:
    run(pool, 4)
    for size in (-1, 2**70):
        with pytest.raises(OverflowError):
            pool.malloc(size)
    with pytest.raises(TypeError):
        pool.malloc("12")
    assert pool.stats.live_bytes == 0
    run(pool, 2)


# ---------------------------------------------------------------------------------------------------- pools and devices


def test_what_users_know_from_memory_pool(pool: CupyPool, upstream: HostUpstream) -> None:
    array = empty(1000)
    assert pool.used_bytes() == 1000
    assert pool.total_bytes() == 1000
    assert pool.free_bytes() == 0
    run(pool, 5)
    assert pool.total_bytes() == 1000 + pool.plan().arena_bytes
    assert pool.free_bytes() == pool.plan().arena_bytes
    assert pool.n_free_blocks() == 0
    pool.free_all_blocks()
    assert pool.get_limit() == 0
    with pytest.raises(PoolError, match="knows no limit"):
        pool.set_limit(size=100)
    del array
    assert pool.used_bytes() == 0


class Managing(HostUpstream):
    """An upstream that knows limits and free blocks, as `cupy.cuda.MemoryPool` does."""

    limit = 0

    def malloc(self, size: int) -> Any:
        return self(size)

    def total_bytes(self) -> int:
        return 12345

    def n_free_blocks(self) -> int:
        return 6

    def free_all_blocks(self, stream: Any = None) -> None:
        self.freed = stream

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        self.limit = size or 0

    def get_limit(self) -> int:
        return self.limit


def test_an_upstream_with_methods_is_asked() -> None:
    upstream = Managing()
    pool = CupyPool(upstream, device=0)
    pool.set_limit(size=777)
    assert (pool.get_limit(), pool.total_bytes(), pool.n_free_blocks()) == (777, 12345, 6)
    pool.free_all_blocks(stream="a stream")
    assert upstream.freed == "a stream"
    assert pool.free_bytes() == 12345
    assert holds(fill(cupy.ndarray(10, cupy.uint8, memptr=pool.malloc(10)), 3), 3)


def test_a_memory_pool_s_method_is_the_memory_pool() -> None:
    upstream = cupy.cuda.MemoryPool()
    pool = CupyPool(upstream.malloc, device=0)
    assert pool._upstream is upstream


def test_each_device_has_its_pool() -> None:
    pools = {n: CupyPool(HostUpstream(), device=n).malloc.__self__ for n in (0, 2)}
    asked = []

    def pool_of(device: int) -> Any:
        asked.append(device)
        return pools[device]

    current = iter((2, 0, 2, 0, 1))
    router = DeviceRouter(lambda: next(current), pool_of)
    assert [router.malloc(100).device_id for _ in range(4)] == [2, 0, 2, 0]
    assert asked == [2, 0]
    with pytest.raises(KeyError):
        router.malloc(100)


def test_without_a_driver_the_current_device_is_cupy_s_to_tell(upstream: HostUpstream) -> None:
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        with pytest.raises(cupy.cuda.runtime.CUDARuntimeError):
            CupyPool(upstream).malloc(100)
    else:
        pytest.skip("there is a CUDA driver")


def test_no_byte_is_written_behind_a_block(pool: CupyPool, upstream: HostUpstream) -> None:
    array = empty(700)
    ctypes.memset(address(array) + 700, 0, 1)
    del array
    assert upstream.overwritten  # the fixture's check can fail
    upstream.overwritten = False


def test_an_idle_arena_goes_before_a_request_fails(pool: CupyPool, upstream: HostUpstream) -> None:
    for _ in range(4):
        with pool.step():
            cupy.empty(10_000, dtype=np.uint8)
        pool.wait()
    assert pool.stats.arena_bytes > 0
    limit = upstream.live_bytes + 5_000
    upstream.fails = lambda number, size: upstream.live_bytes + size > limit
    kept = cupy.empty(12_000, dtype=np.uint8)  # fits only without the arena
    assert pool.stats.arena_bytes == 0
    del kept
    before = pool.stats
    with pool.step():
        cupy.empty(10_000, dtype=np.uint8)
    assert pool.stats.replayed == before.replayed + 1  # the arena has been taken again


def test_free_all_blocks_gives_an_idle_arena_back(pool: CupyPool, upstream: HostUpstream) -> None:
    for _ in range(4):
        with pool.step():
            cupy.empty(10_000, dtype=np.uint8)
        pool.wait()
    pool.free_all_blocks()
    assert (pool.stats.arena_bytes, upstream.live_bytes) == (0, 0)
    with pool.step():
        kept = cupy.empty(10_000, dtype=np.uint8)
        pool.free_all_blocks()  # something lives there
        assert pool.stats.arena_bytes > 0
    del kept


# ------------------------------------------------------------------------------------------------------ steps found


def test_steps_are_found_without_marks() -> None:
    upstream = HostUpstream()
    pool = CupyPool(upstream, device=0, auto_step=True)
    kept = None
    with cupy.cuda.using_allocator(pool.malloc):
        for i in range(20):
            blocks = [cupy.empty(size, cupy.uint8) for size in (5000, 700, 9000, 700)]
            del blocks[1]
            kept = blocks.pop()  # until the next step's is there
            del blocks
            pool.wait()
            if i == 9:
                before = pool.stats
    stats = pool.stats
    assert stats.replayed - before.replayed == 40
    assert stats.upstream == before.upstream
    assert stats.steps > 2
    assert upstream.live_bytes == stats.reserved_bytes == stats.arena_bytes
    assert kept is not None
