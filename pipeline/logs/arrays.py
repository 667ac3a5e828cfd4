"""JSON arrays, and JSON objects over several lines, cut into items in bounded memory."""

import re
from collections.abc import Iterator

from pipeline.errors import LogError
from pipeline.logs.lines import LONGEST_LINE
from pipeline.logs.streams import CHUNK, LogStream

_BETWEEN = re.compile(rb"[\s,]*+")
_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TO_BRACKET = re.compile(rb'[^"{}\[\]]*+(?:%b[^"{}\[\]]*+)*+' % _TEXT, re.DOTALL)
_PLAIN = re.compile(rb'%b|[^\s,\[\]{}"]++' % _TEXT, re.DOTALL)


def json_items(stream: LogStream) -> Iterator[bytes]:
    """Yield the items of the arrays, and the objects between them, that a stream consists of.

    Raises LogError if it breaks off, if there is anything else in it, or if an item is too long.
    """
    text = _Text(stream)
    number, open_array = 0, False
    while first := text.next():
        if first == b"[" and not open_array:
            open_array = True
            text.at += 1
        elif first == b"]" and open_array:
            open_array = False
            text.at += 1
        elif first == b"{" or open_array:
            number += 1
            yield text.item(number)
        else:
            raise LogError(f"{stream.path}: it is no JSON after item {number}")
    if open_array:
        raise LogError(f"{stream.path}: its JSON breaks off after item {number}")


class _Text:
    """What was read and not yet taken of a stream: `at` is where the next item begins."""

    def __init__(self, stream: LogStream) -> None:
        self._stream = stream
        self._read = b""
        self.at = 0

    def next(self) -> bytes:
        """Go to the next byte that isn't between items, and return it; b'' at the end."""
        while True:
            found = _BETWEEN.match(self._read, self.at)
            self.at = found.end() if found else self.at
            if self.at < len(self._read) or not self._more():
                return self._read[self.at : self.at + 1]

    def item(self, number: int) -> bytes:
        """Take the item that begins here."""
        size = self._object(number) if self._read[self.at] in b"{[" else self._plain(number)
        begin, self.at = self.at, self.at + size
        return self._read[begin : self.at]

    def _object(self, number: int) -> int:
        depth = size = 0
        while True:
            found = _TO_BRACKET.match(self._read, self.at + size)
            size = found.end() - self.at if found else size
            bracket = self._read[self.at + size : self.at + size + 1]
            if bracket in (b"", b'"'):  # a text that isn't read to its end
                self._need_more(number)
                continue
            depth += 1 if bracket in (b"{", b"[") else -1
            size += 1
            if not depth:
                return size

    def _plain(self, number: int) -> int:
        while True:
            found = _PLAIN.match(self._read, self.at)
            if found and found.end() < len(self._read):
                return found.end() - self.at
            if found is None and self._read[self.at : self.at + 1] != b'"':
                raise LogError(f"{self._stream.path}: it is no JSON after item {number - 1}")
            self._need_more(number)

    def _need_more(self, number: int) -> None:
        if len(self._read) - self.at > LONGEST_LINE:
            raise LogError(
                f"{self._stream.path}: item {number} is longer than {LONGEST_LINE >> 20} MB"
            )
        if not self._more():
            raise LogError(f"{self._stream.path}: its JSON breaks off in item {number}")

    def _more(self) -> bool:
        """Read on: twice as much each time, so that a long text isn't searched too often."""
        self._read = self._read[self.at :]
        self.at = 0
        more = self._stream.read(max(CHUNK, len(self._read)))
        self._read += more
        return bool(more)
