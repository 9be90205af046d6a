"""The skyline around obstacles, as one reads it: see packing/core/window_repair/skyline_refill.hpp."""

from __future__ import annotations

Block = tuple[int, int, int, int]  # start, end, size, alignment
Rectangle = tuple[int, int, int, int]  # start, end, lower, upper


def align_up(x: int, alignment: int) -> int:
    return -(-x // alignment) * alignment


def columns(items: list[tuple[int, ...]]) -> tuple[int, list[tuple[int, int]]]:
    """The number of columns and every item's [start, end): time is cut where a start follows an end."""
    edges = sorted((t, s, k) for k, item in enumerate(items) for t, s in ((item[0], 1), (item[1], 0)))
    spans = [[0, 0] for _ in items]
    column, taking = -1, 0
    for _, starts, k in edges:
        if starts and not taking:
            column += 1
        taking = starts
        spans[k][1 - starts] = column if starts else column + 1
    return column + 1, [(a, b) for a, b in spans]


def fit(left: int, right: int, walls: tuple[float, float], length: int, size: int, reach: int) -> float:
    """The share of a block's area and of the slivers beside it, `left` and `right` columns wide, that is used."""
    area = float(size) * float(length)
    lost = float(min(left, reach)) * min(float(size), walls[0])
    lost = lost + float(min(right, reach)) * min(float(size), walls[1])
    return area / (area + lost)


def refill(
    blocks: list[Block], worth: list[float], reach: int, obstacles: list[Rectangle], limit: int | None = None
) -> list[int] | None:
    """Offsets of the blocks, by greatest worth x fit, or None if one would end above the limit."""
    count, spans = columns([x[:2] for x in [*blocks, *obstacles]])
    height = [0] * count
    standing = [(*span, *o[2:]) for span, o in zip(spans[len(blocks) :], obstacles, strict=True)]

    def above(k: int, height: int) -> list[Rectangle]:
        return sorted((o for o in standing if o[0] <= k < o[1] and o[2] >= height), key=lambda o: o[2])

    def ceiling(k: int, height: int) -> float:
        return above(k, height)[0][2] if above(k, height) else float("inf")

    offsets: dict[int, int] = {}
    while len(offsets) < len(blocks):
        low = min(height)
        first = height.index(low)
        last = first
        while last + 1 < count and height[last + 1] == low:
            last += 1
        line = range(first, last + 1)
        neighbours = ([height[first - 1]] if first else []) + height[last + 1 : last + 2]
        walls = (
            float(height[first - 1] - low) if first else float("inf"),
            float(height[last + 1] - low) if last + 1 < count else float("inf"),
        )
        choices = []
        for b, (_, _, size, alignment) in enumerate(blocks):
            start, end = spans[b]
            if b in offsets or start < first or end > last + 1:
                continue
            top = align_up(low, alignment) + size
            if top <= min(ceiling(k, low) for k in range(start, end)):
                score = worth[b] * fit(start - first, last + 1 - end, walls, end - start, size, reach)
                choices.append((-score, start, b, top))
        if choices:
            _, _, b, top = min(choices)
            if limit is not None and top > limit:
                return None
            offsets[b] = top - blocks[b][2]
            for k in range(*spans[b]):
                height[k] = top
        else:
            risen = min([*neighbours, *(ceiling(k, low) for k in line)])
            for k in line:
                height[k] = above(k, low)[0][3] if ceiling(k, low) == risen else int(risen)
    return [offsets[b] for b in range(len(blocks))]
