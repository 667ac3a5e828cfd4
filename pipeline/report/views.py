"""The tables of a run as DuckDB views: decisions, evictions, replicas, and the trace itself."""

import json
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import QueryError, RunError
from pipeline.run import is_run
from pipeline.tables import SEQUENCE_COLUMNS

_TABLES = ("decisions", "evictions", "replicas")
_READING = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)


def views_sql(run: Path) -> str:
    """Return the SQL that creates a run's views, for DuckDB here or in its own shell."""
    if not run.exists():
        raise RunError(f"{run}: no such run; make one with: replay TRACE -o {run}")
    if not is_run(run):
        raise RunError(f"{run}: not a run folder (no run.json of a replay in it)")
    statements = [_view(table, run.resolve()) for table in _TABLES]
    trace = Path(json.loads(Path(run, "run.json").read_text(encoding="utf-8"))["trace"]["path"])
    if trace.exists():
        statements.append(_trace_view(trace))
    return "\n".join(statements) + "\n"


def open_run(run: Path) -> duckdb.DuckDBPyConnection:
    """Return a connection that has the run's views and nothing else."""
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    try:
        connection.execute(views_sql(run))
    except duckdb.Error as error:
        raise RunError(f"{run}: the run can't be read: {_one_line(error)}") from None
    return connection


def select(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    """Run one statement that reads, and return its rows; QueryError for anything else."""
    try:
        statements = connection.extract_statements(sql)
        if len(statements) != 1 or statements[0].type not in _READING:
            raise QueryError("give one select statement: a run is only read, never changed")
        return connection.sql(sql).to_arrow_table()
    except duckdb.Error as error:
        raise QueryError(_one_line(error)) from None


def _view(table: str, run: Path) -> str:
    files = _quoted(run / table / "*" / "*.parquet")
    return (
        f"create view {table} as from read_parquet({files},"
        " hive_partitioning = true, hive_types = {'policy': varchar});"
    )


def _trace_view(trace: Path) -> str:
    ids = {column.name for column in SEQUENCE_COLUMNS}
    names = [name for name in pq.read_schema(trace).names if name not in ids]
    columns = ", ".join(f'"{name}"' for name in names)
    return f"create view trace as select {columns} from read_parquet({_quoted(trace)});"  # noqa: S608 - our own names


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
