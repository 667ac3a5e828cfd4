"""Rows of a query as text: an aligned table, CSV, JSON; or as Parquet."""

import csv
import io
import json
import math
from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import QueryError

_CHUNK = 1024


def render(table: pa.Table, form: str) -> Iterator[bytes]:
    """Yield a query's rows in one of FORMATS, piece by piece.

    Columns of one name are told apart by a number. Raises QueryError for a type that the format
    does not have.
    """
    try:
        yield from FORMATS[form](_named_apart(table))
    except pa.ArrowException as error:
        raise QueryError(f"--format {form} can't hold this: {error}") from None


def _named_apart(table: pa.Table) -> pa.Table:
    names: list[str] = []
    for name in table.column_names:
        number = sum(n == name or n.startswith(f"{name}_") for n in names)
        names.append(f"{name}_{number}" if name in names else name)
    return table.rename_columns(names)


def transposed(table: pa.Table, key: str) -> pa.Table:
    """Return a table with the values of column `key` as its columns, and a row a column."""
    names = [n for n in table.column_names if n != key]
    columns = {key: names}
    for row in table.to_pylist():
        columns[str(row[key])] = [_cell(name, row[name]) for name in names]
    return pa.table(columns)


def _as_table(table: pa.Table) -> Iterator[bytes]:
    names = table.column_names
    rows = [[_cell(n, v) for n, v in row.items()] for row in table.to_pylist()]
    numeric = [pa.types.is_integer(t) or pa.types.is_floating(t) for t in table.schema.types]
    rest = list(zip(*rows, strict=True)) or [()] * len(names)
    right = [
        n or (bool(c) and all(map(_looks_numeric, c))) for n, c in zip(numeric, rest, strict=True)
    ]
    widths = [max(map(len, (name, *cells))) for name, cells in zip(names, rest, strict=True)]
    for cells in (names, ["-" * w for w in widths], *rows):
        aligned = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(cells, widths, right, strict=True)
        ]
        yield ("  ".join(aligned).rstrip() + "\n").encode()


def _as_csv(table: pa.Table) -> Iterator[bytes]:
    yield _csv_lines([table.column_names])
    for batch in table.to_batches(_CHUNK):
        yield _csv_lines([[_as_text(v) for v in row.values()] for row in batch.to_pylist()])


def _csv_lines(rows: list[list[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _as_json(table: pa.Table) -> Iterator[bytes]:
    yield b"["
    between = "\n"
    for batch in table.to_batches(_CHUNK):
        for row in batch.to_pylist():
            plain = {name: _plain(value) for name, value in row.items()}
            yield (between + json.dumps(plain, ensure_ascii=False, default=str)).encode()
            between = ",\n"
    yield b"\n]\n"


def _as_parquet(table: pa.Table) -> Iterator[bytes]:
    stream = io.BytesIO()
    pq.write_table(table, stream, compression="zstd")
    yield stream.getvalue()


FORMATS: dict[str, Callable[[pa.Table], Iterator[bytes]]] = {
    "table": _as_table,
    "csv": _as_csv,
    "json": _as_json,
    "parquet": _as_parquet,
}


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool) and name.endswith("_tokens"):
        return f"{value:,}"
    return str(_as_text(value))


def _as_text(value: Any) -> Any:
    """Return a value as tables and CSV have it: like _plain, and truth as SQL writes it."""
    return str(value).lower() if isinstance(value, bool) else _plain(value)


def _plain(value: Any) -> Any:
    """Return a value as CSV and JSON have it: times as ISO text, NaN and infinity as nothing."""
    if isinstance(value, datetime | date):
        return value.isoformat(sep=" ") if isinstance(value, datetime) else value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return value


def _looks_numeric(cell: str) -> bool:
    return cell == "" or cell.replace(",", "").replace(".", "").replace("-", "").isdigit()
