"""The SQL of a description: the files of queries/describe, and the view `trace` that they read."""

import glob
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

from pipeline.errors import TraceError, UsageError
from pipeline.prepare import ready_trace
from pipeline.sql_files import SqlFile, one_line, queries_folder, quoted, read_sql_file
from pipeline.tables import ARRIVAL_TYPE, OUTPUT_COLUMN, SEQUENCE_COLUMNS, TRACE
from pipeline.trace import TraceFile

STATEMENTS = ("overview", "lengths", "names", "top_names", "unlimited_cache")
NO_BLOCKS = 1
"""Blocks of one token: a hit is what the links say."""

_SQL_TYPES = {
    pa.uint64(): "ubigint",
    pa.uint32(): "uinteger",
    pa.float64(): "double",
    pa.string(): "varchar",
    ARRIVAL_TYPE: "timestamptz",
}


def check_block_tokens(block_tokens: int) -> None:
    """Raise UsageError for blocks that hold nothing."""
    if block_tokens < 1:
        raise UsageError(f"block-tokens is {block_tokens}: give at least 1")


def statements() -> list[SqlFile]:
    """Return the statements in the order in which they are read."""
    folder = queries_folder() / "describe"
    return [read_sql_file(folder / f"{name}.sql") for name in STATEMENTS]


def describe_sql(path: Path, block_tokens: int = NO_BLOCKS) -> str:
    """Return the SQL that describes a trace, for DuckDB here or in its own shell."""
    check_block_tokens(block_tokens)
    with ready_trace(path) as trace:
        if trace.path.parent != path.parent:
            raise TraceError(
                f"{path}: it has no links for SQL to read, and its folder can't be written;"
                f" make a trace that has them: replay link {path} -o NEW.parquet"
            )
        return "\n".join([_view_sql(trace, block_tokens), *(s.sql for s in statements())])


@contextmanager
def open_trace(trace: TraceFile, block_tokens: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a connection that has the view `trace`; TraceError for what DuckDB can't read."""
    try:
        with duckdb.connect() as connection:
            connection.execute(_view_sql(trace, block_tokens))
            yield connection
    except duckdb.Error as error:
        raise TraceError(f"{trace.path}: DuckDB can't read it: {one_line(error)}") from None


def _view_sql(trace: TraceFile, block_tokens: int) -> str:
    """Return the SQL of a view that has all columns of the contract but token and block ids."""
    ids = {OUTPUT_COLUMN, *(column.name for column in SEQUENCE_COLUMNS)}
    columns = []
    for name, kind in ((c.name, _SQL_TYPES[c.type]) for c in TRACE if c.name not in ids):
        source = f'"{name}"' if name in trace.names else "null"
        columns.append(f'    cast({source} as {kind}) as "{name}"')
    file = quoted(Path(glob.escape(str(trace.path.resolve()))))
    return "\n".join(
        (
            "set timezone = 'UTC';",
            f"set variable block_tokens = {block_tokens};",
            "create view trace as select",
            ",\n".join(columns),
            f"from read_parquet({file});",
            "",
        )
    )
