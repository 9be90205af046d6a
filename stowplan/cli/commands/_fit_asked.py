"""What ``stowplan fit`` is asked: files by their shapes, and options."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...units import parse_bytes
from ._options import Parsed

if TYPE_CHECKING:
    from ...profiler import Profile

DOUBLINGS = 4
"""How often the largest recorded batch is doubled for the batches predicted by default."""


@dataclass(frozen=True)
class Asked:
    """The arguments and options of one call; `fit` tells what each means."""

    files: tuple[tuple[dict[str, int], Path], ...]
    batches: tuple[int, ...]
    at: dict[str, int] | None
    ranks: int | None
    parallel: str | None
    memory: int | None
    device: int | None
    retained: int | None
    output: Path | None
    alignment: int | None
    solver: str
    time_limit: float | None
    threads: int

    @property
    def how(self) -> dict[str, Any]:
        """For what solves."""
        return {"solver": self.solver, "time_limit": self.time_limit, "threads": self.threads}

    def planning(self, profile: Profile) -> dict[str, Any]:
        """For what plans steps like a profile's."""
        from ...insight.comparison import alignment_of

        limits = {"time_limit": self.time_limit, "threads": self.threads}
        return {"alignment": self.alignment or alignment_of(profile), "planner": self.solver, **limits}

    def of_rank(self, batch: int) -> int:
        """Return the batch of a rank."""
        return -(-batch // self.ranks) if self.ranks and self.parallel == "data" else batch

    def wanted(self, largest: int) -> list[int]:
        """Return the batches of a rank to predict, ascending; ``largest``: that was recorded."""
        if self.batches or self.memory is not None:
            return sorted({self.of_rank(batch) for batch in self.batches})
        return [largest << k for k in range(1, DOUBLINGS + 1)]


def parse_shape(text: str) -> dict[str, int]:
    """Read ``words:64,width:128``; a number alone is the batch.

    Raises
    ------
    ValueError
        It is neither.
    """
    shape = {}
    for item in [f"batch:{text}"] if text.isdecimal() else text.split(","):
        name, _, number = item.partition(":")
        if not name.isidentifier() or not number.isdecimal() or int(number) < 1 or name in shape:
            raise ValueError(f"{item!r} of {text!r}; expected NAME:NUMBER,..., like words:2048,width:12288")
        shape[name] = int(number)
    return shape


def parse_device(text: str) -> int:
    """Read ``cuda:24GiB``; return the bytes of its memory.

    Raises
    ------
    ValueError
        It is something else.
    """
    kind, _, memory = text.partition(":")
    if kind == "cuda":
        with suppress(ValueError):
            return parse_bytes(memory)
    raise ValueError(f"{text!r}; expected cuda:MEMORY, like cuda:24GiB")


SHAPE, DEVICE = Parsed("shape", parse_shape), Parsed("device", parse_device)


class ShapeFile(click.Path):
    """``BATCH=PROFILE`` or ``SHAPE=PROFILE``, of a step of that batch size or shape; or its step graph."""

    name = "batch=profile"

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the shape and the path."""
        text, sign, path = str(value).partition("=")
        try:
            shape = parse_shape(text if sign else "")
        except ValueError:
            expected = "BATCH=PROFILE, like 2=two.profile, or NAME:NUMBER,...=PROFILE"
            self.fail(f"{value!r}; expected {expected}", param, ctx)
        return shape, super().convert(path, param, ctx)
