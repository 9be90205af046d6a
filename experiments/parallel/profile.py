"""Profile one rank of a split network in one process: for ``stowplan fit``, at any number of ranks and without MPI.

``python -m experiments.parallel.profile -o FOLDER --parallel sequence SHAPE...`` writes a profile for each shape, like
``words:32,batch:2,width:64,heads:4,ranks:2,layers:2``, and prints the arguments for ``stowplan fit``. It begins
before the network is built and ends after the second update of Adam, so that its planned peak is the live peak of the
program, with parameters, gradients and the optimizer's state.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click
import numpy as np

from stowplan import NumpyRecorder, Profile
from stowplan.compat import enable_chainer

NUMBERS = ("words", "batch", "width", "heads", "ranks", "layers")


def profile(parallel: str, shape: Mapping[str, int]) -> Profile:
    """Return the profile of a rank's first two steps, from before the network is built.

    Parameters
    ----------
    parallel
        ``"tensor"`` or ``"sequence"``.
    shape
        All of `NUMBERS`.
    """
    enable_chainer()
    import chainer

    from stowplan.papers.mlsys2023.parallel import LoneRank, Ranks

    from ..models.split_block import Blocks

    words, batch, width, heads, ranks, layers = (shape[name] for name in NUMBERS)
    of = Ranks(LoneRank(ranks), sequence=parallel == "sequence")
    rows = of.part(words, "words") if of.sequence else slice(0, words)
    recorder = NumpyRecorder(sites=True)  # which tell layers apart
    with recorder, recorder.step():
        net = Blocks(layers, width, heads, of)
        optimizer = chainer.optimizers.Adam().setup(net)
        x = np.random.default_rng(0).standard_normal(((rows.stop - rows.start) * batch, width), np.float32)
        for _ in range(2):  # the optimizer makes its state in the first
            net.cleargrads()
            loss = chainer.functions.sum(net(x, batch) * x)
            loss.backward()
            del loss
            optimizer.update()
    return recorder.whole()


@click.command()
@click.argument("shapes", metavar="SHAPE...", nargs=-1, required=True)
@click.option("--parallel", type=click.Choice(("tensor", "sequence")), default="sequence", show_default=True)
@click.option("-o", "--out", type=click.Path(file_okay=False, path_type=Path), required=True)
def main(shapes: tuple[str, ...], parallel: str, out: Path) -> None:
    """Profile a rank at each shape, like words:32,batch:2,width:64,heads:4,ranks:2,layers:2."""
    out.mkdir(parents=True, exist_ok=True)
    for text in shapes:
        shape = {name: int(number) for name, _, number in (item.partition(":") for item in text.split(","))}
        if shape.keys() != set(NUMBERS):
            raise click.UsageError(f"{text}; expected {':N,'.join(NUMBERS)}:N")
        path = out / f"{text.replace(':', '').replace(',', '-')}.profile"
        profile(parallel, shape).save(path)
        print(f"{text.replace('ranks', parallel)}={path}")


if __name__ == "__main__":
    main()
