"""Who replays what, in plain Python: the executable specification of allocator/core/lanes.hpp."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from stowplan.allocator._core import Scope

MOST_LANES = 8
AWAY = 8
REMEMBERED = 8

Source = tuple[int, int]
"""Stream and, where a step slot is split, thread; else 0."""

Asked = tuple[int, int, int]
"""Thread, size, stream."""


@dataclass
class LaneReference:
    number: int
    source: Source | None = None
    last_step: int = 0


@dataclass
class StepSlotsReference:
    lanes: list[LaneReference]
    runner: int | None = None
    last_runner: int | None = None
    interrupted: bool = False
    steps: int = 0
    strangers: list[Source] = field(default_factory=list)
    is_split: bool = False
    asked: list[Asked] = field(default_factory=list)
    earlier: list[list[Asked]] = field(default_factory=list)
    oldest: int = 0

    def away(self, lane: LaneReference) -> bool:
        return lane.source is not None and lane.last_step + AWAY < self.steps


class LanesReference:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.lanes = 0
        self.step_slots = [StepSlotsReference([self.new_lane()])]

    def new_lane(self) -> LaneReference:
        self.lanes += 1
        return LaneReference(self.lanes - 1)

    def runner(self, thread: int, stream: int) -> int:
        return {Scope.thread: thread, Scope.stream: stream, Scope.process: 0}[self.scope]

    def step_slot_of(self, thread: int, stream: int = 0) -> StepSlotsReference | None:
        runner = self.runner(thread, stream)
        return next((step_slot for step_slot in self.step_slots if step_slot.runner == runner), None)

    def enter(self, thread: int, stream: int = 0) -> StepSlotsReference | None:
        if self.step_slot_of(thread, stream) is not None:
            return None
        runner = self.runner(thread, stream)
        free = [step_slot for step_slot in self.step_slots if step_slot.runner is None]
        own = [step_slot for step_slot in free if step_slot.last_runner == runner]
        if not free:
            self.step_slots.append(StepSlotsReference([self.new_lane()]))
        step_slot = [*own, *free, self.step_slots[-1]][0]
        step_slot.runner = step_slot.last_runner = runner
        step_slot.interrupted = False
        step_slot.steps += 1
        taken: list[LaneReference] = []
        for source in step_slot.strangers:
            away = [lane for lane in step_slot.lanes if step_slot.away(lane) and lane not in taken]
            if not away and len(step_slot.lanes) == MOST_LANES:
                break
            if not away:
                step_slot.lanes.append(self.new_lane())
            lane = (away or step_slot.lanes[-1:])[0]
            lane.source, lane.last_step = source, step_slot.steps
            taken.append(lane)
        step_slot.strangers.clear()
        return step_slot

    def leave(self, step_slot: StepSlotsReference) -> None:
        step_slot.runner = None
        asked, step_slot.asked = step_slot.asked, []
        if (
            self.scope is not Scope.process
            or step_slot.is_split
            or len({thread for thread, _, _ in asked}) < 2
        ):
            return
        alike = [step for step in step_slot.earlier if by_thread(step) == by_thread(asked)]
        if alike and alike[0] != asked:
            step_slot.is_split = True
            step_slot.strangers.clear()
            for lane in step_slot.lanes:
                if lane.source is not None:
                    lane.source = (lane.source[0], asked[0][0])
        elif not alike and len(step_slot.earlier) < REMEMBERED:
            step_slot.earlier.append(asked)
        elif not alike:
            step_slot.earlier[step_slot.oldest % REMEMBERED] = asked
            step_slot.oldest += 1

    def request(self, size: int, stream: int, thread: int) -> LaneReference | str:
        """Return the lane that serves a request, or the reason why none does."""
        step_slot = self.step_slot_of(thread, stream)
        if step_slot is None:
            return "thread" if any(other.runner is not None for other in self.step_slots) else "outside"
        if step_slot.interrupted:
            return "interrupted"
        source = (stream, thread if step_slot.is_split else 0)
        own = [lane for lane in step_slot.lanes if lane.source == source]
        free = [lane for lane in step_slot.lanes if lane.source is None]
        if not own and not free:
            if source not in step_slot.strangers and len(step_slot.strangers) < MOST_LANES:
                step_slot.strangers.append(source)
            return "stream"
        lane = (own or free)[0]
        lane.source, lane.last_step = source, step_slot.steps
        step_slot.asked.append((thread, size, stream))
        return lane


def by_thread(step: Iterable[Asked]) -> dict[int, list[tuple[int, int]]]:
    """Return what each thread asked for, in its order."""
    own: dict[int, list[tuple[int, int]]] = {}
    for thread, size, stream in step:
        own.setdefault(thread, []).append((size, stream))
    return own
