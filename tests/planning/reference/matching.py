"""The match of a step with a plan in plain Python: the executable specification of planning/merging/core/match.hpp.

All cells are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

PAIR, ONLY_PLAN, ONLY_STEP = range(3)
GAP = 427
NEVER = -(10**9)


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


def level(size: int) -> int:
    """Return the logarithm of size + 1 to the base 2 ** (1 / 16), linear between powers of two, rounded down."""
    doublings = (size + 1).bit_length() - 1
    return 16 * doublings + ((size + 1) * 16 >> doublings) - 16 - 64


def score(row: int, planned: PlannedRow, asked: StepColumn) -> int:
    off = max(0, level(asked.size) - level(planned.most), level(planned.least) - level(asked.size))
    value = -213
    if planned.kind == asked.kind and off <= 64:
        value = 160 - off + (8 if asked.size == planned.most else 0)
    return value + (640 if asked.vote == row else 0)


def best(scores: list[int]) -> int:
    return scores.index(max(scores))  # the first of equals


def match(plan: list[PlannedRow], step: list[StepColumn]) -> list[int]:
    """Return each request's number in the plan, or -1."""
    n, m = len(plan), len(step)
    scores = [[[NEVER] * 3 for _ in range(m + 1)] for _ in range(n + 1)]
    came_from = [[[PAIR] * 3 for _ in range(m + 1)] for _ in range(n + 1)]
    scores[0][0][PAIR] = 0
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
