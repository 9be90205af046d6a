"""Write a stub, ``.pyi``, beside each Cython module from its source: a signature stands there alone.

setup.py calls `make_stub` before it builds. In a ``.pyx`` file and in what that includes, it reads

- functions, methods and properties: each parameter has an annotation, a type of C's (`TYPES`), or a class for its type;
  what returns something has an annotation, too;
- ``cdef class``, and its ``readonly`` and ``public`` attributes; a comment annotates one that is an object or a list:
  ``#: Any``;
- comments that begin with ``#:`` on a line of their own: other lines of the stub.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

TYPES = {
    **dict.fromkeys(
        ["int", "int64_t", "uint64_t", "uint32_t", "uint16_t", "uintptr_t", "size_t", "Py_ssize_t"], "int"
    ),
    "cbool": "bool",
    "double": "float",
    "Column": "IntArray",
}
_CLASS = re.compile(r"cdef (class \w+(?:\(\w+\))?:)")
_ATTRIBUTE = re.compile(r"    cdef (?:readonly|public) (\w+) (\w+)(?:  # .*?)?(?:  #: (.+))?")
_DEFINITION = re.compile(r"((?:    )?)def (?!__dealloc__|__getbuffer__)(\w+)\((.*)\)(?: -> (.+))?:")
_VERBATIM = re.compile(r"((?:    )?)(?:#: ?(.*)|(@property|@\w+\.setter))")
_PARAMETER = re.compile(r"(?:(\w+) )?([*/]{0,2}\w*)(?:: (.+?)| or (None))?(?: ?= ?(.+))?")
_PLAIN = re.compile(r"-?\d+|True|False|None|\(\)")


def make_stub(source: Path) -> None:
    """Write the stub of a ``.pyx`` file beside it, if it is another one than that.

    Raises
    ------
    ValueError
        A parameter, or an attribute, has no type.
    """
    made, lines = source.with_suffix(".pyi"), [f"# From {source.name}, by tools/stubs.py.", *_stub(source)]
    text = "\n".join(lines) + "\n"
    if not made.exists() or made.read_text(encoding="utf-8") != text:
        made.write_text(text, encoding="utf-8")


def _stub(source: Path) -> Iterator[str]:
    inside = False  # a class
    for line in _statements(source):
        if line[:1].strip() and not line.startswith("#"):
            inside = _CLASS.match(line) is not None
        if line[:1] == " " and not inside:
            continue
        if match := _VERBATIM.fullmatch(line):
            yield match[1] + (match[2] if match[3] is None else match[3])
        elif match := _CLASS.fullmatch(line):
            yield f"{match[1]}\n    ..."
        elif match := _ATTRIBUTE.fullmatch(line):
            yield f"    {match[2]}: {match[3] or _type(source, line, match[1])}"
        elif match := _DEFINITION.fullmatch(line):
            name = "__init__" if match[2] == "__cinit__" else match[2]
            # A comma within brackets separates none.
            parameters = re.split(r", *(?![^\[(]*[\])])", match[3])
            given = ", ".join(_parameter(source, line, one) for one in parameters if one)
            yield f"{match[1]}def {name}({given}) -> {match[4]}: ..."


def _statements(source: Path) -> Iterator[str]:
    """Yield the lines of a file and of what it includes; a function's head is one."""
    head = ""
    for line in source.read_text(encoding="utf-8").splitlines():
        if match := re.fullmatch(r'include "(.+)"', line):
            yield from _statements(source.parent / match[1])
            continue
        head += line.strip() if head.endswith("(") else f" {line.strip()}" if head else line
        if not re.match(r" *def ", head) or re.search(r":(  #.*)?$", head):
            yield re.sub(r",? ?\)", ")", re.sub(r":  #.*$", ":", head), count=1) if "def " in head else head
            head = ""


def _parameter(source: Path, line: str, text: str) -> str:
    match = _PARAMETER.fullmatch(text)
    if match is None:
        raise ValueError(f"{source}: {line.strip()}: {text!r}; expected a parameter")
    kind, name, annotation, none, default = match.groups()
    if name in ("self", "*", "/"):
        return name
    found = annotation or _type(source, line, kind)
    found += " | None" if "None" in (none, default) and "None" not in found else ""
    if default is None:
        return f"{name}: {found}"
    return f"{name}: {found} = {default if _PLAIN.fullmatch(default) else '...'}"


def _type(source: Path, line: str, kind: str | None) -> str:
    if kind in (None, "list", "dict"):
        raise ValueError(f"{source}: {line.strip()}: expected a type")
    return TYPES.get(kind, kind)
