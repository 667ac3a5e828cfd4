"""read_log: a file of any kind to the requests it holds, line by line."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pipeline.errors import LogError, unknown
from pipeline.logs.documents import document, is_parquet, parquet_rows
from pipeline.logs.families import FAMILIES
from pipeline.logs.lines import LONGEST_LINE, read_lines
from pipeline.logs.objects import parse_line
from pipeline.logs.records import BadLine, Blocks, LogFamily, LogRecord, Reader, Skip
from pipeline.logs.streams import LogStream, Progress, open_log

_HEAD = 256
_HEAD_BYTES = 16 << 20
_CUT_OFF = "the last line is cut off"


class Item(NamedTuple):
    """A line, or row of a document: an object or a text, or why it is neither."""

    line: int
    value: Any
    raw: bytes | None = None


class Found(NamedTuple):
    """What a line gave: a request, or why it gave none. A line may give several."""

    line: int
    what: LogRecord | Skip | BadLine
    raw: bytes | None = None


_Read = TypeVar("_Read", Item, Found)


@dataclass
class LogFile:
    """A log file that is being read.

    lines     lines or rows so far, blank ones aside
    families  how many of them each family read
    family    the family of most of its first lines
    repairs   lines that could only be read leniently, by what was overlooked
    """

    path: Path
    lines: int = 0
    families: Counter[str] = field(default_factory=Counter)
    family: LogFamily | None = None
    repairs: Counter[str] = field(default_factory=Counter)


def read_log(
    log: LogFile,
    *,
    log_format: str | None = None,
    columns: dict[str, str] | None = None,
    progress: Progress = lambda _: None,
) -> Iterator[Found]:
    """Yield what each line of a log gives, in order.

    Lines are read by the family that recognises them, or all by `log_format`; lines whose prompts
    are of another kind than those of most first lines (blocks among text) are bad. `columns`
    renames fields first. Raises LogError if the file can't be read to its end or is refused.
    """
    if log_format is not None and log_format not in families_by_name:
        raise unknown("log format", log_format, list(families_by_name))
    items = _renamed(_items(log, progress), columns or {})
    head = _first(items)
    forced = families_by_name[log_format] if log_format else None
    log.family = forced or _most_common(_family_of(item.value) for item in head)
    if log.family and log.family.refused:
        raise LogError(f"{log.path}: {log.family.name}: {log.family.refused}")
    found = chain.from_iterable(map(_LineReader(log, forced), chain(head, items)))
    return _of_one_kind(found)


families_by_name = {family.name: family for family in FAMILIES}
"""What `--log-format` can be."""


def _items(log: LogFile, progress: Progress) -> Iterator[Item]:
    if is_parquet(log.path):
        for number, row in parquet_rows(log.path, progress):
            log.lines += 1
            yield Item(number, row)
        return
    with open_log(log.path, progress) as stream:
        rows = document(stream, log.repairs)
        if rows is None:
            yield from _lines(log, stream)
            return
        for number, row in rows:
            log.lines += 1
            known = isinstance(row, dict | BadLine)
            yield Item(number, row if known else BadLine("not a JSON object"))


def _lines(log: LogFile, stream: LogStream) -> Iterator[Item]:
    for line in read_lines(stream):
        log.lines += 1
        if line.content is None:
            yield Item(line.number, BadLine(f"longer than {LONGEST_LINE >> 20} MB"))
            continue
        try:
            content = parse_line(line.content)
        except BadLine as reason:
            reason = reason if line.whole else BadLine(_CUT_OFF)
            yield Item(line.number, reason, line.content)
            continue
        if content.repairs:
            log.repairs.update(content.repairs)
        for value in content.values:
            yield Item(line.number, value, line.content)


def _renamed(items: Iterator[Item], columns: dict[str, str]) -> Iterator[Item]:
    """Give objects the field names that we know, from the user's."""
    if not columns:
        return items
    return (_with_names(item, columns) for item in items)


