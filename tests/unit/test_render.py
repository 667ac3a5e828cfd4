"""Rows of a query as table, CSV, JSON and Parquet, whatever types they have."""

import csv
import io
import json
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.errors import QueryError, RunError
from pipeline.report import FORMATS, open_run, render, select, transposed, views_sql

VALUES = {
    "true": "boolean",
    "-7::tinyint": "tinyint",
    "18446744073709551615::ubigint": "ubigint",
    "170141183460469231731687303715884105727::hugeint": "hugeint",
    "1.5::decimal(10, 2)": "decimal",
    "0.1::float": "float",
    "'inf'::double": "infinity",
    "'-inf'::double": "minus infinity",
    "'nan'::double": "nan",
    "date '2026-03-01'": "date",
    "time '10:00:00.5'": "time",
    "timestamp '2026-03-01 10:00:00'": "timestamp",
    "timestamptz '2026-03-01 10:00:00+00'": "timestamptz",
    "interval 90 minute": "interval",
    "'ab'::blob": "blob",
    "'101'::bit": "bit",
    "uuid '00000000-0000-0000-0000-000000000001'": "uuid",
    "[1, null, 3]": "list",
    "[date '2026-03-01']": "list of dates",
    "['nan'::double]": "list of nan",
    "{'a': 1, 'b': timestamp '2026-03-01 10:00:00'}": "struct",
    "map {'a': [1.5]}": "map",
    "'x'::enum('x', 'y')": "enum",
    "null": "null",
    "'line' || chr(10) || 'feed, \"quoted\" ä'": "text",
}


def _rows(sql: str) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        return select(connection, sql)


def _text(sql: str, form: str) -> str:
    return b"".join(render(_rows(sql), form)).decode()


CASES = [
    pytest.param(value, form, id=f"{name} as {form}")
    for form in FORMATS
    for value, name in VALUES.items()
    if (name, form) != ("interval", "parquet")
]


@pytest.mark.parametrize(("value", "form"), CASES)
def test_a_value_of_any_type_is_printed_in_every_format(value: str, form: str) -> None:
    content = b"".join(render(_rows(f"select {value} as v"), form))
    if form == "json":
        [row] = json.loads(content, parse_constant=pytest.fail)
        assert list(row) == ["v"]
    elif form == "csv":
        header, row = csv.reader(io.StringIO(content.decode()))
        assert (header, len(row)) == (["v"], 1)
    elif form == "parquet":
        assert pq.read_table(io.BytesIO(content)).num_rows == 1
    else:
        assert content.decode().splitlines()[0].strip() == "v"


def test_a_type_that_parquet_does_not_have_is_an_error_of_ours() -> None:
    with pytest.raises(QueryError, match="interval"):
        list(render(_rows("select interval 1 day as i"), "parquet"))


def test_a_table_is_aligned_numbers_to_the_right() -> None:
    sql = "select * from (values ('a', 5, 1234567), ('long', 123, null)) as t(name, n, x_tokens)"
    assert _text(sql, "table") == (
        "name    n   x_tokens\n----  ---  ---------\na       5  1,234,567\nlong  123\n"
    )


def test_csv_quotes_what_needs_it_and_leaves_null_empty() -> None:
    sql = "select 'a,\"b\"' as t, null as n, 1234567 as x_tokens, 0.25 as r"
    assert _text(sql, "csv") == 't,n,x_tokens,r\n"a,""b""",,1234567,0.25\n'


def test_json_has_a_row_a_line_and_no_nan() -> None:
    sql = "select * from (values (1, 'ä'), (null, 'b')) as t(n, s)"
    assert _text(sql, "json") == '[\n{"n": 1, "s": "ä"},\n{"n": null, "s": "b"}\n]\n'
    assert json.loads(_text("select 'nan'::double as x", "json")) == [{"x": None}]


def test_parquet_keeps_types_and_rows() -> None:
    table = _rows("select range as n, range / 7 as x from range(5000)")
    content = b"".join(render(table, "parquet"))
    assert pq.read_table(io.BytesIO(content)) == table


