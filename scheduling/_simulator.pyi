from collections.abc import Sequence

from .graph import IntArray, StepGraph

class Simulator:
    """The live bytes of one graph under changing orders and ways, in C++ (``core/simulator/simulator.hpp``).

    It begins with the recorded order and all values KEPT. It trusts its caller that the order and the ways are ones
    that `require_valid` accepts: with others its answers mean nothing. One object serves one thread at a time.

    Parameters
    ----------
    graph
        n operators, m values; its columns are copied.
    swap_rate, pack_rate
        Bytes a second, of `Rates`.
    """

    operators: int
    values: int

    def __init__(self, graph: StepGraph, swap_rate: float, pack_rate: float) -> None: ...
    def set_order(self, order: IntArray) -> None:
        """Take another order of all operators, int64 (n,)."""

    def set_way(self, storage: int, way: int) -> None:
        """Change the way of one storage, named by the value that has it. The next `evaluate` costs little."""

    def set_ways(self, way: IntArray) -> None:
        """Change the ways of all storages to those of the values that have them, int64 (m,)."""

    def set_drops(self, storage: int, operators: Sequence[int]) -> None:
        """Let a storage, where it is DROPPED, go after these of the operators that use it, and no others."""

    def evaluate(self) -> tuple[int, int, int, float]:
        """Peak in bytes, its position, the operator running again there or -1, extra seconds. Releases the GIL."""

    def live(self) -> IntArray:
        """Bytes at each position's fullest moment in the last evaluation, (n,)."""

    def recomputed(self) -> list[tuple[int, list[int]]]:
        """Positions before whose operator others run again, and these, in their order; of the last evaluation."""

    def released(self) -> IntArray:
        """For each value the position after which it goes for the last time, (m,); -1: it never was there, or stays."""

    def intervals(self) -> IntArray:
        """For each value positions of its storage, (3, m).

        Rows: the last near use; the last use by an operator; and, as of the last evaluation, by one or a rerun.
        """

    def swapped(self, way: IntArray) -> list[tuple[int, int, int]]:
        """Storages of SWAPPED values; the positions before which each leaves and is back. Of the last evaluation."""
