"""One rank: ``mpiexec -n N python -m experiments.parallel.rank PARALLEL WORDS BATCH WIDTH HEADS LAYERS``.

Rank 0 prints a list with the figures of each rank, JSON. Bytes are the recorder's: blocks that a step asks NumPy for.

``kept``
    Alive at the end of the forward pass, and asked for in it: what the closed form counts.
``peak``
    The most that forward and backward pass together have alive at once of what they ask for: what is kept, gradients of
    parameters, and what the backward pass has in flight. Parameters, and the input, are older.
``error``
    How far the rank's gradients, those of its part of the input among them, are from the unsplit network's, of which
    rank by rank the same parameters are taken: the largest difference of a gradient over its largest element, at most.
    None by data, where nothing is split.

PARALLEL is data, tensor, sequence, or selective: by sequence, and what attention's softmax and dropout make is made
again in the backward pass (section 5). Its parameters after some steps are those of steps without, bit by bit, or it
fails.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from typing import Any

import numpy as np

from stowplan import NumpyRecorder
from stowplan.chainer import Scheduler
from stowplan.papers.mlsys2023 import parallel
from stowplan.papers.mlsys2023.parallel import LoneRank, Ranks

from ..models.split_block import Blocks, Parallel  # after stowplan.chainer, which mends Chainer

import chainer  # isort: skip

STEPS = 7
"""Before the last one: the scheduler watches, records and times some, and then serves the others."""


def measure(comm: Any, mode: Parallel, words: int, batch: int, width: int, heads: int, layers: int) -> Any:
    """Return the figures of a rank of a communicator; by data each rank has its part of the batch."""
    if mode == "data":
        examples, ranks = Ranks(comm).part(batch, "examples"), Ranks(LoneRank(1))
    else:
        examples, ranks = slice(0, batch), Ranks(comm, sequence=mode in ("sequence", "selective"))
    net = Blocks(layers, width, heads, ranks)
    net.cleargrads()
    rows = ranks.part(words, "words") if ranks.sequence else slice(0, words)
    x, gy = np.random.default_rng(0).standard_normal((2, words, batch, width), np.float32)
    mine, mine_gy = (a[rows, examples].reshape(-1, width).copy() for a in (x, gy))
    if mode == "selective":
        kept, peak = selected((net, Blocks(layers, width, heads, ranks)), mine, mine_gy, batch)
        net.cleargrads()
    else:
        kept, peak = recorded(net, mine, mine_gy, examples.stop - examples.start)
    error = None if mode == "data" else worst(net, (x, gy), (mine, mine_gy), heads, rows)
    return {"kept": kept, "peak": peak, "error": error}


def recorded(net: Blocks, x: Any, gy: Any, batch: int) -> tuple[int, int]:
    """Return the bytes kept after a forward pass, and the most alive in a step."""
    recorder = NumpyRecorder()
    with recorder:
        with recorder.step():
            y = net(x, batch)
        forward = recorder.whole()
        del y
        with recorder.step():
            y = net(x, batch)
            y.grad = gy
            y.backward()
            del y
        step = recorder.whole()
    net.cleargrads()
    return int(forward.size[forward.end == forward.period].sum()), step.planned_peak


def selected(nets: tuple[Blocks, Blocks], x: Any, gy: Any, batch: int) -> tuple[int, int]:
    """Return the same of a step with selective recomputation; a second, equal network is trained without it.

    Raises
    ------
    RuntimeError
        The schedule has not begun, or has changed a bit.
    """
    (net, plain), recorder = nets, NumpyRecorder()
    optimizer, plainly = (chainer.optimizers.SGD(1e-5).setup(one) for one in nets)
    scheduler = Scheduler(optimizer, budget=2**60, solver="selective", early_updates=True)
    kept = 0
    for last in [False] * STEPS + [True]:
        with recorder, recorder.step() if last else nullcontext(), scheduler.step():
            with nullcontext() if last else recorder.step():
                y = net(x, batch)
            if not last:
                forward = recorder.whole()
                kept = int(forward.size[forward.end == forward.period].sum())
            _finish(net, optimizer, y, gy)
            del y
        _finish(plain, plainly, plain(x, batch), gy)
    if scheduler.stats.scheduled < 2:
        raise RuntimeError(f"the schedule has not begun: {scheduler.stats}")
    if not all(np.array_equal(a.array, b.array) for a, b in zip(net.params(), plain.params(), strict=True)):
        raise RuntimeError("selective recomputation has changed parameters")
    return kept, recorder.whole().planned_peak


def _finish(net: Blocks, optimizer: Any, y: Any, gy: Any) -> None:
    net.cleargrads()
    y.grad = gy
    y.backward()
    optimizer.update()


def worst(
    net: Blocks, whole_arrays: tuple[Any, Any], mine: tuple[Any, Any], heads: int, rows: slice
) -> float:
    """Return how far the gradients are from those of the unsplit network, with dropout."""
    x, gy = whole_arrays
    _, batch, width = x.shape
    whole = Blocks(len(net), width, heads, Ranks(LoneRank(1)))
    parallel.take_parts(net, whole)
    for block in (*net, *whole):
        block.calls = 0  # so that both drop the same
    gradients = []
    for one, (array, gradient) in ((whole, (x.reshape(-1, width), gy.reshape(-1, width))), (net, mine)):
        variable = chainer.Variable(array)
        y = one(variable, batch)
        y.grad = gradient
        one.cleargrads()
        y.backward()
        gradients.append(variable.grad)
    expected = gradients[0].reshape(x.shape)[rows].reshape(-1, width)
    found = [_off(gradients[1], expected)]
    parts = Blocks(len(net), width, heads, net[0].ranks)
    for parameter in whole.params():
        parameter.array[...] = parameter.grad
    parallel.take_parts(parts, whole)
    found += [
        _off(a.grad, b.array)
        for (_, a), (_, b) in zip(sorted(net.namedparams()), sorted(parts.namedparams()), strict=True)
    ]
    return max(found)


def _off(found: Any, expected: Any) -> float:
    return float(abs(found - expected).max() / abs(expected).max())


def main() -> None:
    """Measure on this rank and print on rank 0."""
    from mpi4py import MPI

    mode, *shape = sys.argv[1:]
    figures = MPI.COMM_WORLD.gather(measure(MPI.COMM_WORLD, mode, *map(int, shape)))  # type: ignore[arg-type]
    if figures is not None:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
