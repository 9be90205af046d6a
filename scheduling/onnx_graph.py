"""Step graphs from ONNX files: inference, node by node. Needs the package onnx (``pip install '.[onnx]'`` in a clone).

======================  ========================================================
in the file             in the graph
======================  ========================================================
node                    operator, forward
graph input             resident value
initializer, Constant   resident value
node output             value; its bytes from its inferred shape
graph output            value kept to the end
======================  ========================================================

Reshape, Flatten, Squeeze, Unsqueeze, Identity, and Dropout outside of training, are views, except where a result of the
graph would be a view of what exists before and after the step: that has to be copied. The branches and bodies of If,
Loop and Scan read what their node reads; the most that one of them has alive at once, in the file's order, is the
node's workspace. Functions of the model are inlined. A node that draws random numbers is not repeatable.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

from ..common.errors import FormatError, GraphError, MissingDependencyError
from .formats import TensorNumbers
from .graph import StepGraph
from .schedule import as_recorded
from .simulate import simulate

_VIEWS = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"}
_RANDOM = {
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}

# Bits of an element, by the name of its type; onnx's own table has held other sizes for the small ones.
_BITS = {
    **dict.fromkeys(("COMPLEX128",), 128),
    **dict.fromkeys(("DOUBLE", "INT64", "UINT64", "COMPLEX64"), 64),
    **dict.fromkeys(("FLOAT", "INT32", "UINT32"), 32),
    **dict.fromkeys(("FLOAT16", "BFLOAT16", "INT16", "UINT16"), 16),
    **dict.fromkeys(("BOOL", "INT8", "UINT8", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2"), 8),
    **dict.fromkeys(("FLOAT8E5M2FNUZ", "FLOAT8E8M0"), 8),
    **dict.fromkeys(("FLOAT4E2M1", "INT4", "UINT4"), 4),
    **dict.fromkeys(("INT2", "UINT2"), 2),
}


_SMALL = 1024  # elements of a tensor that shapes may be computed from


def read_onnx(path: str | os.PathLike[str], dimensions: Mapping[str, int] | None = None) -> StepGraph:
    """Read an ONNX file; weights in files next to it are not looked at.

    Parameters
    ----------
    path
        The file.
    dimensions
        What dimensions are that the file leaves open, by their names in it (``batch``), or where it names none, by
        tensor and axis (``x[0]``).

    Raises
    ------
    MissingDependencyError
        onnx is not installed.
    FormatError
        The file is truncated or foreign, or contradicts itself: an unknown tensor, one read before it is made (a
        cycle), one made twice. Or a tensor's bytes cannot be known: a dimension that is not fixed, a sequence, a
        string. Or no dimension of a name that is given is open. The message names it.
    OSError
        The file cannot be opened.
    """
    try:
        import onnx
    except ImportError:
        raise MissingDependencyError(
            "onnx is not installed; reading ONNX files needs it: pip install '.[onnx]' in stowplan's clone"
        ) from None
    with open(path, "rb") as file:
        content = file.read()
    model = _parsed(path, content)
    if model.functions:
        from onnx.inliner import inline_local_functions

        model = inline_local_functions(model)
    _drop_nothing(model)
    dimensions = dimensions or {}
    named = {dimension.dim_param for _, dimension in _dimensions(model.graph)}
    used = _fix(model.graph, dimensions, named)
    computed: dict[int, Any] = {}
    while True:
        try:
            model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        except Exception as error:  # InferenceError, and whatever its C++ raises
            raise FormatError(path, f"shapes cannot be inferred: {_line(error)}") from None
        fixed, folded = _fix(model.graph, dimensions, named), _fold(model)
        used |= fixed
        computed |= folded
        if not (fixed or folded):
            break
    for i, node in computed.items():
        model.graph.node[i].CopyFrom(node)
    for name in dimensions.keys() - used:
        known = ", ".join(sorted(filter(None, named))) or "none"
        raise FormatError(path, f"no dimension {name!r} is open; the file names {known}")
    try:
        return _Reader(model.graph, {}).graph()
    except GraphError as error:
        raise FormatError(path, str(error)) from None


def _parsed(path: str | os.PathLike[str], content: bytes) -> Any:
    import onnx
    from google.protobuf.message import DecodeError

    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except DecodeError as error:
        raise FormatError(path, f"not an ONNX file, or a truncated one ({_line(error)})") from None
    if not model.HasField("graph") or not model.ir_version:
        raise FormatError(path, "not an ONNX file, or a truncated one; expected a model with a graph")
    return model


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _drop_nothing(model: Any) -> None:
    """Make an Identity of each Dropout outside of training; of its older versions onnx infers no shapes."""
    version = max(
        (opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx")), default=0
    )
    read = {info.name for info in model.graph.output}
    for node in model.graph.node:
        read.update(node.input)
        for branch in _branches(node):
            read.update(_free(branch))
    for i, node in enumerate(model.graph.node):
        dropout = node.op_type == "Dropout" and not node.domain and version >= 7
        if not dropout or _draws(node) or any(name and name in read for name in node.output[1:]):
            continue
        node.name = _title(node, i)
        node.op_type = "Identity"
        del node.input[1:], node.output[1:], node.attribute[:]


def _dimensions(graph: Any) -> Iterator[tuple[str, Any]]:
    """List the open dimensions of a graph and of those inside it; the names are by tensor and axis."""
    for info in (*graph.input, *graph.output, *graph.value_info):
        for axis, dimension in enumerate(info.type.tensor_type.shape.dim):
            if not dimension.HasField("dim_value"):
                yield f"{info.name}[{axis}]", dimension
    for node in graph.node:
        for branch in _branches(node):
            yield from _dimensions(branch)


def _fix(graph: Any, dimensions: Mapping[str, int], named: set[str]) -> set[str]:
    """Put numbers where dimensions are open, and return their names; drop the names that inference has made up."""
    used = set()
    for place, dimension in _dimensions(graph):
        if dimension.dim_param not in named:
            dimension.ClearField("dim_param")
        name = dimension.dim_param or place
        if name in dimensions:
            dimension.dim_value = dimensions[name]
            used.add(name)
    return used


def _fold(model: Any) -> dict[int, Any]:
    """Put constants in the place of nodes that compute them from constants and shapes; return those nodes.

    onnx's inference follows few operators from such values to the shapes that depend on them.
    """
    from onnx import helper, numpy_helper
    from onnx.reference import ReferenceEvaluator

    graph = model.graph
    shape = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for info in (*graph.input, *graph.output, *graph.value_info):
        lengths = info.type.tensor_type.shape.dim
        if info.type.tensor_type.HasField("shape") and all(one.HasField("dim_value") for one in lengths):
            shape[info.name] = tuple(one.dim_value for one in lengths)
    value = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in graph.initializer
        if prod(tensor.dims) <= _SMALL and not tensor.external_data
    }
    folded = {}
    for i, node in enumerate(graph.node):
        if len(node.output) != 1 or prod(shape.get(node.output[0], (_SMALL + 1,))) > _SMALL:
            continue
        if node.domain not in ("", "ai.onnx") or _draws(node) or any(_branches(node)):
            continue
        inputs = {name: value.get(name) for name in node.input if name}
        if node.op_type in ("Shape", "Size"):  # what its input holds does not matter
            inputs = {name: np.broadcast_to(False, shape[name]) for name in inputs if name in shape}
        if any(held is None for held in inputs.values()):
            continue
        name = node.output[0]
        function = helper.make_function("", "one", list(inputs), [name], [node], model.opset_import)
        try:
            value[name] = np.asarray(ReferenceEvaluator(function).run(None, inputs, {})[0])
            constant = numpy_helper.from_array(value[name])
        except Exception:  # of any kind; the shapes that depend on it stay unknown, and are refused
            continue
        if node.op_type != "Constant":
            folded[i] = type(node)()
            folded[i].CopyFrom(node)
            node.CopyFrom(helper.make_node("Constant", [], [name], value=constant))
    return folded


class _Reader(TensorNumbers[str]):
    """Goes through the nodes of a graph, or of a branch inside another; a tensor's key is its name."""

    unmade = "no node makes it, and it is no input or initializer"

    def __init__(self, graph: Any, outer: Mapping[str, int]) -> None:
        super().__init__()
        self.source = graph
        self.outer = outer  # of a branch: the tensors around it, which cost it nothing
        self.types = {info.name: info.type for info in (*graph.value_info, *graph.input, *graph.output)}
        self.outputs = {info.name for info in graph.output}

    def graph(self) -> StepGraph:
        nodes = list(self.source.node)
        for i, node in enumerate(nodes):
            for name in filter(None, node.output):
                self.maker.setdefault(name, _title(node, i))
        for name, size in self.given():
            self.add(name, size, resident=True)
        rows: dict[str, list[Any]] = {
            key: [] for key in ("reads", "writes", "workspace", "repeatable", "label")
        }
        for i, node in enumerate(nodes):
            if node.op_type == "Constant" and not node.domain:
                self.add(node.output[0], self.bytes_of(node.output[0]), resident=True)
                continue
            for key, entry in self.operator(node, i).items():
                rows[key].append(entry)
        kept = [False] * len(self.value)
        for info in self.source.output:
            value = self.find(info.name, "the graph's outputs")
            kept[value] = not self.columns["resident"][value]
        return StepGraph(**rows, **self.columns, kept=kept)

    def given(self) -> Iterator[tuple[str, int]]:
        """Tensors that exist before the first node, with their bytes; each once."""
        found = {tensor.name: _initializer(tensor) for tensor in self.source.initializer}
        for sparse in self.source.sparse_initializer:
            found[sparse.values.name] = _initializer(sparse.values) + _initializer(sparse.indices)
        for info in self.source.input:
            if info.name not in found:
                found[info.name] = self.bytes_of(info.name)
        yield from found.items()
        yield from ((name, 0) for name in self.outer if name not in found and name not in self.maker)

    def operator(self, node: Any, i: int) -> dict[str, Any]:
        title = _title(node, i)
        reads = [self.find(name, title) for name in node.input if name]
        workspace = 0
        for branch in _branches(node):
            reads += [self.value[name] for name in _free(branch) if name in self.value]
            inner = _Reader(branch, self.value).graph()
            workspace = max(workspace, simulate(inner, as_recorded(inner)).peak)
        view = node.op_type in _VIEWS and not node.domain
        writes = [
            self.add(name, self.bytes_of(name), reads[0] if view and reads else None)
            for name in node.output
            if name
        ]
        return {
            "reads": list(dict.fromkeys(reads)),
            "writes": writes,
            "workspace": workspace,
            "repeatable": not _draws(node),
            "label": title,
        }

    def add(self, name: str, size: int, base: int | None = None, resident: bool = False) -> int:
        if name in self.value:
            raise GraphError(f"tensor {name!r} is made twice; expected different names")
        storage = None if base is None else self.columns["storage"][base]
        if storage is not None and self.columns["resident"][storage] and name in self.outputs:
            storage = None
        return self.number(name, size, name, storage, resident)

    def bytes_of(self, name: str) -> int:
        """Bytes of a tensor by its inferred shape."""
        of = self.types.get(name)
        where = f"tensor {name!r}" + (f" of {self.maker[name]}" if name in self.maker else "")
        kind = of.WhichOneof("value") if of is not None else None
        if kind != "tensor_type" and kind is not None:
            raise GraphError(f"{where} is a {kind.removesuffix('_type')}; expected a dense tensor")
        if of is None or not of.tensor_type.HasField("shape"):
            raise GraphError(f"{where} has no known shape; expected one that can be inferred")
        count = 1
        for axis, dimension in enumerate(of.tensor_type.shape.dim):
            if not dimension.HasField("dim_value"):
                symbol = dimension.dim_param or f"{name}[{axis}]"
                raise GraphError(
                    f"{where}: dimension {axis} is unknown; expected --dimension '{symbol}=N', or "
                    f"read_graph(path, {{{symbol!r}: N}})"
                )
            if dimension.dim_value < 0:
                raise GraphError(f"{where}: dimension {axis} is {dimension.dim_value}; expected 0 or more")
            count *= dimension.dim_value
        return _bytes(count, of.tensor_type.elem_type, where)


