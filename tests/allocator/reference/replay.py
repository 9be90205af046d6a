"""The replay core in plain Python: the executable specification of allocator/core/replay/replay.hpp.

Everything is looked up afresh at each request: no due lists, no caches, no counters of what is live.
"""

from __future__ import annotations

from dataclasses import dataclass, field

WINDOW = 64
HORIZON = 64
LOST = 32
FEW = 64
SHARE = 4
UNIT = 1
UNPLANNED = -1


@dataclass
class PlannedRequest:
    requested: int
    capacity: int
    offset: int
    # Request number before which the block is freed; <= its own number: in the following step.
    due: int | None


@dataclass
class Block:
    address: int  # 0: upstream's
    capacity: int
    step: int
    number: int | None  # the planned request that it was served for
    request: int | None = None  # how many requests of its step came before it; None outside a step
    held: bool = False  # free, but for other streams, which a request in its place may wait for


def overlap(a: int, a_size: int, b: int, b_size: int) -> bool:
    return a < b + b_size and b < a + a_size


@dataclass
class ReplayReference:
    arena: int = 0
    arena_bytes: int = 0
    guests: int = 0
    lost: int = 0
    unknown: int = 0
    requests: int = 0
    plan: list[PlannedRequest] = field(default_factory=list)
    turn: int = 0  # requests of a step, in the plan
    began: int = 0  # where the step began in the plan
    goes_on_at: int = 0  # where in the plan the next step begins, if it follows it, too
    blocks: dict[int, Block] = field(default_factory=dict)
    step: int = 0
    in_step: bool = False
    interrupted: bool = False
    cursor: int = 0
    previous: tuple[str, int] | None = None  # ("tentative" or "lost", size)
    awaited: set[int] = field(default_factory=set)  # held blocks that the last request took the place of
    reasons: dict[str, int] = field(default_factory=dict)

    def begin_step(self, plan: list[PlannedRequest], arena: int, arena_bytes: int, turn: int = 0) -> None:
        if plan is not self.plan:
            for block in self.blocks.values():
                block.number = None  # whatever lives is late to another plan
        self.began = self.goes_on_at if plan is self.plan else 0
        self.plan, self.arena, self.arena_bytes, self.turn = plan, arena, arena_bytes, turn or len(plan)
        self.lost = self.unknown = self.requests = 0
        self.interrupted = False
        self.step += self.began == 0  # of the plan
        self.goes_on_at = 0
        self.in_step, self.cursor, self.previous = True, self.began, None

    def end_step(self) -> None:
        self.in_step = False
        end = self.began + self.turn
        while end < self.cursor:
            end += self.turn
        self.cursor = end
        self.goes_on_at = end % len(self.plan)

    def request(self, block: int, size: int, answer: int) -> None:
        """Check the core's answer, an address or 0 for upstream, and take the block in.

        Where a guest is placed is the core's own affair, as long as nobody is there and nobody will be soon.
        """
        recorded = self.in_step and not self.interrupted
        request = self.requests if recorded else None
        self.requests += recorded
        reason, address, number, capacity = self.decide(size)
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        if reason == "mismatch":
            self.unknown += 1
            self.lost += 1
        elif recorded:
            self.lost = 0
        if reason in ("mismatch", "late") and answer != 0:
            capacity = -(-max(size, 1) // UNIT) * UNIT
            assert (answer - self.arena) % UNIT == 0
            assert self.arena <= answer
            assert answer + capacity <= self.arena + self.arena_bytes
            for other in self.blocks.values():
                assert not other.address or not overlap(answer, capacity, other.address, other.capacity)
            if self.lost < LOST and not self.given_up():
                for planned in self.plan[self.cursor : self.cursor + HORIZON]:
                    where = self.arena + planned.offset
                    assert planned.offset == UNPLANNED or not overlap(
                        answer, capacity, where, planned.capacity
                    )
            self.guests += 1
        else:
            assert answer == address
        self.awaited = {
            i
            for i, held in self.blocks.items()
            if reason == "replayed" and held.held and overlap(address, capacity, held.address, held.capacity)
        }
        for held in self.awaited:
            del self.blocks[held]
        self.blocks[block] = Block(answer, capacity, self.step, number, request)

    def release(self, block: int) -> None:
        del self.blocks[block]

    def hold(self, block: int, may_wait: bool) -> None:
        self.blocks[block].number = None
        self.blocks[block].held = may_wait and self.blocks[block].address != 0

    def let_go(self, block: int) -> None:
        del self.blocks[block]

    def decide(self, size: int) -> tuple[str, int, int | None, int]:
        if not self.in_step:
            return "outside", 0, None, size
        if self.interrupted:
            return "interrupted", 0, None, size
        number = self.align(size)
        if number is None:
            return "mismatch", 0, None, size
        planned = self.plan[number]
        if planned.offset == UNPLANNED:
            return "escaped", 0, None, size
        address = self.arena + planned.offset
        for block in self.blocks.values():
            overlaps = overlap(block.address, block.capacity, address, planned.capacity)
            if block.address and overlaps and not block.held and self.is_late(block, number):
                return "late", 0, None, size
        return "replayed", address, number, planned.capacity

    def is_late(self, block: Block, now: int) -> bool:
        """Whether a block of the arena should have been gone before request `now` of the running step."""
        if block.number is None:
            return True
        due = self.plan[block.number].due
        if due is None:
            return False
        age = self.step - block.step
        wrapped = due <= block.number
        return (
            (age == 0 and not wrapped and due <= now) or (age == 1 and (not wrapped or due <= now)) or age > 1
        )

    def given_up(self) -> bool:
        return self.unknown > FEW and self.unknown * SHARE > self.requests

    def align(self, size: int) -> int | None:
        if self.given_up():
            return None
        plan, cursor = self.plan, self.cursor

        def equals(k: int) -> bool:
            return 0 <= k < len(plan) and plan[k].requested == size

        def fits(k: int) -> bool:
            return k < len(plan) and size <= plan[k].capacity

        def side_by_side(k: int, before: int) -> bool:
            return 0 <= k < len(plan) and plan[k].requested == before and equals(k + 1)

        before, self.previous = self.previous, None
        if equals(cursor):
            self.cursor = cursor + 1
            return cursor
        if before is not None:
            kind, previous_size = before
            if kind == "lost" and equals(cursor + 1):
                self.cursor = cursor + 2
                return cursor + 1
            base = cursor if kind == "lost" else cursor - 1
            for d in range(1, WINDOW + 1):
                if side_by_side(base + d, previous_size):
                    self.cursor = base + d + 2
                    return base + d + 1
            if kind == "tentative" and not fits(cursor) and equals(cursor - 1):
                return None  # the smaller one was extra, and sits in this one's slot
        if before is not None and before[0] == "lost" and fits(cursor + 1):
            self.previous = ("tentative", size)
            self.cursor = cursor + 2
            return cursor + 1
        if fits(cursor) and not (before is None and 2 * size < plan[cursor].requested):
            self.previous = ("tentative", size)
            self.cursor = cursor + 1
            return cursor
        self.previous = ("lost", size)
        return None
