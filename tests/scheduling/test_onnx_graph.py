"""Step graphs from ONNX files that onnx's own helpers make."""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from stowplan.errors import FormatError, MissingDependencyError
from stowplan.scheduling import StepGraph, as_recorded, read_graph, simulate

from ..stowplan.command_line import figures, refused

onnx = pytest.importorskip("onnx", reason="onnx is not installed; expected: pip install 'stowplan[onnx]'")


FLOAT, INT64 = 1, 7  # TensorProto.DataType


def info(name: str, *shape: Any, kind: int = FLOAT) -> Any:
    return onnx.helper.make_tensor_value_info(name, kind, list(shape))


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return onnx.helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def ints(name: str, *values: int) -> Any:
    return onnx.helper.make_tensor(name, INT64, [len(values)], values)


def weight(name: str, *shape: int, kind: int = FLOAT) -> Any:
    tensor = onnx.TensorProto(name=name, data_type=kind, dims=shape)
    tensor.data_location = onnx.TensorProto.EXTERNAL  # in a file beside it, which is not there
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "weights.bin"
    return tensor


def saved(
    path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: tuple[Any, ...] = ()
) -> Path:
    graph = onnx.helper.make_graph(nodes, "test", inputs, outputs, weights)
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("own", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "net.onnx"


def network(file: Path, batch: Any = 2) -> Path:
    """Two layers, a reshape between them."""
    nodes = [
        node("Conv", "x w", "h", name="conv"),
        node("Relu", "h", "r", name="relu"),
        node("Reshape", "r shape", "f", name="reshape"),
        node("Gemm", "f v", "y", name="gemm"),
    ]
    weights = (weight("w", 4, 3, 3, 3), weight("v", 144, 5), ints("shape", -1, 144))
    return saved(file, nodes, [info("x", batch, 3, 8, 8)], [info("y", None, 5)], weights)


def sizes(graph: StepGraph) -> dict[str, int]:
    return {graph.name[v]: int(graph.size[graph.storage[v]]) for v in range(graph.values)}


def test_a_network(file: Path) -> None:
    graph = read_graph(network(file))
    assert graph.label == ("conv", "relu", "reshape", "gemm")
    h = 2 * 4 * 6 * 6 * 4
    assert sizes(graph) == {"w": 432, "v": 2880, "shape": 16, "x": 1536, "h": h, "r": h, "f": h, "y": 40}
    assert {graph.name[v] for v in range(graph.values) if graph.resident[v]} == {"w", "v", "shape", "x"}
    r, f, y = (graph.name.index(name) for name in "rfy")
    assert graph.storage[f] == r
    assert graph.kept.tolist() == [v == y for v in range(graph.values)]
    assert simulate(graph, as_recorded(graph)).peak == 2 * h


def test_a_view_of_what_stays_is_copied_where_it_is_a_result(file: Path) -> None:
    nodes = [node("Identity", "x", "a"), node("Relu", "a", "y"), node("Identity", "x", "z")]
    graph = read_graph(saved(file, nodes, [info("x", 4)], [info("y", 4), info("z", 4)]))
    x, a, z = (graph.name.index(name) for name in "xaz")
    assert (graph.storage[a], graph.storage[z], graph.size[z], graph.kept[z]) == (x, z, 16, True)


@pytest.mark.parametrize(
    ("kind", "count", "expected"),
    [
        ("FLOAT16", 3, 6),
        ("BFLOAT16", 3, 6),
        ("BOOL", 3, 3),
        ("INT4", 3, 2),
        ("COMPLEX128", 3, 48),
        ("DOUBLE", 0, 0),
    ],
)
def test_bytes_of_an_element(file: Path, kind: str, count: int, expected: int) -> None:
    number = onnx.TensorProto.DataType.Value(kind)
    nodes = [node("Identity", "w", "a"), node("Relu", "x", "y")]
    graph = read_graph(saved(file, nodes, [info("x", 1)], [info("y", 1)], (weight("w", count, kind=number),)))
    assert sizes(graph)["w"] == expected


def test_constants_and_outputs_without_a_name(file: Path) -> None:
    constant = onnx.helper.make_node(
        "Constant", [], ["c"], value=onnx.helper.make_tensor("c", FLOAT, [4], [1.0] * 4)
    )
    dropout = onnx.helper.make_node("Dropout", ["s"], ["y", ""])
    graph = read_graph(
        saved(file, [constant, node("Add", "x c", "s"), dropout], [info("x", 4)], [info("y", 4)])
    )
    assert graph.label == ("Add (node 1)", "Dropout (node 2)")
    assert graph.resident[graph.name.index("c")]
    assert graph.repeatable.all()
    s, y = (graph.name.index(name) for name in "sy")
    assert graph.storage[y] == s


def test_dropout_that_trains_is_no_view(file: Path) -> None:
    train = onnx.helper.make_tensor("t", 9, [], [True])
    dropout = onnx.helper.make_node("Dropout", ["s", "", "t"], ["y"])
    graph = read_graph(
        saved(file, [node("Relu", "x", "s"), dropout], [info("x", 4)], [info("y", 4)], (train,))
    )
    assert graph.repeatable.tolist() == [True, False]
    assert graph.storage.tolist() == list(range(graph.values))


def test_every_network_that_onnx_brings_along() -> None:
    networks = sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx"))
    if not networks:
        pytest.skip("this onnx has no networks in backend/test/data/light; expected some")
    for path in networks:
        graph = read_graph(path)
        assert simulate(graph, as_recorded(graph)).peak > 2**20, path


def test_branches_are_workspace(file: Path) -> None:
    def branch(name: str, op: str) -> Any:
        nodes = [node(op, "s", f"{name}1"), node(op, f"{name}1", f"{name}2")]
        return onnx.helper.make_graph(nodes, name, [], [info(f"{name}2", 4)])

    nodes = [
        node("Relu", "x", "s"),
        onnx.helper.make_node(
            "If", "c", "y", then_branch=branch("t", "Relu"), else_branch=branch("e", "Exp")
        ),
    ]
    graph = read_graph(saved(file, nodes, [info("x", 4), info("c", kind=9)], [info("y", 4)]))
    s = graph.name.index("s")
    assert s in graph.reads[1]
    assert graph.workspace.tolist() == [0, 32]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("Relu", "q", "y")], "Relu (node 0): unknown tensor 'q'"),
        ([node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b", "y")], "before Relu (node 1)"),
        ([node("Relu", "x", "y"), node("Exp", "x", "y")], "tensor 'y' is made twice"),
        (
            [node("NonZero", "x", "i"), node("Cast", "i", "y", to=FLOAT)],
            "tensor 'i' of NonZero (node 0): dimension 1 is unknown; expected --dimension 'i[1]=N'",
        ),
        (
            [node("Own", "x", "a", domain="own"), node("Relu", "a", "y")],
            "'a' of Own (node 0) has no known shape",
        ),
        (
            [node("SequenceConstruct", "x x", "q"), node("Relu", "x", "y")],
            "a sequence; expected a dense tensor",
        ),
    ],
)
def test_what_cannot_be_read_is_named(file: Path, nodes: list[Any], message: str) -> None:
    with pytest.raises(FormatError, match=re.escape(message)):
        read_graph(saved(file, nodes, [info("x", 4)], [info("y", 4)]))


