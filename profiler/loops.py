"""The loops of a program's source that a running instruction lies in.

::

    for batch in batches:         for    each pass runs the body; `batches` is evaluated before the first
        while error > least:      while  each pass runs the test and the body
            error = improve()            <- a request made here lies in both, the outermost first
    [f(x) for x in xs]            a comprehension is a loop, too

An instruction is found by its position in the source (Python 3.11 and later), or by its line. Where there is no source,
there are no loops. A file is parsed once: O(its length).
"""

from __future__ import annotations

import ast
import dis
import functools
import itertools
import linecache
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType

Position = tuple[int, int]  # line, column; both as `ast` has them
Range = tuple[Position, Position]

_LINE_ONLY = sys.version_info < (3, 11)
_COMPREHENSIONS: dict[type[ast.AST], str] = {
    ast.ListComp: "<listcomp>",
    ast.SetComp: "<setcomp>",
    ast.DictComp: "<dictcomp>",
    ast.GeneratorExp: "<genexpr>",
}
_INLINED = () if sys.version_info < (3, 12) else (ast.ListComp, ast.SetComp, ast.DictComp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True)
class Loop:
    """A loop in the source of one function, or of a module outside of its functions.

    Attributes
    ----------
    file
        As the code has it.
    line
        The line of the ``for``, the ``while``, or the comprehension's beginning.
    function
        The code's name, ``"<module>"`` for instance.
    text
        The source's line, without its indentation.
    body
        What a pass runs, as ranges of positions.
    header
        From the loop's beginning to its body.
    is_comprehension
        Whether it is one; else a ``for`` or a ``while``.
    """

    file: str
    line: int
    function: str
    text: str
    body: tuple[Range, ...]
    header: Range
    is_comprehension: bool = False

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}"

    def short(self) -> str:
        """Return the same with the last parts of the file's name only, as a call site has a library's frames."""
        return f"{'/'.join(self.file.split('/')[-3:])}:{self.line} {self.function}"


@dataclass(frozen=True)
class _Scope:
    """What becomes one code object: its name, its first line, where it stands, and the loops in it."""

    name: str
    line: int
    whole: Range
    loops: tuple[Loop, ...]


def loops_at(code: CodeType, place: int) -> tuple[Loop, ...]:
    """Return the loops of a code that a place in it lies in, the outermost first.

    Parameters
    ----------
    place
        As in `CallSites.frames`: the offset of the instruction, or, until Python 3.10, the line.
    """
    return _loops_at(code, code.co_filename, place)  # equal codes may be of different files


@functools.cache
def _loops_at(code: CodeType, file: str, place: int) -> tuple[Loop, ...]:
    line, column = _position(code, place)
    scope = _scope_of(code, line)
    if scope is None:
        return ()
    # Where an iterator is asked for its next value, that belongs to the pass which the value is for.
    asks_next = _operation(code, place) == "FOR_ITER"
    return tuple(
        loop
        for loop in scope.loops
        if any(_within(line, column, part) for part in loop.body)
        or (asks_next and _within(line, column, loop.header))
    )


def is_call(code: CodeType, place: int) -> bool:
    """Whether the instruction at a place calls a function; True where that is not known."""
    operation = _operation(code, place)
    return operation is None or "CALL" in operation


def _operation(code: CodeType, place: int) -> str | None:
    """Return the name of the operation at a place, None where it is not known; a place may be in an inline cache."""
    if _LINE_ONLY or not 0 <= place < len(code.co_code):
        return None
    while place > 0 and dis.opname[code.co_code[place]] == "CACHE":
        place -= 2
    return dis.opname[code.co_code[place]]


def line_of(code: CodeType, place: int) -> tuple[int, str]:
    """Return the line of a place in a code, and its text without the indentation."""
    line, _ = _position(code, place)
    return line, linecache.getline(code.co_filename, line).strip()


def _position(code: CodeType, place: int) -> tuple[int, int | None]:
    if _LINE_ONLY:
        return place, None
    positions = code.co_positions()  # type: ignore[attr-defined]
    found = next(itertools.islice(positions, place // 2, None), None)
    line, _, column, _ = found or (None, None, None, None)
    return line or code.co_firstlineno, column


def _within(line: int, column: int | None, part: Range) -> bool:
    if column is None:
        return part[0][0] <= line <= part[1][0]
    return part[0] <= (line, column) < part[1]


def _scope_of(code: CodeType, line: int) -> _Scope | None:
    named = [
        scope
        for scope in _scopes(code.co_filename)
        if scope.name == code.co_name and (scope.name == "<module>" or scope.line == code.co_firstlineno)
    ]
    around = [scope for scope in named if scope.whole[0][0] <= line <= scope.whole[1][0]]
    return next(iter(around or named), None)


@functools.cache
def _scopes(file: str) -> tuple[_Scope, ...]:
    lines = linecache.getlines(file)
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return ()
    whole = (1, 0), (len(lines) + 1, 0)
    return tuple(_scopes_in(file, lines, "<module>", 1, whole, tree))


def _scopes_in(
    file: str, lines: list[str], name: str, line: int, whole: Range, node: ast.AST
) -> Iterator[_Scope]:
    """Yield the scope of a node, and all within it."""
    loops: list[Loop] = []
    inner: list[ast.AST] = []

    def add(loop: ast.AST, body: tuple[Range, ...], end: Position) -> None:
        begin = loop.lineno, loop.col_offset  # type: ignore[attr-defined]
        text = lines[begin[0] - 1].strip() if begin[0] <= len(lines) else ""
        is_comprehension = not isinstance(loop, (ast.For, ast.AsyncFor, ast.While))
        loops.append(Loop(file, begin[0], name, text, body, (begin, end), is_comprehension))

    def visit(part: ast.AST) -> None:
        if isinstance(part, (ast.For, ast.AsyncFor, ast.While)):
            first = part.test if isinstance(part, ast.While) else part.body[0]
            begin = first.lineno, first.col_offset
            add(part, ((begin, _end(part.body[-1])),), begin)
        elif isinstance(part, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            if part is not node and not isinstance(part, _INLINED):
                inner.append(part)
                visit(part.generators[0].iter)
                return
            iterated = part.generators[0].iter
            before = (part.lineno, part.col_offset + 1), (iterated.lineno, iterated.col_offset)
            add(part, (before, (_end(iterated), _end(part))), _end(part))
        elif isinstance(part, _FUNCTIONS) and part is not node:
            inner.append(part)
            return
        for child in ast.iter_child_nodes(part):
            visit(child)

    visit(node)
    yield _Scope(name, line, whole, tuple(loops))
    for part in inner:
        its_name = _COMPREHENSIONS.get(type(part)) or str(getattr(part, "name", "<lambda>"))
        begin = min(
            (decorator.lineno for decorator in getattr(part, "decorator_list", [])),
            default=part.lineno,  # type: ignore[attr-defined]
        )
        around = (begin, 0), _end(part)
        yield from _scopes_in(file, lines, its_name, begin, around, part)


def _end(node: ast.AST) -> Position:
    return node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
