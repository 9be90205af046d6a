"""Step graphs from files: our own (`StepGraph.save`), JSON of ``format: opgraph-1``, gzipped or not, and ONNX.

An opgraph is an object with

- ``resident``: tensors that exist before and after the step; ``id``, ``bytes``, ``name``.
- ``nodes``, in an order that runs: ``name``, ``op``, ``phase`` (forward, backward or update), ``inputs`` (ids),
  ``outputs`` (``id``, ``bytes``, and ``alias_of``, the tensor whose storage it shares, or null), ``in_place`` with
  ``writes`` (ids whose content it changes), ``after`` (nodes, by number, that must have run before it besides the
  makers of its inputs), ``rng`` (it draws random numbers).
- ``outputs``: ids alive to the end.

Each node becomes an operator and each tensor a value. A node in place reads and writes what it changes, so that such a
value has several writers and is never recomputed. A node in place or with ``rng`` is not repeatable.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from ..common.archive import what_it_is
from ..common.errors import FormatError, GraphError
from .graph import Phase, StepGraph

FORMAT = "opgraph-1"
Key = TypeVar("Key")

_PHASES = {phase.name.lower(): phase for phase in Phase}
_GZIP, _ZIP = b"\x1f\x8b", b"PK"


def read_graph(path: str | os.PathLike[str], dimensions: Mapping[str, int] | None = None) -> StepGraph:
    """Read a step graph; its first bytes tell what the file is, not its name, except that ONNX ends in ``.onnx``.

    Parameters
    ----------
    path
        The file.
    dimensions
        What open dimensions of an ONNX file are, as for ``stowplan.scheduling.onnx_graph.read_onnx``.

    Raises
    ------
    FormatError
        The file is truncated, of another format, or contradicts itself: an unknown tensor, a tensor read before it is
        made (a cycle), a negative size. The message names it.
    MissingDependencyError
        The file's name ends in ``.onnx`` and onnx is not installed.
    OSError
        The file cannot be opened.
    """
    if os.fspath(path).lower().endswith(".onnx"):
        from .onnx_graph import read_onnx

        return read_onnx(path, dimensions)
    if dimensions:
        raise FormatError(path, "the name does not end in .onnx; expected no dimensions")
    with open(path, "rb") as file:
        content = file.read()
    if content.startswith(_ZIP):
        return StepGraph.load(path)
    if content.startswith(_GZIP):
        try:
            content = gzip.decompress(content)
        except (EOFError, OSError, zlib.error) as error:
            raise FormatError(path, f"not a gzip file, or a truncated one ({error})") from None
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FormatError(
            path,
            f"neither a step graph nor JSON ({error}); expected {FORMAT!r} or what StepGraph.save writes",
        ) from None
    found = data.get("format") if isinstance(data, dict) else None
    if found != FORMAT:
        what = what_it_is(path, content[:4096]) if found is None else f"format {found!r}"
        raise FormatError(path, f"{what}; expected {FORMAT!r} or what StepGraph.save writes")
    try:
        return _Reader(data).graph()
    except GraphError as error:
        raise FormatError(path, str(error)) from None


class TensorNumbers(Generic[Key]):
    """Numbers the tensors of a file as values, each of which a node makes or which exist before the nodes.

    Attributes
    ----------
    unmade
        What a tensor is that no node makes and that does not exist before them, for the refusal.
    value
        The values, by a tensor's key.
    columns
        What `StepGraph` takes of each value.
    maker
        The nodes' names, by the key of a tensor that they make.
    """

    unmade: ClassVar[str]

    def __init__(self) -> None:
        self.value: dict[Key, int] = {}
        self.columns: dict[str, list[Any]] = {key: [] for key in ("size", "storage", "resident", "name")}
        self.maker: dict[Key, str] = {}

    def number(self, key: Key, size: int, name: str, storage: int | None, resident: bool) -> int:
        """Return the number of a tensor: a new value, with a storage of its own if it has none of another's."""
        value = self.value[key] = len(self.value)
        row = (size, value) if storage is None else (0, storage)
        for column, entry in zip(self.columns.values(), (*row, resident, name), strict=True):
            column.append(entry)
        return value

    def find(self, key: Key, reader: str) -> int:
        """Return the value of a tensor; raise `GraphError` unless it is numbered."""
        if key in self.value:
            return self.value[key]
        if key in self.maker:
            raise GraphError(f"{reader} asks for tensor {key!r} before {self.maker[key]} makes it (a cycle?)")
        raise GraphError(f"{reader}: unknown tensor {key!r}; {self.unmade}")


