"""The loops that a program's requests were made in, and which requests each of their passes made.

::

    requests    a  b  c  b  c  a  b  c  b  c  b  c      a: line 3, in the loop of line 2; b, c: lines 5 and 6, in that
    line 2      |~~~~~~~~~~~~~ |~~~~~~~~~~~~~~~~~~      of line 4, which the loop of line 2 contains
    line 4         |~~~ |~~~      |~~~ |~~~ |~~~        its passes, in two entries

Each request has the stack of calls that made it. Two requests that follow one another first differ in some frame. If
the second one stands behind the first in the code, the program has gone on. If it stands before it, or at the same
place, the innermost loop around both has made another pass; or, where there is none, a loop of the frames that have
called it.

Only what one instruction requested twice is in doubt: NumPy's functions may ask more than once, and ``sum(arrays)``
does. The instruction ran twice if it calls no function and a block was freed between the two requests; or if there are
more than two such requests in a row, on average, and not always as many. A function whose requests all lie in a loop of
its own is in doubt, too: it was called again, from a loop around the call, or its loop goes on. Then sizes tell: passes
of its loop that come again and again are one call.

A function that calls itself may be anywhere when it asks again: from its outermost frame on, no loop is told of.

A loop is told apart by the calls that have led to it: a solver that is called from two lines has two loops.
O(requests), and O(frames) for each pair of stacks that follow one another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType

import numpy as np
import numpy.typing as npt

from ._recorder import CallSites
from .events import ALLOCATE, IntArray
from .loops import Loop, is_call, loops_at
from .program_log import UNKNOWN, ProgramLog

Stack = tuple[tuple[CodeType, int], ...]
"""Code and place of each frame, the outermost first: `CallSites.frames`."""

LEAST_SHARE = 0.05
"""Loops that request less of all bytes are left out, if they do not contain the program's peak."""

MOST_PERIOD = 512
"""Passes that one call of a function may be found to make, where sizes tell."""


@dataclass(eq=False)
class LoopNode:
    """A loop, as it was reached by one stack of calls.

    Attributes
    ----------
    loop
        In the source.
    parent
        The loop around it, if there is one; maybe of another function, which has called this one's.
    frames
        The calls that have led to the loop, the outermost first, the loop's own code last.
    is_users
        Whether the loop's code is the user's own.
    starts, ends
        Its passes: the first request of each, and the first one behind it, int64 (m,).
    enters
        Whether the pass is the first one since the loop was entered, bool (m,).
    within
        Whether a request was made in it, bool (n,).
    requests, bytes
        In it, of the whole program; 0 until it is measured.
    peak, of_peak
        As in `StepCandidate`; 0 until then.
    """

    loop: Loop
    parent: LoopNode | None
    frames: Stack
    is_users: bool
    starts: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    ends: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    enters: npt.NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, dtype=np.bool_))
    within: npt.NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, dtype=np.bool_))
    requests: int = 0
    bytes: int = 0
    peak: int = 0
    of_peak: int = 0

    @property
    def passes(self) -> int:
        """How many there were."""
        return len(self.starts)

    @property
    def in_a_row(self) -> float:
        """Passes in an entry, on average."""
        return self.passes / max(int(self.enters.sum()), 1)

    def leave_out_gaps(self, gaps: Sequence[int]) -> None:
        """Leave out the passes of which a part was not kept."""
        whole = np.ones(self.passes, dtype=np.bool_)
        for gap in gaps:
            whole &= (self.starts != gap) & ((self.starts > gap) | (self.ends < gap))
        self.starts, self.ends, self.enters = self.starts[whole], self.ends[whole], self.enters[whole]

    def around(self) -> Iterator[LoopNode]:
        """Yield the loops around it, the innermost first."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent


@dataclass(frozen=True)
class _Levels:
    """A stack with its loops: of each frame, how many of the loops lie in it or in frames further out."""

    stack: Stack
    chain: tuple[int, ...]  # numbers of nodes, the outermost first
    until: tuple[int, ...]  # by frame: how much of the chain is of this frame and those around it
    certain: int  # frames around the first one of a function that calls itself


class _Tree:
    """Numbers the loops, each with the calls that have led to it."""

    def __init__(self, is_users: Callable[[CodeType], bool | None], recursive: set[int]) -> None:
        self.nodes: list[LoopNode] = []
        self._is_users, self._recursive = is_users, recursive
        self._number: dict[tuple[object, ...], int] = {}

    def levels(self, stack: Stack) -> _Levels:
        chain: list[int] = []
        until = []
        calls: list[tuple[int, int]] = []
        again = (level for level, (code, _) in enumerate(stack) if id(code) in self._recursive)
        certain = next(again, len(stack) + 1)
        for level, (code, place) in enumerate(stack):
            for loop in loops_at(code, place) if level < certain else ():
                key = (*calls, id(code), loop.header)
                number = self._number.get(key)
                if number is None:
                    number = self._number[key] = len(self.nodes)
                    parent = self.nodes[chain[-1]] if chain else None
                    is_users = bool(self._is_users(code))
                    self.nodes.append(LoopNode(loop, parent, stack[: level + 1], is_users))
                chain.append(number)
            until.append(len(chain))
            calls.append((id(code), place))
        return _Levels(stack, tuple(chain), tuple(until), certain)


def _first_new(before: _Levels, after: _Levels) -> tuple[int, bool]:
    """Return which of the second request's loops is the first that begins a pass, and whether it was in it before."""
    a, b = before.stack, after.stack
    level = next(
        (k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x[0] is not y[0] or x[1] != y[1]),
        min(len(a), len(b)),
    )
    same = next(
        (k for k, (x, y) in enumerate(zip(before.chain, after.chain, strict=False)) if x != y),
        min(len(before.chain), len(after.chain)),
    )
    if level >= min(before.certain, after.certain):
        return same, False
    if level < min(len(a), len(b)) and a[level][0] is b[level][0]:
        if b[level][1] > a[level][1]:
            return same, False
        if same > (after.until[level - 1] if level else 0):  # a loop of this frame is around both
            return same - 1, True
        called_again = True
    else:
        # Else another function at the same place has asked, or the place itself and what it calls.
        called_again = level == len(a) == len(b)
    for outer in range(level - 1, -1, -1):
        here = after.until[outer]
        if here > (after.until[outer - 1] if outer else 0):
            return min(here, same) - 1, True
        if not called_again:
            break
    return same, False


