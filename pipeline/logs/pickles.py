"""Pickles, of which only data is read: nothing that they name is imported or called."""

import struct
from collections.abc import Callable
from typing import Any

_MOST_PARTS = 1 << 24
"""Texts, lists, dicts and objects: each takes memory beyond its bytes."""

_LEAST_SIZE = 1 << 26
_MOST_SHARED = 16
_OPEN = -1
_HOLDERS = (list, tuple, dict, set)
_BROKEN = "it breaks off or is damaged"
_KEYS = (str, int, float, type(None))


class BadPickle(Exception):  # noqa: N818 - a verdict on a file, not an error of the program
    """A pickle that isn't read; its text says why, in words of ours."""


def read_pickle(content: bytes) -> Any:
    """Return what a pickle says, objects of SGLang's as dicts. Raises BadPickle."""
    try:
        said = _Machine(content).run()
    except (AttributeError, IndexError, TypeError, ValueError, struct.error):
        raise BadPickle(_BROKEN) from None
    _check_size(said, _LEAST_SIZE + _MOST_SHARED * len(content))
    return said


class _Class:
    """Stands for a class that a dump names: one of SGLang's, or that of HTTP status numbers."""

    def __init__(self, module: object, name: object) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise BadPickle(_BROKEN)
        self.is_status = (module, name) == ("http", "HTTPStatus")  # of a request it refused
        if not self.is_status and not f"{module}.".startswith("sglang."):
            wanted = f"{module}.{name}"[:80]
            raise BadPickle(f"it wants {wanted!a}, which data has no need of")


def _check_size(root: Any, most: int) -> None:
    """Raise BadPickle if there is more in a value than its pickle has bytes for, many times over.

    A pickle can name one list many times, or a list within itself.
    """
    sizes: dict[int, int] = {}
    waiting: list[Any] = [[root]]
    while waiting:
        value = waiting[-1]
        if sizes.get(id(value), _OPEN) != _OPEN:
            waiting.pop()
            continue
        within = list(value.values()) if isinstance(value, dict) else value
        numbers = set(map(type, within)) <= {int}
        parts = [] if numbers else [v for v in within if isinstance(v, _HOLDERS)]
        if id(value) not in sizes:
            sizes[id(value)] = _OPEN
            if any(sizes.get(id(v)) == _OPEN for v in parts):
                raise BadPickle("it holds itself")
            waiting += parts
            continue
        texts = 0 if numbers else sum(len(v) for v in within if isinstance(v, str | bytes))
        sizes[id(value)] = len(within) + texts + sum(sizes[id(v)] for v in parts)
        waiting.pop()
    if max(sizes.values()) > most:
        raise BadPickle("it holds the same many times")


