"""Which of a trace's requests are replayed: those that a predicate chooses, of sampled sessions.

A predicate is the user's own text, so DuckDB reads it in a connection that has nothing but the
columns that it names, and can neither open a file nor see a variable of this process.
"""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.config import SubsetConfig
from pipeline.errors import UsageError, unknown
from pipeline.tables import OUTPUT_COLUMN, SEQUENCE_COLUMNS, TRACE
from pipeline.trace import TraceFile

_BATCH_ROWS = 1 << 18
_IDS = {OUTPUT_COLUMN, *(column.name for column in SEQUENCE_COLUMNS)}
_TYPES = {column.name: column.type for column in TRACE if column.name not in _IDS}
_ROW_NUMBERS = {"seq", "prefix_seq", "whole_prefix_seq"}
_ROW = "row of this batch"  # no column of a trace is called that
_VIEW = "trace"
_LOCKS: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": False,
    "python_enable_replacements": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
_UNSTABLE = frozenset[str]().union(
    # they tell the time
    ("age", "ago", "current_date", "current_localtime", "current_localtimestamp"),
    ("current_time", "current_timestamp", "get_current_time", "get_current_timestamp"),
    ("localtime", "localtimestamp", "now", "pg_conf_load_time", "pg_postmaster_start_time"),
    ("pg_sleep", "sleep_ms", "today", "transaction_timestamp"),
    # they tell of chance, or of what ran before
    ("currval", "current_connection_id", "current_query", "current_query_id"),
    ("current_transaction_id", "gen_random_uuid", "nextval", "random", "setseed", "setval"),
    ("stats", "txid_current", "uuid", "uuidv4", "uuidv7", "vector_type", "write_log"),
)
"""Functions of DuckDB that would choose other requests in the next run."""


def check_subset(subset: SubsetConfig) -> None:
    """Raise UsageError for a predicate that can't be one on a trace whose links will be made."""
    if subset.where is not None:
        columns = pa.schema(list(_TYPES.items()))
        _used(subset.where, columns, joined=subset.warmup is not None)


def chosen_requests(
    trace: TraceFile, subset: SubsetConfig, warmup_rows: int = 0
) -> NDArray[np.bool_]:
    """Tell for each row of a trace whether it is replayed.

    The first `warmup_rows` come from a warm-up trace: they are chosen likewise. UsageError for a
    predicate that is not one, and if no row is left beside those of the warm-up.
    """
    chosen = np.ones(trace.rows, np.bool_)
    if subset.where is not None:
        chosen &= _where(trace, subset.where, joined=warmup_rows > 0)
    if subset.sample < 1:
        chosen &= _of_sampled_sessions(trace, subset.sample)
    if not chosen[warmup_rows:].any():
        asked = [] if subset.where is None else [f"where is {subset.where!r}"]
        asked += [f"sample is {subset.sample}"] if subset.sample < 1 else []
        raise UsageError(
            f"of the trace's {trace.rows - warmup_rows:,} requests none is left to replay:"
            f" {' and '.join(asked)}: choose more"
        )
    return chosen


def _of_sampled_sessions(trace: TraceFile, sample: float) -> NDArray[np.bool_]:
    """Choose sessions by a hash of their ids; a request without session is one by its own id.

    So a session is chosen in every trace or in none, and with every larger sample too.
    """
    chosen, first = np.empty(trace.rows, np.bool_), 0
    limit = np.uint64(math.ceil(sample * 2.0**64))  # exact, and below 2**64 as sample is below 1
    for table in trace.batches(["request_id", "session_id"], _BATCH_ROWS):
        ids = table["request_id"]
        if "session_id" in table.column_names:
            ids = pc.coalesce(table["session_id"], ids)
        coded = ids.combine_chunks().dictionary_encode()
        names = coded.dictionary.cast(pa.binary()).to_pylist()
        hashes = b"".join([blake2b(name, digest_size=8).digest() for name in names])
        kept = np.frombuffer(hashes, ">u8") < limit
        chosen[first : first + len(table)] = kept[coded.indices.to_numpy()]
        first += len(table)
    return chosen


def _where(trace: TraceFile, where: str, *, joined: bool) -> NDArray[np.bool_]:
    """Tell for each row whether the predicate is true; null is not."""
    used = _used(where, _columns(trace), joined=joined)
    chosen, first = np.zeros(trace.rows, np.bool_), 0
    # One expression, so that it can't end where it is put; a line break ends a comment in it.
    sql = f'select "{_ROW}" from {_VIEW} where (\n{where}\n)'  # noqa: S608 - checked
    with _reasons(where), _locked_connection() as connection:
        for table in _tables(trace, used):
            connection.register(_VIEW, table)
            rows = connection.sql(sql).to_arrow_table()[_ROW].to_numpy()
            chosen[first + rows] = True
            first += len(table)
    return chosen