def loops_of(log: ProgramLog, sites: CallSites) -> list[LoopNode]:
    """Return the loops that a program's requests were made in; each comes after the loops around it.

    Parameters
    ----------
    sites
        What has numbered the stacks of `ProgramLog.site`.
    """
    n = len(log)
    if not n or not (log.site != UNKNOWN).any():
        return []
    tree = _Tree(sites.is_users, _recursive(sites))
    used, stack = np.unique(log.site, return_inverse=True)
    levels = [tree.levels(() if number == UNKNOWN else sites.frames[number]) for number in used.tolist()]
    if used[0] == UNKNOWN:  # a request without a known call site has that of the request before
        stack = stack[np.maximum.accumulate(np.where(stack != 0, np.arange(n), 0))]
    new, passed = _new_from(log, stack, levels)
    asked = np.bincount(stack, log.size, minlength=len(used))
    fullest = stack[int(log.alive.argmax())]
    notable = []
    for number, node in enumerate(tree.nodes):
        depth = np.array([row.chain.index(number) if number in row.chain else -1 for row in levels])
        if depth[fullest] < 0 and asked[depth >= 0].sum() < LEAST_SHARE * asked.sum():
            continue
        at = depth[stack]
        node.within = at >= 0
        begins = node.within & (new <= at)
        node.starts = np.flatnonzero(begins)
        node.enters = ~(passed & (new == at))[node.starts]
        ended = np.flatnonzero(begins | ~node.within)
        node.ends = np.append(ended, n)[np.searchsorted(ended, node.starts, side="right")]
        node.leave_out_gaps(log.gaps)
        notable.append(node)
    for node in notable:
        _tell_calls_by_sizes(log, node)
    return notable


def _recursive(sites: CallSites) -> set[int]:
    """Return the codes that have called themselves: in a row, or, the user's, with others in between."""
    found = sites.recursive
    for stack in sites.frames:
        codes = Counter(id(code) for code, _ in stack)
        if len(codes) < len(stack):
            found |= {id(code) for code, _ in stack if codes[id(code)] > 1 and sites.is_users(code)}
    return found