@pytest.mark.parametrize("form", FORMATS)
def test_no_rows_are_a_result_too(form: str) -> None:
    table = _rows("select 1 as n, 'x' as s where false")
    content = b"".join(render(table, form))
    expected = {"table": b"n  s\n-  -\n", "csv": b"n,s\n", "json": b"[\n]\n"}
    if form == "parquet":
        assert pq.read_table(io.BytesIO(content)) == table
    else:
        assert content == expected[form]


@pytest.mark.parametrize("form", FORMATS)
def test_columns_of_one_name_are_both_printed(form: str) -> None:
    content = b"".join(render(_rows("select 1 as a, 2 as a, 3 as b"), form))
    if form == "parquet":
        assert pq.ParquetFile(io.BytesIO(content)).metadata.num_columns == 3
    else:
        assert all(digit in content.decode() for digit in "123")


def test_many_rows_come_in_pieces() -> None:
    table = _rows("select range as n from range(5000)")
    pieces = list(render(table, "csv"))
    assert len(pieces) > 3
    assert b"".join(pieces).count(b"\n") == 5001


def test_a_transposed_table_has_a_row_for_every_column() -> None:
    table = pa.table({"policy": ["a", "b"], "x_tokens": [1000, 5], "r": [0.5, None]})
    assert transposed(table, "policy").to_pylist() == [
        {"policy": "x_tokens", "a": "1,000", "b": "5"},
        {"policy": "r", "a": "0.5", "b": ""},
    ]


WRITES = [
    "create table t as select 1",
    "drop view decisions",
    "insert into decisions select * from decisions",
    "delete from decisions",
    "update decisions set seq = 1",
    "copy (select 1) to '{out}'",
    "copy decisions to '{out}' (format parquet)",
    "explain analyze copy (select 1) to '{out}'",
    "explain analyze create table t as select 1",
    "export database '{out}'",
    "attach '{out}' as other",
    "set threads = 1",
    "pragma threads = 1",
    "install httpfs",
    "load httpfs",
    "call pragma_version()",
    "checkpoint",
    "begin",
    "vacuum",
    "select 1; select 2",
    "select 1; copy (select 1) to '{out}'",
    "",
    "-- nothing",
]


@pytest.mark.parametrize("sql", WRITES)
def test_a_statement_that_does_more_than_read_is_refused(
    small_run: Path, tmp_path: Path, sql: str
) -> None:
    with open_run(small_run) as connection:
        with pytest.raises(QueryError) as caught:
            select(connection, sql.format(out=tmp_path / "out"))
        assert "\n" not in str(caught.value)
        assert connection.sql("select count(*) from decisions").fetchall() == [(18,)]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "sql",
    [
        "select 1",
        "select 1;",
        "  select 1 -- and a comment",
        "with t as (select 1) select * from t",
        "from decisions",
        "values (1), (2)",
        "describe decisions",
        "describe",
        "show tables",
        "summarize decisions",
        "explain select * from decisions",
        "explain analyze select * from decisions",
        "pivot decisions on policy in ('round_robin') using count(*)",
        "select * from trace",
    ],
)
def test_a_statement_that_reads_is_answered(small_run: Path, sql: str) -> None:
    with open_run(small_run) as connection:
        assert select(connection, sql).num_rows >= 1


def test_an_error_in_sql_is_one_line(small_run: Path) -> None:
    with open_run(small_run) as connection:
        for sql in ("select nothing from decisions", "select from", "select 1 +", "select 'a' + 1"):
            with pytest.raises(QueryError) as caught:
                select(connection, sql)
            assert "\n" not in str(caught.value)


def test_views_need_a_run_of_ours(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="nowhere: no such run; make one with: replay TRACE -o"):
        views_sql(tmp_path / "nowhere")
    with pytest.raises(RunError, match="not a run folder"):
        views_sql(tmp_path)
