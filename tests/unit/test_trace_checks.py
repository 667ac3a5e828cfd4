"""What a trace may not be: each law broken once, and the message that names row and value."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from samples import Row, rows_of, write_tokens, write_trace

from pipeline.errors import TraceError
from pipeline.tables import TOKEN_COLUMN
from pipeline.trace import TraceFile

PROMPTS = [(1, 2, 3), (7, 7), (1, 2, 3, 4), (1, 2)]
Change = Callable[[list[Row]], object]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    names = ["a", "a", "a", "a"]
    return write_trace(tmp_path / "a.parquet", PROMPTS, [0, 1000, 2000, 3000], namespace=names)


def _error(path: Path) -> str:
    with pytest.raises(TraceError) as caught:
        TraceFile.open(path).columns()
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    return text.removeprefix(f"{path}: ")


def _with(path: Path, name: str, values: Any) -> Path:
    table = pq.ParquetFile(path).read()
    place = table.column_names.index(name)
    pq.write_table(table.set_column(place, name, values), path)
    return path


def _set(name: str, row: int, value: Any) -> Change:
    return lambda rows: rows[row].__setitem__(name, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("prefix_seq", 2, 3), "row 2: prefix_seq is 3, which is not an earlier row"),
        (_set("prefix_seq", 2, 2), "row 2: prefix_seq is 2, which is not an earlier row"),
        (_set("prefix_seq", 3, 99), "row 3: prefix_seq is 99, which is not an earlier row"),
        (_set("prefix_seq", 3, 1), "prefix_seq is 1, which names a request with another first"),
        (_set("prefix_seq", 2, None), "row 2: prefix_tokens is 3, which does not fit its prefix"),
        (_set("prefix_tokens", 2, 0), "row 2: prefix_tokens is 0, which does not fit its prefix"),
        (_set("prefix_tokens", 1, 1), "row 1: prefix_tokens is 1, which does not fit its prefix"),
        (_set("prefix_tokens", 3, 3), "row 3: prefix_tokens is 3, which is more than its prompt"),
        (_set("prefix_tokens", 2, 4), "prefix_tokens is 4, which is more than that earlier"),
        (_set("namespace", 2, "b"), "row 2: prefix_seq is 0, which names a request of another"),
        (_set("namespace", 2, None), "row 2: prefix_seq is 0, which names a request of another"),
        (_set("seq", 1, 5), "row 1: seq is 5: rows were filtered, reordered or cut"),
        (lambda rows: rows.pop(1), "row 1: seq is 2: rows were filtered, reordered or cut"),
        (lambda rows: rows.pop(0), "row 0: seq is 1: rows were filtered, reordered or cut"),
    ],
)
def test_a_broken_link_is_named_with_its_row_and_how_to_make_new_ones(
    trace: Path, change: Change, message: str
) -> None:
    rows, schema = rows_of(trace), pq.read_schema(trace)
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema), trace)
    text = _error(trace)
    assert message in text
    assert f"make new links with: replay link {trace} -o NEW.parquet" in text


def test_rows_that_are_not_sorted_by_arrival_are_named(trace: Path) -> None:
    times = pa.array([0, 5_000_000, 3_500_000, 4_000_000]).cast(pa.timestamp("us", "UTC"))
    text = _error(_with(trace, "arrival", times))
    assert text == "row 2 arrived 1.5 s before the row above it: sort the trace by arrival"


@pytest.mark.parametrize(
    "name", ["seq", "arrival", "prompt_tokens", "first_token_id", "prefix_tokens"]
)
def test_a_null_where_there_must_be_a_value_is_named(trace: Path, name: str) -> None:
    table = pq.ParquetFile(trace).read()
    values = table[name].to_pylist()
    values[2] = None
    assert (
        _error(_with(trace, name, pa.array(values, table[name].type))) == f"row 2: {name} is null"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("seq", -1), ("prompt_tokens", -3), ("prompt_tokens", 2**32), ("prefix_seq", -1)],
)
def test_a_number_that_does_not_fit_is_refused(trace: Path, name: str, value: int) -> None:
    values = pq.ParquetFile(trace).read()[name].to_pylist()
    values[2] = value
    text = _error(_with(trace, name, pa.array(values, pa.int64())))
    assert f"{name} does not fit uint" in text
    assert str(value) in text


@pytest.mark.parametrize(
    ("name", "values", "found"),
    [
        ("arrival", pa.array([0, 1, 2, 3]), "int64"),
        ("arrival", pa.array(["2026-03-01"] * 4), "string"),
        ("prompt_tokens", pa.array([3.0, 2.0, 4.0, 2.0]), "double"),
        ("prefix_seq", pa.array(["0"] * 4), "string"),
        ("request_id", pa.array([1, 2, 3, 4]), "int64"),
        (TOKEN_COLUMN, pa.array(["1 2 3"] * 4), "string"),
        (TOKEN_COLUMN, pa.array([[1.0]] * 4), "list<"),
    ],
)
def test_a_column_of_another_type_is_named(
    trace: Path, name: str, values: pa.Array, found: str
) -> None:
    assert f"column {name} is {found}" in _error(_with(trace, name, values))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[1], None, [2]], "row 1: prompt_token_ids is null"),
        ([[1], [2], [3, None]], "row 2: prompt_token_ids has a null in it"),
        ([[1], [-2], [3]], "-2"),
        ([[1], [2**32], [3]], "4294967296"),
    ],
)
def test_token_ids_that_are_none_are_refused_when_they_are_linked(
    tmp_path: Path, ids: list[Any], message: str
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({TOKEN_COLUMN: pa.array(ids, pa.list_(pa.int64()))}), path)
    with pytest.raises(TraceError) as caught:
        list(TraceFile.open(path).batches([TOKEN_COLUMN], 10))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_of_another_schema_is_told_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"seq": [0], "prompt": ["hello"]}), path)
    text = _error(path)
    assert text.startswith(f"not a trace: it has neither {TOKEN_COLUMN} nor the columns ")
    assert "arrival, prompt_tokens, first_token_id, prefix_seq, prefix_tokens;" in text
    assert "seq," not in text.replace("prefix_seq,", "")
    assert "replay tokenize" in text


def test_a_trace_without_rows_is_refused(tmp_path: Path) -> None:
    message = "the trace has no rows, so there is nothing to replay"
    assert _error(write_tokens(tmp_path / "a.parquet", [])) == message
    assert _error(write_trace(tmp_path / "b.parquet", [])) == message


def test_what_is_no_parquet_file_is_told_apart(tmp_path: Path, trace: Path) -> None:
    content = trace.read_bytes()
    text, empty = tmp_path / "text.parquet", tmp_path / "empty.parquet"
    text.write_text("seq,arrival\n")
    empty.touch()
    assert _error(text).startswith("not a Parquet file; make a trace of request logs with: replay")
    assert _error(empty) == "the file is empty"
    assert _error(tmp_path) == "is a folder: name a Parquet file in it"
    assert _error(tmp_path / "nowhere.parquet") == "no such file"
    for size in (4, 100, len(content) // 2, len(content) - 1):
        trace.write_bytes(content[:size])
        assert _error(trace) == "truncated or damaged Parquet: copy it again"


def test_damage_in_the_middle_of_a_file_is_an_error_that_names_it(trace: Path) -> None:
    content = bytearray(trace.read_bytes())
    for place in range(4, len(content) // 3):
        content[place] ^= 0xFF
    trace.write_bytes(content)
    assert "damaged" in _error(trace)
