"""Which tables of docs/results are older than the code that they measure: ``python -m experiments.results --stale``.

Each table names the rooms that its figures depend on; a table is stale where one of these has changed in a commit after
the table's own. A change need not move a figure: the list says which tables to make again first.
"""

from __future__ import annotations

import fnmatch
import subprocess

import click

from .measures.output import ROOT

SERVING = ("allocator", "packing", "planning", "common/core")
ROOMS: dict[str, tuple[str, ...]] = {
    "any_graph": ("scheduling",),
    "dask": (*SERVING, "integrations/dask", "stowplan/cli/scripts"),
    "heuristic": ("packing",),
    "memory": ("packing", "planning", "stowplan/insight/pool_models"),
    "networks": ("integrations/chainer", *SERVING),
    "order": ("scheduling",),
    "packing": ("packing",),
    "papers_fusion_aware": ("integrations/torch",),
    "papers_korthikanti": ("papers/mlsys2023", "scheduling", "integrations/chainer"),
    "papers_nntrainer": ("papers/nntrainer", "packing", "integrations/chainer"),
    "papers_olla": ("papers/olla", "scheduling", "packing"),
    "papers_pisarchyk_lee": ("papers/pisarchyk_lee", "packing"),
    "papers_revbifpn": ("papers/mlsys2023",),
    "papers_sekiyama": ("packing",),
    "papers_somas": ("papers/somas", "packing", "scheduling"),
    "predict*": ("prediction", "profiler"),
    "programs*": (*SERVING, "stowplan/cli/scripts"),
    "schedule*": ("integrations/chainer", "scheduling"),
    "torch_*": ("integrations/torch", "scheduling"),
    "whole_run": (*SERVING, "integrations/chainer"),
}
"""By the name of a table, or a pattern: what it depends on; others on `SERVING`."""


def rooms_of(name: str) -> tuple[str, ...]:
    """Return the rooms that a table depends on; the longest pattern that fits its name counts."""
    fitting = [pattern for pattern in ROOMS if fnmatch.fnmatch(name, pattern)]
    return ROOMS[max(fitting, key=len)] if fitting else SERVING


def changes(name: str) -> tuple[str, list[str]]:
    """Return the day of a table's last commit, and the rooms with later commits, each with their number."""
    made = _git("log", "-1", "--format=%H %cs", "--", f"docs/results/{name}.md").split()
    if not made:  # not committed yet
        return "new", []
    commit, day = made
    later = {
        room: len(_git("log", "--format=%h", f"{commit}..", "--", room).split()) for room in rooms_of(name)
    }
    return day, [f"{room} ({count})" for room, count in later.items() if count]


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def names() -> list[str]:
    """Return the names of all tables."""
    return sorted(path.stem for path in (ROOT / "docs" / "results").glob("*.md") if path.stem != "README")


@click.command()
@click.option("--stale", is_flag=True, help="Only those whose rooms have changed since.")
def main(stale: bool) -> None:
    """List the tables, the oldest first, with the rooms that have changed since they were made."""
    for day, name, rooms in sorted((*changes(name)[:1], name, changes(name)[1]) for name in names()):
        if rooms or not stale:
            click.echo(f"{day}  {name}" + (f": commits since then in {', '.join(rooms)}" if rooms else ""))


if __name__ == "__main__":
    main()
