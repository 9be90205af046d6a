"""Split a network over ranks: by columns and heads (tensor parallelism), and along the sequence.

V. A. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", MLSys 2023 (arXiv
2205.05198), sections 4.2.1 and 4.2.2, in Chainer, over any communicator of mpi4py::

    tensor      x ---copy---+--[columns | columns]--[rows | rows]--+--all-reduce--- normalize, drop: whole on each rank
    sequence    x ---gather-+--[columns | columns]--[rows | rows]--+--reduce-scatter--- normalize, drop: a part each

===============  ======================================================================================================
module           what it is
===============  ======================================================================================================
``ranks``        the ranks that a network is split over; a lone rank, for profiles without MPI
``collectives``  differentiable collectives, Chainer functions
``links``        linear links split by columns and by rows, normalization, dropout with the masks of the unsplit network
===============  ======================================================================================================

Arrays are NumPy's, in C order; a rank's part of the sequence is its part of axis 0.
``experiments/models/split_block.py`` has a whole block, with attention split by heads. `Ranks` takes a communicator of
mpi4py, with ``sequence=True`` or ``False`` (tensor parallelism)::

    ranks = Ranks(MPI.COMM_WORLD, sequence=True)
    self.normal = Normalization(width, ranks)
    self.widen = ColumnLinear(width, 4 * width, ranks, seed=(0,))
    self.narrow = RowLinear(4 * width, width, ranks, seed=(1,))

- By *tensor*, each pair of links takes an all-reduce forward and one backward. By *sequence*, an all-gather and a
  reduce-scatter take its place, and one more all-gather in the backward pass.
- `dropout` drops the same elements however the network is split, and keeps a mask of a byte an element, which a
  schedule may drop: a counter tells what it drew.
- `take_parts` copies a rank's parts of an unsplit network's parameters. Gradients of parameters that every rank has
  whole are complete, and the same on all, after the backward pass.
- ``LoneRank(8)`` makes one process do what a rank of eight does, with wrong values and the right blocks: for profiles
  without MPI.

For s words, a batch of b, width h, a heads and t ranks, the forward pass keeps of a layer:

===========  ===========================================  ============================================
parallel     elements of 2 bytes (the paper)              float32
===========  ===========================================  ============================================
none         s b h (34 + 5 a s / h)                       s b h (66 + 9 a s / h)
tensor       s b h (10 + 24 / t + 5 a s / (h t))          s b h (18 + 48 / t + 9 a s / (h t))
sequence     s b h (34 + 5 a s / h) / t                   s b h (66 + 9 a s / h) / t
selective    s b h 34 / t                                 s b h 66 / t
data         the same, of a batch of b / t                the same, of a batch of b / t
===========  ===========================================  ============================================

*Selective* is by sequence, with selective recomputation (section 5): ``Scheduler(optimizer, budget=...,
solver="selective")`` of `stowplan.chainer` drops what softmax and dropout of attention make, the mask too, and makes
the same bits again in the backward pass. Collectives never run again; functions of your own between the two matrix
products need `stowplan.chainer.trust`. At GPT-3's shape and eight ranks the paper's forms have 5.4 times as much for
*tensor*. Here *selective* takes 11 % to 25 % of the time of full recomputation, the wider the less
(``docs/results/papers_korthikanti.md``).

What the forward pass keeps is the paper's closed form (``docs/results/papers_korthikanti.md``: 8 blocks on real
ranks of MPI, beside how far gradients are from the unsplit network's).

When it does not help:

- Where the network fits and the batch divides, data parallelism keeps as little of activations, is simpler, and sends
  the gradients once a step. The split saves parameters, gradients and optimizer state, and works for a batch of one.
- On ranks of one machine it saves nothing of that machine's memory, but for what tensor parallelism alone would keep
  twice.
- Communication is not overlapped with computation; no time is claimed.
- Heads, columns, and by sequence words times batch must be multiples of the number of ranks: else a `ParallelError`.
- CuPy's arrays and pipelines are not supported. Gradients through gradients go through the collectives, not through the
  example's GeLU and softmax.
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
