"""A reader of pickles that can build lists, tuples, dictionaries, text and numbers, and nothing else.

A pickle is a program for a small stack machine. Python's has instructions that import names and call them, so a pickle
from elsewhere can run anything. This machine does not have those instructions: there is nothing to restrict or forget.
It trusts no length either: each instruction is at least a byte and pushes at most one object, text is never longer
than the rest of the file, and the memo is a dictionary (a file of ten bytes can make the memo of Python's own reader
fill the memory). So time and memory are linear in the size of the file.

Keys of dictionaries must be text: integers could be chosen to collide.

Source: the comments in CPython's ``Lib/pickletools.py``, protocols 2 to 5.
"""

from __future__ import annotations

import pickletools
import struct
from typing import Any, ClassVar


class UnsafePickleError(Exception):
    """A pickle is malformed, or not safe to read. The message tells what is wrong."""


def loads(data: bytes) -> Any:
    """Return the object that a pickle holds.

    Raises
    ------
    UnsafePickleError
        The pickle is truncated or malformed, or has an instruction that this machine does not.
    """
    machine = _Machine(data)
    try:
        return machine.run()
    except (IndexError, KeyError, TypeError, AttributeError, UnicodeDecodeError, struct.error) as error:
        what = "it is truncated" if machine.at >= len(data) else f"{type(error).__name__}: {str(error)[:80]}"
        raise UnsafePickleError(f"the pickle is malformed at byte {machine.at} ({what})") from None


class _Machine:
    def __init__(self, data: bytes) -> None:
        self.at = 0
        self._data = data
        self._stack: list[Any] = []
        self._marked: list[list[Any]] = []  # the stacks below each mark
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        data, plain = self._data, self._PLAIN
        while True:
            code = data[self.at]
            self.at += 1
            if code in plain:
                plain[code](self)
            elif code == 0x2E:  # STOP
                return self._stack.pop()
            else:
                names = [opcode.name for opcode in pickletools.opcodes if opcode.code == chr(code)]
                name = names[0] if names else f"{code:#04x}"
                raise UnsafePickleError(
                    f"the pickle has the instruction {name} at byte {self.at - 1}; "
                    "expected lists, dictionaries, text and numbers only"
                )

    def _take(self, count: int) -> bytes:
        chunk = self._data[self.at : self.at + count]
        self.at += count
        if len(chunk) != count:
            raise IndexError
        return chunk

    def _unsigned(self, count: int) -> int:
        return int.from_bytes(self._take(count), "little")

    def _pop_mark(self) -> list[Any]:
        items, self._stack = self._stack, self._marked.pop()
        return items

    def _top(self, kind: type) -> Any:
        """Return the object on top, which must be of this very type."""
        top = self._stack[-1]
        if type(top) is not kind:
            raise TypeError(f"a {type(top).__name__}, expected a {kind.__name__}")
        return top

    # ------------------------------------------------------------------------------------------------ instructions

    def _proto(self) -> None:
        version = self._unsigned(1)
        if not 2 <= version <= 5:
            raise UnsafePickleError(f"the pickle has the protocol {version}; expected 2 to 5")

    def _frame(self) -> None:
        self._take(8)

    def _mark(self) -> None:
        self._marked.append(self._stack)
        self._stack = []

    def _none(self) -> None:
        self._stack.append(None)

    def _true(self) -> None:
        self._stack.append(True)

    def _false(self) -> None:
        self._stack.append(False)

    def _int1(self) -> None:
        self._stack.append(self._unsigned(1))

    def _int2(self) -> None:
        self._stack.append(self._unsigned(2))

    def _int4(self) -> None:
        self._stack.append(int.from_bytes(self._take(4), "little", signed=True))

    def _long1(self) -> None:
        self._stack.append(int.from_bytes(self._take(self._unsigned(1)), "little", signed=True))

    def _float(self) -> None:
        self._stack.append(struct.unpack(">d", self._take(8))[0])

    def _text1(self) -> None:
        self._stack.append(self._take(self._unsigned(1)).decode("utf-8", "surrogatepass"))

    def _text4(self) -> None:
        self._stack.append(self._take(self._unsigned(4)).decode("utf-8", "surrogatepass"))

    def _text8(self) -> None:
        self._stack.append(self._take(self._unsigned(8)).decode("utf-8", "surrogatepass"))

    def _empty_list(self) -> None:
        self._stack.append([])

    def _append(self) -> None:
        item = self._stack.pop()
        self._top(list).append(item)

    def _appends(self) -> None:
        items = self._pop_mark()
        self._top(list).extend(items)

    def _empty_tuple(self) -> None:
        self._stack.append(())

    def _tuple1(self) -> None:
        self._tuple_of(1)

    def _tuple2(self) -> None:
        self._tuple_of(2)

    def _tuple3(self) -> None:
        self._tuple_of(3)

    def _tuple_of(self, count: int) -> None:
        items = [self._stack.pop() for _ in range(count)]
        self._stack.append(tuple(reversed(items)))

    def _tuple(self) -> None:
        items = self._pop_mark()
        self._stack.append(tuple(items))

    def _empty_dict(self) -> None:
        self._stack.append({})

    def _set_item(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._set([key, value])

    def _set_items(self) -> None:
        self._set(self._pop_mark())

    def _set(self, items: list[Any]) -> None:
        target = self._top(dict)
        if len(items) % 2:
            raise TypeError("a key without a value")
        for k in range(0, len(items), 2):
            if type(items[k]) is not str:
                raise TypeError(f"a key is a {type(items[k]).__name__}, expected text")
            target[items[k]] = items[k + 1]

    def _memoize(self) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _put1(self) -> None:
        self._memo[self._unsigned(1)] = self._stack[-1]

    def _put4(self) -> None:
        self._memo[self._unsigned(4)] = self._stack[-1]

    def _get1(self) -> None:
        self._stack.append(self._memo[self._unsigned(1)])

    def _get4(self) -> None:
        self._stack.append(self._memo[self._unsigned(4)])

    _PLAIN: ClassVar = {
        ord(code): instruction
        for code, instruction in (
            ("\x80", _proto), ("\x95", _frame), ("(", _mark), ("N", _none), ("\x88", _true), ("\x89", _false),
            ("K", _int1), ("M", _int2), ("J", _int4), ("\x8a", _long1), ("G", _float),
            ("\x8c", _text1), ("X", _text4), ("\x8d", _text8),
            ("]", _empty_list), ("a", _append), ("e", _appends),
            (")", _empty_tuple), ("\x85", _tuple1), ("\x86", _tuple2), ("\x87", _tuple3), ("t", _tuple),
            ("}", _empty_dict), ("s", _set_item), ("u", _set_items),
            ("\x94", _memoize), ("q", _put1), ("r", _put4), ("h", _get1), ("j", _get4),
        )
    }  # fmt: skip
