"""Pisarchyk & Lee 2020 (arXiv 2001.03288): inference in shared objects (section 4).

``objects``   shared objects, greedily by size and by breadth, and by min-cost flow
``orders``    the orders in which blocks are taken

Of their placing at offsets (section 5) the rule lives in the core (``packing/core/greedy``); `stowplan.packing` applies
it in orders of its own.
"""
