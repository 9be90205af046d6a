"""Swap arrays out of memory to a file, and back before they are needed.

::

    caller    evict(a)  ...  wait_evicted()  del a  ...  out = empty()  start_fetch(out)  ...  wait_fetched()
    helper       write -------->|                                          read ------------------->|

A *ticket* stands for one evicted array. The file is private (0600), has no name, and ends with the process. It is not
encrypted: activations may reveal the data that they were computed from.
"""

from .common.swapping import SwapCounts, SwapError, SwapFile, Ticket

__all__ = ["SwapCounts", "SwapError", "SwapFile", "Ticket"]
