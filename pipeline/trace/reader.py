"""TraceFile: an open trace, or any Parquet file with token ids, read by row group."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.errors import TraceError
from pipeline.tables import (
    ARRIVAL_TYPE,
    BLOCK_COLUMN,
    CARRIED_COLUMNS,
    OUTPUT_COLUMN,
    TOKEN_COLUMN,
    TRACE,
    WHOLE_COLUMNS,
    Column,
)
from pipeline.trace.checks import TraceColumns, check_columns, check_links, check_order, check_seq
from pipeline.trace.metadata import TraceMetadata

_LINK_COLUMNS = ("seq", "arrival", "prompt_tokens", "first_token_id", "prefix_seq", "prefix_tokens")
_REQUIRED = ("request_id", *_LINK_COLUMNS)
_COLUMNS = {column.name: column for column in TRACE}


@dataclass(frozen=True)
class TraceFile:
    """A Parquet file that holds a trace.

    `names` are the columns of the contract that it has. The file stays open, so that every pass
    reads the same one even if its name is given to another meanwhile.
    """

    path: Path
    rows: int
    names: frozenset[str]
    metadata: TraceMetadata
    file: pq.ParquetFile = field(repr=False, compare=False)

    @classmethod
    def open(cls, path: Path) -> "TraceFile":
        """Open a trace; TraceError if it is missing, damaged, empty, or something else."""
        with _undamaged(path):
            return cls._open(path)

    @classmethod
    def _open(cls, path: Path) -> "TraceFile":
        file = _parquet(path)
        schema, rows = file.schema_arrow, file.metadata.num_rows
        names = frozenset(schema.names) & _COLUMNS.keys()
        metadata = TraceMetadata.of_parquet(schema.metadata, path)
        trace = cls(path, rows, names, metadata, file)
        if not trace.linked and trace.ids is None:
            missing = [n for n in _REQUIRED if n not in names]
            raise TraceError(
                f"{path}: not a trace: it has neither {TOKEN_COLUMN} nor the columns"
                f" {', '.join(missing)}; make one from request logs with: replay tokenize"
            )
        if rows == 0:
            raise TraceError(f"{path}: the trace has no rows, so there is nothing to replay")
        for name in names:
            _check_type(path, schema.field(name), _COLUMNS[name])
        return trace

    @property
    def ids(self) -> str | None:
        """Name of the token or block column."""
        return next((n for n in (TOKEN_COLUMN, BLOCK_COLUMN) if n in self.names), None)

    @property
    def linked(self) -> bool:
        """Whether every column that a replay needs is there."""
        return self.names.issuperset(_REQUIRED)

    @property
    def has_outputs(self) -> bool:
        """Whether its links tell of outputs too."""
        return self.linked and self.names.issuperset(WHOLE_COLUMNS)

    @property
    def has_output_ids(self) -> bool:
        """Whether outputs can be linked: they have token ids, as the prompts do."""
        return self.ids == TOKEN_COLUMN and OUTPUT_COLUMN in self.names

    def batches(self, columns: list[str], rows: int) -> Iterator[pa.Table]:
        """Yield all rows in order, `rows` at a time, as the columns that the file has of these.

        Types are those of the contract, and a null where it has none is a TraceError; a column
        that it does not know is as it is.
        """
        names = [n for n in columns if n in self.file.schema_arrow.names]
        done = 0
        read = self.file.iter_batches(batch_size=rows, columns=names)
        while True:
            with _undamaged(self.path):
                batch = next(read, None)
                if batch is None:
                    break
                arrays = [self._column(batch, name, done) for name in names]
            done += len(batch)
            yield pa.Table.from_arrays(arrays, names=names)

    def rows_of_ids(self, ids: int) -> int:
        """Return how many rows hold about that many ids, of prompts and outputs, at least 1."""
        footer = self.file.metadata
        paths = [footer.schema.column(i).path for i in range(footer.num_columns)]
        lists = (f"{self.ids}.", f"{OUTPUT_COLUMN}.")
        leaf = [i for i, path in enumerate(paths) if path.startswith(lists)]
        values = sum(
            footer.row_group(g).column(i).num_values
            for g in range(footer.num_row_groups)
            for i in leaf
        )
        return max(1, ids * self.rows // max(int(values), self.rows))

    def columns(self) -> TraceColumns:
        """Read the columns that decide a replay and check their laws."""
        with _undamaged(self.path):
            return self._columns()

    def _columns(self) -> TraceColumns:
        check_columns(self.path, self.names)
        names = [*_LINK_COLUMNS, *(WHOLE_COLUMNS if self.has_outputs else ())]
        parts: dict[str, list[NDArray[Any]]] = {name: [] for name in (*names, "namespace")}
        numbers: dict[str | None, int] = {None: 0}
        for table in self.batches(list(parts), 1 << 18):
            for name in names:
                parts[name].append(_as_numpy(table[name], signed=name.endswith("prefix_seq")))
            parts["namespace"].append(_numbered(table, numbers))
        read = {name: np.concatenate(arrays) for name, arrays in parts.items()}
        seq, namespaces, arrival = (read.pop(n) for n in ("seq", "namespace", "arrival"))
        columns = TraceColumns(arrival_us=arrival, **read)
        check_seq(str(self.path), seq)
        check_order(str(self.path), columns.arrival_us)
        check_links(str(self.path), columns, namespaces, self.metadata.shortest_tokens)
        return columns

    def _column(self, batch: pa.RecordBatch, name: str, first_row: int) -> pa.Array:
        contract, array = _COLUMNS.get(name), batch.column(name)
        if contract is None:
            return array
        if array.null_count and not contract.nullable:
            row = first_row + int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
            raise TraceError(f"{self.path}: row {row}: {name} is null")
        try:
            finer = pa.types.is_timestamp(array.type) and array.type.unit == "ns"
            cast = array.cast(contract.type, safe=not finer)
        except pa.ArrowInvalid as error:
            raise TraceError(
                f"{self.path}: rows {first_row} to {first_row + len(batch) - 1}:"
                f" {name} does not fit {contract.type}: {error}"
            ) from None
        if pa.types.is_large_list(cast.type) and cast.flatten().null_count:
            row = first_row + next(i for i, ids in enumerate(cast) if None in ids.as_py())
            raise TraceError(f"{self.path}: row {row}: {name} has a null in it")
        return cast


def fingerprint(columns: TraceColumns) -> str:
    """Return a hash of all that decides a replay: the same with and without the token column."""
    digest = hashlib.blake2b(digest_size=16)
    for array in columns:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def carried_names() -> list[str]:
    """Return the columns that go from a trace into its decisions unread."""
    return ["request_id", "arrival", *(c.name for c in CARRIED_COLUMNS)]


def _parquet(path: Path) -> pq.ParquetFile:
    if path.is_dir():
        raise TraceError(f"{path}: is a folder: name a Parquet file in it")
    try:
        if path.stat().st_size == 0:
            raise TraceError(f"{path}: the file is empty")
        return pq.ParquetFile(path, page_checksum_verification=True)
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file") from None
    except PermissionError:
        raise TraceError(f"{path}: no permission to read it") from None
    except (pa.ArrowInvalid, OSError) as error:
        with path.open("rb") as stream:
            starts_right = stream.read(4) == b"PAR1"
        if starts_right:
            raise _damaged(path) from error
        raise TraceError(
            f"{path}: not a Parquet file; make a trace of request logs with: replay tokenize"
        ) from error


@contextmanager
def _undamaged(path: Path) -> Iterator[None]:
    """Turn whatever a reader makes of damaged bytes into one error."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, LookupError, OverflowError) as error:
        raise _damaged(path) from error


