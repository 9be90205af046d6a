"""The tables of the papers have the published cells, and the command writes them."""

from __future__ import annotations

import re
from importlib import import_module
from itertools import islice

import pytest
from click.testing import CliRunner

from experiments.papers import __main__ as command
from experiments.papers import nntrainer, somas
from stowplan.packing import pack

from ..children import ROOT

RESULTS = ROOT / "docs" / "results"


def cells(name: str, first: int = 0, last: int | None = None) -> list[dict[str, dict[str, str]]]:
    """The tables of a paper, or some of them: row's title to column to cell."""
    module = import_module(f"experiments.papers.{name}")
    return [
        {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
        for table in islice(module.tables(quick=True), first, last)
    ]


def test_pisarchyk_and_lee() -> None:
    pytest.importorskip("scipy", reason="SciPy is not installed; expected: pip install scipy")
    offsets, objects = cells("pisarchyk_lee")
    assert len(offsets) == 4
    assert len(objects) == 6
    exact = {"mobilenet_v1", "mobilenet_v2", "deeplab_v3", "posenet"}

    def differing(table: dict[str, dict[str, str]]) -> set[tuple[str, str]]:
        return {(title, network) for title, row in table.items() for network in exact if "(" in row[network]}

    strip = "strip packing (Sekiyama)"
    assert differing(offsets) == {(strip, "mobilenet_v2"), (strip, "deeplab_v3")}
    assert offsets[strip]["deeplab_v3"] == "4.320 (4.321)"
    assert differing(objects) == {
        ("by size improved", "mobilenet_v2"),
        ("by breadth", "mobilenet_v1"),
        ("by breadth", "mobilenet_v2"),
        ("by breadth", "posenet"),
        ("min-cost flow (Lee et al. 2019)", "deeplab_v3"),
    }
    assert objects["by size improved"]["deeplab_v3"] == "6.437"
    assert objects["by size improved"]["mobilenet_v2"] == "6.699 (6.891)"


TIMED = re.compile(r"CPU|seconds|\ds$|^less \(44")
"""Columns that depend on the machine."""
SAME = {"sekiyama": None, "olla": 1, "pisarchyk_lee": None, "nntrainer": 3, "somas": 2}
"""Papers whose quick tables, the first so many, do not depend on it otherwise."""


def committed(name: str) -> dict[str, dict[str, dict[str, str]]]:
    """The tables of a paper in docs/results: title to row's title to column to cell."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for part in (RESULTS / f"papers_{name}.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        title, *lines = part.splitlines()
        rows = [
            [cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("|")
        ]
        found[title] = {row[0]: dict(zip(rows[0], row, strict=True)) for row in rows[2:]}
    return found


@pytest.mark.parametrize("name", SAME)
def test_quick_figures_are_those_of_the_committed_tables(name: str) -> None:
    pytest.importorskip("scipy", reason="SciPy is not installed; expected: pip install scipy")
    module, compared = import_module(f"experiments.papers.{name}"), 0
    for table in islice(module.tables(quick=True), SAME[name]):
        for row in table.rows:
            cells = dict(zip((column.strip() for column in table.columns), row, strict=True))
            there = committed(name)[table.title][row[0]]
            kept = {column for column in cells if not TIMED.search(column)}
            assert {column: there[column] for column in kept} == {
                column: cells[column].strip() for column in kept
            }
            compared += len(kept)
    assert compared > 5


def test_nntrainer() -> None:
    pytest.importorskip("chainer", reason="Chainer is not installed")
    components, planned, swapped = cells("nntrainer", 0, 3)
    assert {row["needed"] for row in components.values()} >= {"65,856", "390,584", "84,710"}
    assert [*planned["VGG16"].values()] == ["VGG16", "149.8", "1.005", "1.003", "1.000", "1.000"]
    vgg16 = swapped["VGG16, 32 x 32"]  # the paper's figures in brackets
    whole, ahead, demand, _, _, slower, slowest = list(vgg16.values())[1:8]
    assert (whole, ahead, demand) == ("149.8 (170.0)", "48.3 (60.0)", "32.1 (40.0)")
    assert (slower, slowest) == ("1.13 (1.20)", "1.29 (1.35)")
    assert set(swapped) == {*nntrainer.NETWORKS}
    for row in swapped.values():
        plain, ahead, on_demand = (float(cell.split()[0]) for cell in list(row.values())[1:4])
        assert plain > ahead > on_demand
    transformer = swapped["Transformer"]  # the paper: a twentieth
    assert float(transformer["ahead"]) < float(transformer["no swap, MiB"]) / 20


def test_somas() -> None:
    decided, placed, pairs = cells("somas")
    assert {name: row["forbidden pairs"] for name, row in decided.items()} == {"alexnet_b1_train": "57"}
    assert placed["alexnet_b1_train"]["arena / bound"] == "1.000"
    assert float(placed["alexnet_b1_train"]["a stream an arena, MiB"]) > 235.2
    assert set(pairs) == {"0"}


@pytest.mark.parametrize("name", somas.PUBLISHED)
def test_somas_own_tensors_are_at_the_bound(name: str) -> None:
    assert pack(somas.published(name)).optimal


def test_revbifpn() -> None:
    pytest.importorskip("chainer", reason="Chainer is not installed")
    (networks,) = cells("revbifpn")
    shallow, deep = (networks[f"3 resolutions, depth {depth}"] for depth in (1, 2))
    assert float(deep["ratio"][:-1]) > float(shallow["ratio"][:-1])
    assert float(deep["float64: worst tensor"]) < 1e-12


def test_the_command_writes_each_papers_tables(tmp_path) -> None:
    said = CliRunner().invoke(command.main, ["sekiyama", "somas", "--quick", "--out", str(tmp_path)])
    assert said.exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["papers_sekiyama.md", "papers_somas.md"]
    assert "| googlenet | 12,202,496 |" in (tmp_path / "papers_sekiyama.md").read_text()
