"""Who replays what, in plain Python: the executable specification of step_slots.hpp and lane_router.hpp."""

from __future__ import annotations

from dataclasses import dataclass, field

from stowplan.allocator._core import Scope

MOST_LANES = 8
AWAY = 8


@dataclass
class LaneReference:
    number: int
    stream: int | None = None
    last_step: int = 0


@dataclass
class StepSlotsReference:
    lanes: list[LaneReference]
    runner: int | None = None
    last_runner: int | None = None
    interrupted: bool = False
    steps: int = 0
    strangers: list[int] = field(default_factory=list)

    def away(self, lane: LaneReference) -> bool:
        return lane.stream is not None and lane.last_step + AWAY < self.steps


class LanesReference:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.lanes = 0
        self.step_slots = [StepSlotsReference([self.new_lane()])]

    def new_lane(self) -> LaneReference:
        self.lanes += 1
        return LaneReference(self.lanes - 1)

    def runner(self, thread: int) -> int:
        return thread if self.scope is Scope.thread else 0

    def step_slot_of(self, thread: int) -> StepSlotsReference | None:
        runner = self.runner(thread)
        return next((step_slot for step_slot in self.step_slots if step_slot.runner == runner), None)

    def enter(self, thread: int) -> StepSlotsReference | None:
        if self.step_slot_of(thread) is not None:
            return None
        runner = self.runner(thread)
        free = [step_slot for step_slot in self.step_slots if step_slot.runner is None]
        own = [step_slot for step_slot in free if step_slot.last_runner == runner]
        if not free:
            self.step_slots.append(StepSlotsReference([self.new_lane()]))
        step_slot = [*own, *free, self.step_slots[-1]][0]
        step_slot.runner = step_slot.last_runner = runner
        step_slot.interrupted = False
        step_slot.steps += 1
        taken: list[LaneReference] = []
        for stream in step_slot.strangers:
            away = [lane for lane in step_slot.lanes if step_slot.away(lane) and lane not in taken]
            if not away and len(step_slot.lanes) == MOST_LANES:
                break
            if not away:
                step_slot.lanes.append(self.new_lane())
            lane = (away or step_slot.lanes[-1:])[0]
            lane.stream, lane.last_step = stream, step_slot.steps
            taken.append(lane)
        step_slot.strangers.clear()
        return step_slot

    def leave(self, step_slot: StepSlotsReference) -> None:
        step_slot.runner = None

    def request(self, stream: int, thread: int) -> LaneReference | str:
        """Return the lane that serves a request, or the reason why none does."""
        step_slot = self.step_slot_of(thread)
        if step_slot is None:
            return "thread" if any(other.runner is not None for other in self.step_slots) else "outside"
        if step_slot.interrupted:
            return "interrupted"
        own = [lane for lane in step_slot.lanes if lane.stream == stream]
        free = [lane for lane in step_slot.lanes if lane.stream is None]
        if not own and not free:
            if stream not in step_slot.strangers and len(step_slot.strangers) < MOST_LANES:
                step_slot.strangers.append(stream)
            return "stream"
        lane = (own or free)[0]
        lane.stream, lane.last_step = stream, step_slot.steps
        return lane