def _tell_calls_by_sizes(log: ProgramLog, node: LoopNode) -> None:
    """Divide the passes of a loop among those of the user's loop that calls its function, if that requests no more."""
    outer = node.parent
    if outer is None or len(outer.frames) != len(node.frames) - 1 or outer.passes != 1 or not outer.is_users:
        return
    if (outer.within != node.within).sum() > node.within.sum() // 100:
        return
    kind = log.signatures(node.starts, node.ends)
    period = next((p for p in range(1, MOST_PERIOD) if _comes_again(kind, p)), 1)
    if period == 1:
        return
    first = np.arange(0, node.passes, period)
    outer.starts = node.starts[first]
    outer.ends = np.append(outer.starts[1:], node.ends[-1])
    outer.enters = np.arange(len(first)) == 0
    node.enters = np.arange(node.passes) % period == 0


def _comes_again(kind: npt.NDArray[np.uint64], period: int) -> bool:
    """Whether nearly all of a sequence equals what came a period before, at least twice."""
    rest = len(kind) - period
    return rest >= 2 * period and int((kind[period:] == kind[:-period]).sum()) >= 0.9 * rest


def _new_from(
    log: ProgramLog, stack: IntArray, levels: Sequence[_Levels]
) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Return, of each request, the first of its loops that begins a pass, and whether the loop goes on so."""
    n = len(log)
    pair = stack[:-1] * len(levels) + stack[1:]
    pairs, which = np.unique(pair, return_inverse=True)
    found = [_first_new(levels[k // len(levels)], levels[k % len(levels)]) for k in pairs.tolist()]
    new, passed = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.bool_)
    if found:
        new[1:] = np.array([first for first, _ in found])[which]
        passed[1:] = np.array([goes_on for _, goes_on in found])[which]
    again = np.zeros(n, dtype=np.bool_)
    again[1:] = stack[1:] == stack[:-1]
    calls = np.array([not level.stack or is_call(*level.stack[-1]) for level in levels])
    nothing_freed = np.diff(log.position, prepend=-1) == 1  # since the request before
    doubtful = again & (calls[stack] | nothing_freed) & _is_of_one_call(stack, again)
    passed[doubtful] = False
    new[doubtful] = 1 << 30
    for gap in log.gaps:
        new[gap], passed[gap] = 0, False
    return new, passed


def _is_of_one_call(stack: IntArray, again: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Whether a request's stack seldom asks more than twice in a row, or always as often, more than once: bool (n,)."""
    first = np.flatnonzero(~again)
    length = np.diff(np.append(first, len(stack)))
    stacks = int(stack.max()) + 1
    least, most = np.full(stacks, len(stack)), np.zeros(stacks, dtype=np.int64)
    np.minimum.at(least, stack[first], length)
    np.maximum.at(most, stack[first], length)
    runs = np.bincount(stack[first], minlength=stacks)
    seldom_more = np.bincount(stack, minlength=stacks) <= 2 * runs
    result: npt.NDArray[np.bool_] = (((least == most) | seldom_more) & (runs > 1))[stack]
    return result


def held(log: ProgramLog, node: LoopNode, during: npt.NDArray[np.bool_] | None = None) -> int:
    """Return the most bytes that a pass of a loop has alive of its own: of blocks that were requested in the same pass.

    Parameters
    ----------
    during
        Look only where the last request was one of these, bool (n,). None: everywhere.
    """
    of = np.full(len(log), -1, dtype=np.int64)  # the pass of each request
    length = node.ends - node.starts
    first = np.repeat(node.starts - np.cumsum(length) + length, length)
    of[first + np.arange(int(length.sum()))] = np.repeat(np.arange(node.passes), length)
    request = log.events["request"].astype(np.int64)
    running = np.where(log.now >= 0, of[np.maximum(log.now, 0)], -1)
    counts = (running >= 0) & (running == of[request])
    size = log.size[request]
    total = np.cumsum(np.where(counts, np.where(log.events["kind"] == ALLOCATE, size, -size), 0))
    base = total[log.position[node.starts]] - log.size[node.starts]
    inside = running >= 0
    if during is not None:
        inside &= during[np.maximum(log.now, 0)]
    return int((total[inside] - base[running[inside]]).max(initial=0))
