"""ChainerMN's multi-node iterator on two ranks, which stowplan mends."""

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


multi_node_iterators()
print(f"rank {comm.rank} is done", flush=True)
