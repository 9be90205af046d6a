"""A scheduling solver: drops values, the largest first, until the step keeps to its budget."""

import numpy as np

from stowplan.scheduling import Schedule, Way, choices, lean, register, simulate


@register("largest_dropped")
def largest_dropped(graph, options):
    """Return the schedule within the budget, or else the one with the smallest peak that was found.

    One simulation for each storage that may be dropped.
    """
    best = lean(graph)
    peak = simulate(graph, best, options.rates).peak
    if options.budget is None:  # nothing may cost time
        return best
    may_drop = [storage for storage, ways in choices(graph).items() if Way.DROPPED in ways]
    for storage in sorted(may_drop, key=lambda storage: -int(graph.size[storage])):
        if peak <= options.budget:
            break
        way = np.where(graph.storage == storage, int(Way.DROPPED), best.way)
        candidate = Schedule(best.order, way)
        its_peak = simulate(graph, candidate, options.rates).peak
        if its_peak <= peak:  # an equal peak, too: it may take two drops to lower it
            best, peak = candidate, its_peak
    return best
