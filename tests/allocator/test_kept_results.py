"""Loops that keep what a step made until the next one has made its own: two steps take turns on one plan."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stowplan import CupyPool, NumpyPool

from ..running import run

ROWS, UNITS, LAYERS = 60, 40, 5
DATA = np.random.default_rng(0)
WEIGHTS = DATA.standard_normal((LAYERS, UNITS, UNITS)) / UNITS
BATCHES = [
    (DATA.standard_normal((30, 50)).astype(np.float32), DATA.integers(0, 10, 30).astype(np.int32))
    for _ in range(14)
]


def forward(rows: int = ROWS, seed: int = 0) -> list[np.ndarray]:
    """The activations of some layers, as the graph of a loss keeps them; in between there are temporaries."""
    activations = [np.full((rows, UNITS), float(seed + 1))]
    for weight in WEIGHTS:
        activations.append(np.maximum(activations[-1] @ weight, 0))
    return activations


def contents(arrays: list[np.ndarray]) -> list[bytes]:
    return [array.tobytes() for array in arrays]  # no array is made


class Loop:
    """``kept = forward()`` in steps of a pool, with what is kept looked at before it goes."""

    def __init__(self, pool: NumpyPool) -> None:
        self.pool = pool
        self.kept: list[np.ndarray] = []
        self.steps = 0

    def run(self, steps: int, rows: int = ROWS, key: str | None = None) -> float:
        """Return the share of the requests that were replayed."""
        before = self.pool.stats
        for _ in range(steps):
            kept = contents(self.kept)
            with self.pool.step(key):
                following = forward(rows, self.steps)
                assert contents(self.kept) == kept
                self.kept = following
                del following
            self.pool.wait()
            self.steps += 1
        after = self.pool.stats
        replayed = after.replayed - before.replayed
        return replayed / (replayed + after.upstream - before.upstream + after.guests - before.guests)


@pytest.fixture
def loop() -> Iterator[Loop]:
    """A loop whose pool is entered."""
    with NumpyPool() as pool:
        yield Loop(pool)


def test_two_steps_take_turns(loop: Loop) -> None:
    loop.run(4)
    assert loop.run(8) == 1
    stats, pool = loop.pool.stats, loop.pool
    assert stats.plans == 1
    assert stats.missing == 0
    assert "escaped" not in stats.reasons
    assert stats.arena_bytes - stats.lower_bound < 4096
    assert not pool.profile().escaped.any()


def test_one_large_result_among_many_small_blocks() -> None:
    pool = NumpyPool()
    kept = np.zeros(100_000)
    with pool:
        for value in range(1, 9):
            with pool.step():
                for size in range(100, 300):
                    np.ones(size)
                assert (kept == value - 1).all()
                kept = np.full(100_000, float(value))
            pool.wait()
        assert pool.stats.reasons.keys() == {"no_plan"}
        assert not pool.profile().escaped.any()


def test_turns_are_found_again_after_another_step(loop: Loop) -> None:
    for _ in range(4):
        loop.run(4, key="train")
        loop.run(1, rows=ROWS // 2, key="evaluate")
    loop.run(1, key="train")  # what the evaluation keeps stands in the way of this one
    assert loop.run(5, key="train") == 1
    assert loop.pool.stats.plans <= 3


def test_a_short_batch_without_a_key(loop: Loop) -> None:
    loop.run(8)
    for turn in (1, 2):
        loop.run(1, rows=ROWS // 2)
        loop.run(1)
        assert loop.run(2 + turn) == 1


def test_results_that_are_dropped_after_all(loop: Loop) -> None:
    loop.run(5)
    loop.kept = []
    for seed in range(5):
        with loop.pool.step():
            forward(seed=seed)
    assert loop.pool.stats.reasons.keys() == {"no_plan"}
    loop.run(1)
    assert loop.run(3) == 1
    assert loop.pool.stats.plans == 1


def test_an_extra_request_does_not_cost_the_turn(loop: Loop) -> None:
    loop.run(6)
    with loop.pool.step():
        loop.kept = [*forward(), np.ones(777)]
    assert loop.run(1) > 0.9
    assert loop.run(4) == 1


def test_larger_requests_reoptimize_both_turns(loop: Loop) -> None:
    loop.run(6)
    loop.run(4, rows=ROWS + 20)
    assert loop.run(4, rows=ROWS + 20) == 1
    loop.run(1)
    assert loop.run(4) == 1
    assert loop.pool.stats.plans <= 3


def test_what_is_kept_for_more_than_eight_steps_escapes() -> None:
    pool = NumpyPool()
    kept: deque[np.ndarray] = deque(maxlen=9)
    with pool:
        for value in range(32):
            with pool.step():
                kept.append(np.full(5000, float(value)))
                temporary = kept[-1] * 2
                del temporary
            pool.wait()
    assert pool.profile().escaped.tolist() == [True, False]
    assert [array[0] for array in kept] == list(range(23, 32))
    assert all((array == array[0]).all() for array in kept)
    assert pool.stats.reasons["escaped"] == 29


def test_a_second_run_replays_from_its_first_step(tmp_path: Path) -> None:
    pool = NumpyPool()
    with pool:
        Loop(pool).run(5)
    pool.save(tmp_path / "kept.plans")
    loaded = NumpyPool.load(tmp_path / "kept.plans")
    with loaded:
        assert Loop(loaded).run(6) == 1


def test_results_kept_on_a_device(pool: CupyPool) -> None:
    from .cupy_host import empty, holds

    kept: list[Any] = []

    def work() -> None:
        nonlocal kept
        following = [empty(size, byte) for byte, size in enumerate((3000, 700, 1500), 1)]
        assert all(holds(array, byte) for byte, array in enumerate(kept, 1))
        kept = following

    run(pool, 12, work)
    assert set(pool.stats.reasons) == {"no_plan"}
    assert pool.stats.plans == 1


def training(step: Callable[[], Any]) -> list[float]:
    """The training loop of Chainer's tutorial, which keeps each loss, and with it the graph, until the next one."""
    import chainer
    import chainer.functions as F  # noqa: N812
    import chainer.links as L  # noqa: N812

    np.random.seed(0)  # noqa: NPY002 (Chainer draws its parameters from it)
    model = chainer.Sequential(L.Linear(50, 100), F.relu, L.Linear(100, 100), F.relu, L.Linear(100, 10))
    optimizer = chainer.optimizers.Adam().setup(model)
    losses = []
    for x, target in BATCHES:
        with step():
            loss = F.softmax_cross_entropy(model(x), target)
            model.cleargrads()
            loss.backward()
            optimizer.update()
        losses.append(float(loss.array))
    return losses


def test_the_loop_of_chainers_tutorial(chainer: Any) -> None:
    pool = NumpyPool()
    with pool:
        counts = []

        def step() -> Any:
            pool.wait()
            counts.append(pool.stats)
            return pool.step()

        losses = training(step)
    assert losses == training(nullcontext)
    assert set(counts[-1].reasons) == {"no_plan", "outside"}  # outside: the model is made
    assert counts[-1].reasons == counts[6].reasons
