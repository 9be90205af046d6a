"""Computations of Dask, under several allocators: ``python -m experiments.dask``.

================  ======================================================================================================
``computations``  a blocked decomposition, a rolling filter, reductions over labelled time, as a user would write them
``measure``       one computation on a cluster of each contestant, in turns
================  ======================================================================================================
"""
