"""Which allocators are found, what they add to an environment, and what a command used."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.measures import peers, usage


def test_what_is_there_is_available_and_what_is_not_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries = {
        "mimalloc": ("libunderstowage.so.4", "libunderstowage.so.2"),
        "tcmalloc": ("libunderstowage.so.3",),
    }
    monkeypatch.setattr(peers, "LIBRARIES", libraries)
    monkeypatch.setattr(peers.platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{tmp_path}")
    (tmp_path / "libunderstowage.so.2").touch()
    assert peers.available() == {
        "mimalloc": {"LD_PRELOAD": str(tmp_path / "libunderstowage.so.2")},
        peers.TUNED_GLIBC: peers.VARIABLES,
    }
    (line,) = peers.missing()
    assert "tcmalloc is left out: expected libunderstowage.so.3" in line
    assert "libtcmalloc-minimal4" in line
    monkeypatch.setattr(peers.platform, "libc_ver", lambda: ("", ""))  # musl, macOS
    assert peers.TUNED_GLIBC not in peers.available()


def test_allocators_of_this_process_are_not_the_child_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("MALLOC_TOP_PAD_", "4096")
    assert peers.is_chosen()
    assert "LD_PRELOAD" not in peers.environment({})
    assert peers.environment({"MALLOC_TOP_PAD_": "1"})["MALLOC_TOP_PAD_"] == "1"


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
