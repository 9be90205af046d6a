"""What may be interrupted, where a step may begin, and what is said where it may not."""

from __future__ import annotations

import asyncio
import copy
import pickle
import warnings
from collections.abc import AsyncIterator, Iterator

import numpy as np
import pytest

import stowplan
from stowplan import NumpyPool
from stowplan.errors import PoolError


def interrupted(pool: NumpyPool) -> int:
    return pool.stats.reasons.get("interrupted", 0)


def test_interrupt_is_a_decorator_with_and_without_brackets() -> None:
    pool = NumpyPool()

    def make() -> int:
        """Make one."""
        return np.ones(4000).nbytes

    with pool, pool.step():
        for decorated in (pool.interrupt(make), pool.interrupt()(make)):
            assert (decorated(), decorated.__name__, decorated.__doc__) == (32000, "make", "Make one.")
    assert interrupted(pool) == 2


@pytest.mark.parametrize("key", [[1], ("a", {})])
def test_a_key_that_cannot_be_hashed_is_refused(key: object) -> None:
    with pytest.raises(PoolError, match=r"the step key .* cannot be hashed; expected a string, for example"):
        NumpyPool().step(key)  # type: ignore[arg-type]


def test_a_generator_is_interrupted_in_its_parts_only() -> None:
    pool = NumpyPool()

    @pool.interrupt
    def parts() -> Iterator[int]:
        try:
            got = yield np.ones(4000).nbytes
            yield got
        except KeyError:
            yield np.ones(4000).nbytes
        finally:
            np.ones(4000)

    with pool, pool.step():
        generator = parts()
        assert next(generator) == 32000
        assert interrupted(pool) == 1
        np.ones(4000)
        assert interrupted(pool) == 1
        assert generator.send(7) == 7  # type: ignore[attr-defined]
        assert generator.throw(KeyError) == 32000  # type: ignore[attr-defined]
        assert interrupted(pool) == 2
        generator.close()  # type: ignore[attr-defined]
        assert interrupted(pool) == 3
    with pytest.raises(PoolError, match="resume without interrupt"):
        pool.resume()


def test_a_coroutine_is_interrupted_while_it_runs() -> None:
    pool = NumpyPool()

    @pool.interrupt
    async def log() -> int:
        np.ones(4000)
        await asyncio.sleep(0)
        return np.ones(4000).nbytes

    async def other() -> None:
        np.ones(4000)
        await asyncio.sleep(0)
        np.ones(4000)

    async def main() -> None:
        assert (await asyncio.gather(log(), other()))[0] == 32000

    with pool, pool.step():
        asyncio.run(main())
    assert (interrupted(pool), pool.stats.reasons["no_plan"]) == (2, 2)


def test_an_asynchronous_generator_is_refused() -> None:
    async def parts() -> AsyncIterator[int]:
        yield 1

    with pytest.raises(PoolError, match=r"expected `with pool.interrupt\(\):` in it"):
        NumpyPool().interrupt(parts)


def test_a_step_where_the_pool_does_not_serve_is_said_once() -> None:
    pool = NumpyPool()
    with pytest.warns(RuntimeWarning, match="expected `with pool:` around the loop"), pool.step():
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pool.step():
            pass
        served = NumpyPool()
        with served, served.step():
            pass


def test_steps_of_two_tasks_are_told_from_steps_that_nest() -> None:
    pool = NumpyPool()

    async def task() -> None:
        with pool.step():
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(task(), task())

    with pool:
        with pytest.raises(PoolError, match=r"do not nest\. It may be the step of another asyncio task"):
            asyncio.run(main())
        with pool.step(), pytest.raises(PoolError, match=r"do not nest$"), pool.step():
            pass


def test_a_pool_stays_in_its_process() -> None:
    assert stowplan.PoolError is PoolError
    for carry in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(PoolError, match=r"cannot be pickled or copied: .* save\(\) and load\(\)"):
            carry(NumpyPool())
