"""Split a network over ranks: by columns and heads (tensor parallelism), and along the sequence.

V. A. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", MLSys 2023 (arXiv
2205.05198), sections 4.2.1 and 4.2.2, in Chainer, over any communicator of mpi4py::

    tensor      x ---copy---+--[columns | columns]--[rows | rows]--+--all-reduce--- normalize, drop: whole on each rank
    sequence    x ---gather-+--[columns | columns]--[rows | rows]--+--reduce-scatter--- normalize, drop: a part each

===============  ======================================================================================================
module           what it is
===============  ======================================================================================================
``ranks``        the ranks that a network is split over; a lone rank, for profiles without MPI
``collectives``  differentiable collectives, functions of Chainer's
``links``        linear links split by columns and by rows, normalization, dropout with the masks of the unsplit network
===============  ======================================================================================================

Arrays are NumPy's, in C order; a rank's part of the sequence is its part of axis 0.
"""

from .collectives import all_gather, all_reduce, copy, gather_linear, reduce_scatter
from .links import ColumnLinear, Normalization, RowLinear, dropout, take_parts
from .ranks import Communicator, LoneRank, ParallelError, Ranks

__all__ = [
    "ColumnLinear",
    "Communicator",
    "LoneRank",
    "Normalization",
    "ParallelError",
    "Ranks",
    "RowLinear",
    "all_gather",
    "all_reduce",
    "copy",
    "dropout",
    "gather_linear",
    "reduce_scatter",
    "take_parts",
]
