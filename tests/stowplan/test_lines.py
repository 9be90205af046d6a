"""tools/lines.py over a small checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tools.lines import count, excess, files, limits, table

PACK = '''"""Place blocks.

A comment has no code in it.
"""

SIZE = 1  # bytes
"""How large."""

# nothing
def pack(text="""
    x # in a string
"""):
    """Do it."""
    return [
        """in a list""",
        """
        last
        """
    ]
'''


def test_code_is_counted_by_room_and_language(tmp_path: Path) -> None:
    for name, text in {
        ".gitignore": "*.so\nbuild/\n",
        "packing/pack.py": PACK,
        "packing/_solvers.pyx": "cdef int a  # a comment\n\n# another\n",
        "packing/core/best_fit.cpp": "a;\n" * 2000 + '// no\n/* no\n   no */\n\nb = "//"; // yes\n',
        "packing/README.rst": "no program\n",
        "build/made.cpp": "ignored\n",
        "tests/packing/test_pack.py": "a\nb\nc",
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
        ("packing", "Python"): 10,
        ("packing", "Cython"): 1,
        ("packing", "C++"): 2001,
        ("tests", "Python"): 3,
        ("tests/device", "C++"): 1,
        ("experiments", "Python"): 1,
        (".", "Python"): 1,
    }
    most = limits("# at most\npacking 2,011  # a reason\ntests 3\ntests/device 1\nexperiments 1\n. 1\n")
    rows = {row.split()[0]: row.split()[1:] for row in table(lines, most).splitlines()}
    assert rows["product"] == ["10", "1", "2,001", "2,012", "2,011"]
    assert rows["tests"] == ["3", "0", "0", "3", "3"]
    assert excess(lines, most) == ["packing: 2,012 lines of code; expected at most 2,011 (tools/lines.txt)"]
