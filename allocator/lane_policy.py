"""When to record, when to plan, when to replay: what a lane of a pool decides at the end of each of its steps.

::

    warm-up ──> record ──> confirm ──> replay ──┐
                  ^          │           ^      │ a step that was not clean
                  └──────────┘           │      v
                  a step that failed     └─── observe: the plan goes on serving what it can; the step's log is a
                                              new record, and the step after it confirms it

*Warm-up* steps are not representative (lazy parameters, optimizer state). *Record* keeps a step's log. *Confirm*: the
step that follows, the same or another one, shows where the record's wrapped blocks end; then the plan is made, off the
caller's thread, and taken up at the next step boundary. From then on steps are *replayed*. A step that was not served
from its plan throughout is *observed*: the plan is not given up, but its log is a new record. A step that confirms one
record may be the next one itself.

A new record becomes, by its structure (what is asked for and freed, in which order):

- the structure of the plan that it departed from, with larger sizes: the plan's successor, with the element-wise
  maximum of the sizes; or the same requests with other frees: its successor as well (reoptimization);
- another structure: one more variant of its key.

A program that never repeats would bring a new plan with every step. So, as long as the last plans made were never
replayed in full, a record has to be seen twice before it is planned. A plan that is succeeded again and again is given
twice as many steps each time.

Here are decisions alone: plain values come in and go out, O(1) a step. Who has logs, plans and threads is `LanePlans`.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import NamedTuple

UNPROVEN = 2
"""Plans that may be made without having been replayed in full, before a record has to be seen twice."""

LONGEST_BACK_OFF = 10
"""A plan that fails again and again may be succeeded every 2**10 steps."""

LONGEST_ROTATION = 8
"""Steps after which all frees are in a step's log that there are in each (profiler/core/step_recorder.hpp)."""

REMEMBERED = 64
"""Steps whose request sequence is remembered, to see that a record comes again."""


class Phase(Enum):
    """Where a lane is, between two steps."""

    WARM_UP = auto()  # there are steps to let pass
    RECORD = auto()  # the next step that succeeds is the record
    CONFIRM = auto()  # the last step is the record, of a step without a plan
    REPLAY = auto()  # a plan serves, or is being made
    OBSERVE = auto()  # the last step is the record, and there was a plan that it followed


# An enum's attribute takes longer to look up than all else here, and steps may be short.
WARM_UP, RECORD, CONFIRM, REPLAY, OBSERVE = Phase


class Action(Enum):
    """What to do with the record, once the step after it is known."""

    NOTHING = auto()
    PLAN = auto()
    SKIP = auto()  # it would be planned, but planning has used the time that it may


class Decision(NamedTuple):
    """What a step brings about.

    Attributes
    ----------
    action
        With the record that was there before the step.
    record
        Whether the step's log is the new record.
    """

    action: Action = Action.NOTHING
    record: bool = False


NOTHING = Decision()


class Standing(NamedTuple):
    """What counts of a plan in use.

    Attributes
    ----------
    steps
        That it is a plan of: more than 1 where they take turns on it.
    revisions
        How often it was succeeded in a row without having been replayed in full.
    """

    steps: int = 1
    revisions: int = 0


class Confirmation(NamedTuple):
    """What the step after a record shows.

    Attributes
    ----------
    sequence
        A number for what the record asked for: its key, sizes and streams.
    equal
        Whether the step's log is equal to the record's.
    same_key
        Whether the two steps have one key.
    affordable
        Whether there is time for one more order.
    """

    sequence: int
    equal: bool
    same_key: bool
    affordable: bool = True


