"""Packing 10^4 to 10^6 blocks: a skyline of blocks that fit closely, then repair of the windows that stick out.

The skyline (Sekiyama et al. 2018, section 3.2, arXiv 1804.10001) takes the block that pays best: one that is
alive at the most crowded moments, where what is wasted adds to the peak, that lives long, and that leaves no
slivers beside itself, or only between low walls::

    bytes |  |  _____  __       A sliver (x) is mostly lost: what is tall seldom lives shortly enough to go in there.
          |  | |     |x|        Score of b: worth x area / (area + lost).
          |  |x|  b  |x|
          |  |x|_____|x|
          +---------------> clock

Then the tallest block is taken, a window of time around it emptied and refilled by other worths around the
blocks that reach in from outside, until it is lower; and again with what is tallest then::

    bytes |          ___  <- tallest
          |   _____ |   |____          blocks that cross the window's borders (#) stay where they are,
          |  #|   |_|   | |##          all others in it are placed anew
          |  ##|__|___|___|#
          +---[--- window ---]--> clock

A start costs O(n log n) in practice, an attempt on a window of w blocks O(w log w); memory is O(n), as no
pairs of blocks are ever stored. Compiled: see ``core/large.hpp``.
"""

from __future__ import annotations

from . import _search
from .interruptible import interruptible, reporter
from .problem import Problem
from .registry import Answer, Options, register


@register("large")
def large(problem: Problem, options: Options) -> Answer:
    """Place by a skyline of close fits, then window repair; one thread.

    Without a time limit the effort is fixed, and the result depends on the seed alone. With one, the first
    start is finished whatever it takes.
    """
    offsets, interrupted = interruptible(
        lambda cancel: _search.large(
            problem,
            time_limit=options.time_limit,
            effort=options.effort or 0,
            seed=options.seed,
            cancel=cancel,
            progress=reporter(options, cancel),
        )
    )
    return Answer(offsets, 0, interrupted)
