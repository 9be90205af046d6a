"""The ranks of an MPI program share their plans: rank 0 packs, the others get what it has packed.

::

    rank 0                            every other rank
    problem -> key                    problem -> key
    its own store? else pack          its own store? else wait for rank 0
       |  "I have this key"  ------>     another key than mine: this rank differs, and packs alone
       |  the placement      ------>     mine: validated, and replayed

The ranks of a data-parallel training record the same steps, so their problems have the same keys: the key is the
fingerprint on which they agree (`stowplan.planning.store_packing`). Packing is deterministic: ranks that pack alone
agree all the same, and have only used the time.

No rank can keep another one from going on:

- all messages are point to point, on a communicator of their own, by the threads that plan; the program's own threads
  neither send nor wait, and its collectives do not meet ours;
- a rank waits for `patience` seconds at most; it is served as without a plan meanwhile. A rank 0 that says nothing
  for so long (it has died, or records nothing) is not waited for again until it says something;
- a message has at most `PIECE` bytes, so that MPI takes it in whether its receiver looks for it or not: nothing is left
  to be sent when the program ends. There is no lock.

Rank 0 sends a placement, 8 bytes a block, once to each rank.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from typing import Any

from ..allocator.pool import Pool
from ..errors import MissingDependencyError, PoolError
from ..planning.store import MemoryStore, PlanStore

__all__ = ["share_plans"]

PIECE = 2048
"""Bytes of a message; MPI libraries buffer as much at the receiver's, by TCP and in shared memory, from 4096 on."""

KEY = 64
"""Characters of a key."""

PATIENCE = 10.0
"""Seconds that a rank waits for rank 0."""

LOOK = 0.002
"""Seconds between two looks for messages."""

TAG = 0


def share_plans(pool: Pool, comm: Any, *, patience: float = PATIENCE) -> None:
    """Have the ranks of an MPI program share the plans of their pools: rank 0 packs, all replay.

    A collective call, like `chainermn.create_communicator`: every rank of the communicator makes it once, before its
    pool has plans. A rank whose steps differ from rank 0's packs alone. What the pool has a store for (`plans="DIR"`)
    is looked for there first, and kept there by rank 0: so a later run packs nothing.

    Parameters
    ----------
    pool
        This rank's `stowplan.NumpyPool` or `stowplan.CupyPool`.
    comm
        A communicator of ChainerMN's, or of mpi4py's.
    patience
        Seconds that a rank waits for rank 0 before it packs alone, more than 0. Only planning waits, on its own thread.

    Raises
    ------
    MissingDependencyError
        mpi4py is not installed.
    PoolError
        `comm` is neither, or `patience` is not positive.

    Warns
    -----
    RuntimeWarning
        MPI was not initialized for several threads (``MPI_THREAD_MULTIPLE``, mpi4py's default): every rank plans alone.
    """
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise MissingDependencyError(
            f"mpi4py cannot be imported ({error}); expected: pip install 'stowplan[mpi]'"
        ) from error
    if not patience > 0:
        raise PoolError(f"patience is {patience!r}; expected seconds, more than 0")
    mpi_comm = getattr(comm, "mpi_comm", comm)
    if not isinstance(mpi_comm, MPI.Intracomm):
        raise PoolError(f"comm is {comm!r}; expected a communicator of ChainerMN or mpi4py")
    own = mpi_comm.Dup()
    if own.size == 1:
        return
    # Agreed on: a rank that sends nothing must not be waited for, time and again.
    if own.allreduce(MPI.Query_thread(), MPI.MIN) < MPI.THREAD_MULTIPLE:
        warnings.warn(
            "MPI does not serve several threads here, so every rank plans alone; "
            "expected mpi4py to initialize it with MPI_THREAD_MULTIPLE, its default",
            RuntimeWarning,
            stacklevel=2,
        )
        return
    kind = _Packs if own.rank == 0 else _Waits
    pool.use_store(kind(own, pool.store, patience))


class _RankStore(PlanStore):
    """What the stores of all ranks have in common: the rank's own store, which may be None, comes first."""

    def __init__(self, comm: Any, inner: PlanStore | None, patience: float) -> None:
        self._comm, self._inner, self._patience = comm, inner, patience
        self._process = os.getpid()

    @property
    def _forked(self) -> bool:
        """Whether this is a child of the rank, which MPI does not know."""
        return os.getpid() != self._process

    def where(self, key: str) -> str:
        return super().where(key) if self._inner is None else self._inner.where(key)