def _with_names(item: Item, columns: dict[str, str]) -> Item:
    if not isinstance(item.value, dict):
        return item
    theirs = {name: item.value[name] for name in columns.values() if name in item.value}
    rest = {k: v for k, v in item.value.items() if k not in theirs}
    return Item(
        item.line, rest | {our: theirs[n] for our, n in columns.items() if n in theirs}, item.raw
    )


def _family_of(value: Any) -> LogFamily | None:
    if isinstance(value, BadLine):
        return None
    asked = _asked(tuple(value)) if isinstance(value, dict) else _OF_TEXT
    return next((family for family in asked if family.recognises(value)), None)


_OF_TEXT = [family for family in FAMILIES if family.other_lines]


@lru_cache(maxsize=4096)
def _asked(names: tuple[str, ...]) -> list[LogFamily]:
    """Return the families that an object with these fields can belong to."""
    return [
        family
        for family in FAMILIES
        if not family.fields or not set(family.fields).isdisjoint(names)
    ]


def _most_common(families: Iterator[LogFamily | None]) -> LogFamily | None:
    counted = Counter(family.name for family in families if family)
    return families_by_name[counted.most_common(1)[0][0]] if counted else None


class _LineReader:
    """Reads an item by the family it belongs to; each family has one reader a file."""

    def __init__(self, log: LogFile, forced: LogFamily | None) -> None:
        self._log = log
        self._forced = forced
        self._readers: dict[str, Reader] = {}

    def __call__(self, item: Item) -> list[Found]:
        if isinstance(item.value, BadLine):
            return [Found(item.line, item.value, item.raw)]
        try:
            return [Found(item.line, what, item.raw) for what in self._read(item.value)]
        except BadLine as reason:
            return [Found(item.line, reason, item.raw)]
        except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError):
            formless = BadLine("its fields don't have the form of its format")
            return [Found(item.line, formless, item.raw)]

    def _read(self, value: Any) -> list[LogRecord | Skip | BadLine]:
        family = self._forced or _family_of(value)
        if family is None or family.refused:
            main = self._log.family
            if isinstance(value, str) and main and main.other_lines:
                return [Skip(main.other_lines)]
            raise BadLine(
                "not a JSON object" if isinstance(value, str) else "no prompt in a known form"
            )
        if self._forced and isinstance(value, str) and not family.recognises(value):
            if family.other_lines:
                return [Skip(family.other_lines)]
            raise BadLine("not a JSON object")
        self._log.families[family.name] += 1
        reader = self._readers.get(family.name)
        if reader is None:
            reader = self._readers[family.name] = family.reader()
        return list(reader(value))


def _first(each: Iterator[_Read]) -> list[_Read]:
    """Take what comes first: some hundred lines, fewer if they are large."""
    head: list[_Read] = []
    size = 0
    for one in islice(each, _HEAD):
        head.append(one)
        size += len(one.raw or b"")
        if size > _HEAD_BYTES:
            break
    return head


def _of_one_kind(found: Iterator[Found]) -> Iterator[Found]:
    """Let only prompts of one kind through: the kind of most that come first."""
    head = _first(found)
    kinds = Counter(kind for one in head if (kind := _kind(one.what)))
    if not kinds:
        yield from head
        head = []
    kind = kinds.most_common(1)[0][0] if kinds else None
    for one in chain(head, found):
        other = _kind(one.what)
        kind = kind or other
        if other and other != kind:
            yield Found(one.line, BadLine(f"{other} among {kind}"), one.raw)
        else:
            yield one


def _kind(what: LogRecord | Skip | BadLine) -> str | None:
    """Return what a prompt is made of: a trace holds text, or blocks of one size."""
    if not isinstance(what, LogRecord) or what.prompt is None:
        return None
    if isinstance(what.prompt, Blocks):
        return f"blocks of {what.prompt.block_tokens} tokens"
    return "text or tokens"
