"""A packing solver: one block after the other, by falling area, each at the lowest place where it fits."""

import numpy as np

from stowplan.packing import register


@register("largest_area")
def largest_area(problem, options):
    """Return one offset per block, int64 (n,). O(n²) pairs of pieces; no option is of use here."""
    offsets = problem.fixed.copy()  # -1 where the packer is free
    placed = np.flatnonzero(offsets >= 0).tolist()
    area = problem.size * (problem.end - problem.start)
    for block in np.argsort(-area, kind="stable").tolist():
        if offsets[block] < 0:
            taken = sorted(collisions(problem, block, placed, offsets))
            offsets[block] = lowest(taken, int(problem.alignment[block]))
            placed.append(block)
    return offsets


def collisions(problem, block, placed, offsets):
    """Yield the offsets that a block must not have, as half-open ranges.

    A piece is a rectangle of a block: ticks ``[start, end)`` and, relative to the block's offset, bytes
    ``[lower, upper)``. A block without gaps is one piece, one with a gap in its lifetime is several.
    """
    pieces = problem.pieces()
    for mine in range(pieces.first[block], pieces.first[block + 1]):
        for other in placed:
            for theirs in range(pieces.first[other], pieces.first[other + 1]):
                if pieces.start[mine] < pieces.end[theirs] and pieces.start[theirs] < pieces.end[mine]:
                    begin = offsets[other] + pieces.lower[theirs] - pieces.upper[mine] + 1
                    yield int(begin), int(offsets[other] + pieces.upper[theirs] - pieces.lower[mine])


def lowest(taken, alignment):
    """Return the smallest multiple of the alignment outside of all ranges, which are sorted."""
    offset = 0
    for begin, end in taken:
        if offset < begin:
            break
        if offset < end:
            offset = -(-end // alignment) * alignment
    return offset
