"""Two ranks look for the same, for different and for missing keys: what `share_plans` gives a pool, by itself."""

from __future__ import annotations

import hashlib
import os
import sys
import time

import pytest
from mpi4py import MPI

from stowplan import NumpyPool
from stowplan.chainer import share_plans
from stowplan.errors import PoolError
from stowplan.planning import MemoryStore, PlanStore

comm = MPI.COMM_WORLD
LARGE = bytes(range(256)) * 1000


def key(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def shared(patience: float, inner: PlanStore | None = None) -> PlanStore:
    pool = NumpyPool(plans=inner)
    share_plans(pool, comm, patience=patience)
    assert pool.store is not None
    return pool.store


def pack(store: PlanStore, name: str, data: bytes) -> None:
    """Do what rank 0 does with a problem that nobody has packed."""
    assert store.find(key(name)) is None
    store.keep(key(name), data)


def agreeing() -> None:
    """What rank 0 packs, the other one gets, be it looked for early or late, once or twice, small or large."""
    store = shared(1000)
    for number, data in enumerate((b"1", LARGE, LARGE[:2048], LARGE[: 2048 * 3])):
        if comm.rank == 0:
            if number % 2:
                time.sleep(0.1)  # the other one waits
            pack(store, str(number), data)
            assert store.find(key(str(number))) is None  # there is no store of its own
        else:
            assert store.find(key(str(number))) == data
            assert store.find(key(str(number))) == data


def late() -> None:
    """What was sent before anybody looked for it."""
    store = shared(1000)
    if comm.rank == 0:
        pack(store, "a", LARGE)
        pack(store, "b", b"b")
    comm.barrier()
    if comm.rank == 1:
        assert store.find(key("a")) == LARGE
        assert store.find(key("b")) == b"b"


def differing() -> None:
    """A rank that looks for something else packs alone, without waiting; afterwards they may agree again."""
    inner = MemoryStore()
    store = shared(1000, inner)
    for name in ("0", "1", "same"):
        mine = name if name == "same" else f"{name} of rank {comm.rank}"
        if comm.rank == 0:
            pack(store, mine, LARGE)
        elif name == "same":
            assert store.find(key(mine)) == LARGE
        else:
            pack(store, mine, b"packed alone")
            assert inner.find(key(mine)) == b"packed alone"


def silent() -> None:
    """Rank 0 says nothing: it is waited for once; when it speaks again, it is heard."""
    store = shared(0.5)
    if comm.rank == 1:
        assert store.find(key("a")) is None
    comm.barrier()
    if comm.rank == 0:
        pack(store, "b", b"b")
    comm.barrier()
    if comm.rank == 1:
        assert store.find(key("b")) == b"b"


def stores_of_their_own() -> None:
    """A store that rank 0 has serves all; one that the other has is asked first."""
    inner = MemoryStore()
    if comm.rank == 0:
        inner.keep(key("a"), LARGE)
    else:
        inner.keep(key("b"), b"b")
    store = shared(1000, inner)
    assert store.find(key("a")) == LARGE
    if comm.rank == 1:
        assert store.find(key("b")) == b"b"


def forked() -> None:
    """A child of a rank, which MPI does not know, has the rank's own store alone."""
    inner = MemoryStore()
    inner.keep(key("a"), b"a")
    store = shared(1000, inner)
    child = os.fork()
    if not child:
        sound = store.find(key("a")) == b"a" and store.find(key("b")) is None
        store.keep(key("b"), b"b")
        os._exit(0 if sound and inner.find(key("b")) == b"b" else 1)
    assert os.waitpid(child, 0)[1] == 0


def refusals() -> None:
    """What is no communicator, and what is no time, is refused by all; one rank alone shares with nobody."""
    for wrong in ({"comm": "world"}, {"comm": comm, "patience": 0}):
        pool = NumpyPool()
        with pytest.raises(PoolError, match="expected"):
            share_plans(pool, **wrong)
        assert pool.store is None
    share_plans(pool, MPI.COMM_SELF)
    assert pool.store is None


def main() -> None:
    """Run the scenarios of these names, one after the other."""
    for name in sys.argv[1:]:
        globals()[name]()
        comm.barrier()
    print(f"rank {comm.rank} is done", flush=True)


if __name__ == "__main__":
    main()