def _initializer(tensor: Any) -> int:
    where, count = f"initializer {tensor.name!r}", 1
    for length in tensor.dims:
        if length < 0:
            raise GraphError(f"{where}: a dimension of {length}; expected 0 or more")
        count *= length
    return _bytes(count, tensor.data_type, where)


def _bytes(count: int, element: int, where: str) -> int:
    from onnx import TensorProto

    known = element in TensorProto.DataType.values()
    kind = TensorProto.DataType.Name(element) if known else str(element)
    if kind not in _BITS:
        raise GraphError(f"{where} has elements of type {kind}; expected numbers of fixed size")
    return -(-count * _BITS[kind] // 8)


def _title(node: Any, i: int) -> str:
    return str(node.name) if node.name else f"{node.op_type} (node {i})"


def _branches(node: Any) -> Iterator[Any]:
    """List the graphs inside a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _free(graph: Any) -> Iterable[str]:
    """Names that a graph inside a node takes from around it."""
    known = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    found: dict[str, None] = {}
    for node in graph.node:
        names = [name for name in node.input if name]
        for branch in _branches(node):
            names += _free(branch)
        found.update(dict.fromkeys(name for name in names if name not in known))
        known.update(node.output)
    found.update(dict.fromkeys(info.name for info in graph.output if info.name not in known))
    return found


def _draws(node: Any) -> bool:
    """Whether a node draws random numbers: dropout does where its third input states that it trains."""
    if node.op_type == "Dropout":
        return len(node.input) > 2 and bool(node.input[2])
    return node.op_type in _RANDOM
