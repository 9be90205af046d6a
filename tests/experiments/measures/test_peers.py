"""Which allocators are found, what they add to an environment, and what a command used."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from experiments.measures import usage


def test_what_a_command_used_is_its_own(tmp_path: Path) -> None:
    result = tmp_path / "usage.json"
    grow = "block = bytearray(64 << 20); block[::4096] = b'x' * (len(block) // 4096)"
    used = []
    for program in ("pass", grow, "raise SystemExit(3)"):
        command = [sys.executable, "-I", "-S", usage.__file__, str(result)]
        subprocess.run([*command, sys.executable, "-I", "-S", "-c", program], check=True)
        used.append(json.loads(result.read_text()))
    little, much, failed = used
    assert (little["status"], failed["status"]) == (0, 3)
    assert 0 < little["rss"] < 32 << 20  # not this process's
    assert much["rss"] - little["rss"] > 60 << 20
    assert much["faults"] > little["faults"] > 0
    assert little["cpu"] > 0
