"""Models of pools written for the eye: every reservation is a list of [size, owner, freed], scanned from end to end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

MIB = 2**20


def up(size: int, unit: int) -> int:
    return (size + unit - 1) // unit * unit


@dataclass
class NaivePool:
    """Best fit with coalescing; the rules make it one pool or another."""

    unit: int
    kind: Callable[[int], str]  # requests of different kinds share no reservation
    reservation: Callable[[int, int], int]  # rounded size and what is reserved so far -> bytes
    splits: Callable[[int, int], bool]  # rounded size and what would remain
    last_freed_first: bool = False
    grows: bool = False  # one reservation of each kind, extended at its end
    rows: list[tuple[str, list[list[int | None]]]] = field(default_factory=list)
    clock: count = field(default_factory=count)
    handles: count = field(default_factory=count)

    @property
    def reserved(self) -> int:
        return sum(chunk[0] for _, row in self.rows for chunk in row)

    def malloc(self, size: int) -> int:
        handle = next(self.handles)
        if size:
            size = up(size, self.unit)
            row, k = self.place(size)
            size_there = row[k][0]
            if size_there > size and self.splits(size, size_there - size):
                row.insert(k + 1, [size_there - size, None, next(self.clock)])
                row[k][0] = size
            row[k][1] = handle
        return handle

    def place(self, size: int) -> tuple[list[list[int | None]], int]:
        best = None
        for r, (kind, row) in enumerate(self.rows):
            for k, (there, owner, freed) in enumerate(row):
                if kind == self.kind(size) and owner is None and there >= size:
                    tail = self.grows and k == len(row) - 1
                    rank = (tail, there, -freed if self.last_freed_first else r, k)
                    if best is None or rank < best[0]:
                        best = rank, row, k
        if best is not None:
            return best[1:]
        mine = [row for kind, row in self.rows if kind == self.kind(size)]
        if self.grows and mine:
            row = mine[0]
            if row[-1][1] is None:
                row[-1][0] += self.reservation(size - row[-1][0], self.reserved)
            else:
                row.append([self.reservation(size, self.reserved), None, next(self.clock)])
            return row, len(row) - 1
        self.rows.append((self.kind(size), [[self.reservation(size, self.reserved), None, next(self.clock)]]))
        return self.rows[-1][1], 0

    def free(self, handle: int) -> None:
        for _, row in self.rows:
            for k, chunk in enumerate(row):
                if chunk[1] == handle:
                    chunk[1] = None
                    for neighbour in (k + 1, k - 1):
                        if 0 <= neighbour < len(row) and row[neighbour][1] is None:
                            first = min(k, neighbour)
                            row[first : first + 2] = [
                                [row[first][0] + row[first + 1][0], None, next(self.clock)]
                            ]
                            k = first
                    row[k][2] = next(self.clock)
                    return


def small_or_large(size: int) -> str:
    return "small" if size <= MIB else "large"


def segment(size: int, _: int) -> int:
    if size <= MIB:
        return 2 * MIB
    return 20 * MIB if size < 10 * MIB else up(size, 2 * MIB)


class NaiveExpandable(NaivePool):
    """Its pages depend on the kind, not on the size that is lacking."""

    def place(self, size: int) -> tuple[list[list[int | None]], int]:
        page = 2 * MIB if size <= MIB else 20 * MIB
        self.reservation = lambda lacking, _: up(lacking, page)
        return super().place(size)


NAIVE: dict[str, Callable[[], NaivePool]] = {
    "cupy": lambda: NaivePool(
        512, lambda _: "", lambda size, _: size, lambda *_: True, last_freed_first=True
    ),
    "pytorch": lambda: NaivePool(512, small_or_large, segment, lambda size, rest: size <= MIB or rest > MIB),
    "pytorch-expandable": lambda: NaiveExpandable(512, small_or_large, segment, lambda *_: True, grows=True),
    "rmm": lambda: NaivePool(256, lambda _: "", max, lambda *_: True),
}
