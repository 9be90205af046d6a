"""Count the lines of Python, Cython and C++: ``python -m tools.lines``, or ``make lines``.

Counted are the files that git tracks, or would if they were added; symbolic links are not followed. A line is what
``wc -l`` counts. The simulated device and the golden streams are counted apart from the tests beside them.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LANGUAGES = {
    **dict.fromkeys((".py", ".pyi"), "Python"),
    **dict.fromkeys((".pyx", ".pxd", ".pxi"), "Cython"),
    **dict.fromkeys((".cpp", ".hpp", ".h"), "C++"),
}
PRODUCT = (*(ROOT / "tools" / "rooms.txt").read_text().split(), "stowplan")
APART = ("tests/device", "tests/golden")
"""Folders of the tests with a total of their own."""


def files(root: Path) -> list[Path]:
    """Return the paths, relative to the root, of the files of a checkout that git does not ignore."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    out = subprocess.run(listed, cwd=root, check=True, capture_output=True, text=True).stdout
    return [Path(name) for name in out.split("\0") if name]


def count(root: Path, paths: Iterable[Path]) -> Counter[tuple[str, str]]:
    """Return the number of lines by room and language. O(bytes of the files)."""
    lines: Counter[tuple[str, str]] = Counter()
    for path in paths:
        file = root / path
        if path.suffix in LANGUAGES and file.is_file() and not file.is_symlink():
            lines[room_of(path), LANGUAGES[path.suffix]] += file.read_bytes().count(b"\n")
    return lines


def room_of(path: Path) -> str:
    """Return the folder that a file is counted under: the outermost one, but for those in `APART`."""
    inner = "/".join(path.parts[:2])
    return inner if inner in APART else path.parts[0] if len(path.parts) > 1 else "."


def table(lines: Counter[tuple[str, str]]) -> str:
    """Return the counts as text: a line for each room, and a total for the product and for the tests."""
    languages = list(dict.fromkeys(LANGUAGES.values()))
    found = {room for room, _ in lines}
    rest = sorted(found - {*PRODUCT, "tests", *APART})

    def row(title: str, rooms: Iterable[str]) -> str:
        by_language = [sum(lines[room, language] for room in rooms) for language in languages]
        return f"{title:<16}" + "".join(f"{n:>9,}" for n in (*by_language, sum(by_language)))

    return "\n".join(
        [
            " " * 16 + "".join(f"{title:>9}" for title in (*languages, "all")),
            *(row(f"  {room}", [room]) for room in PRODUCT),
            row("product", PRODUCT),
            row("tests", ["tests"]),
            *(row(room, [room]) for room in (*APART, *rest)),
        ]
    )


if __name__ == "__main__":
    sys.stdout.write(table(count(ROOT, files(ROOT))) + "\n")
