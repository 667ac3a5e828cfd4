"""Python reprs, which engines write into text logs: fields and literals, never evaluated."""

import ast
import re
from typing import Any, NamedTuple

import orjson

from pipeline.logs.records import BadLine

CUT = "cut by the logger"
_NO_LITERAL = "a field is not the literal that its format has there"
_WORDS = {"None": None, "True": True, "False": False}
_MARK = " ... "
_DEEPEST = 3

_QUOTED = r"'[^'\\]*+(?:\\.[^'\\]*+)*+'|\"[^\"\\]*+(?:\\.[^\"\\]*+)*+\""
_ESCAPE = r"\\(?:[\\'\"nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})"
_TEXT = re.compile(rf"'[^'\\]*+(?:{_ESCAPE}[^'\\]*+)*+'|\"[^\"\\]*+(?:{_ESCAPE}[^\"\\]*+)*+\"")
_FLAT = re.compile(r"[\[(]([^\[\]()'\"{}]*+)[\])]")
_PIECE = re.compile(
    rf"[^'\"()\[\]{{}},]++|{_QUOTED}|\[[^'\"()\[\]{{}}]*+\]|[()\[\]{{}},]", re.DOTALL
)
_NAME = re.compile(r"\s*(?:'([^'\\]{1,100})'|([A-Za-z_][\w ]{0,100}?))\s*[:=]\s*")


class Cut(NamedTuple):
    """What a logger left of a value that it cut in the middle."""

    head: str | list[Any]


def fields(text: str, begin: int = 0) -> dict[str, str]:
    """Return the fields that stand in a text from `begin` on, by name, each as its repr.

    They read `a=1, b='x'` or `a: 1, 'b': 'x'` and end with the text, or with the bracket that was
    opened before `begin`. BadLine if a text or bracket in them doesn't end.
    """
    found: dict[str, str] = {}
    for piece in _split(text, begin)[0]:
        name = _NAME.match(piece)
        if name:
            found.setdefault(name[1] or name[2], piece[name.end() :])
    return found


def value(text: str, deep: int = _DEEPEST) -> Any:
    """Return what a repr says: None, a number, a text, a list of these, or what is left of one.

    BadLine for anything else.
    """
    text = text.strip()
    if text in _WORDS:
        return _WORDS[text]
    if text[:1] in ("'", '"'):
        return _text(text)
    if text[:1] in ("[", "("):
        return _list(text, deep)
    if text[:1] == "{":
        raise BadLine(_NO_LITERAL)
    return _json(text)


def value_or_none(text: str | None) -> Any:
    """Return what a repr says, None where it says nothing that we know."""
    try:
        return None if text is None else value(text)
    except BadLine:
        return None


def _split(text: str, begin: int) -> tuple[list[str], int]:
    """Return what stands between the commas of one level, and where that level ends."""
    pieces = []
    depth, start, at = 0, begin, begin
    while at < len(text):
        piece = _PIECE.match(text, at)
        if piece is None:
            raise BadLine(CUT)
        first, size = text[at], piece.end() - at
        if first in "([{" and size == 1:
            depth += 1
        elif first in ")]}":
            if not depth:
                break
            depth -= 1
        elif first == "," and not depth:
            pieces.append(text[start:at])
            start = piece.end()
        at = piece.end()
    if depth:
        raise BadLine(CUT)
    return [*pieces, text[start:at]], at


def _text(text: str) -> str | Cut:
    literal = _TEXT.match(text)
    if literal is None:
        raise BadLine(_NO_LITERAL)
    try:
        said: str = ast.literal_eval(literal[0])
    except (SyntaxError, ValueError, MemoryError):
        raise BadLine(_NO_LITERAL) from None
    whole: str | Cut = _whole_or_cut(said, text, literal.end())
    return whole


def _list(text: str, deep: int) -> Any:
    if not deep:
        raise BadLine(_NO_LITERAL)
    flat = _FLAT.match(text)
    if flat:
        try:
            return _whole_or_cut(_json(f"[{flat[1].rstrip(', ')}]"), text, flat.end())
        except BadLine:
            pass  # words among the numbers
    pieces, end = _split(text, 1)
    if not pieces[-1].strip():
        pieces.pop()
    return _whole_or_cut([value(piece, deep - 1) for piece in pieces], text, end + 1)


def _json(text: str) -> Any:
    try:
        return orjson.loads(text.encode("utf-8", "replace"))
    except orjson.JSONDecodeError:
        raise BadLine(_NO_LITERAL) from None


def _whole_or_cut(said: Any, text: str, end: int) -> Any:
    if end == len(text):
        return said
    if not text.startswith(_MARK, end):
        raise BadLine(_NO_LITERAL)
    return Cut(said)
