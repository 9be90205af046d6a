"""Read and write numbers, of bytes with units."""

from __future__ import annotations

import re

_UNITS = {"": 1, "b": 1} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate("kmgt", start=1)
    for suffix, base in (("ib", 1024), ("b", 1000))
}


def parse_bytes(text: int | str) -> int:
    """Return the number of bytes of ``4096``, ``"512MiB"`` or ``"1.5 GB"``, rounded down.

    Raises
    ------
    ValueError
        It is no number of bytes, or a negative one.
    """
    if isinstance(text, int) and not isinstance(text, bool) and text >= 0:
        return text
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", str(text).strip().lower())
    if isinstance(text, bool) or found is None or found[2] not in _UNITS:
        raise ValueError(f"{text!r}; expected bytes, like 4096, 512MiB or 16GB")
    return int(float(found[1]) * _UNITS[found[2]])


def parse_share(text: int | str) -> float | None:
    """Return 0.8 of ``"80%"``; None where it is not a percentage.

    Raises
    ------
    ValueError
        It is not above 0% and up to 100%.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", str(text).strip())
    if found is None:
        return None
    if not 0 < float(found[1]) <= 100:
        raise ValueError(f"{text!r}; expected more than 0% and up to 100%")
    return float(found[1]) / 100


def human_bytes(count: float) -> str:
    """Return bytes as text with a unit: ``12.3 MiB``."""
    units = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
    unit, name = next((one for one in units if count >= one[0]), (1, "B"))  # the largest that is not above it
    value = count / unit
    return f"{value:,.0f} {name}" if name == "B" or value >= 99.95 else f"{value:.1f} {name}"


def counted(number: int, noun: str) -> str:
    """Return a number of things as text: ``1 block``, ``1,234 blocks``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"
