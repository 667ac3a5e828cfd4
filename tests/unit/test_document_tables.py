"""Tables: CSV and TSV with all that quotes may hold, Parquet with nested rows and dates."""

import gzip
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from document_rows import PACKED, Read, Rows, reads_in

from pipeline.errors import LogError
from pipeline.logs import documents
from pipeline.logs.documents import is_parquet, parquet_rows
from pipeline.logs.objects import BAD_UTF8


@pytest.fixture
def rows(tmp_path: Path) -> Read:
    return reads_in(tmp_path)


@pytest.mark.parametrize("packed", PACKED)
def test_a_table_gives_its_rows_by_the_names_in_the_first_one(rows: Read, packed: str) -> None:
    expected = [(1, {"a": "1", "b": "x"}), (2, {"a": "2", "b": ""})]
    assert rows(PACKED[packed](b"a,b\n1,x\n2,\n"), f"t.csv{packed}") == expected
    assert rows(PACKED[packed](b"a\tb\n1\tx\n2\t\n"), f"t.TSV{packed}") == expected


def test_quotes_commas_and_line_ends_within_quotes_are_part_of_a_field(rows: Read) -> None:
    content = b'a,b\r\n"say ""hi"", then","line 1\nline 2\r\n\r\nline 4"\r\nplain "quotes",2\r\n'
    assert rows(content, "t.csv") == [
        (1, {"a": 'say "hi", then', "b": "line 1\nline 2\r\n\r\nline 4"}),
        (2, {"a": 'plain "quotes"', "b": "2"}),
    ]


def test_in_a_tsv_commas_mean_nothing(rows: Read) -> None:
    assert rows(b"a\tb\n1,2\t3\n", "t.tsv") == [(1, {"a": "1,2", "b": "3"})]


def test_a_byte_order_mark_is_no_part_of_the_first_name(rows: Read) -> None:
    assert rows(b"\xef\xbb\xbfa,b\n1,2\n", "t.csv") == [(1, {"a": "1", "b": "2"})]


def test_blank_lines_of_a_table_are_no_rows(rows: Read) -> None:
    assert rows(b"\n\na,b\n\n1,2\n\n\n3,4", "t.csv") == [
        (1, {"a": "1", "b": "2"}),
        (2, {"a": "3", "b": "4"}),
    ]


@pytest.mark.parametrize("content", [b"", b"\n", b"a,b\n", b"a,b"])
def test_a_table_without_rows_has_none(rows: Read, content: bytes) -> None:
    assert rows(content, "t.csv") == []


@pytest.mark.parametrize("row", [b"1", b"1,2,3", b"1,", b"unquoted, with commas, in it"])
def test_a_row_of_another_length_is_bad_not_filled_or_cut(rows: Read, row: bytes) -> None:
    found = rows(b"a,b,c,d\n1,2,3,4\n" + row + b"\n5,6,7,8\n", "t.csv")
    assert found == [
        (1, {"a": "1", "b": "2", "c": "3", "d": "4"}),
        (2, "more or fewer fields than the first row"),
        (3, {"a": "5", "b": "6", "c": "7", "d": "8"}),
    ]


@pytest.mark.parametrize("row", [b'"1"x,2', b'"1,2\n3,4'])
def test_a_row_whose_quotes_do_not_match_is_bad(rows: Read, row: bytes) -> None:
    found = rows(b"a,b\n0,0\n" + row, "t.csv")
    assert found == [(1, {"a": "0", "b": "0"}), (2, "no row of CSV: its quotes don't match")]


def test_after_a_bad_row_the_rest_is_read(rows: Read) -> None:
    found = rows(b'a,b\n"1"x,2\n3,4\n"5",6\n', "t.csv")
    assert found[1:] == [(2, {"a": "3", "b": "4"}), (3, {"a": "5", "b": "6"})]


def test_a_table_whose_first_row_is_broken_is_refused(rows: Read) -> None:
    with pytest.raises(LogError, match=r"t\.csv: its first row is no CSV"):
        rows(b'"a"x,b\n1,2\n', "t.csv")


def test_fields_may_be_much_longer_than_pythons_own_limit(rows: Read) -> None:
    long = b"x, " * 1_000_000
    assert rows(b'a,b\n"%b",2\n' % long, "t.csv") == [(1, {"a": long.decode(), "b": "2"})]


@pytest.mark.parametrize("row", [b'"' + b"x" * 5000 + b'",3\n', b'"' + b"x\n" * 5000 + b'",3\n'])
def test_a_field_over_the_limit_is_refused(
    rows: Read, monkeypatch: pytest.MonkeyPatch, row: bytes
) -> None:
    monkeypatch.setattr(documents, "LONGEST_LINE", 1000)
    assert rows(b'a,b\n"%b",2\n' % (b"x\n" * 400), "t.csv") == [(1, {"a": "x\n" * 400, "b": "2"})]
    with pytest.raises(LogError, match=r"t\.csv: a (line|field) is longer than"):
        rows(b"a,b\n1,2\n" + row + b"4,5\n", "t.csv")


def test_zero_bytes_and_lone_carriage_returns_do_not_stop_a_table(rows: Read) -> None:
    assert rows(b"a,b\r1,\x00\r2,3\r", "t.csv") == [
        (1, {"a": "1", "b": "\x00"}),
        (2, {"a": "2", "b": "3"}),
    ]


