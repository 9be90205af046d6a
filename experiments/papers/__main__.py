"""The tables of the papers behind stowplan, ours beside theirs: ``python -m experiments.papers NAME...``, or ``all``.

==================  ================================================================================================
``sekiyama``        Sekiyama et al. 2018: the optima of section 5.2.3; inference with cuDNN's workspaces, figure 2b
``olla``            Steiner et al. 2022: order, fragmentation and both together, figures 7, 8, 9 and 13
``pisarchyk_lee``   Pisarchyk & Lee 2020: tables 1 and 2
``nntrainer``       Moon et al. 2022: table 4, the planners, VGG16 with and without swap, planned and trained
``revbifpn``        Chiley et al. 2023: peaks and gradients of reversible fusions, by depth and width
``somas``           Lamprou et al. 2023: which tensors may share memory between streams, and offsets, with times
``korthikanti``     Korthikanti et al. 2023: what ranks of split networks keep, and what recomputation costs
``fusion_aware``    He & Yu 2023: what compiled steps of PyTorch keep for backward, and their time (ten minutes)
==================  ================================================================================================

A cell has our figure, and in brackets the paper's where it is another one. The tables of each go into a file. A paper
whose tables need a package that is not installed is left out: ``revbifpn`` needs Chainer, ``korthikanti`` Chainer and
MPI, ``fusion_aware`` PyTorch.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click

from stowplan.errors import MissingDependencyError

from ..measures import output
from ..measures.apart import CannotRunError
from ..measures.kept import write_text

NAMES = ("sekiyama", "olla", "pisarchyk_lee", "nntrainer", "revbifpn", "somas", "korthikanti", "fusion_aware")


def document(name: str, quick: bool) -> str:
    """Return a paper's tables in Markdown."""
    module = import_module(f".{name}", __package__)
    lines = [f"# {module.__doc__.splitlines()[0].rstrip('.')}", "", output.made_by(()), ""]
    for table in module.tables(quick):
        lines += table.markdown()
    return "\n".join(lines)


@click.command()
@click.argument("names", nargs=-1, required=True, type=click.Choice([*NAMES, "all"]))
@click.option(
    "--quick", is_flag=True, help="Leave out what takes long: minutes instead of a quarter of an hour."
)
@output.out
def main(names: tuple[str, ...], quick: bool, out: Path) -> None:
    """Print the tables of papers, ours beside theirs."""
    for name in NAMES if "all" in names else dict.fromkeys(names):
        try:
            text = document(name, quick)
        except (ModuleNotFoundError, MissingDependencyError, CannotRunError) as error:
            click.echo(f"{name} is left out: {error}", err=True)
            continue
        write_text(text, out / f"papers_{name}.md")
        output.show(out / f"papers_{name}")


if __name__ == "__main__":
    main()