class LanePolicy:
    """The phases of one lane.

    Parameters
    ----------
    warmup
        Steps to let pass before recording.
    found
        Whether steps are found, rather than marked. There is no warm-up then: what is found is hot.

    Attributes
    ----------
    phase
        Where the lane is.
    found
        Whether its steps are found.
    """

    def __init__(self, warmup: int, *, found: bool = False) -> None:
        self.found = found
        self._warmup_left = 0 if found else warmup
        self.phase = WARM_UP if self._warmup_left else RECORD
        self._steps = 0
        self._seen: deque[int] = deque(maxlen=REMEMBERED)  # sequences of records
        self._in_work: set[int] = set()  # sequences of the records that plans are being made of
        self._unproven = 0  # plans ordered since a step was last replayed in full
        self._clean_step_in = 0  # steps until a clean one is recorded; 0: none is (see `plan_taken_up`)

    @property
    def has_record(self) -> bool:
        """Whether the last step is a record, which the next one confirms."""
        return self.phase in (CONFIRM, OBSERVE)

    def wants_log(self, *, has_plan: bool) -> bool:
        """Whether the next step's log is wanted even if the step is clean; `has_plan`: it is expected to follow one."""
        rerecords = self._clean_step_in == 1 or (
            self.found and self._clean_step_in > 0
        )  # found ones count if logged
        return not has_plan or self.has_record or rerecords

    # ------------------------------------------------------------------------------------------------------- steps

    def step_ended(
        self,
        *,
        complete: bool,
        clean: bool,
        failed: bool = False,
        followed: Standing | None = None,
        confirmation: Confirmation | None = None,
    ) -> Decision:
        """Decide what a step brings about, and go on to the next phase.

        Parameters
        ----------
        complete
            Whether the step's log holds all of it.
        clean
            Whether there was a plan, and every planned request was served from it.
        failed
            Whether an exception left the step, so that it says nothing about the next.
        followed
            The plan that the step followed at its end, if it is still in use.
        confirmation
            Where there is a record and the step is complete: what it shows of the record.
        """
        self._steps += 1
        if clean and followed is not None:
            self._unproven = 0
        takes_clean_step = self._clean_step_in == 1 and clean and complete
        if takes_clean_step or self._clean_step_in > 1:
            self._clean_step_in -= 1
        usable = complete and not failed
        phase = self.phase
        if phase is WARM_UP:
            if clean:
                self.phase = REPLAY
            elif usable:
                self._pass_warm_up_step()
            return NOTHING
        action = NOTHING.action
        if phase is CONFIRM or phase is OBSERVE:
            if confirmation is None:
                self.drop_record()
            else:
                self.phase = REPLAY
                action = self._learn(confirmation)
                if confirmation.same_key and confirmation.equal:
                    return Decision(action)
        elif phase is RECORD and clean:
            self.phase = REPLAY
        if usable and (takes_clean_step or (not clean and self._is_due(followed))):
            self.phase = CONFIRM if followed is None else OBSERVE
            return Decision(action, record=True)
        return NOTHING if action is NOTHING.action else Decision(action)

    def _pass_warm_up_step(self) -> None:
        self._warmup_left -= 1
        if self._warmup_left == 0:
            self.phase = RECORD

    def _is_due(self, plan: Standing | None) -> bool:
        """Whether a plan that did not serve a step may be succeeded now."""
        if plan is None:
            return True
        return self._steps % (1 << min(plan.revisions, LONGEST_BACK_OFF)) == 0

    def _learn(self, record: Confirmation) -> Action:
        """Decide what to do with a record."""
        repeated = record.equal or record.sequence in self._seen
        self._seen.append(record.sequence)
        if record.sequence in self._in_work:
            return Action.NOTHING
        if self._unproven >= UNPROVEN and not repeated:
            return Action.NOTHING
        if not record.affordable:
            return Action.SKIP
        self._unproven += 1
        self._in_work.add(record.sequence)
        return Action.PLAN

    # ------------------------------------------------------------------------------------------------- other events

    def steps_are_marked(self) -> None:
        """Note that steps are not found any more; a record that was found is no use."""
        self.found = False
        self.drop_record()

    def drop_record(self) -> None:
        """Give up the record, as nothing will confirm it."""
        if self.phase is CONFIRM:
            self.phase = RECORD
        elif self.phase is OBSERVE:
            self.phase = REPLAY

    def plan_made(self, sequence: int) -> None:
        """Note that what was ordered for a record is done, whatever came of it."""
        self._in_work.discard(sequence)

    def plan_taken_up(self, *, overlaps: bool) -> None:
        """Note that a plan is in use.

        Parameters
        ----------
        overlaps
            Whether it leaves out so much that lives on in the next step that several in turn may have room for it.
            Then a later clean step is recorded as well, when its log shows in which steps all this is freed.
        """
        self._clean_step_in = LONGEST_ROTATION if overlaps else 0
        if self.phase is RECORD:
            self.phase = REPLAY

    def plans_loaded(self) -> None:
        """Note that plans from a file are in use.

        They serve from the first step on, and the first one that is served throughout ends the warm-up. One that is
        not may make what lasts, like any first step: it is no record.
        """
        if self.phase is RECORD:
            self.phase = REPLAY

    def obstructed(self, sequence: int, plan: Standing, *, affordable: bool) -> Action:
        """Decide whether a plan is placed anew that blocks stand in the way of which stay, and note the order.

        A record would teach nothing: its requests are as planned. But steps have to be as patient as with a record.

        Parameters
        ----------
        sequence
            A number for the order.
        plan
            What the step has followed, and was not served from throughout.
        affordable
            Whether there is time for one more order.
        """
        if sequence in self._in_work or not self._is_due(plan):
            return Action.NOTHING
        if not affordable:
            return Action.SKIP
        self._in_work.add(sequence)
        return Action.PLAN

    def orders_lost(self) -> None:
        """Note that the plans being made will not come: a fork has left behind who makes them."""
        self._in_work.clear()
