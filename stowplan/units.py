"""Bytes as people read them. A leaf below the packages: it imports nothing of ours."""

from __future__ import annotations


def human_bytes(count: float) -> str:
    """Bytes as people read them: ``12.3 MiB``."""
    unit, name = byte_unit(count)
    value = count / unit
    return f"{value:,.0f} {name}" if name == "B" or value >= 99.95 else f"{value:.1f} {name}"


def byte_unit(count: float) -> tuple[int, str]:
    """Return the largest unit that is not above the count, and its name."""
    for power, name in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count >= 1024**power:
            return 1024**power, name
    return 1, "B"
