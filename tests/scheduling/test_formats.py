"""Step graphs from files: opgraph-1, ours, and what is neither."""

from __future__ import annotations

import copy
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stowplan.errors import FormatError
from stowplan.scheduling import Phase, as_recorded, simulate
from stowplan.scheduling.formats import read_graph

DATA = Path(__file__).resolve().parents[1] / "data" / "graphs"


def node(name: str, inputs: list[int], *outputs: tuple[int, int, int | None], **more: Any) -> dict[str, Any]:
    """A node; of each output its id, its bytes, and what it is an alias of."""
    made = [{"id": identity, "bytes": size, "alias_of": base} for identity, size, base in outputs]
    own = {"name": name, "phase": "forward", "inputs": inputs, "outputs": made, "in_place": "writes" in more}
    return {**own, **more}


SMALL: dict[str, Any] = {
    "format": "opgraph-1",
    "resident": [{"id": 0, "bytes": 40, "kind": "parameter", "name": "weight"}],
    "nodes": [
        node("mm", [0], (7, 8, None)),
        node("relu_", [7], (8, 0, 7), writes=[7]),
        node("view", [8], (9, 0, 8)),
        node("dropout", [9], (3, 5, None), rng=True),
        node("sgd", [0, 3], phase="update", writes=[0], after=[0]),
    ],
    "outputs": [3],
}


def write(path: Path, data: Any) -> Path:
    path.write_text(json.dumps(data))
    return path


def test_reads_nodes_aliases_and_changes_in_place(tmp_path: Path) -> None:
    graph = read_graph(write(tmp_path / "small.json", SMALL))
    assert graph.label == ("mm", "relu_", "view", "dropout", "sgd")
    assert graph.name[0] == "weight"
    assert graph.reads.rows() == [[0], [1, 1], [2], [3], [0, 4, 0]]
    assert graph.writes.rows() == [[1], [1, 2], [3], [4], [0]]
    assert graph.storage.tolist() == [0, 1, 1, 1, 4]  # an alias of an alias shares the base's
    assert graph.size.tolist() == [40, 8, 0, 0, 5]
    assert graph.resident.tolist() == [True, False, False, False, False]
    assert graph.kept.tolist() == [False, False, False, False, True]
    assert graph.after.rows()[4] == [0]
    assert graph.phase.tolist() == [Phase.FORWARD] * 4 + [Phase.UPDATE]
    assert graph.repeatable.tolist() == [True, False, True, False, False]
    assert simulate(graph, as_recorded(graph)).live.tolist() == [8, 8, 8, 13, 5]


def test_what_a_file_is_its_first_bytes_say(tmp_path: Path) -> None:
    plain = read_graph(write(tmp_path / "small.json", SMALL))
    (tmp_path / "packed").write_bytes(gzip.compress(json.dumps(SMALL).encode()))
    plain.save(tmp_path / "own")
    for other in (read_graph(tmp_path / "packed"), read_graph(tmp_path / "own")):
        assert other.reads.rows() == plain.reads.rows()
        assert other.storage.tolist() == plain.storage.tolist()
        assert other.label == plain.label


def change(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def apply(data: dict[str, Any]) -> None:
        *way, last = [int(key) if key.isdigit() else key for key in path.split(".")]
        at: Any = data
        for key in way:
            at = at[key]
        at[last] = value

    return apply


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("format", "opgraph-9", "format 'opgraph-9'; expected 'opgraph-1'"),
        ("nodes", 3, "nodes is int; expected a list"),
        ("nodes.0", 3, "nodes has 3; expected objects"),
        ("nodes.1.inputs", [70], "relu_: unknown tensor 70"),
        ("nodes.1.inputs", ["7"], "relu_: inputs has '7'; expected integers"),
        ("nodes.0.inputs", [9], "mm asks for tensor 9 before view makes it .a cycle"),
        ("nodes.0.outputs.0.bytes", -8, "tensor 7: -8 bytes; expected 0 or more"),
        ("nodes.0.outputs.0.bytes", 1.5, "tensor|output.*bytes 1.5; expected an integer"),
        ("nodes.0.outputs.0.id", 0, "the id 0 is used twice"),
        ("nodes.2.outputs.0.alias_of", 55, "tensor 9 of view: unknown tensor 55"),
        ("nodes.2.outputs.0.alias_of", 9, "tensor 9 before view makes it"),
        ("nodes.2.outputs.0.alias_of", "x", "alias_of 'x'; expected an id or null"),
        ("nodes.0.phase", "sideways", "mm: phase 'sideways'; expected forward, backward, update"),
        ("nodes.4.after", [4], "sgd comes after node 4, which is not before it"),
        ("nodes.4.after", [-1], "sgd comes after node -1"),
        ("outputs", [99], "the file's outputs: unknown tensor 99"),
        ("resident.0.bytes", -1, "weight: -1 bytes"),
    ],
)
def test_names_what_is_wrong(tmp_path: Path, path: str, value: Any, message: str) -> None:
    data = copy.deepcopy(SMALL)
    change(path, value)(data)
    with pytest.raises(FormatError, match=message) as error:
        read_graph(write(tmp_path / "wrong.json", data))
    assert "wrong.json" in str(error.value)


@pytest.mark.parametrize("key", ["nodes", "resident", "outputs"])
def test_misses_what_is_missing(tmp_path: Path, key: str) -> None:
    data = {k: v for k, v in SMALL.items() if k != key}
    with pytest.raises(FormatError, match=f"{key} is NoneType"):
        read_graph(write(tmp_path / "wrong.json", data))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "neither a step graph nor JSON"),
        (b"\xff\xfe\x00", "neither a step graph nor JSON"),
        (b"[1, 2]", "a text file; expected 'opgraph-1'"),
        (b'{"traceEvents": []}', "a Chrome trace .*; expected 'opgraph-1'"),
        (b'{"format": "opgraph-1", ', "neither a step graph nor JSON"),
        (gzip.compress(json.dumps(SMALL).encode())[:-20], "not a gzip file, or a truncated one"),
        (b"\x1f\x8b" + b"x" * 40, "not a gzip file, or a truncated one"),
        (b"PK\x03\x04 nothing", "."),
    ],
)
def test_refuses_what_is_no_graph(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "wrong").write_bytes(content)
    with pytest.raises(FormatError, match=message):
        read_graph(tmp_path / "wrong")


def table() -> dict[str, tuple[int, int]]:
    """Nodes and the peak of PyTorch's own order, from the table beside the graphs."""
    rows = (DATA / "README.md").read_text(encoding="utf-8").splitlines()
    found = (re.match(r"\| (\w+) \| (\d+) \| ([\d,]+) \|", row) for row in rows)
    return {row[1]: (int(row[2]), int(row[3].replace(",", ""))) for row in found if row}


@pytest.mark.parametrize("name", sorted(table()))
def test_traced_networks_have_the_peaks_of_their_own_order(name: str) -> None:
    nodes, peak = table()[name]
    graph = read_graph(DATA / f"{name}.json.gz")
    assert len(graph) == nodes
    assert simulate(graph, as_recorded(graph)).peak == peak