@pytest.mark.parametrize(
    ("shape", "dimensions"),
    [(["batch", 4], {"batch": 2, "i[1]": 8}), ([None, 4], {"x[0]": 2, "i[1]": 8}), ([2, 4], {"i[1]": 8})],
)
def test_open_dimensions_are_set_by_the_name_that_the_refusal_says(
    file: Path, shape: list[Any], dimensions: dict[str, int]
) -> None:
    nodes = [node("Relu", "x", "r"), node("NonZero", "r", "i"), node("Cast", "i", "y", to=FLOAT)]
    saved(file, nodes, [info("x", *shape)], [info("y", 2, None)])
    given: dict[str, int] = {}
    for name, number in dimensions.items():
        with pytest.raises(FormatError, match=re.escape(f"--dimension '{name}=N'")):
            read_graph(file, given)
        given[name] = number
    assert sizes(read_graph(file, given)) == {"x": 32, "r": 32, "i": 128, "y": 64}
    words = [word for name, number in given.items() for word in ("--dimension", f"{name}={number}")]
    assert figures("order", file, *words)["peak"] == 192
    assert figures("schedule", file, *words)["lean_peak"] == 192


def test_dimensions_that_are_not_open_are_refused(file: Path) -> None:
    network(file, "batch")
    for name in ("rows", "x[1]", "unk__0"):
        with pytest.raises(FormatError, match=re.escape(f"no dimension '{name}' is open; the file names")):
            read_graph(file, {"batch": 2, name: 3})
    file.with_suffix(".json").write_text("{}")
    with pytest.raises(FormatError, match=r"does not end in \.onnx; expected no dimensions"):
        read_graph(file.with_suffix(".json"), {"batch": 2})
    assert "'batch'; expected NAME=N" in refused("order", file, "--dimension", "batch")