class _Reader(TensorNumbers[int]):
    """Goes through the nodes; a tensor's key is its id."""

    unmade = "no node makes it and it is not resident"

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__()
        self.data = data

    def graph(self) -> StepGraph:
        nodes = _items(self.data, "nodes", dict, "the file")
        for i, node in enumerate(nodes):
            for output in _items(node, "outputs", dict, f"node {i}"):
                self.maker.setdefault(_integer(output, "id", f"an output of node {i}"), _node_name(node, i))
        for tensor in _items(self.data, "resident", dict, "the file"):
            identity = _integer(tensor, "id", "a resident tensor")
            name = str(tensor.get("name") or f"tensor {identity}")
            self.add(identity, _integer(tensor, "bytes", name), name, None, resident=True)
        rows: dict[str, list[Any]] = {
            key: [] for key in ("reads", "writes", "after", "phase", "repeatable", "label")
        }
        for i, node in enumerate(nodes):
            for key, entry in self.operator(node, i).items():
                rows[key].append(entry)
        kept = [False] * len(self.value)
        for identity in _items(self.data, "outputs", int, "the file"):
            kept[self.find(identity, "the file's outputs")] = True
        return StepGraph(**rows, **self.columns, kept=kept)

    def operator(self, node: dict[str, Any], i: int) -> dict[str, Any]:
        name = _node_name(node, i)
        phase = node.get("phase")
        if phase not in _PHASES:
            raise GraphError(f"{name}: phase {phase!r}; expected {', '.join(_PHASES)}")
        reads = [self.find(identity, name) for identity in _items(node, "inputs", int, name)]
        in_place = bool(node.get("in_place"))
        writes = []
        if in_place or "writes" in node:
            writes = [self.find(identity, name) for identity in _items(node, "writes", int, name)]
            reads += writes
        for output in _items(node, "outputs", dict, name):
            writes.append(self.output(output, name))
        after = _items(node, "after", int, name) if "after" in node else []
        for other in after:
            if not 0 <= other < i:
                raise GraphError(f"{name} comes after node {other}, which is not before it (a cycle?)")
        repeatable = _PHASES[phase] == Phase.FORWARD and not in_place
        return {
            "reads": reads,
            "writes": writes,
            "after": after,
            "phase": _PHASES[phase],
            "repeatable": repeatable and not node.get("rng"),
            "label": name,
        }

    def output(self, output: dict[str, Any], maker: str) -> int:
        identity = _integer(output, "id", f"an output of {maker}")
        name = f"tensor {identity}"
        alias = output.get("alias_of")
        base = None
        if alias is not None:
            if not isinstance(alias, int) or isinstance(alias, bool):
                raise GraphError(f"{name} of {maker}: alias_of {alias!r}; expected an id or null")
            base = self.find(alias, f"{name} of {maker}")
        return self.add(identity, _integer(output, "bytes", f"{name} of {maker}"), name, base)

    def add(self, identity: int, size: int, name: str, base: int | None, resident: bool = False) -> int:
        if identity in self.value:
            raise GraphError(f"{name}: the id {identity} is used twice")
        if size < 0:
            raise GraphError(f"{name}: {size} bytes; expected 0 or more")
        storage = None if base is None else self.columns["storage"][base]
        return self.number(identity, size, name, storage, resident)


def _node_name(node: dict[str, Any], i: int) -> str:
    return str(node.get("name") or f"node {i}")


def _items(of: dict[str, Any], key: str, kind: type, where: str) -> list[Any]:
    found = of.get(key)
    if not isinstance(found, list):
        raise GraphError(f"{where}: {key} is {type(found).__name__}; expected a list")
    for item in found:
        if not isinstance(item, kind) or isinstance(item, bool):
            raise GraphError(
                f"{where}: {key} has {item!r}; expected {'objects' if kind is dict else 'integers'}"
            )
    return found


def _integer(of: dict[str, Any], key: str, where: str) -> int:
    found = of.get(key)
    if not isinstance(found, int) or isinstance(found, bool) or abs(found) >= 2**62:
        raise GraphError(f"{where}: {key} {found!r}; expected an integer")
    return found
