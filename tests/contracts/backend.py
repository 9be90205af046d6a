"""What every pool must do, whatever memory it serves: the promises, and how steps are planned, through its own arrays.

To test one, write a `Backend` (`tests.properties.pool_program`) whose pool has ``warmup=0`` and plans requests of any
size, and name it in a subclass in any module that pytest collects.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from stowplan.errors import PoolError, ProfileError

from .. import hypothesis_profiles  # noqa: F401 (tests/conftest.py need not apply)
from ..children import end_quietly
from ..properties.pool_machine import PoolMachine
from ..properties.pool_program import Backend, Block, FailureError
from ..running import in_threads
from ..updates import update

SIZES = (3000, 700, 1500, 900)
TRAIN, EVALUATE, SHORT = SIZES, (5000, 100), (3000, 700, 20)

AT_EXIT = """
import sys
from {module} import {name} as Backend
from tests.properties.pool_program import Block
from tests.running import run
backend, when = Backend(), {when!r}
kept = []
def work():
    kept[:] = [Block(backend, 5000, 7), Block(backend, 700)]
run(backend.pool, 6, work)
assert backend.pool.stats.replayed > 0
if when == "in a step":
    backend.pool.step().__enter__()
    kept.append(Block(backend, 3000))
    sys.exit(0)
if when == "between steps":
    sys.exit(0)
backend.pool = None
class Late:
    def __del__(self):
        assert self.block.holds()