def _used(where: str, columns: pa.Schema, *, joined: bool) -> pa.Schema:
    """Return the columns that a predicate names; UsageError for what is none on these."""
    with _reasons(where), _locked_connection() as connection:
        used = _check(connection, where, columns)
    if joined and not _ROW_NUMBERS.isdisjoint(used.names):
        raise _refused(where, "with a warm-up, row numbers are not those of the trace")
    return used


@contextmanager
def _reasons(where: str) -> Iterator[None]:
    """Turn what DuckDB has against a predicate into an error."""
    try:
        yield
    except duckdb.Error as error:
        reason = str(error).partition("\n\nLINE ")[0]  # there it shows our own statement
        raise _refused(where, reason) from None


def _columns(trace: TraceFile) -> pa.Schema:
    """Return what a predicate may name: all columns but the ids of tokens and blocks."""
    return pa.schema(
        pa.field(field.name, _TYPES.get(field.name, field.type))
        for field in trace.file.schema_arrow
        if field.name not in _IDS
    )


def _tables(trace: TraceFile, columns: pa.Schema) -> Iterator[pa.Table]:
    """Yield these columns of all rows, a batch at a time, and each row's number in its batch."""
    if not columns.names:
        yield pa.table({_ROW: np.arange(trace.rows)})
        return
    for table in trace.batches(columns.names, _BATCH_ROWS):
        yield table.append_column(_ROW, pa.array(np.arange(len(table))))


@contextmanager
def _locked_connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a connection that reaches nothing outside, and whose settings stay as they are."""
    with duckdb.connect(config=_LOCKS) as connection:
        connection.execute("set timezone = 'UTC'")
        connection.execute("set lock_configuration = true")
        yield connection


def _check(connection: duckdb.DuckDBPyConnection, where: str, columns: pa.Schema) -> pa.Schema:
    """Return the columns that a predicate names; UsageError unless it is one on them alone."""
    used, strange = _names(connection, where, columns)
    connection.register(_VIEW, used.append(pa.field(_ROW, pa.int64())).empty_table())
    try:
        sql = f"select (\n{where}\n) from {_VIEW} where (\n{where}\n)"  # noqa: S608 - one expression
        kind = str(connection.sql(sql).types[0])
    except duckdb.BinderException as error:
        for name in strange:
            if f'"{name}" not found' in str(error):
                raise _refused(where, str(unknown("column", name, columns.names))) from None
        raise
    if kind != "BOOLEAN":
        raise _refused(where, f"it is {kind}, not true or false")
    return used


def _names(
    connection: duckdb.DuckDBPyConnection, where: str, columns: pa.Schema
) -> tuple[pa.Schema, list[str]]:
    """Return the columns that a predicate names, and what else it names; refuse what it may not."""
    # What is an expression alone and in parentheses can't close the one and open another.
    _parsed(connection, where, f"select\n{where}\n")
    nodes = list(_nodes(_parsed(connection, where, f"select (\n{where}\n)")))
    kinds = {node.get("class") for node in nodes}
    if "SUBQUERY" in kinds:
        raise _refused(where, "it holds a subquery: compare the trace's columns with values")
    if "STAR" in kinds:
        raise _refused(where, "it holds a *: name the columns")
    names = [part for node in nodes for part in node.get("column_names") or ()]
    calls = [str(node["function_name"]) for node in nodes if node.get("class") == "FUNCTION"]
    known = {name.lower() for name in columns.names}
    strange = [name for name in names if name.lower() not in known]
    for name in strange:
        if name.lower() in (_VIEW, _ROW):
            raise _refused(where, str(unknown("column", name, columns.names)))
    for name in (*strange, *calls):
        if name.lower() in _UNSTABLE:
            raise _refused(where, f"{name} differs from run to run: compare with a value instead")
    named = {name.lower() for name in names}
    return pa.schema([field for field in columns if field.name.lower() in named]), strange


def _parsed(connection: duckdb.DuckDBPyConnection, where: str, sql: str) -> Any:
    """Return the parse tree of a statement that holds the predicate."""
    try:
        sql.encode()
        [[text]] = connection.execute("select json_serialize_sql($1)", [sql]).fetchall()
        tree = json.loads(text)
    except UnicodeEncodeError:
        raise _refused(where, "it holds half a character: give text in UTF-8") from None
    except RecursionError:
        raise _refused(where, "it is nested too deeply") from None
    if tree["error"]:
        raise _refused(where, f"not one expression: {tree['error_message']}")
    return tree


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a parse tree."""
    pending = [tree]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            yield item
            pending += item.values()
        elif isinstance(item, list):
            pending += item


def _refused(where: str, reason: str) -> UsageError:
    return UsageError(f"where is {where!r}: {' '.join(reason.split())}")
