"""Logs that are no lines: JSON arrays and pretty-printed JSON, CSV, Parquet, pickles."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import LogError
from pipeline.logs.arrays import json_items
from pipeline.logs.lines import BYTE_ORDER_MARK, LONGEST_LINE
from pipeline.logs.objects import BAD_UTF8, parse_line
from pipeline.logs.pickles import BadPickle, read_pickle
from pipeline.logs.records import BadLine
from pipeline.logs.streams import CHUNK, COMPRESSED, STDIN, LogStream, Progress

_TAR_AT = 257
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_HEAD = 4096
_ARRAY = re.compile(rb"\[\s*(\{|\]\s*\Z)")
_OPEN_OBJECT = re.compile(rb"\{\s*\n")
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_PARQUET = b"PAR1"
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_NO_UTF8 = re.compile("[\udc80-\udcff]")
_BATCH_ROWS = 1024
_BATCH_BYTES = 16 << 20
_LARGEST_PICKLE = 1 << 29
_DUMPED = ("obj", "out", "created", "finished")

Rows = Iterator[tuple[int, dict[str, Any] | BadLine]]


def document(stream: LogStream, repairs: Counter[str] | None = None) -> Rows | None:
    """Yield the numbered rows of a stream that is one document, None for a stream of lines.

    Rows count from 1. Those that can only be read leniently are counted in `repairs` by what was
    overlooked, and are bad without it. Raises LogError where the document breaks off or is no
    such document.
    """
    head = stream.head(_HEAD)
    if head[_TAR_AT:].startswith(b"ustar"):
        raise LogError(f"{stream.path}: is a tar archive, not a log: unpack it first")
    if head.startswith(_UTF16):
        raise LogError(f"{stream.path}: is UTF-16: turn it into UTF-8 first")
    head = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    if head.startswith(_PARQUET):
        raise LogError(f"{stream.path}: is Parquet, compressed or piped: give it as a plain file")
    if _PICKLE.match(head):
        return _pickled(stream)
    if _ARRAY.match(head) or _OPEN_OBJECT.match(head):
        return _json(stream, repairs)
    path = stream.path
    suffix = (path.with_suffix("") if path.suffix.lower() in COMPRESSED else path).suffix.lower()
    delimiter = _DELIMITERS.get(suffix)
    return _csv(stream, delimiter, repairs) if delimiter else None


def is_parquet(path: Path) -> bool:
    """Tell whether a file is Parquet, which is read from its end."""
    try:
        if path == STDIN or not path.is_file():
            return False
        with path.open("rb") as raw:
            return raw.read(len(_PARQUET)) == _PARQUET
    except OSError:
        return False  # open_log says why it can't be read


def parquet_rows(path: Path, progress: Progress) -> Rows:
    """Yield the rows of a Parquet file; its dates are datetimes, to the microsecond."""
    number = 0
    try:
        with pq.ParquetFile(path) as file:
            size, rows = path.stat().st_size, max(file.metadata.num_rows, 1)
            for batch in file.iter_batches(_BATCH_ROWS):
                for row in _batch_rows(batch):
                    number += 1
                    yield number, row
                progress(size * number // rows)
    except (OSError, ValueError, pa.ArrowException) as error:
        what = str(error).split("\n", 1)[0][:200]
        raise LogError(f"{path}: damaged or truncated Parquet: {what}") from None


def _batch_rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield rows as Python values, as many at a time as fit into some memory."""
    columns = [column.cast(_in_us(column.type), safe=False) for column in batch.columns]
    batch = pa.RecordBatch.from_arrays(columns, batch.schema.names)
    step = max(1, batch.num_rows * _BATCH_BYTES // max(batch.nbytes, _BATCH_BYTES))
    for begin in range(0, batch.num_rows, step):
        yield from batch.slice(begin, step).to_pylist()


def _in_us(kind: pa.DataType) -> pa.DataType:
    """Return a type whose timestamps Python can hold: in microseconds, of UTC if of any zone."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz and "UTC")
    if pa.types.is_list(kind):
        return pa.list_(_in_us(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(_in_us(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_us(field.type)) for field in kind])
    return kind


def _json(stream: LogStream, repairs: Counter[str] | None) -> Rows:
    """Yield the items of JSON arrays, or one JSON object after another."""
    if stream.head(len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK:
        stream.read(len(BYTE_ORDER_MARK))
    for number, item in enumerate(json_items(stream), 1):
        try:
            content = parse_line(item)
        except BadLine as reason:
            yield number, reason
            continue
        value = content.values[0]
        if not isinstance(value, dict):
            yield number, BadLine("not a JSON object")
        elif content.repairs and repairs is None:
            yield number, BadLine("no strict JSON")
        else:
            if repairs is not None:
                repairs.update(content.repairs)
            yield number, value


def _csv(stream: LogStream, delimiter: str, repairs: Counter[str] | None) -> Rows:
    """Yield rows by the names in the first one."""
    csv.field_size_limit(LONGEST_LINE)
    text = io.TextIOWrapper(
        io.BufferedReader(stream), "utf-8-sig", errors="surrogateescape", newline=""
    )
    lines = _bounded(stream.path, text)
    rows = _cells(stream.path, csv.reader(lines, delimiter=delimiter, strict=True))
    names = next(rows, [])
    if names is None:
        raise LogError(f"{stream.path}: its first row is no CSV")
    for number, cells in enumerate(rows, 1):
        yield number, _csv_row(names, cells, repairs)


def _bounded(path: Path, text: io.TextIOWrapper) -> Iterator[str]:
    while line := text.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE and line[-1] not in "\r\n":
            raise LogError(f"{path}: a line is longer than {LONGEST_LINE >> 20} MB")
        yield line


def _cells(path: Path, rows: Iterator[list[str]]) -> Iterator[list[str] | None]:
    """Yield the fields of each row that isn't blank, None for one that is no CSV."""
    while True:
        try:
            cells = next(rows, None)
        except csv.Error as error:
            if "larger than field limit" in str(error):
                raise LogError(f"{path}: a field is longer than {LONGEST_LINE >> 20} MB") from None
            yield None
            continue
        if cells is None:
            return
        if cells:
            yield cells


def _csv_row(
    names: list[str], cells: list[str] | None, repairs: Counter[str] | None
) -> dict[str, Any] | BadLine:
    if cells is None:
        return BadLine("no row of CSV: its quotes don't match")
    if len(cells) != len(names):
        return BadLine("more or fewer fields than the first row")
    if any(map(_NO_UTF8.search, cells)):
        if repairs is None:
            return BadLine("bytes that are no UTF-8")
        repairs[BAD_UTF8] += 1
        cells = [c.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for c in cells]
    return dict(zip(names, cells, strict=True))


def _pickled(stream: LogStream) -> Rows:
    """Yield the requests of an SGLang dump, as obj, out, created and finished."""
    pieces: list[bytes] = []
    while sum(map(len, pieces)) <= _LARGEST_PICKLE and (piece := stream.read(CHUNK)):
        pieces.append(piece)
    content = b"".join(pieces)
    if len(content) > _LARGEST_PICKLE:
        raise LogError(f"{stream.path}: a pickle of more than {_LARGEST_PICKLE >> 20} MB")
    try:
        dump = read_pickle(content)
    except BadPickle as reason:
        raise LogError(f"{stream.path}: not an SGLang dump: {reason}") from None
    requests = dump.get("requests") if isinstance(dump, dict) else None
    if not isinstance(requests, list):
        raise LogError(f"{stream.path}: not an SGLang dump: it has no requests")
    for number, request in enumerate(requests, 1):
        if isinstance(request, tuple | list) and len(request) == len(_DUMPED):
            yield number, dict(zip(_DUMPED, request, strict=True))
        else:
            yield number, BadLine("it isn't obj, out, created and finished")
