"""The skyline around obstacles, as one reads it: see packing/core/large_refill.hpp."""

from __future__ import annotations

from itertools import pairwise

Block = tuple[int, int, int, int]  # start, end, size, alignment
Rectangle = tuple[int, int, int, int]  # start, end, lower, upper


def align_up(x: int, alignment: int) -> int:
    return -(-x // alignment) * alignment


def refill(blocks: list[Block], obstacles: list[Rectangle], limit: int | None = None) -> list[int] | None:
    """Offsets of the blocks, preferred in this order, or None if one would end above the limit."""
    ticks = sorted({t for start, end, *_ in [*blocks, *obstacles] for t in (start, end)})
    spans = list(pairwise(ticks))
    height = [0] * len(spans)

    def above(k: int, height: int) -> list[Rectangle]:
        alive = [o for o in obstacles if o[0] < spans[k][1] and spans[k][0] < o[1]]
        return sorted((o for o in alive if o[2] >= height), key=lambda o: o[2])

    def ceiling(k: int, height: int) -> float:
        return above(k, height)[0][2] if above(k, height) else float("inf")

    offsets: list[int | None] = [None] * len(blocks)
    while None in offsets:
        low = min(height)
        first = height.index(low)
        last = first
        while last + 1 < len(spans) and height[last + 1] == low:
            last += 1
        line = range(first, last + 1)
        for b, (start, end, size, alignment) in enumerate(blocks):
            if offsets[b] is not None or start < spans[first][0] or end > spans[last][1]:
                continue
            under = [k for k in line if start < spans[k][1] and spans[k][0] < end]
            top = align_up(low, alignment) + size
            if top > min(ceiling(k, low) for k in under):
                continue
            if limit is not None and top > limit:
                return None
            offsets[b] = top - size
            for k in under:
                height[k] = top
            break
        else:
            neighbours = ([height[first - 1]] if first else []) + height[last + 1 : last + 2]
            risen = min([*neighbours, *(ceiling(k, low) for k in line)])
            for k in line:
                height[k] = above(k, low)[0][3] if ceiling(k, low) == risen else int(risen)
    return [x for x in offsets if x is not None]
