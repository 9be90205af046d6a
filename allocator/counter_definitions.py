"""What a pool counts, and what each count means to a user: texts and kinds, from which all that shows counts is made.

Two lists. `REASONS` tells why a request was not served from a plan. The fields of `stats.Stats` are the counts; each
has a `Count` as its metadata, with its kind and its text::

    counts.hpp --names--> _core --Replay.counters()--> Stats --+--> Pool.report      a dict, and text
    (reasons, counts)                              + texts     +--> stowplan run     the summary
                                                               +--> documentation    attributes, table of reasons

A new count is a line in counts.hpp and one in `Stats`; a new reason, one there and one here. The tests compare.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Reason(NamedTuple):
    """Why a request was not served from a plan.

    Attributes
    ----------
    why
        What happened.
    action
        What a user can do.
    had_plan
        Whether there was a plan for the step that it was requested in.
    """

    why: str
    action: str
    had_plan: bool = True


REASONS: dict[str, Reason] = {
    "outside": Reason(
        "requested outside of all steps",
        "put the code that repeats into `with pool.step():`",
        had_plan=False,
    ),
    "thread": Reason(
        "requested by a thread without a step, while another thread ran one",
        "nothing for a thread that loads data; put a step that the thread repeats into `with pool.step():`",
        had_plan=False,
    ),
    "interrupted": Reason(
        "requested between interrupt and resume",
        "nothing: this is intended",
        had_plan=False,
    ),
    "no_plan": Reason(
        "no plan existed yet: the first steps are recorded, and then the plan is made",
        "nothing, unless the count keeps growing: then steps do not repeat, and a key for each kind of step may help",
        had_plan=False,
    ),
    "escaped": Reason(
        "the block outlives the following step, or is kept until its successor exists",
        "drop results (losses, outputs, batches) before the next step makes its own; parameters have to stay",
    ),
    "stream": Reason(
        "requested on a stream without a lane: the stream is new, or one of too many",
        "nothing for a stream's first step; else use the same few streams in every step",
    ),
    "unmapped": Reason(
        "the arena had no memory at the planned address: it was growing, or had made room for unplanned blocks",
        "nothing in a plan's first steps; later, drop results of former steps sooner, or use their memory again",
    ),
    "late": Reason(
        "the planned address was still occupied: by a block that had outlived its plan, or a longer one of this step",
        "nothing where lengths vary; else drop what only some steps keep, or make it in `with pool.interrupt():`",
    ),
    "mismatch": Reason(
        "the request was not planned, or is larger than planned",
        "nothing, if memory is no problem; else give each kind of step a key, and mark by `with pool.interrupt():` "
        "what sometimes needs more than all the rest of the step",
    ),
    "unnoted": Reason(
        "no memory was left to note the request, so its step is not planned",
        "leave the process some memory besides its arrays: a higher limit, smaller steps",
    ),
    "heap_only": Reason(
        "the pool's heap served alone: no step had begun",
        "nothing if only time matters; for an arena, mark the code that repeats with `with pool.step():`",
        had_plan=False,
    ),
}


class Kind(Enum):
    """What a count counts."""

    SERVED = "requests, by what served them"
    REASONS = "requests, by reason"
    EVENTS = "how often something happened"
    BYTES = "bytes"
    SECONDS = "seconds of CPU time"


class Count(NamedTuple):
    """What one count is.

    Attributes
    ----------
    kind
        What it counts.
    text
        What it means: a sentence.
    """

    kind: Kind
    text: str