sys.late = Late()  # goes when the interpreter has gone
sys.late.block = kept[0]
"""


def chain(backend: Backend, sizes: tuple[int, ...] = SIZES) -> None:
    """A step with two blocks alive at a time, each looked at before it goes."""
    previous = Block(backend, 64, 99)
    for byte, size in enumerate(sizes):
        current = Block(backend, size, byte)
        assert previous.holds()
        previous = current


def run(backend: Backend, steps: int, work: Callable[[], object] | None = None, key: object = None) -> int:
    """Run steps with plans ready when each begins; return how many requests were replayed."""
    before = backend.pool.stats.replayed
    for _ in range(steps):
        with backend.pool.step(key):
            chain(backend) if work is None else work()
        assert backend.pool.wait()
    return int(backend.pool.stats.replayed - before)


class BackendContract:
    """No overlap, every byte read back, no byte lost, no failure that upstream has not had."""

    backend: ClassVar[Callable[..., Any]]

    @pytest.fixture
    def own(self) -> Iterator[Any]:
        """A backend, all blocks of which are gone in the end."""
        own = type(self).backend()
        yield own
        gc.collect()
        assert own.pool.stats.live_bytes == 0
        own.check()

    def test_blocks_outlive_their_pool(self) -> None:
        own = type(self).backend()
        kept: list[Block] = []
        run(own, 5, lambda: kept.append(Block(own, 5000, 7)))
        del own.pool
        gc.collect()
        assert all(block.holds() for block in kept)

    def test_what_upstream_refuses_is_no_block_of_its_step(self, own: Any) -> None:
        def work() -> None:
            first = Block(own, 5000)
            own.fail(1)
            with pytest.raises(MemoryError):
                own.allocate(1 << 50, False)
            own.fail(0)
            second = Block(own, 700)
            assert first.holds()
            assert second.holds()

        run(own, 4, work)
        assert run(own, 3, work) == 3 * 2
        assert own.pool.profile().size.tolist() == [own.asked(5000), own.asked(700)]
        assert own.pool.stats.plans == 1

    # ------------------------------------------------------------------------------------------------- one kind of step

    def test_a_step_is_recorded_confirmed_and_replayed(self, own: Any) -> None:
        run(own, 10)
        stats, requests = own.pool.stats, len(own.pool.profile())
        assert stats.reasons == {"no_plan": 2 * requests}
        assert (stats.plans, stats.replayed, stats.live_bytes) == (1, 8 * requests, 0)
        assert stats.arena_bytes == stats.lower_bound == own.pool.plan().arena_bytes
        assert stats.fragmentation == 0
        assert own.pool.profile().planned_peak <= stats.lower_bound

    def test_steps_pass_before_one_is_recorded(self) -> None:
        own = type(self).backend(warmup=2)
        assert [run(own, 1) > 0 for _ in range(6)] == [False] * 4 + [True] * 2

    def test_planned_addresses_are_aligned_and_come_again(self, own: Any) -> None:
        seen: list[list[int]] = []
        run(own, 6, lambda: seen.append([Block(own, size).address for size in SIZES]))
        assert seen[-1] == seen[-2] == seen[-3]
        assert all(address % own.pool.alignment == 0 for address in seen[-1])

    def test_wrapped_blocks_are_planned(self, own: Any) -> None:
        gradient: list[Block] = []

        def work() -> None:
            activation = Block(own, 5000)
            assert all(block.holds() for block in gradient)
            gradient.clear()  # of the step before
            gradient.append(Block(own, 5000, 2))
            assert activation.holds()

        run(own, 8, work)
        assert own.pool.profile().wrapped.sum() == 1
        assert set(own.pool.stats.reasons) == {"no_plan"}
        assert gradient.pop().holds()

    def test_late_blocks_keep_their_bytes(self, own: Any) -> None:
        kept: list[Block] = []

        def work(keep: bool = False) -> None:
            first = Block(own, 4000)
            if keep:
                kept.append(first)
            del first
            assert Block(own, 4000, 2).holds()  # planned at the same address

        run(own, 5, work)
        assert own.pool.stats.arena_bytes < 8000
        for _ in range(5):
            run(own, 1, lambda: work(keep=True))
        run(own, 3, work)
        assert own.pool.stats.reasons["late"] > 0
        assert all(block.holds() for block in kept)

    def test_frees_on_another_thread_are_planned(self, own: Any) -> None:
        def work() -> None:
            box = [Block(own, 5000), Block(own, 300)]
            in_threads(box.clear)
            chain(own)

        run(own, 8, work)
        assert set(own.pool.stats.reasons) == {"no_plan"}

    # ------------------------------------------------------------------------------------------------ steps that differ

    def test_a_larger_step_brings_a_new_plan_and_arena(self, own: Any) -> None:
        run(own, 5)
        first = own.pool.plan().arena_bytes
        run(own, 6, lambda: chain(own, tuple(2 * size for size in SIZES)))
        stats = own.pool.stats
        assert (stats.plans, stats.reoptimizations) == (2, 1)
        assert stats.arena_bytes <= own.pool.plan().arena_bytes > first  # the first arena has gone

    @pytest.mark.parametrize("keys", [("train", "eval", "short"), (None, None, None)])
    def test_alternating_steps_make_three_plans(self, own: Any, keys: tuple[str | None, ...]) -> None:
        for round_ in range(10):
            before = own.pool.stats
            for key, sizes in zip(keys, (TRAIN, EVALUATE, SHORT), strict=True):
                run(own, 1, lambda sizes=sizes: chain(own, sizes), key)
            if round_ >= 2:
                assert own.pool.stats.reasons == before.reasons
        stats = own.pool.stats
        assert (stats.plans, stats.reoptimizations) == (3, 0)
        assert stats.reserved_bytes - stats.kept_bytes == stats.arena_bytes  # one arena for all

    def test_an_exception_ends_a_step_and_no_more(self, own: Any) -> None:
        def work() -> None:
            Block(own, 1234)
            raise FailureError

        def fail(steps: int) -> None:
            for _ in range(steps):
                with pytest.raises(FailureError):
                    run(own, 1, work)

        fail(3)
        assert own.pool.wait()
        assert own.pool.stats.plans == 0
        assert run(own, 5) > 0
        fail(1)
        before = own.pool.stats
        assert run(own, 1) == len(own.pool.profile())
        assert own.pool.stats.upstream == before.upstream

    # ---------------------------------------------------------------------------------- told, loaded, interrupted steps

    def test_steps_are_told_without_marks(self) -> None:
        own = type(self).backend(auto_step=True)
        kept = None
        update()  # what it imports asks the pool for nothing
        with own.pool.serving():
            for number in range(20):
                blocks = [Block(own, size) for size in (5000, 700, 9000, 700)]
                del blocks[1]
                kept = blocks.pop()  # until the next step's is there
                del blocks
                update()
                assert own.pool.wait()
                if number == 9:
                    before = own.pool.stats
        stats = own.pool.stats
        assert (stats.replayed - before.replayed, stats.upstream) == (40, before.upstream)
        assert stats.reserved_bytes - stats.kept_bytes == stats.arena_bytes
        assert kept is not None

    def test_a_loaded_pool_replays_its_first_step(self, own: Any, tmp_path: Path) -> None:
        run(own, 5)
        own.pool.save(tmp_path / "plans")
        loaded = type(self).backend(tmp_path / "plans")
        assert run(loaded, 2) == loaded.pool.stats.requests == 2 * len(own.pool.profile())
        assert loaded.pool.stats.arena_bytes == own.pool.stats.arena_bytes

    def test_interrupted_parts_stay_out_of_the_profile(self, own: Any) -> None:
        kept: list[Block] = []
        decorated = own.pool.interrupt(lambda size: Block(own, size))

        def work() -> None:
            number = len(kept)
            born_before = Block(own, 300)
            with own.pool.interrupt():
                kept.append(Block(own, 1000 + 100 * number, 4))  # another size each time
                assert born_before.holds()
                del born_before
                with own.pool.interrupt():
                    Block(own, 70 * number + 1)
                Block(own, 90 * number + 1)
            chain(own)
            own.pool.interrupt()
            Block(own, 10 + number)
            own.pool.resume()
            decorated(20 + number)

        run(own, 10, work)
        assert own.pool.stats.plans == 1
        assert set(own.pool.stats.reasons) == {"no_plan", "interrupted"}
        assert all(block.holds() for block in kept)

    def test_misuse_is_refused_and_harms_nothing(self, own: Any) -> None:
        pool = own.pool
        with pytest.raises(PoolError, match="resume without interrupt"):
            pool.resume()
        with pool.interrupt(), pytest.raises(PoolError, match="in an interrupted part"), pool.step():
            pass
        with pool.step(), pytest.raises(PoolError, match="steps do not nest"), pool.step():
            pass
        with pytest.raises(ProfileError, match="no plan yet"):
            pool.profile()
        assert run(own, 6) > 0

    # --------------------------------------------------------------------------------------------------- limit, the end

    def test_a_limit_is_kept_and_said(self) -> None:
        own = type(self).backend(limit="100 KB")
        kept = Block(own, 60_000)
        with pytest.raises(MemoryError):
            Block(own, 60_000)
        assert kept.holds()
        assert "the limit of 100,000 bytes leaves no room for 60,000 bytes" in own.pool.report()
        del kept
        assert Block(own, 90_000).holds()

    @pytest.mark.parametrize("when", ["in a step", "between steps", "after the pool"])
    def test_the_interpreter_ends_with_blocks_alive(self, when: str) -> None:
        kind = type(self).backend
        end_quietly(AT_EXIT.format(module=kind.__module__, name=kind.__name__, when=when))  # type: ignore[attr-defined]

    def test_arbitrary_programs(self) -> None:
        """Hypothesis chooses among all that a program can do; the promises are looked at after every change."""

        class Machine(PoolMachine):
            backend: ClassVar[Any] = type(self).backend

        run_state_machine_as_test(
            Machine, settings=settings(settings.get_profile("dear"), stateful_step_count=60)
        )