class _Packs(_RankStore):
    """Rank 0's: sends all that it has found or packed."""

    def __init__(self, *options: Any) -> None:
        super().__init__(*options)
        self._unsent: list[Any] = []
        self._announced: set[str] = set()
        self._sent: set[str] = set()

    def find(self, key: str) -> bytes | None:
        if key not in self._announced:
            self._announced.add(key)
            self._send(key.encode())
        data = None if self._inner is None else self._inner.find(key)
        if data is not None:
            self._send_placement(key, data)
        return data

    def keep(self, key: str, data: bytes) -> None:
        self._send_placement(key, data)
        if self._inner is not None:
            self._inner.keep(key, data)

    def _send_placement(self, key: str, data: bytes) -> None:
        if key in self._sent:
            return
        self._sent.add(key)
        self._send(key.encode() + len(data).to_bytes(8, "little"))
        room = PIECE - KEY - 8
        for at in range(0, len(data), room):
            self._send(key.encode() + at.to_bytes(8, "little") + data[at : at + room])

    def _send(self, message: bytes) -> None:
        """Send to all other ranks, and see that MPI has taken it, for `patience` seconds at most."""
        if self._forked:
            return
        from mpi4py import MPI

        requests = [self._comm.Isend(message, rank, TAG) for rank in range(1, self._comm.size)]
        until = time.monotonic() + self._patience
        while not MPI.Request.Testall(requests):
            if time.monotonic() > until:
                self._unsent.append((requests, message))  # MPI reads the message whenever its receiver comes
                return
            time.sleep(LOOK)


class _Waits(_RankStore):
    """Every other rank's: waits for rank 0, if need be.

    What rank 0 has looked for, and this rank has not, lets one of this rank's keys go that rank 0 has not looked for:
    the steps of the two differ. A rank that is late, or looks for the same in another order, loses one packing by that.
    """

    def __init__(self, *options: Any) -> None:
        super().__init__(*options)
        self._mutex = threading.Lock()
        self._announced: set[str] = set()
        self._looked_for: set[str] = set()
        self._others: set[str] = set()  # announced, and not looked for by this rank
        self._arriving: dict[str, tuple[bytearray, int]] = {}  # with the bytes that are there
        self._arrived = MemoryStore()
        self._silent = False

    def find(self, key: str) -> bytes | None:
        data = None if self._inner is None else self._inner.find(key)
        if data is not None or self._forked:
            return data
        until = time.monotonic() + self._patience
        while True:
            with self._mutex:
                self._looked_for.add(key)
                self._others.discard(key)
                if self._look():
                    self._silent = False
                data = self._arrived.find(key)
                if data is not None:
                    return data
                if key not in self._announced and self._others:
                    self._others.pop()
                    return None
                if self._silent or time.monotonic() > until:
                    self._silent = True
                    return None
            time.sleep(LOOK)

    def keep(self, key: str, data: bytes) -> None:
        """Keep what this rank has packed alone."""
        if self._inner is not None:
            self._inner.keep(key, data)

    def _look(self) -> bool:
        """Take in the messages that are there; return whether there were any."""
        from mpi4py import MPI

        any_came = False
        while (found := self._comm.Improbe(0, TAG, status := MPI.Status())) is not None:
            any_came = True
            message = bytearray(status.Get_count(MPI.BYTE))
            found.Recv(message)
            self._take(bytes(message))
        return any_came

    def _take(self, message: bytes) -> None:
        key = message[:KEY].decode()
        if len(message) == KEY:
            self._announced.add(key)
            if key not in self._looked_for:
                self._others.add(key)
            return
        number, piece = int.from_bytes(message[KEY : KEY + 8], "little"), message[KEY + 8 :]
        if not piece:
            self._arriving[key] = bytearray(number), 0
            return
        data, there = self._arriving.pop(key)
        data[number : number + len(piece)] = piece
        there += len(piece)
        if there == len(data):
            self._arrived.keep(key, bytes(data))
        else:
            self._arriving[key] = data, there
