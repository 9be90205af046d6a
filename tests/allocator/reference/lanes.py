"""Who replays what, in plain Python: the executable specification of allocator/core/lanes.hpp."""

from __future__ import annotations

from dataclasses import dataclass, field

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
    thread: int | None = None
    last_thread: int | None = None
    interrupted: bool = False
    steps: int = 0
    strangers: list[int] = field(default_factory=list)

    def away(self, lane: LaneReference) -> bool:
        return lane.stream is not None and lane.last_step + AWAY < self.steps


class LanesReference:
    def __init__(self) -> None:
        self.lanes = 0
        self.step_slots = [StepSlotsReference([self.new_lane()])]

    def new_lane(self) -> LaneReference:
        self.lanes += 1
        return LaneReference(self.lanes - 1)

    def step_slot_of(self, thread: int) -> StepSlotsReference | None:
        return next((step_slot for step_slot in self.step_slots if step_slot.thread == thread), None)

    def enter(self, thread: int) -> StepSlotsReference | None:
        if self.step_slot_of(thread) is not None:
            return None
        free = [step_slot for step_slot in self.step_slots if step_slot.thread is None]
        own = [step_slot for step_slot in free if step_slot.last_thread == thread]
        if not free:
            self.step_slots.append(StepSlotsReference([self.new_lane()]))
        step_slot = [*own, *free, self.step_slots[-1]][0]
        step_slot.thread = step_slot.last_thread = thread
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

    def request(self, stream: int, thread: int) -> LaneReference | str:
        """Return the lane that serves a request, or the reason why none does."""
        step_slot = self.step_slot_of(thread)
        if step_slot is None:
            return "thread" if any(other.thread is not None for other in self.step_slots) else "outside"
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
