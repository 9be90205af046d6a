"""SOMAS (Lamprou et al., MLSys 2023): memory of networks on several streams, decided from the graph, then placed."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator

import numpy as np

from stowplan.packing import Problem, check_fast, lower_bound, pack
from stowplan.papers.somas.streams import chains
from stowplan.scheduling import check_reuse, read_graph, safe_reuse

from ..measures import output
from .table import Table, timed

DATA = output.ROOT / "tests" / "data"
NETWORKS = ("alexnet_b1_train", "resnet18_b1_train", "resnet50_b1_train", "transformer_small_b1_train")
PUBLISHED = ("resnet50", "tiny_bert", "bert_base", "bert_large", "bert_nezha", "pangu_2.6B", "pangu_13B")
STREAMS = 4


def tables(quick: bool) -> Iterator[Table]:
    """Return the decision beside plain reachability, and offsets beside a plain first fit."""
    decided, placed = [], []
    for name in NETWORKS[:1] if quick else NETWORKS:
        graph = read_graph(DATA / "graphs" / f"{name}.json.gz")
        streams = chains(graph, STREAMS)
        reuse, seconds = timed(safe_reuse, graph, streams)
        _, plain = timed(check_reuse, graph, streams, reuse)
        counts = (f"{count:,}" for count in (len(graph), len(reuse.problem), len(reuse.problem.apart)))
        decided.append([name, *counts, f"{seconds:.3f}", f"{plain:.3f}", f"{1 - seconds / plain:.0%}"])
        stream_of = np.empty(len(graph), dtype=np.int64)
        for s, row in enumerate(streams):
            stream_of[row] = s
        maker = [
            graph.writers()[v][0] if v >= 0 else o
            for v, o in zip(reuse.storage.tolist(), reuse.operator.tolist(), strict=True)
        ]
        alone = sum(pack(_part(reuse.problem, stream_of[maker] == s)).peak for s in range(STREAMS))
        placed.append(_placed(name, reuse.problem, f"{alone / 2**20:,.1f}"))
    if not quick:
        for name in PUBLISHED:
            placed.append(_placed(f"the paper's {name}, one stream", published(name), ""))
    columns = ("network", "operators", "tensors", "forbidden pairs", "CPU s", "plain, CPU s", "less (44 %)")
    yield Table(f"Which tensors may share memory, {STREAMS} streams", columns, decided, DECIDED)
    columns = ("problem", "bound MiB", "arena / bound", "plain / bound", "a stream an arena, MiB")
    yield Table("Offsets", (*columns, "CPU s", "plain, CPU s"), placed, PLACED)
    rows = []
    for seed in range(1 if quick else 5):
        problem, bound = forbidden_pairs(seed)
        found = [
            pack(problem, "by_conflicts", time_limit=limit).peak for limit in ((1,) if quick else (1, 10))
        ]
        plain = int((first_fit(problem) + problem.size).max())
        rows.append([str(seed), *(f"{peak / bound:.3f}" for peak in (*found, plain))])
    columns = ("seed", *(f"by_conflicts, {limit} s" for limit in ((1,) if quick else (1, 10))), "plain")
    yield Table("2,000 tensors, 50,000 forbidden pairs: arena / bound", columns, rows, PAIRS)


DECIDED = (
    "*Plain*: a walk from every operator, then all pairs of tensors (`stowplan.scheduling.check_reuse`); it has "
    "confirmed each decision and the certificate. In brackets stands what SOMAS saves beside the method before it. The "
    "paper's graphs and streams are MindSpore's; these are PyTorch's, split over streams by chains."
)
PLACED = (
    "*Bound*: the most bytes alive at once in the order recorded, which streams that run ahead of each other need not "
    "keep to, so a safe arena may have to be larger; where it is, the search for a smaller one takes its second. SOMAS "
    "needs 70 % less time for offsets than the method before it. *Plain*: first fit by size, in Python, over all "
    "pairs. *A stream an arena*: what streams need that share no memory."
)


PAIRS = "Random tensors; *bound* is the most bytes alive at once, as if no pair were forbidden."


def forbidden_pairs(seed: int, n: int = 2000, pairs: int = 50_000) -> tuple[Problem, int]:
    """Return random tensors, pairs of which that never live together are kept apart; and the bound of the lifetimes."""
    rng = np.random.default_rng(seed)
    start = rng.integers(0, n, n)
    end = start + rng.integers(1, 60, n)
    size = rng.integers(1, 1000, n) * 512
    apart: dict[tuple[int, int], None] = {}
    while len(apart) < pairs:
        i, j = sorted(rng.integers(0, n, 2).tolist())
        if i != j and not (start[i] < end[j] and start[j] < end[i]):
            apart[i, j] = None
    return Problem(size, start, end, apart=list(apart)), lower_bound(Problem(size, start, end))


def first_fit(problem: Problem) -> np.ndarray:
    """Place by falling size, each block at the lowest offset; every other block is looked at."""
    n = len(problem)
    partners: list[list[int]] = [[] for _ in range(n)]
    for i, j in problem.apart.tolist():
        partners[i].append(j)
        partners[j].append(i)
    offsets = np.full(n, -1, dtype=np.int64)
    for i in np.argsort(-problem.size, kind="stable").tolist():
        met = (problem.start < problem.end[i]) & (problem.start[i] < problem.end)
        met[partners[i]] = True
        near = np.flatnonzero(met & (offsets >= 0))
        x = 0
        for low, size in sorted(zip(offsets[near].tolist(), problem.size[near].tolist(), strict=True)):
            if low - x >= problem.size[i]:
                break
            x = max(x, low + size)
        offsets[i] = x
    check_fast(problem, offsets)
    return offsets


def _placed(name: str, problem: Problem, alone: str) -> list[str]:
    placement, seconds = timed(pack, problem)
    offsets, plain = timed(first_fit, problem)
    peak, bound = int((offsets + problem.size).max()), placement.lower_bound
    ratios = (f"{p / bound:.3f}" for p in (placement.peak, peak))
    return [name, f"{bound / 2**20:,.1f}", *ratios, alone, f"{seconds:.3f}", f"{plain:.3f}"]


def _part(problem: Problem, chosen: np.ndarray) -> Problem:
    """Return the chosen blocks alone; a stream's own blocks, in their order."""
    return Problem(problem.size[chosen], problem.start[chosen], problem.end[chosen])


def published(name: str) -> Problem:
    """Return the problem of one of the paper's networks."""
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        file.write(gzip.decompress((DATA / "idealloc" / f"{name}.csv.gz").read_bytes()))
        file.flush()
        return Problem.from_csv(file.name)
