"""Pisarchyk & Lee 2020 (arXiv 2001.03288): inference in shared objects (section 4), or at offsets (5).

``objects``   shared objects, greedily by size and by breadth, and by min-cost flow

In the core lives placing at offsets: the solvers ``greedy_by_size`` and ``greedy_by_breadth`` of `stowplan.packing`.
"""