def test_bytes_of_a_table_that_are_no_utf8_are_counted_or_bad(rows: Read) -> None:
    content = b"a,b\ncaf\xe9,1\nx,2\n"
    repairs: Counter[str] = Counter()
    assert rows(content, "t.csv", repairs)[0] == (1, {"a": "caf\ufffd", "b": "1"})
    assert repairs == {BAD_UTF8: 1}
    assert rows(content, "t.csv") == [(1, "bytes that are no UTF-8"), (2, {"a": "x", "b": "2"})]


def test_a_compressed_table_that_is_cut_off_is_refused(rows: Read) -> None:
    content = gzip.compress(b"a,b\n" + b"".join(b"%d,%d\n" % (i, i * i) for i in range(9999)))
    with pytest.raises(LogError, match="damaged or truncated"):
        rows(content[: len(content) // 2], "t.csv.gz")


def _parquet(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    pq.write_table(pa.table(columns), path, **options)
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "t.bin"


def _parquet_rows(path: Path) -> Rows:
    return list(parquet_rows(path, lambda _: None))


def test_parquet_is_known_by_its_content(table: Path) -> None:
    assert is_parquet(_parquet(table, {"a": [1]}))
    table.write_bytes(b'{"a": 1}')
    assert not is_parquet(table)


def test_what_is_no_file_is_no_parquet(tmp_path: Path) -> None:
    assert not is_parquet(tmp_path)
    assert not is_parquet(tmp_path / "missing")
    assert not is_parquet(tmp_path / ("x" * 5000))


def test_the_standard_input_is_no_parquet_whatever_a_file_of_its_name_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _parquet(Path("-"), {"a": [1]})
    assert not is_parquet(Path("-"))


def test_parquet_gives_nested_rows_numbered_from_one(table: Path) -> None:
    messages = [[{"role": "user", "parts": ["a", "b"]}], [], None]
    columns = {"id": ["x", "y", None], "messages": messages, "tokens": [[1, 2], [2**40], []]}
    assert _parquet_rows(_parquet(table, columns)) == [
        (1, {"id": "x", "messages": [{"role": "user", "parts": ["a", "b"]}], "tokens": [1, 2]}),
        (2, {"id": "y", "messages": [], "tokens": [2**40]}),
        (3, {"id": None, "messages": None, "tokens": []}),
    ]


def test_rows_of_many_row_groups_come_in_order(table: Path) -> None:
    path = _parquet(table, {"a": range(5000)}, row_group_size=700)
    assert [row["a"] for _, row in _parquet_rows(path)] == list(range(5000))


def test_large_rows_are_taken_a_few_at_a_time(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_BATCH_BYTES", 1000)
    path = _parquet(table, {"a": [[number] * 300 for number in range(50)]})
    assert [row["a"][0] for _, row in _parquet_rows(path)] == list(range(50))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_dates_are_datetimes_whatever_their_unit_and_zone(
    table: Path, unit: str, zone: str | None
) -> None:
    moment = np.datetime64("2026-03-01T10:00:00.123456789", "ns").astype(f"datetime64[{unit}]")
    dates = pa.array([moment], pa.timestamp(unit)).cast(pa.timestamp(unit, zone))
    rows = _parquet_rows(_parquet(table, {"t": dates, "nested": pa.array([[{"t": moment}]])}))
    fraction = {"s": 0, "ms": 123_000}.get(unit, 123_456)
    expected = datetime(2026, 3, 1, 10, 0, 0, fraction, UTC if zone else None)
    assert rows[0][1]["t"] == expected
    assert rows[0][1]["nested"][0]["t"] == expected.replace(tzinfo=None)


def test_progress_of_parquet_ends_with_its_size(table: Path) -> None:
    path = _parquet(table, {"a": range(5000)})
    seen: list[int] = []
    assert len(list(parquet_rows(path, seen.append))) == 5000
    assert seen == sorted(seen)
    assert seen[-1] == path.stat().st_size


def test_parquet_without_rows_has_none(table: Path) -> None:
    assert _parquet_rows(_parquet(table, {"a": pa.array([], pa.int64())})) == []


@pytest.mark.parametrize("kept", [4, 50, 0.5, 0.99])
def test_parquet_that_is_cut_off_is_refused(table: Path, kept: float) -> None:
    content = _parquet(table, {"a": range(5000)}).read_bytes()
    table.write_bytes(content[: int(kept if kept >= 1 else len(content) * kept)])
    assert is_parquet(table)
    with pytest.raises(LogError, match=r"t\.bin: damaged or truncated Parquet"):
        _parquet_rows(table)


def test_damaged_parquet_raises_nothing_but_a_log_error(table: Path) -> None:
    texts = [f"text {number} " * 20 for number in range(400)]
    content = _parquet(table, {"a": texts}, compression="zstd").read_bytes()
    refused = 0
    for at in range(8, len(content) - 8, len(content) // 40):
        table.write_bytes(content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :])
        try:
            _parquet_rows(table)
        except LogError:
            refused += 1
    assert refused > 10


def test_compressed_parquet_is_refused_with_a_way_out(rows: Read, table: Path) -> None:
    content = gzip.compress(_parquet(table, {"a": [1]}).read_bytes())
    with pytest.raises(LogError, match="is Parquet, compressed or piped: give it as a plain file"):
        rows(content, "t.parquet.gz")
