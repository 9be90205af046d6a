"""The ranks that a network is split over, and a lone rank that stands for one of many."""

from __future__ import annotations

from typing import Any, Protocol

from ....common.errors import StowplanError

__all__ = ["Communicator", "LoneRank", "ParallelError", "Ranks"]


class ParallelError(StowplanError, ValueError):
    """A network cannot be split as requested."""


class Communicator(Protocol):
    """What is used of ``mpi4py.MPI.Comm``; its methods take arrays of one type, in C order."""

    @property
    def rank(self) -> int:
        """Number of this one, from 0 on."""

    @property
    def size(self) -> int:
        """How many ranks there are."""

    def Allreduce(self, sendbuf: Any, recvbuf: Any) -> None:  # noqa: N802 (mpi4py's names)
        """Put the sum over all ranks into ``recvbuf``, as large as ``sendbuf``."""

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:  # noqa: N802
        """Put the arrays of all ranks into ``recvbuf``, one after the other."""

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any) -> None:  # noqa: N802
        """Put this rank's part of the sum over all ranks into ``recvbuf``."""


class Ranks:
    """The ranks that split a network, and how.

    Parameters
    ----------
    comm
        mpi4py's communicator of these ranks, or a `LoneRank`. Of a ChainerMN communicator its ``mpi_comm`` is
        taken.
    sequence
        Split what lies between the matrices (normalization, dropout) along the sequence too.
    """

    def __init__(self, comm: Any, *, sequence: bool = False) -> None:
        self.comm: Communicator = getattr(comm, "mpi_comm", comm)
        self.rank, self.size = self.comm.rank, self.comm.size
        self.sequence = sequence

    def part(self, count: int, what: str) -> slice:
        """Return this rank's part of ``count`` things.

        Raises
        ------
        ParallelError
            They cannot be divided equally; the error names ``what`` they are.
        """
        if count % self.size:
            raise ParallelError(
                f"{count} {what} over {self.size} ranks; expected a multiple of the number of ranks"
            )
        each = count // self.size
        return slice(self.rank * each, (self.rank + 1) * each)


class LoneRank:
    """A communicator that stands for one rank of many, without the others and without MPI.

    The other ranks are taken to add nothing to sums, and to send what this one sends. So values are not those of the
    split network; sizes, and the order in which blocks are requested and freed, are. That is what a profile needs, for
    any number of ranks.

    Parameters
    ----------
    size
        How many ranks it makes believe.
    rank
        Which of them it is.
    """

    def __init__(self, size: int, rank: int = 0) -> None:
        if not 0 <= rank < size:
            raise ParallelError(f"rank {rank} of {size}; expected one from 0 to {size - 1}")
        self.size, self.rank = size, rank

    def Allreduce(self, sendbuf: Any, recvbuf: Any) -> None:  # noqa: N802
        """Copy."""
        recvbuf[...] = sendbuf

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:  # noqa: N802
        """Repeat."""
        recvbuf.reshape(self.size, -1)[:] = sendbuf.reshape(1, -1)

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any) -> None:  # noqa: N802
        """Copy this rank's part."""
        recvbuf.reshape(-1)[:] = sendbuf.reshape(self.size, -1)[self.rank]
