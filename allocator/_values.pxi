# Values of the core as Python's objects. Included by _core.pyx.

cdef object _log(vector[Event]& events):
    """Copy a step's events into a structured array."""
    log = np.empty(events.size(), dtype=EVENT_DTYPE)
    if events.size():
        memcpy(cnp.PyArray_DATA(log), events.data(), events.size() * EVENT_DTYPE.itemsize)
    return log


#: class LaneStart(NamedTuple):
#:     lane: int
#:     plan: CorePlan | None = None
#:     others: PlanSet = ...
#:     arena_bytes: int = 0
#:     timestamps: bool = True
#:     guests: bool = True
LaneStart = namedtuple(
    "LaneStart", "lane plan others arena_bytes timestamps guests", defaults=(None, PlanSet(), 0, True, True)
)
#: class StepOutcome(NamedTuple):
#:     log: npt.NDArray[np.void]
#:     complete: bool
#:     clean: bool
#:     tag: int
StepOutcome = namedtuple("StepOutcome", "log complete clean tag")


cdef object _outcome(CStepOutcome& outcome):
    # As StepOutcome(...), which takes a call of Python's more in each step.
    return tuple.__new__(StepOutcome, (_log(outcome.log), outcome.complete, outcome.clean, outcome.tag))


cdef dict _counters(const Counters& counters):
    """Return the counts by name, and under "requests" those of requests by reason; see core/replay/counts.hpp."""
    return {"requests": dict(counters.named_requests()), **dict(counters.named())}


cdef dict _situation(Situation now):
    cdef dict values = now
    values["largest"] = values["largest"][:values.pop("offered")]
    return values
