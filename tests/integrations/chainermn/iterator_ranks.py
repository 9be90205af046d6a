"""ChainerMN's iterators and collectives on two ranks, with what stowplan mends."""

from __future__ import annotations

from typing import Any

import numpy as np

import stowplan.chainer  # noqa: F401  (first: it mends Chainer)

import chainer
import chainermn

comm = chainermn.create_communicator("naive")
SIZE, BATCH = 10, 4


def everywhere(value: Any) -> list[Any]:
    """Return every rank's value."""
    gathered: list[Any] = comm.mpi_comm.allgather(value)
    return gathered


def one_iterator_for_all(dataset: Any, shuffle: bool) -> list[Any]:
    np.random.seed(comm.rank)
    iterator = chainermn.iterators.create_multi_node_iterator(
        chainer.iterators.SerialIterator(dataset, BATCH, shuffle=shuffle, repeat=False), comm
    )
    batches, details = [], []
    for batch in iterator:
        batches.append([np.asarray(sample).tolist() for sample in batch])
        details.append((iterator.epoch_detail, iterator.is_new_epoch))
    assert [len(batch) for batch in batches] == [4, 4, 2]
    assert details[-1] == (1.0, True)
    assert details[0] == (0.4, False)
    assert everywhere(batches) == [batches] * comm.size
    assert everywhere(details) == [details] * comm.size
    return [sample for batch in batches for sample in batch]


def multi_node_iterators() -> None:
    numbers = np.arange(SIZE, dtype=np.float32)
    assert one_iterator_for_all(numbers, shuffle=False) == numbers.tolist()
    shuffled = one_iterator_for_all(numbers, shuffle=True)
    assert shuffled != numbers.tolist()
    assert sorted(shuffled) == numbers.tolist()
    pairs = chainer.datasets.TupleDataset(numbers, np.arange(SIZE, dtype=np.int32))
    assert sorted(one_iterator_for_all(pairs, shuffle=True)) == [[n, n] for n in range(SIZE)]


def synchronized_iterators() -> None:
    np.random.seed(comm.rank)
    iterator = chainermn.iterators.create_synchronized_iterator(
        chainer.iterators.SerialIterator(np.arange(SIZE, dtype=np.float32), BATCH, shuffle=True), comm
    )
    seen = [[float(number) for number in next(iterator)] for _ in range(4)]
    assert everywhere(seen) == [seen] * comm.size


def collectives() -> None:
    rank, size = comm.rank, comm.size
    for dtype in (np.int32, np.int64, np.float32, np.float64):
        mine = np.full((3, 2), rank + 1, dtype=dtype)
        assert np.array_equal(comm.bcast(mine if rank == 0 else None), np.ones((3, 2), dtype))
        assert np.array_equal(comm.allreduce(mine), np.full((3, 2), size * (size + 1) // 2))
        assert [part[0, 0] for part in comm.allgather(mine)] == list(range(1, size + 1))
        parts = comm.alltoall(tuple(np.full(5, 10 * rank + to, dtype) for to in range(size)))
        assert [part.tolist() for part in parts] == [[10 * source + rank] * 5 for source in range(size)]
        if rank == 0:
            comm.send(mine, 1, 7)
            gathered = comm.gather(mine)
            assert [part[0, 0] for part in gathered] == list(range(1, size + 1))
        else:
            if rank == 1:
                assert np.array_equal(comm.recv(0, 7), np.ones((3, 2), dtype))
            comm.gather(mine)
        pairs = np.arange(2 * size, dtype=dtype).reshape(size, 2)
        assert comm.scatter(pairs).tolist() == [2 * rank, 2 * rank + 1]
    assert comm.bcast_obj({"rank": 0} if rank == 0 else None) == {"rank": 0}


multi_node_iterators()
synchronized_iterators()
collectives()
print(f"rank {comm.rank} is done", flush=True)
