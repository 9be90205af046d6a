"""Count the lines of code by room, and hold them against ``tools/lines.txt``: ``make lines``.

Counted are the files that git tracks, or would if they were added; symbolic links are not followed. A line of code has
something on it beside comments and docstrings (of attributes, too). The exit status is 1 where a room has more lines
than ``lines.txt`` allows. The simulated device and the golden streams are counted apart from the tests beside them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = re.compile(
    r'(?<![(,[{]\n)^[ \t]*r?"""(?:\\.|[^\\])*?"""[ \t]*$'  # a string that is a statement
    r'|("""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*"|' + r"'''(?:\\.|[^\\])*?'''|'(?:\\.|[^'\\\n])*')|#.*",
    re.MULTILINE,
)
CPP = re.compile(r'("(?:\\.|[^"\\\n])*"|' + r"'(?:\\.|[^'\\\n])')|//.*|/\*(?:.|\n)*?\*/")
LANGUAGES = {
    ".py": ("Python", PYTHON),
    **dict.fromkeys((".pyx", ".pxd", ".pxi"), ("Cython", PYTHON)),
    **dict.fromkeys((".cpp", ".hpp", ".h"), ("C++", CPP)),
}
"""By suffix: a language, and what is in its files strings (the pattern's group) or no code."""
ROOMS = (ROOT / "tools" / "rooms.txt").read_text().split()
PRODUCT = (*dict.fromkeys(room.split("/")[0] for room in ROOMS), "stowplan")
APART = ("tests/device", "tests/golden")
"""Folders of the tests with a total of their own."""


def files(root: Path) -> list[Path]:
    """Return the paths, relative to the root, of the files of a checkout that git does not ignore."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    out = subprocess.run(listed, cwd=root, check=True, capture_output=True, text=True).stdout
    return [Path(name) for name in out.split("\0") if name]


def count(root: Path, paths: Iterable[Path]) -> Counter[tuple[str, str]]:
    """Return the number of lines of code by room and language. O(bytes of the files)."""
    lines: Counter[tuple[str, str]] = Counter()
    for path in paths:
        file = root / path
        if path.suffix in LANGUAGES and file.is_file() and not file.is_symlink():
            language, comments = LANGUAGES[path.suffix]
            code = comments.sub(lambda found: found[1] or "", file.read_text())
            lines[room_of(path), language] += sum(not line.isspace() for line in code.splitlines() if line)
    return lines


def room_of(path: Path) -> str:
    """Return the folder that a file is counted under: the outermost one, but for those in `APART`."""
    inner = "/".join(path.parts[:2])
    return inner if inner in APART else path.parts[0] if len(path.parts) > 1 else "."


def limits(text: str) -> dict[str, int]:
    """Return the most lines that each room may have, from the text of ``lines.txt``."""
    rows = (line.split("#")[0].split() for line in text.splitlines())
    return {row[0]: int(row[1].replace(",", "")) for row in rows if row}


def table(lines: Counter[tuple[str, str]], most: Mapping[str, int]) -> str:
    """Return the counts as text: a line for each room, and a total for the product."""
    languages = list(dict.fromkeys(language for language, _ in LANGUAGES.values()))
    rest = sorted({room for room, _ in lines} - set(PRODUCT))

    def row(title: str, rooms: Iterable[str]) -> str:
        by_language = [sum(lines[room, language] for room in rooms) for language in languages]
        allowed = sum(most.get(room, 0) for room in rooms)
        return f"{title:<16}" + "".join(f"{n:>9,}" for n in (*by_language, sum(by_language), allowed))

    return "\n".join(
        [
            " " * 16 + "".join(f"{title:>9}" for title in (*languages, "all", "at most")),
            *(row(f"  {room}", [room]) for room in PRODUCT),
            row("product", PRODUCT),
            *(row(room, [room]) for room in rest),
        ]
    )


def excess(lines: Counter[tuple[str, str]], most: Mapping[str, int]) -> list[str]:
    """Return a sentence for each room that has more lines than it may."""
    totals: Counter[str] = Counter()
    for (room, _), n in lines.items():
        totals[room] += n
    return [
        f"{room}: {n:,} lines of code; expected at most {most.get(room, 0):,} (tools/lines.txt)"
        for room, n in totals.items()
        if n > most.get(room, 0)
    ]


def main() -> int:
    """Print the table, and what is above its limit; return the exit status."""
    lines, most = count(ROOT, files(ROOT)), limits((ROOT / "tools" / "lines.txt").read_text())
    above = excess(lines, most)
    sys.stdout.write(table(lines, most) + "\n")
    sys.stderr.writelines(f"stowplan: {line}\n" for line in above)
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
