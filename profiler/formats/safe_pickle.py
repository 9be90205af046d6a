"""A reader of pickles that can build lists, tuples, dictionaries, text and numbers, and nothing else.

A pickle is a program for a small stack machine. Python's has instructions that import names and call them, so a pickle
from elsewhere can run anything. This machine does not have those instructions: there is nothing to restrict or forget.
It trusts no length either: each instruction is at least a byte and pushes at most one object, `pickletools` reads no
text beyond the end of the file, and the memo is a dictionary (a file of ten bytes can make the memo of Python's own
reader fill the memory). So time and memory are linear in the size of the file.

Keys of dictionaries must be text: integers could be chosen to collide.

Source: the comments in CPython's ``Lib/pickletools.py``, protocols 2 to 5.
"""

from __future__ import annotations

import io
import pickletools
import struct
from typing import Any

# The instructions that the machine has, by their names in `pickletools`.
_VALUES = {
    "BININT",
    "BININT1",
    "BININT2",
    "LONG1",
    "BINFLOAT",
    "SHORT_BINUNICODE",
    "BINUNICODE",
    "BINUNICODE8",
}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_PUT, _GET = {"MEMOIZE", "BINPUT", "LONG_BINPUT"}, {"BINGET", "LONG_BINGET"}
# What these take from the top of the stack: so many objects, or all down to the mark.
_TAKE = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "APPEND": 1, "SETITEM": 2}
_TAKE_MARKED = {"TUPLE", "APPENDS", "SETITEMS"}
_ALL = {"PROTO", "FRAME", "MARK", "EMPTY_LIST", "EMPTY_DICT", "STOP", *_VALUES, *_CONSTANTS, *_PUT, *_GET}
_ALL |= {*_TAKE, *_TAKE_MARKED}
_KNOWN = {opcode.code.encode("latin-1"): opcode for opcode in pickletools.opcodes if opcode.name in _ALL}


class UnsafePickleError(Exception):
    """A pickle is malformed, or not safe to read. The message tells what is wrong."""


def loads(data: bytes) -> Any:
    """Return the object that a pickle holds.

    Raises
    ------
    UnsafePickleError
        The pickle is truncated or malformed, or has an instruction that this machine does not.
    """
    stream = io.BytesIO(data)
    try:
        return _run(stream)
    except (IndexError, KeyError, TypeError, ValueError, struct.error) as error:
        at = stream.tell()
        what = "it is truncated" if at >= len(data) else f"{type(error).__name__}: {str(error)[:80]}"
        raise UnsafePickleError(f"the pickle is malformed at byte {at} ({what})") from None


def _run(stream: io.BytesIO) -> Any:
    stack: list[Any] = []
    marked: list[list[Any]] = []  # the stacks below each mark
    memo: dict[int, Any] = {}
    while True:
        name, argument = _instruction(stream)
        if name in _VALUES:
            stack.append(argument)
        elif name in _GET:
            stack.append(memo[argument])
        elif name in _PUT:
            memo[len(memo) if argument is None else argument] = stack[-1]
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name == "MARK":
            marked.append(stack)
            stack = []
        elif name in _TAKE_MARKED:
            items, stack = stack, marked.pop()
            _build(name, stack, items)
        elif name in _TAKE:
            items = [stack.pop() for _ in range(_TAKE[name])][::-1]
            _build(name, stack, items)
        elif name in ("EMPTY_LIST", "EMPTY_DICT"):
            stack.append([] if name == "EMPTY_LIST" else {})
        elif name == "PROTO" and not 2 <= argument <= 5:
            raise UnsafePickleError(f"the pickle has the protocol {argument}; expected 2 to 5")
        elif name == "STOP":
            return stack.pop()


def _instruction(stream: io.BytesIO) -> tuple[str, Any]:
    """Return the name of the next instruction, and its argument."""
    code = stream.read(1)
    opcode = _KNOWN.get(code)
    if opcode is not None:
        return opcode.name, None if opcode.arg is None else opcode.arg.reader(stream)
    if not code:
        raise IndexError
    names = [opcode.name for opcode in pickletools.opcodes if opcode.code == code.decode("latin-1")]
    raise UnsafePickleError(
        f"the pickle has the instruction {names[0] if names else hex(code[0])} at byte {stream.tell() - 1}; "
        "expected lists, dictionaries, text and numbers only"
    )


def _build(name: str, stack: list[Any], items: list[Any]) -> None:
    """Make a tuple of objects from the stack, or put them into the list or the dictionary that is on top now."""
    if "TUPLE" in name:
        stack.append(tuple(items))
    elif "APPEND" in name:
        _top(stack, list).extend(items)
    else:
        target = _top(stack, dict)
        if len(items) % 2:
            raise TypeError("a key without a value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) is not str:
                raise TypeError(f"a key is a {type(key).__name__}, expected text")
            target[key] = value


def _top(stack: list[Any], kind: type) -> Any:
    """Return the object on top, which must be of this very type."""
    top = stack[-1]
    if type(top) is not kind:
        raise TypeError(f"a {type(top).__name__}, expected a {kind.__name__}")
    return top
