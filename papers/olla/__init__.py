"""OLLA (Steiner et al. 2022, arXiv 2210.12924): lifetimes and locations of arrays by integer programs.

``ilp``         the order of operators (section 4), as the ordering solver ``ilp``
``joint``       order and addresses together, `order_and_place` (section 4.3)
``joint_ilp``   the integer program for both at once, which proves the least arena of small graphs

In the core lives ordering by search, which is exact on all of its graphs (`stowplan.scheduling.ordering`).
"""
