"""The replay core in plain Python: the executable specification of allocator/core/replay.hpp.

Everything is looked up afresh at each request: no due lists, no caches, no counters of what is live.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .step_locator import StepLocatorReference

WINDOW = 64
SLOT_TRIES = 512
SLOT_SPAN = 8
SIGNS = 4  # that say which line it is
YOUNGEST = 0xFF
HORIZON = 64
LOST = 32
FEW = 64
SHARE = 4
TRAVEL = 8
UNIT = 1
UNPLANNED = -1


@dataclass
class PlannedRequest:
    requested: int
    capacity: int
    offset: int
    due: (
        int | None
    )  # request number before which the block is freed; <= its own number: in the following step
    least: int | None = None  # the smallest size, in a merged plan
    landmark: bool = False
    sign: int = 0  # what is freed before it: bit i for a block asked for i + 1 requests before


@dataclass
class Block:
    address: int  # 0: upstream's
    capacity: int
    step: int
    number: int | None  # the planned request that it was served for
    request: int | None = None  # how many requests of its step came before it; None outside a step
    located: int | None = None  # in a merged plan: the planned request that it was taken for
    held: bool = False  # free, but for other streams, which a request in its place may wait for


def overlap(a: int, a_size: int, b: int, b_size: int) -> bool:
    return a < b + b_size and b < a + a_size


@dataclass
class ReplayReference:
    arena: int = 0
    arena_bytes: int = 0
    guests: int = 0
    elsewhere_count: int = 0
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
    locator: StepLocatorReference | None = None
    located: int | None = None
    travelled: int = 0
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
        self.locator = StepLocatorReference(plan) if plan[0].least is not None else None
        self.travelled = 0

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
        self.located = None
        reason, address, number, capacity = self.decide(size)
        not_recognised = reason == "mismatch" and self.located is None
        self.unknown += not_recognised
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        if not_recognised:
            self.lost += 1
        elif recorded and reason != "mismatch" and not (reason == "replayed" and number is None):
            self.lost = 0
        if reason in ("mismatch", "late") and answer != 0:
            capacity = -(-max(size, 1) // UNIT) * UNIT
            assert (answer - self.arena) % UNIT == 0
            assert self.arena <= answer
            assert answer + capacity <= self.arena + self.arena_bytes
            for other in self.blocks.values():
                assert not other.address or not overlap(answer, capacity, other.address, other.capacity)
            lasting = self.located is not None and self.lasting(self.located)
            if self.lost < LOST and not self.given_up() and not lasting:
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
        self.blocks[block] = Block(answer, capacity, self.step, number, request, self.located)

    def release(self, block: int) -> None:
        self.note_free(self.blocks.pop(block))

    def note_free(self, gone: Block) -> None:
        if self.locator and self.in_step and gone.step == self.step and gone.request is not None:
            self.locator.freed(gone.located, self.requests - gone.request)

    def lasting(self, number: int) -> bool:
        due = self.plan[number].due
        return due is None or not number < due <= number + HORIZON or due == len(self.plan)

    def hold(self, block: int, may_wait: bool) -> None:
        self.note_free(self.blocks[block])
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
            return (
                self.beyond_the_slot(size)
                or self.elsewhere(self.located, size)
                or ("mismatch", 0, None, size)
            )
        planned = self.plan[number]
        if planned.offset == UNPLANNED:
            return "escaped", 0, None, size
        address = self.arena + planned.offset
        for block in self.blocks.values():
            overlaps = overlap(block.address, block.capacity, address, planned.capacity)
            if block.address and overlaps and not block.held and self.is_late(block, number):
                wraps = planned.due is not None and planned.due <= number
                return (None if wraps else self.elsewhere(number, size)) or ("late", 0, None, size)
        return "replayed", address, number, planned.capacity

    def beyond_the_slot(self, size: int) -> tuple[str, int, None, int] | None:
        """Serve a request larger than planned at its planned address, where that is free."""
        if self.located is None or self.plan[self.located].offset == UNPLANNED or self.given_up():
            return None
        return self.at(self.plan[self.located], size)

    def at(self, planned: PlannedRequest, size: int) -> tuple[str, int, None, int] | None:
        """Serve at a planned address, where nothing lives."""
        address, capacity = self.arena + planned.offset, -(-max(size, 1) // UNIT) * UNIT
        if address + capacity > self.arena + self.arena_bytes or any(
            b.address and overlap(b.address, b.capacity, address, capacity) for b in self.blocks.values()
        ):
            return None
        return "replayed", address, None, capacity

    def line(self, number: int) -> list[int]:
        """Return what is freed before a request and the ones before it: which line of a loop's body asks."""
        padded = [0] * SIGNS + [planned.sign & YOUNGEST for planned in self.plan[: number + 1]]
        return padded[-SIGNS:]

    def elsewhere(self, number: int | None, size: int) -> tuple[str, int, None, int] | None:
        """Serve in the smallest slot of the same line in another iteration that is free."""
        if self.locator is None or number is None or self.given_up():
            return None
        if self.plan[number].offset == UNPLANNED:
            return None
        alike = [
            (other.requested, i)
            for i, other in enumerate(self.plan)
            if other.offset != UNPLANNED
            and size <= other.requested <= SLOT_SPAN * size
            and self.line(i) == self.line(number)
            and self.lasting(i) == self.lasting(number)
        ]
        found = (self.at(self.plan[i], size) for _, i in sorted(alike)[:SLOT_TRIES])
        answer = next((answer for answer in found if answer), None)
        self.elsewhere_count += answer is not None
        return answer

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
        return (self.unknown > FEW and self.unknown * SHARE > self.requests) or (
            self.travelled > TRAVEL * (self.requests + len(self.plan))
        )

    def track(self, locator: StepLocatorReference, size: int) -> int | None:
        """Follow a merged plan."""
        self.located = at = locator.locate(size)
        if at is None:
            return None
        self.travelled += abs(at - self.cursor)
        if at < self.cursor:
            for block in self.blocks.values():
                if block.number is None:
                    continue
                passed = block.step == self.step and block.number >= at
                if passed or self.is_late(block, self.cursor - 1):
                    block.number = None
        self.cursor = at + 1
        return at if size <= self.plan[at].capacity else None

    def align(self, size: int) -> int | None:
        if self.given_up():
            return None
        if self.locator is not None:
            return self.track(self.locator, size)
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
