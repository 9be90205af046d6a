"""When to record, when to plan, when to replay: what a lane of a pool decides at the end of each of its steps.

::

    warm-up ──> watch <─────── confirm(record)        a step that the record's step repeats, or that has failed
                  │               ^   │   ^
                  └───────────────┘   └───┘           a step that was not served from a plan throughout is a record

*Warm-up* steps are not representative (lazy parameters, optimizer state). *Watch*: a step that is served from its plan
throughout requests nothing. One that is not, for want of a plan or in spite of one, is a *record*: its log is kept. The
plan is not given up for that. *Confirm*: the step that follows, the same or another one, shows where the record's
wrapped blocks end; then the plan is made, off the caller's thread, and taken up at the next step boundary. A step that
confirms one record may be the next one itself.

A new record becomes, by its structure (what is requested and freed, in which order):

- the structure of the plan that it departed from, with larger sizes: the plan's successor, with the element-wise
  maximum of the sizes; or the same requests with other frees: its successor as well (reoptimization);
- another structure: one more variant of its key.

A program that never repeats would bring a new plan with every step. So, as long as the last plans made were never
replayed in full, a record has to be seen twice before it is planned. A plan that is succeeded again and again is given
twice as many steps each time.

Here are decisions alone: plain values come in and go out, O(1) a step. Logs, plans and threads are the lane's
(lane.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Generic, NamedTuple, TypeVar

UNPROVEN = 2
"""Plans that may be made without having been replayed in full, before a record has to be seen twice."""

LONGEST_BACK_OFF = 10
"""A plan that fails again and again may be succeeded every 2**10 steps."""

LONGEST_ROTATION = 8
"""Steps after which all frees are in a step's log that there are in each (common/core/step_recorder.hpp)."""

REMEMBERED = 64
"""Steps whose request sequence is remembered, to see that a record comes again."""

R = TypeVar("R")


class Evidence(Enum):
    """What speaks for a plan."""

    REPEATED = auto()  # the step after the record asked for the same
    DIVERGED = auto()  # it asked for something else
    OBSTRUCTED = auto()  # blocks stay where the plan in use has places: a record would teach nothing


class Order(NamedTuple):
    """A plan that might be made, and what speaks for it.

    Its number is a hash of what its steps request, or the tag of the plan that is obstructed.
    """

    number: int
    evidence: Evidence


class LanePolicy(Generic[R]):
    """The state of one lane between two steps.

    Parameters
    ----------
    warmup
        Steps to let pass before recording.
    has_time
        Tells whether there is time for one more order; called where one is due, and never twice for it.

    Attributes
    ----------
    record
        The last step, where it is a record, which the next one confirms; else None.
    """

    def __init__(self, warmup: int, *, has_time: Callable[[], bool] = lambda: True) -> None:
        self.record: R | None = None
        self._warmup_left = warmup
        self._has_time = has_time
        self._steps = 0
        self._seen: deque[int] = deque(maxlen=REMEMBERED)  # numbers of orders for records
        self._in_work: set[int] = set()  # numbers of the orders that plans are being made for
        self._unproven = 0  # plans ordered since a step was last replayed in full
        self._until_rotated = 0  # steps until a clean one is recorded; 0: none is (see `plan_taken_up`)

    def wants_log(self, *, has_plan: bool) -> bool:
        """Whether the next step's log is wanted even if the step is clean; `has_plan`: it is expected to follow one."""
        return not has_plan or self.record is not None or self._until_rotated == 1

    # ------------------------------------------------------------------------------------------------------- steps

    def step_ended(
        self,
        record: R | None,
        *,
        clean: bool,
        failed: bool = False,
        revisions: int | None = None,
        confirms: Order | None = None,
    ) -> bool:
        """Decide what a step brings about, and go on to the next state.

        Parameters
        ----------
        record
            The step as a record; None where its log does not hold all of it.
        clean
            Whether there was a plan, and every planned request was served from it.
        failed
            Whether an exception left the step, so that it tells nothing about the next.
        revisions
            How often in a row the plan that the step followed at its end was succeeded without having been
            replayed in full. None where there is no such plan in use.
        confirms
            Where there is a record and the step is complete: the plan that might be made of it.

        Returns
        -------
        Whether a plan is to be made of the record that there was.
        """
        self._steps += 1
        if clean and revisions is not None:
            self._unproven = 0
        rotated = self._rotate(logged=clean and record is not None)
        self.record = None
        if self._warmup_left:
            passed = record is not None and not failed
            self._warmup_left = 0 if clean else self._warmup_left - passed
            return False
        plans = False
        if confirms is not None:
            plans = self.orders(confirms)
            if confirms.evidence is Evidence.REPEATED:
                return plans
        if record is not None and not failed and (rotated or (not clean and self._is_due(revisions))):
            self.record = record
        return plans

    def _rotate(self, *, logged: bool) -> bool:
        """Count a step since the last plan came; return whether it is the clean one that is to be recorded."""
        rotated = self._until_rotated == 1 and logged
        if rotated or self._until_rotated > 1:
            self._until_rotated -= 1
        return rotated

    def _is_due(self, revisions: int | None) -> bool:
        """Whether a plan that did not serve a step may be succeeded now."""
        return revisions is None or self._steps % (1 << min(revisions, LONGEST_BACK_OFF)) == 0

    def orders(self, order: Order, revisions: int | None = None) -> bool:
        """Decide whether a plan is made, and note the order.

        Parameters
        ----------
        order
            The plan, and what speaks for it.
        revisions
            Those of the plan in use that is obstructed: steps have to be as patient with it as with a record.
        """
        number, evidence = order
        if evidence is Evidence.OBSTRUCTED:
            convinces = self._is_due(revisions)
        else:
            again = evidence is Evidence.REPEATED or number in self._seen
            self._seen.append(number)
            convinces = again or self._unproven < UNPROVEN
        if number in self._in_work or not convinces or not self._has_time():
            return False
        self._unproven += evidence is not Evidence.OBSTRUCTED
        self._in_work.add(number)
        return True

    # ------------------------------------------------------------------------------------------------- other events

    def plan_made(self, number: int) -> None:
        """Note that an order has been carried out, whatever came of it."""
        self._in_work.discard(number)

    def plan_taken_up(self, *, overlaps: bool) -> None:
        """Note that a plan is in use.

        Parameters
        ----------
        overlaps
            Whether it leaves out so much that lives on in the next step that several in turn may have room for it.
            Then a later clean step is recorded as well, when its log shows in which steps all this is freed.
        """
        self._until_rotated = LONGEST_ROTATION if overlaps else 0

    def orders_lost(self) -> None:
        """Note that the plans being made will not come: a fork has left behind the thread that makes them."""
        self._in_work.clear()
