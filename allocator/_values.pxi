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


cdef dict _by_name(const vector[NamedCount]& counts):
    return {counts[i].name.decode(): counts[i].value for i in range(counts.size())}


cdef dict _counters(const Counters& counters):
    """Return the counts by name, and under "requests" those of requests by reason; see core/replay/counts.hpp."""
    return {"requests": _by_name(counters.named_requests()), **_by_name(counters.named())}


cdef list _pairs(const vector[Range]& ranges):
    return [(ranges[i].begin, ranges[i].end) for i in range(ranges.size())]


_PLACES = ("upstream", "planned", "late", "held")


cdef dict _live_block(const LiveBlock& block):
    return {
        "size": block.size,
        "stream": block.stream,
        "age": block.age,
        "request": block.request,
        "lane": block.lane,
        "slot": block.slot if block.place == Place.planned else None,
        "tag": block.tag,
        "place": _PLACES[<uint8_t>block.place],
    }


cdef dict _situation(const Situation& now):
    return {
        "step_slot": now.step_slot,
        "in_step": now.in_step,
        "step": now.step,
        "requests": now.requests,
        "planned_requests": now.planned_requests,
        "live_bytes": now.live_bytes,
        "upstream_bytes": now.upstream_bytes,
        "arena_bytes": now.arena_bytes,
        "largest": [_live_block(now.largest.at(i)) for i in range(now.largest.size())],
    }
