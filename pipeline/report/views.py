"""The tables of a run as DuckDB views, its settings as one more, and the trace itself.

`decisions` and `evictions` are what reports count; `all_decisions` and `all_evictions` hold the
rows of the warm-up too.
"""

import glob
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import QueryError, RunError
from pipeline.run_folder import TABLES, read_run, table_file
from pipeline.sql_files import one_line, quoted
from pipeline.tables import OUTPUT_COLUMN, SEQUENCE_COLUMNS

_EXPLAIN = re.compile(r"^\s*explain\s+(analyze\s+)?(\([^)]*\)\s*)?", re.IGNORECASE)
_WITH_WARMUP = ("decisions", "evictions")

_SETTINGS = (
    ("engine", "varchar", "engine.name"),
    ("cache_unit", "varchar", "engine.cache_unit"),
    ("block_tokens", "bigint", "chosen_block_tokens"),
    ("partial_block", "varchar", "engine.partial_block"),
    ("recompute_last_token", "boolean", "engine.recompute_last_token"),
    ("refresh", "varchar", "engine.refresh"),
    ("in_flight", "varchar", "engine.in_flight"),
    ("when_full", "varchar", "engine.when_full"),
    ("cache_output", "boolean", "engine.cache_output"),
    ("replicas", "bigint", "fleet.replicas"),
    ("capacity_tokens", "bigint", "fleet.capacity_tokens"),
    ("chosen_clock", "varchar", "chosen_clock"),
    ("prefill_ms_per_token", "double", "cost.prefill_ms_per_token"),
    ("lookup_ms_per_token", "double", "cost.lookup_ms_per_token"),
    ("decode_ms_per_token", "double", "cost.decode_ms_per_token"),
    ("where_clause", "varchar", "subset.where"),
    ("sample", "double", "subset.sample"),
    ("warmup_trace", "varchar", "subset.warmup"),
    ("warmup_fraction", "double", "subset.warmup_fraction"),
)
"""Columns of the view `settings`: name, type, and where run.json's config has the value."""


def views_sql(run: Path) -> str:
    """Return the SQL that creates a run's views, for DuckDB here or in its own shell."""
    if not run.exists():
        raise RunError(f"{run}: no such run; make one with: replay TRACE -o {run}")
    about = read_run(run)
    if about is None:
        raise RunError(f"{run}: not a run folder (no run.json of a replay in it)")
    statements = [_view(table, run.resolve()) for table in TABLES]
    statements += [_counted_view(table) for table in _WITH_WARMUP]
    try:
        statements.append(_settings_view(about["config"]))
    except (KeyError, TypeError):
        raise RunError(f"{run}: made by an older version: replay it again") from None
    trace = about.get("trace")
    path = trace.get("path") if isinstance(trace, dict) else None
    statements += _trace_view(Path(path)) if isinstance(path, str) else []
    return "\n".join(statements) + "\n"


def open_run(run: Path) -> duckdb.DuckDBPyConnection:
    """Return a connection that has the run's views and nothing else."""
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    try:
        connection.execute(views_sql(run))
    except duckdb.Error as error:
        raise RunError(f"{run}: the run can't be read: {one_line(error)}") from None
    return connection


def select(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    """Run one statement that reads, and return its rows; QueryError for anything else."""
    try:
        if not _only_reads(connection, sql):
            raise QueryError("give one select statement: a run is only read, never changed")
        return _interruptible(connection, sql)
    except duckdb.Error as error:
        raise QueryError(one_line(error)) from None


def _interruptible(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    """Run a statement beside the main thread, which signals reach, and end it with that thread."""
    with ThreadPoolExecutor(1) as pool:
        rows = pool.submit(lambda: connection.sql(sql).to_arrow_table())
        try:
            return rows.result()
        except BaseException:
            connection.interrupt()
            raise


def _only_reads(connection: duckdb.DuckDBPyConnection, sql: str) -> bool:
    """Tell whether the text is one select, or explains one; `explain analyze` would run others."""
    types = [statement.type for statement in connection.extract_statements(sql)]
    if types == [duckdb.StatementType.EXPLAIN]:
        explained = _EXPLAIN.sub("", sql, count=1)
        return explained != sql and _only_reads(connection, explained)
    return types == [duckdb.StatementType.SELECT]


def _view(table: str, run: Path) -> str:
    files = table_file(Path(glob.escape(str(run))), table, "*")
    name = f"all_{table}" if table in _WITH_WARMUP else table
    return (
        f"create view {name} as from read_parquet({quoted(files)},"
        " hive_partitioning = true, hive_types = {'policy': varchar});"
    )


def _counted_view(table: str) -> str:
    return f"create view {table} as from all_{table} where not is_warmup;"


def _settings_view(config: dict[str, Any]) -> str:
    """Return the view of one row; KeyError or TypeError if a setting is not in `config`."""
    columns = []
    for name, kind, path in _SETTINGS:
        value: Any = config
        for key in path.split("."):
            value = value[key]
        # bytes of a path that are no text become question marks
        text = quoted(value).encode(errors="replace").decode()
        columns.append(f"cast({text} as {kind}) as {name}")
    return f"create view settings as select {', '.join(columns)};"


def _trace_view(trace: Path) -> list[str]:
    """Return the view on the trace, none if it is gone, or something else by now."""
    try:
        schema = pq.read_schema(trace)
    except (OSError, ValueError):
        return []
    ids = {OUTPUT_COLUMN, *(column.name for column in SEQUENCE_COLUMNS)}
    columns = ", ".join(
        '"' + name.replace('"', '""') + '"' for name in schema.names if name not in ids
    )
    file = quoted(Path(glob.escape(str(trace))))
    return [f"create view trace as select {columns} from read_parquet({file});"] if columns else []  # noqa: S608 - quoted
