"""A line of a log to what it says: JSON objects, or its text where it holds none."""

import json
import re
from typing import Any, NamedTuple

import orjson

from pipeline.logs.records import BadLine

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_ANSI_RESET = "\x1b[0m"
_BETWEEN = re.compile(r"[\s,]*")
_LONGEST_PREFIX = 200

MORE_OBJECTS = "several objects on one line"
LOG_PREFIX = "a log prefix before the object"
BAD_UTF8 = "bytes that are no UTF-8, read as U+FFFD"
NOT_A_NUMBER = "NaN or Infinity, read as null"


class Content(NamedTuple):
    """What a line says: its objects, or one text; and what was overlooked to read it."""

    values: list[dict[str, Any]] | list[str]
    repairs: tuple[str, ...] = ()


def parse_line(line: bytes) -> Content:
    """Return a line's objects, in a lenient way only if the strict one fails.

    A line that isn't JSON is its text. BadLine for JSON that is no object, and for a line that
    begins as an object and doesn't end as one.
    """
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return _behind_prefix(line) or _lenient(line)
    if not isinstance(value, dict):
        raise BadLine("not a JSON object")
    return Content([value])


def _behind_prefix(line: bytes) -> Content | None:
    """Return the strict object behind a plain log prefix: some logs have one on every line."""
    begin = line.find(b"{", 0, _LONGEST_PREFIX)
    if begin <= 0 or not line[:begin].isascii() or line[:begin].isspace():
        return None
    try:
        return Content([orjson.loads(memoryview(line)[begin:])], (LOG_PREFIX,))
    except orjson.JSONDecodeError:
        return None


def _lenient(line: bytes) -> Content:
    repairs = []
    try:
        text = line.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        text = line.decode("utf-8", "replace")
        repairs.append(BAD_UTF8)
    text = text.strip().removeprefix("\ufeff").removesuffix(_ANSI_RESET)
    begin = text.find("{", 0, _LONGEST_PREFIX)
    try:
        objects, not_numbers = _objects(text, begin) if begin >= 0 else ([], 0)
    except (RecursionError, TypeError, ValueError):
        objects, not_numbers = [], 0
    if not objects:
        if begin == 0:
            raise BadLine("not a JSON object")
        return Content([_ANSI.sub("", text)], tuple(repairs))
    if not_numbers:
        repairs.append(NOT_A_NUMBER)
    if begin:
        repairs.append(LOG_PREFIX)
    if len(objects) > 1:
        repairs.append(MORE_OBJECTS)
    return Content(objects, tuple(repairs))


def _objects(text: str, begin: int) -> tuple[list[dict[str, Any]], int]:
    """Return the objects that a text consists of from `begin` on, and how many numbers were none.

    Raises ValueError or TypeError if there is anything else in it.
    """
    not_numbers: list[str] = []
    decoder = json.JSONDecoder(strict=False, parse_constant=not_numbers.append)
    objects = []
    at = begin
    while at < len(text):
        value, end = decoder.raw_decode(text, at)
        if not isinstance(value, dict):
            raise TypeError(value)
        objects.append(value)
        between = _BETWEEN.match(text, end)
        at = between.end() if between else end
    return objects, len(not_numbers)
