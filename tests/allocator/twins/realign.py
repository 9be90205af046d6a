"""The alignment of a step with a plan in plain Python: the executable specification of allocator/core/realign.hpp.

In single precision and in the same order of operations, so that ties fall the same way. All cells are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

PAIR, ONLY_PLAN, ONLY_STEP = range(3)
GAP = np.float32(8)
NEVER = np.float32(-1e9)


@dataclass
class PlannedRow:
    least: int
    most: int
    kind: int


@dataclass
class StepColumn:
    size: int
    kind: int
    vote: int


def log2(size: int) -> np.float32:
    return np.log2(np.float32(size + 1), dtype=np.float32)


def score(row: int, planned: PlannedRow, asked: StepColumn) -> np.float32:
    value = np.float32(-4)
    if planned.kind == asked.kind:
        off = max(
            np.float32(0), log2(asked.size) - log2(planned.most), log2(planned.least) - log2(asked.size)
        )
        if off <= 4:
            value = np.float32(3) - np.float32(0.3) * off
        if asked.size == planned.most:
            value += np.float32(0.15)
    if asked.vote == row:
        value += np.float32(12)
    return value


def best(scores: list[np.float32]) -> int:
    return int(np.argmax(scores))  # the first of equals


def realign(plan: list[PlannedRow], step: list[StepColumn]) -> list[int]:
    """Return each request's number in the plan, or -1."""
    n, m = len(plan), len(step)
    scores = [[[NEVER] * 3 for _ in range(m + 1)] for _ in range(n + 1)]
    came_from = [[[PAIR] * 3 for _ in range(m + 1)] for _ in range(n + 1)]
    scores[0][0][PAIR] = np.float32(0)
    for j in range(1, m + 1):
        scores[0][j][ONLY_STEP] = -GAP
    for i in range(1, n + 1):
        for j in range(m + 1):
            if j > 0:
                before = scores[i - 1][j - 1]
                state = came_from[i][j][PAIR] = best(before)
                scores[i][j][PAIR] = before[state] + score(i - 1, plan[i - 1], step[j - 1])
                left = scores[i][j - 1]
                along = [left[PAIR] - GAP, left[ONLY_PLAN] - GAP, left[ONLY_STEP]]
            else:
                along = [NEVER - GAP, NEVER - GAP, NEVER]
            above = scores[i - 1][j]
            over = [above[PAIR] - GAP, above[ONLY_PLAN], above[ONLY_STEP] - GAP]
            for state, choices in ((ONLY_PLAN, over), (ONLY_STEP, along)):
                chosen = came_from[i][j][state] = best(choices)
                scores[i][j][state] = choices[chosen]
    number = [-1] * m
    i, j, state = n, m, best(scores[n][m])
    while i > 0 and j > 0:
        former = came_from[i][j][state]
        if state == PAIR:
            i, j = i - 1, j - 1
            if plan[i].kind == step[j].kind:
                number[j] = i
        elif state == ONLY_PLAN:
            i -= 1
        else:
            j -= 1
        state = former
    return number