class _Machine:
    """Runs the opcodes of a pickle of protocol 2 to 5 that make data.

    Python's own unpickler makes gigabytes of room for a large memo number, and hashes a tuple
    that holds one tuple many times for ever; this one knows neither.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0
        self._parts = 0
        self._marks: list[int] = []
        self.stack: list[Any] = []
        self.memo: list[Any] = []

    def run(self) -> Any:
        """Return what the pickle says. Raises BadPickle, or an IndexError or its like."""
        content, push = self._content, self.stack.append
        while (code := content[self._at]) != 0x2E:
            self._at += 1
            if code == 0x4D:  # small numbers, which token ids are, without a call
                push(content[self._at] | content[self._at + 1] << 8)
                self._at += 2
            elif code == 0x4A:
                push(int.from_bytes(content[self._at : self._at + 4], "little", signed=True))
                self._at += 4
            elif code == 0x4B:
                push(content[self._at])
                self._at += 1
            elif code in _OPCODES:
                _OPCODES[code](self)
            else:
                raise BadPickle("it holds more than data")
        if self._at + 1 < len(content):
            raise BadPickle("something follows it")
        return self.stack.pop()

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        taken = self._content[self._at : self._at + size]
        if len(taken) < size:
            raise BadPickle(_BROKEN)
        self._at += size
        return taken

    def number(self, width: int, *, signed: bool = False) -> int:
        """Return the number in the next bytes."""
        return int.from_bytes(self.take(width), "little", signed=signed)

    def line(self) -> str:
        """Return the rest of a line of text."""
        end = self._content.index(b"\n", self._at, self._at + 200)
        return self.take(end + 1 - self._at)[:-1].decode()

    def part(self, value: object) -> None:
        """Push a value that takes memory."""
        self._count(1)
        self.stack.append(value)

    def _count(self, parts: int) -> None:
        self._parts += parts
        if self._parts > _MOST_PARTS:
            raise BadPickle(f"more than {_MOST_PARTS} texts, lists and objects")

    def popped(self, count: int) -> list[Any]:
        """Take the last so many values from the stack."""
        begin = len(self.stack) - count
        if begin < 0:
            raise BadPickle(_BROKEN)
        popped = self.stack[begin:]
        del self.stack[begin:]
        return popped

    def mark(self) -> None:
        """Remember where the values of a list begin."""
        self._marks.append(len(self.stack))

    def marked(self) -> list[Any]:
        """Take the values since the last mark from the stack."""
        return self.popped(len(self.stack) - self._marks.pop())

    def set_items(self, items: list[Any]) -> None:
        """Put keys and values into the dict on top."""
        target = self.stack[-1]
        if not isinstance(target, dict) or len(items) % 2:
            raise BadPickle(_BROKEN)
        target.update(zip(_keys(items[::2]), items[1::2], strict=True))

    def add(self, items: list[Any]) -> None:
        """Put values into the list or set on top."""
        target = self.stack[-1]
        if isinstance(target, set):
            target.update(_keys(items))
        elif isinstance(target, list):
            target.extend(items)
        else:
            raise BadPickle(_BROKEN)

    def make(self, values: list[Any]) -> None:
        """Push what stands for an object of a class: its number, or what will be set on it."""
        if not isinstance(values[0], _Class):
            raise BadPickle(_BROKEN)
        self.part(values[1][0] if values[0].is_status else {})

    def build(self) -> None:
        """Set attributes on the object on top."""
        target, state = self.popped(2)
        for some in state if isinstance(state, tuple) else (state,):
            if not isinstance(target, dict) or not isinstance(some, dict | None):
                raise BadPickle(_BROKEN)
            self._count(len(some or ()))
            target.update(some or ())
        self.stack.append(target)

    def memoize(self, number: int) -> None:
        """Give the value on top its number, which counts up."""
        if number != len(self.memo):
            raise BadPickle(_BROKEN)
        self.memo.append(self.stack[-1])


def _keys(values: list[Any]) -> list[Any]:
    if not all(isinstance(value, _KEYS) for value in values):
        raise BadPickle("its keys are neither text nor numbers")
    return values


def _text(width: int) -> Callable[[_Machine], None]:
    return lambda m: m.part(m.take(m.number(width)).decode("utf-8", "surrogatepass"))


def _bytes(width: int) -> Callable[[_Machine], None]:
    return lambda m: m.part(m.take(m.number(width)))


def _tuple(count: int) -> Callable[[_Machine], None]:
    return lambda m: m.part(tuple(m.popped(count)))


_OPCODES: dict[int, Callable[[_Machine], Any]] = {
    0x80: lambda m: m.take(1),  # the protocol
    0x95: lambda m: m.take(8),  # a frame
    ord("N"): lambda m: m.stack.append(None),
    0x88: lambda m: m.stack.append(True),
    0x89: lambda m: m.stack.append(False),
    0x8A: lambda m: m.stack.append(m.number(m.number(1), signed=True)),
    ord("G"): lambda m: m.stack.append(struct.unpack(">d", m.take(8))[0]),
    **{code: _text(width) for code, width in ((0x8C, 1), (ord("X"), 4), (0x8D, 8))},
    **{code: _bytes(width) for code, width in ((ord("C"), 1), (ord("B"), 4), (0x8E, 8))},
    ord("]"): lambda m: m.part([]),
    ord("}"): lambda m: m.part({}),
    0x8F: lambda m: m.part(set()),
    0x91: lambda m: m.part(set(_keys(m.marked()))),  # a frozen one
    ord(")"): _tuple(0),
    ord("t"): lambda m: m.part(tuple(m.marked())),
    **{code: _tuple(count) for code, count in ((0x85, 1), (0x86, 2), (0x87, 3))},
    ord("("): _Machine.mark,
    ord("0"): lambda m: m.stack.pop(),
    ord("1"): _Machine.marked,
    ord("a"): lambda m: m.add(m.popped(1)),
    **dict.fromkeys((ord("e"), 0x90), lambda m: m.add(m.marked())),
    ord("s"): lambda m: m.set_items(m.popped(2)),
    ord("u"): lambda m: m.set_items(m.marked()),
    ord("c"): lambda m: m.stack.append(_Class(m.line(), m.line())),
    0x93: lambda m: m.stack.append(_Class(*m.popped(2))),
    **dict.fromkeys((0x81, ord("R")), lambda m: m.make(m.popped(2))),
    0x92: lambda m: m.make(m.popped(3)),  # made with named values
    ord("b"): _Machine.build,
    0x94: lambda m: m.memo.append(m.stack[-1]),
    ord("h"): lambda m: m.stack.append(m.memo[m.number(1)]),
    ord("j"): lambda m: m.stack.append(m.memo[m.number(4)]),
    ord("q"): lambda m: m.memoize(m.number(1)),
    ord("r"): lambda m: m.memoize(m.number(4)),
}
