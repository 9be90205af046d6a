"""First fit on the conflict graph, squeaky wheel over it: every pair of pieces is compared."""

from __future__ import annotations

from itertools import combinations
from math import inf, log

from stowplan.packing import Problem


def by_conflicts(problem: Problem, runs: int) -> list[int]:
    """Return the offsets of the best run, the first of equals."""
    n = len(problem)
    size, fixed, alignment = problem.size.tolist(), problem.fixed.tolist(), problem.alignment.tolist()
    first, start, end, lower, upper = (column.tolist() for column in problem.pieces())
    of = [i for i in range(n) for _ in range(first[i], first[i + 1])]
    forbidden: list[set[tuple[int, int, int]]] = [set() for _ in range(n)]
    for a, b in combinations(range(len(of)), 2):
        if start[a] < end[b] and start[b] < end[a]:
            forbidden[of[a]].add((of[b], lower[b] - upper[a], upper[b] - lower[a]))
            forbidden[of[b]].add((of[a], lower[a] - upper[b], upper[a] - lower[b]))
    near = [{j for j, *_ in forbidden[i]} for i in range(n)]
    worth = [float(sum(size[j] for j in near[i])) * size[i] for i in range(n)]
    priority = [log(product) if product else -inf for product in worth]
    best: list[int] = []
    least: float = inf
    for _ in range(runs):
        at: dict[int, int] = {}
        for i in sorted(range(n), key=lambda i: (fixed[i] < 0, -priority[i])):
            x = max(fixed[i], 0)
            for above, below in sorted(
                (at[j] + above, at[j] + below) for j, above, below in forbidden[i] if j in at
            ):
                if fixed[i] < 0 and above < x < below:
                    x = -(-below // alignment[i]) * alignment[i]
            at[i] = x
            if x + size[i] >= least:
                priority[i] += log(1.2)
                for j in near[i] & at.keys():
                    priority[j] += log(1.02)
                break
        else:
            best, least = [at[i] for i in range(n)], max((at[i] + size[i] for i in range(n)), default=0)
    return best
