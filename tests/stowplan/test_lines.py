"""tools/lines.py over a small checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tools.lines import count, files, table


def test_lines_are_counted_by_room_and_language(tmp_path: Path) -> None:
    for name, text in {
        ".gitignore": "*.so\nbuild/\n",
        "packing/pack.py": "a\nb\n",
        "packing/_solvers.pyx": "a\n",
        "packing/core/best_fit.cpp": "a\n" * 2000,
        "packing/README.rst": "no program\n",
        "build/made.cpp": "ignored\n",
        "tests/packing/test_pack.py": "a\nb\nc",  # the last line has no end: `wc -l` does not count it
        "tests/device/hip/stream.hpp": "a\n",
        "experiments/time.py": "a\n",
        "setup.py": "a\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "stowplan").mkdir()
    (tmp_path / "stowplan" / "packing").symlink_to("../packing")
    (tmp_path / "stowplan" / "alias.py").symlink_to("../packing/pack.py")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)

    lines = count(tmp_path, files(tmp_path))

    assert lines == {
        ("packing", "Python"): 2,
        ("packing", "Cython"): 1,
        ("packing", "C++"): 2000,
        ("tests", "Python"): 2,
        ("tests/device", "C++"): 1,
        ("experiments", "Python"): 1,
        (".", "Python"): 1,
    }
    rows = {row.split()[0]: row.split()[1:] for row in table(lines).splitlines()}
    assert rows["product"] == ["2", "1", "2,000", "2,003"]
    assert rows["tests"] == ["2", "0", "0", "2"]
    assert rows["tests/device"] == ["0", "0", "1", "1"]
