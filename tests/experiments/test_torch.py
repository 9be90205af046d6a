"""Workers' answers become rows, tables and verdicts; what is not installed is said."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from experiments.measures import peers
from experiments.torch import __main__ as command
from experiments.torch import measure
from experiments.torch.measure import GLIBC, OURS, WARMUP

STATS = {"requests": 100, "replayed": 60, "arena_bytes": 4096, "fragmentation": 0.0}


def answers(cpu: list[float], faults: int, digest: str = "a", pool: bool = False) -> list[dict[str, Any]]:
    """Return a worker's answers: to the warm-up, to a turn of two steps for each of `cpu`, at the end."""
    found: list[dict[str, Any]] = []
    for number, seconds in enumerate([9.0] * len(WARMUP) + cpu):
        counted = max(number - len(WARMUP) + 1, 0)
        stats = STATS | {"requests": 100 + 100 * counted, "replayed": 60 + 99 * counted}
        turn = {"steps": 2, "cpu": seconds, "faults": faults, "peak": 10 * faults, "losses": str(number)}
        found.append(turn | ({"pool": stats} if pool else {}))
    return [*found, {"digest": digest}]


def rounds(digest: str = "a", faults: int = 1) -> list[dict[str, list[dict[str, Any]]]]:
    return [
        {
            GLIBC: answers([1.0, 2.0, 4.0], 1000),
            OURS: answers([0.9 * factor, 1.8 * factor, 8.0], faults, digest, pool=True),
            "jemalloc": answers([2.0, 4.0, 8.0], 2000),
        }
        for factor in (1.0, 1.0, 2.0)
    ]


def test_ratios_are_those_of_a_turn_then_of_a_round() -> None:
    row = measure.compare(rounds())
    assert (row["rounds"], row["turns"], row["identical"]) == (3, 3, True)
    assert row[f"cpu_{OURS}"] == pytest.approx(0.9)
    assert row["cpu_jemalloc"] == 2
    assert row["over_jemalloc"] == pytest.approx(0.45)
    assert (row[f"seconds_{GLIBC}"], row[f"count_{GLIBC}"], row["bytes_jemalloc"]) == (1, 500, 20_000)
    assert row[f"replayed_{OURS}"] == pytest.approx(0.99)
    assert (row[f"arena_{OURS}"], row[f"fragmentation_{OURS}"]) == (4096, 0)
    assert "jemalloc: faults" in [column.heading for column in command.columns([row])]
    assert not measure.compare([*rounds(), *rounds("b")])["identical"]


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(peers, "LIBRARIES", {"jemalloc": ("libno.so",)})
    done = CliRunner().invoke(command.main, ["--quick", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "jemalloc is left out: expected libno.so" in done.output
    assert "ResNet-18: left out: no torch; expected: pip install 'stowplan[torch]'" in done.output
    text = (tmp_path / "torch.md").read_text()
    assert "no torch; expected" in text
    assert "jemalloc is left out" in text
