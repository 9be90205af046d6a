"""``stowplan plans``: look into a directory of shared plans, and clear it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...errors import PoolError
from ...units import human_bytes
from . import _look
from ._options import EXIT_STATUS, json_option

if TYPE_CHECKING:
    from ...planning.store_directory import DirectoryStore, Kept

directory_argument = click.argument("directory", type=click.Path(path_type=Path))

_SHORT = 12  # digits of a key that a table shows


@click.group(epilog=EXIT_STATUS)
def plans() -> None:
    """Look into a directory of shared plans (NumpyPool(plans=DIRECTORY)), and clear it.

    A key says what a plan's placement depends on: sizes, lifetimes, alignment, fixed offsets, solver and versions. Its
    first digits do, as long as no other key begins with them.
    """


@plans.command(name="list", epilog="Example: stowplan plans list plans")
@directory_argument
@json_option
def list_(directory: Path, as_json: bool) -> None:
    """List what is kept in DIRECTORY, the last used first; exit with 1 if there is a file that would be refused."""
    found = [(file, _header(store, file)) for store in [_store(directory)] for file in store.kept()]
    if as_json:
        click.echo(json.dumps([_as_dict(file, header) for file, header in found]))
    else:
        rows = _look.table(
            "", "key", "blocks", "arena", "bound", "solver", "last used", "file", left=("solver",)
        )
        for file, header in found:
            cells = (
                [f"{header['blocks']:,}", human_bytes(header["peak"]), human_bytes(header["lower_bound"])]
                if "blocks" in header
                else ["", "", ""]
            )
            solver = header.get("solver", "refused")
            rows.add_row(file.key[:_SHORT], *cells, solver, _age(file), human_bytes(file.size))
        whole = sum(file.size for file, _ in found)
        why = [f"{file.path}: {header['refused']}" for file, header in found if "refused" in header]
        _look.show(rows, *why, f"in {directory}: {_placements(len(found))}, {human_bytes(whole)}")
    if any("refused" in header for _, header in found):
        raise click.exceptions.Exit(1)


@plans.command(epilog="Example: stowplan plans show plans 5f3a")
@directory_argument
@click.argument("key")
@json_option
def show(directory: Path, key: str, as_json: bool) -> None:
    """Say what is known of the placement KEY in DIRECTORY.

    Whether it is valid is known only beside the step that it is of: a pool checks that before it follows it.
    """
    store = _store(directory)
    file = _one(store, key)
    known = _as_dict(file, _header(store, file))
    if as_json:
        click.echo(json.dumps(known))
    else:
        _look.show(
            *(
                f"{name}: {value:,}" if isinstance(value, int) else f"{name}: {value}"
                for name, value in known.items()
            )
        )
    if "refused" in known:
        raise click.exceptions.Exit(1)


@plans.command(epilog="Example: stowplan plans remove plans --unused-for 30")
@directory_argument
@click.argument("keys", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Remove all plans.")
@click.option(
    "--unused-for",
    type=click.FloatRange(min=0),
    metavar="DAYS",
    help="Remove those not used for so many days.",
)
def remove(directory: Path, keys: tuple[str, ...], everything: bool, unused_for: float | None) -> None:
    """Remove KEYS from DIRECTORY, or all, or what is not used. Other files there are left alone.

    Programs that run go on: each has read what it follows.
    """
    if bool(keys) + everything + (unused_for is not None) != 1:
        raise click.UsageError("expected keys, --all, or --unused-for DAYS, and one of them only")
    store = _store(directory)
    chosen = [_one(store, key) for key in keys] if keys else store.kept()
    if unused_for is not None:
        chosen = [file for file in chosen if time.time() - file.used > 86400 * unused_for]
    for file in dict.fromkeys(chosen):
        store.remove(file.key)
    size = sum(file.size for file in dict.fromkeys(chosen))
    click.echo(f"removed: {_placements(len(dict.fromkeys(chosen)))}, {human_bytes(size)}", err=True)


def _store(directory: Path) -> DirectoryStore:
    from ...planning.store_directory import DirectoryStore

    if not directory.is_dir():
        raise PoolError(f"{directory}: there is no such directory; expected one that pools keep plans in")
    return DirectoryStore(directory)


def _one(store: DirectoryStore, key: str) -> Kept:
    found = [file for file in store.kept() if key and file.key.startswith(key)]
    if len(found) != 1:
        raise PoolError(
            f"{len(found) or 'no'} keys in {store.path} begin with {key!r}; expected one. "
            "`stowplan plans list` has them"
        )
    return found[0]


def _header(store: DirectoryStore, file: Kept) -> dict[str, Any]:
    """Return what a file says of itself; ``refused``: why it would not be followed."""
    from ...planning.store import DamagedError
    from ...planning.store_packing import opened_placement

    try:
        return opened_placement(store.find(file.key, used=False) or b"", file.key)[0]
    except (DamagedError, OSError) as error:
        return {"refused": str(error)}


def _placements(count: int) -> str:
    return f"{count:,} placement{'s' * (count != 1)}"


def _as_dict(file: Kept, header: dict[str, Any]) -> dict[str, Any]:
    return {"key": file.key, "path": file.path, "bytes": file.size, "used": round(file.used, 3), **header}


def _age(file: Kept) -> str:
    seconds = max(0.0, time.time() - file.used)
    for unit, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.0f} {name} ago"
    return "now"