def _damaged(path: Path) -> TraceError:
    return TraceError(f"{path}: truncated or damaged Parquet: copy it again")


def _check_type(path: Path, field: pa.Field, column: Column) -> None:
    found, wanted = field.type, column.type
    if pa.types.is_dictionary(found):
        found = found.value_type
    families = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_timestamp,
        lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_null(t),
        lambda t: (
            (pa.types.is_list(t) or pa.types.is_large_list(t)) and pa.types.is_integer(t.value_type)
        ),
    )
    nullable_null = column.nullable and pa.types.is_null(found)
    if not nullable_null and not any(same(found) and same(wanted) for same in families):
        raise TraceError(f"{path}: column {field.name} is {field.type}, but should be {wanted}")


def _as_numpy(column: pa.ChunkedArray, *, signed: bool) -> NDArray[Any]:
    """Return a column's integers as they are, or signed with -1 for null."""
    if signed:
        column = column.cast(pa.int64(), safe=False).fill_null(-1)
    elif column.type == ARRIVAL_TYPE:
        column = column.cast(pa.int64())
    integers: NDArray[Any] = column.to_numpy()
    return integers


def _numbered(table: pa.Table, numbers: dict[str | None, int]) -> NDArray[np.int64]:
    """Return the namespace of each row as a number, giving new ones the next."""
    if "namespace" not in table.column_names:
        return np.zeros(len(table), np.int64)
    coded = table["namespace"].combine_chunks().dictionary_encode(null_encoding="encode")
    of_code = [numbers.setdefault(n, len(numbers)) for n in coded.dictionary.to_pylist()]
    codes: NDArray[np.int32] = coded.indices.to_numpy()
    return np.array(of_code or [0], np.int64)[codes]
