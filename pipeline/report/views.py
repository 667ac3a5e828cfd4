"""The tables of a run as DuckDB views, what run.json says as some more, and the trace itself.

`decisions` and `evictions` are what reports count; `all_decisions` and `all_evictions` hold the
rows of the warm-up too. All these are of the first seed. `seed_decisions` and `seed_replicas` are
what counts of every seed, the first one included.
"""

import glob
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import QueryError, RunError
from pipeline.report.recorded import recorded_views
from pipeline.run_folder import TABLES, read_run, seed_folder, table_file
from pipeline.sql_files import one_line, quoted
from pipeline.tables import OUTPUT_COLUMN, SEQUENCE_COLUMNS

_EXPLAIN = re.compile(r"^\s*explain\s+(analyze\s+)?(\([^)]*\)\s*)?", re.IGNORECASE)
_WITH_WARMUP = ("decisions", "evictions")
_WITH_SEEDS = ("decisions", "replicas")


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
        seed = int(about["config"]["routing"]["seed"])
        statements += [_seed_view(table, run.resolve(), seed) for table in _WITH_SEEDS]
        statements += recorded_views(about)
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
    name = f"all_{table}" if table in _WITH_WARMUP else table
    return f"create view {name} as {_rows(run, table)};"


def _counted_view(table: str) -> str:
    return f"create view {table} as from all_{table} where not is_warmup;"


def _seed_view(table: str, run: Path, first: int) -> str:
    sql = f"create view seed_{table} as select *, cast({first} as bigint) as seed from {table}"  # noqa: S608 - ours
    further = seed_folder(run, "*")
    if not any(run.glob(str(table_file(further, table, "*").relative_to(run)))):
        return f"{sql};"
    counted = " where not is_warmup" if table in _WITH_WARMUP else ""
    return f"{sql} union all {_rows(run, table, of_seeds=True)}{counted};"


def _rows(run: Path, table: str, *, of_seeds: bool = False) -> str:
    """Return a select of a table's rows and the policy, and the seed, that their files are of.

    hive_partitioning would take any name=value among the folders above the run for a column too.
    """
    here = Path(glob.escape(str(run)))
    files = table_file(seed_folder(here, "*") if of_seeds else here, table, "*")
    columns = [
        "*",
        r"url_decode(regexp_extract(filename, 'policy=([^/\\]*).part-0.parquet$', 1)) as policy",
    ]
    if of_seeds:
        seed = rf"regexp_extract(filename, 'seed=([0-9]+).{table}.policy=[^/\\]*.[^/\\]*$', 1)"
        columns.append(f"cast({seed} as bigint) as seed")
    return (
        f"select {', '.join(columns)} from read_parquet({quoted(files)},"  # noqa: S608 - quoted
        " hive_partitioning = false)"
    )


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
