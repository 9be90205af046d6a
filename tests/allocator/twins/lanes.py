"""Who replays what, in plain Python: the executable specification of allocator/core/lanes.hpp."""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_LANES = 8
AWAY = 8


@dataclass
class LaneTwin:
    number: int
    stream: int | None = None
    last_step: int = 0


@dataclass
class BerthTwin:
    lanes: list[LaneTwin]
    thread: int | None = None
    last_thread: int | None = None
    interrupted: bool = False
    steps: int = 0
    strangers: list[int] = field(default_factory=list)

    def away(self, lane: LaneTwin) -> bool:
        return lane.stream is not None and lane.last_step + AWAY < self.steps


class LanesTwin:
    def __init__(self) -> None:
        self.lanes = 0
        self.berths = [BerthTwin([self.new_lane()])]

    def new_lane(self) -> LaneTwin:
        self.lanes += 1
        return LaneTwin(self.lanes - 1)

    def berth_of(self, thread: int) -> BerthTwin | None:
        return next((berth for berth in self.berths if berth.thread == thread), None)

    def enter(self, thread: int) -> BerthTwin | None:
        if self.berth_of(thread) is not None:
            return None
        free = [berth for berth in self.berths if berth.thread is None]
        own = [berth for berth in free if berth.last_thread == thread]
        if not free:
            self.berths.append(BerthTwin([self.new_lane()]))
        berth = [*own, *free, self.berths[-1]][0]
        berth.thread = berth.last_thread = thread
        berth.interrupted = False
        berth.steps += 1
        taken: list[LaneTwin] = []
        for stream in berth.strangers:
            away = [lane for lane in berth.lanes if berth.away(lane) and lane not in taken]
            if not away and len(berth.lanes) == MOST_LANES:
                break
            if not away:
                berth.lanes.append(self.new_lane())
            lane = (away or berth.lanes[-1:])[0]
            lane.stream, lane.last_step = stream, berth.steps
            taken.append(lane)
        berth.strangers.clear()
        return berth

    def request(self, stream: int, thread: int) -> LaneTwin | str:
        """Return the lane that serves a request, or the reason why none does."""
        berth = self.berth_of(thread)
        if berth is None:
            return "thread" if any(other.thread is not None for other in self.berths) else "outside"
        if berth.interrupted:
            return "interrupted"
        own = [lane for lane in berth.lanes if lane.stream == stream]
        free = [lane for lane in berth.lanes if lane.stream is None]
        if not own and not free:
            if stream not in berth.strangers and len(berth.strangers) < MOST_LANES:
                berth.strangers.append(stream)
            return "stream"
        lane = (own or free)[0]
        lane.stream, lane.last_step = stream, berth.steps
        return lane