COMPUTED = {
    # What PyTorch writes for x.expand(2, -1, -1).
    "Expand": [
        node("ConstantOfShape", "three", "ones", value=ints("v", 1)),
        node("Mul", "ones minus", "all"),
        node("Equal", "wanted all", "kept"),
        node("Where", "kept ones wanted", "shape"),
        node("Expand", "x shape", "z"),
    ],
    # One after the other: each shape is known once the one before is.
    "Reshape": [
        node("Shape", "x", "s"),
        node("Neg", "s", "n"),
        node("Abs", "n", "p"),
        node("Reshape", "x p", "h"),
        node("Shape", "h", "t"),
        node("ReduceProd", "t", "q", keepdims=1),
        node("ConstantOfShape", "q", "z"),
    ],
}


@pytest.mark.parametrize(("last", "expected"), [("Expand", 32), ("Reshape", 16)])
def test_shapes_that_are_computed_from_constants_and_shapes(file: Path, last: str, expected: int) -> None:
    weights = ints("wanted", 2, 2, 2), ints("three", 3), ints("minus", -1)
    nodes = [*COMPUTED[last], node("Cast", "z", "y", to=FLOAT)]
    graph = read_graph(saved(file, nodes, [info("x", 2, 2)], [info("y")], weights))
    assert sizes(graph)["z"] == expected
    assert len(graph) == len(nodes)  # what computes a shape is still in the step


def test_nothing_large_is_computed_on_the_way_to_a_shape(file: Path) -> None:
    nodes = [
        node("Abs", "wanted", "s"),
        node("ConstantOfShape", "s", "z"),
        node("Shape", "z", "t"),
        node("Cast", "t", "y", to=FLOAT),
    ]
    graph = read_graph(saved(file, nodes, [info("x", 1)], [info("y", 2)], (ints("wanted", -(10**9), 10**9),)))
    assert sizes(graph)["z"] == 4 * 10**18


@pytest.mark.parametrize("content", [b"", b"\xff\xff\xff", b"{}", b"PK\x03\x04"])
def test_foreign_files(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(FormatError, match="not an ONNX file, or a truncated one"):
        read_graph(file)


def test_truncated_anywhere(file: Path) -> None:
    content = network(file).read_bytes()
    read = 0
    for end in range(0, len(content), 7):
        file.write_bytes(content[:end])
        with contextlib.suppress(FormatError):
            read_graph(file)
            read += 1
    assert read < 10  # where only what nobody needs is missing


def test_without_onnx(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network(file)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingDependencyError, match=r"\[onnx\]"):
        read_graph(file)
