"""The bare core, by steps that follow a plan in their first lane."""

from __future__ import annotations

from stowplan.allocator._core import CorePlan, LaneStart, PlanSet, Replay, StepOutcome


class BareCore(Replay):
    _step = 0

    def begin_step(self, plan: CorePlan | None = None, others: PlanSet = PlanSet()) -> None:  # noqa: B008
        """Begin a step of which only the first lane has a plan."""
        _, self._step, (first, *rest) = self.enter()
        self.begin([LaneStart(first, plan, others, timestamps=False), *map(LaneStart, rest)])

    def end_step(self) -> StepOutcome:
        return self.end(0, self._step)[0][1]
