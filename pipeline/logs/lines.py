"""Lines of a stream, cut at line feeds alone, in bounded memory."""

from collections.abc import Iterator
from typing import NamedTuple

from pipeline.logs.streams import CHUNK, LogStream

LONGEST_LINE = 128 << 20
"""Bytes of a line; what is longer isn't kept."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """A line that isn't blank.

    number   from 1, blank lines counted
    content  without its line feed; None if it is longer than LONGEST_LINE
    whole    False for a last line without a line feed: it may be cut off
    """

    number: int
    content: bytes | None
    whole: bool


def read_lines(stream: LogStream) -> Iterator[Line]:
    """Yield the lines of a stream."""
    number = 1
    pieces: list[bytes] = []
    size = 0
    while chunk := stream.read(CHUNK):
        begin = 0
        while (end := chunk.find(b"\n", begin)) >= 0:
            pieces.append(chunk[begin:end])
            yield from _line(number, pieces, size + end - begin, whole=True)
            pieces, size = [], 0
            number, begin = number + 1, end + 1
        size += len(chunk) - begin
        pieces = [*pieces, chunk[begin:]] if size <= LONGEST_LINE else []
    yield from _line(number, pieces, size, whole=False)


def _line(number: int, pieces: list[bytes], size: int, *, whole: bool) -> Iterator[Line]:
    if size > LONGEST_LINE:
        yield Line(number, None, whole)
        return
    content = b"".join(pieces)
    if number == 1:
        content = content.removeprefix(BYTE_ORDER_MARK)
    if not content.isspace() and content:
        yield Line(number, content, whole)
