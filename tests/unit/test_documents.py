"""Logs that are no lines: JSON arrays, pretty JSON, CSV, Parquet, pickles; whole and broken."""

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import pickletools
import random
import sys
import time
import types
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.errors import LogError
from pipeline.logs import arrays, documents, pickles
from pipeline.logs.documents import document, is_parquet, parquet_rows
from pipeline.logs.objects import BAD_UTF8, NOT_A_NUMBER
from pipeline.logs.pickles import BadPickle, read_pickle
from pipeline.logs.records import BadLine
from pipeline.logs.streams import open_log

PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda content: pa.compress(content, codec="zstd", asbytes=True),
}
Rows = list[tuple[int, Any]]


def _plain(row: tuple[int, Any]) -> tuple[int, Any]:
    """Return a row that can be compared: a bad one as its reason."""
    return row[0], str(row[1]) if isinstance(row[1], BadLine) else row[1]


@pytest.fixture
def rows(tmp_path: Path) -> Callable[..., Rows]:
    def read(content: bytes, name: str = "a.json", repairs: Counter[str] | None = None) -> Rows:
        path = tmp_path / name
        path.write_bytes(content)
        with open_log(path, lambda _: None) as stream:
            found = document(stream, repairs)
            assert found is not None
            return [_plain(row) for row in found]

    return read


@pytest.fixture
def is_lines(tmp_path: Path) -> Callable[..., bool]:
    def read(content: bytes, name: str = "a.jsonl") -> bool:
        path = tmp_path / name
        path.write_bytes(content)
        with open_log(path, lambda _: None) as stream:
            found = document(stream)
            assert stream.read() == content or found is not None
            return found is None

    return read


Read = Callable[..., Rows]
IsLines = Callable[..., bool]


# lines


@pytest.mark.parametrize(
    "content",
    [
        b'{"a": 1}\n{"a": 2}\n',
        b'\xef\xbb\xbf{"a": 1}\n',
        b"[2026-03-01 10:00:00] ready\n",
        b"[1, 2]\n[3, 4]\n",
        b'["a"]\n',
        b'[]\n{"a": 1}\n',
        b"",
        b"\n\n",
        b"one,two\n1,2\n",
    ],
)
def test_a_stream_of_lines_is_no_document_and_nothing_of_it_is_taken(
    is_lines: IsLines, content: bytes
) -> None:
    assert is_lines(content)


@pytest.mark.parametrize("name", ["a.csv.jsonl", "a.csvs", "csv", "a.tsv-2026.log", ".csv/a"])
def test_only_a_name_that_ends_so_is_a_table(is_lines: IsLines, tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    assert is_lines(b"a,b\n1,2\n", name)


# JSON arrays


@pytest.mark.parametrize("packed", PACKED)
def test_an_array_gives_its_objects_numbered_from_one(rows: Read, packed: str) -> None:
    content = PACKED[packed](b'[{"a": 1}, {"a": [{"b": "x"}]}]\n')
    expected = [(1, {"a": 1}), (2, {"a": [{"b": "x"}]})]
    assert rows(content, f"a.json{packed}") == expected


@pytest.mark.parametrize("indent", [None, 1, 4])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_an_array_reads_the_same_on_one_line_and_on_many(
    rows: Read, indent: int | None, mark: bytes
) -> None:
    said = [{"prompt": 'a\n]}"{[', "n": [1, [2, {}]]}, {"é": None}, {}]
    content = mark + json.dumps(said, indent=indent, ensure_ascii=False).encode()
    assert rows(content) == list(enumerate(said, 1))


@pytest.mark.parametrize("content", [b"[]", b" [ ]\n", b"\xef\xbb\xbf[\n]"])
def test_an_empty_array_has_no_rows(rows: Read, content: bytes) -> None:
    assert rows(content) == []


def test_whole_numbers_of_64_bits_stay_exact_in_an_array(rows: Read) -> None:
    assert rows(b'[{"a": 18446744073709551615}]') == [(1, {"a": 2**64 - 1})]


def test_several_arrays_and_objects_behind_one_another_are_all_read(rows: Read) -> None:
    content = b'[{"a": 1}]\n[{"a": 2}, {"a": 3}]\n{"a": 4}\n[]'
    assert rows(content) == [(n, {"a": n}) for n in (1, 2, 3, 4)]


def test_objects_over_several_lines_are_rows(rows: Read) -> None:
    content = b'{\n "a": {\n "b": 1}\n}\n{\n "a": "}"\n}, {"a": 3}\n'
    assert rows(content) == [(1, {"a": {"b": 1}}), (2, {"a": "}"}), (3, {"a": 3})]


def test_items_that_are_no_objects_are_bad_rows_among_good_ones(rows: Read) -> None:
    found = rows(b'[{"a": 1}, 2, "x, ]", null, [{"a": 3}, "]"], {"a": 4}]')
    assert [row if isinstance(row, dict) else None for _, row in found] == [
        {"a": 1}, None, None, None, None, {"a": 4},
    ]  # fmt: skip
    assert {row for _, row in found if isinstance(row, str)} == {"not a JSON object"}


@pytest.mark.parametrize(
    ("item", "read", "repair"),
    [
        (b'{"a": NaN}', {"a": None}, NOT_A_NUMBER),
        (b'{"a": "caf\xe9"}', {"a": "caf\ufffd"}, BAD_UTF8),
    ],
)
def test_an_item_read_leniently_is_counted_or_bad(
    rows: Read, item: bytes, read: dict[str, Any], repair: str
) -> None:
    content = b'[{"b": 1}, %b, {"b": 2}]' % item
    repairs: Counter[str] = Counter()
    assert rows(content, repairs=repairs) == [(1, {"b": 1}), (2, read), (3, {"b": 2})]
    assert repairs == {repair: 1}
    assert rows(content) == [(1, {"b": 1}), (2, "no strict JSON"), (3, {"b": 2})]


def test_half_a_surrogate_pair_and_control_characters_in_an_item_are_kept(rows: Read) -> None:
    assert rows(b'[{"a": "x\\ud83d\x01"}]') == [(1, {"a": "x\ud83d\x01"})]


def test_an_item_that_is_no_json_is_bad_and_the_next_ones_are_read(rows: Read) -> None:
    found = rows(b'[{"a": 1}, {\'b\': 2}, {"c" 3}, {"d": 4}]')
    assert [number for number, row in found if isinstance(row, dict)] == [1, 4]


@pytest.mark.parametrize(
    ("content", "where"),
    [
        (b'[{"a": 1}, {"a": 2}', "breaks off after item 2"),
        (b'[{"a": 1}, {"a": 2},', "breaks off after item 2"),
        (b'[{"a": 1}, {"a": [2', "breaks off in item 2"),
        (b'[{"a": 1}, {"a": "2', "breaks off in item 2"),
        (b'[{"a": 1}, {"a": "2\\', "breaks off in item 2"),
        (b'[{"a": 1}, "x', "breaks off in item 2"),
        (b'[{"a": 1}, nul', "breaks off in item 2"),
        (b'{\n"a": 1', "breaks off in item 1"),
        (b'[{"a": 1}] and more', "is no JSON after item 1"),
        (b'[{"a": 1}]]', "is no JSON after item 1"),
        (b'[{"a": 1}}]', "is no JSON after item 1"),
        (b'{\n"a": 1\n}\ndone', "is no JSON after item 1"),
    ],
)
def test_json_that_breaks_is_refused_where_it_breaks(
    rows: Read, content: bytes, where: str
) -> None:
    with pytest.raises(LogError, match=rf"a\.json: (its JSON|it) {where}"):
        rows(content)


@pytest.mark.parametrize("packed", [".gz", ".bz2", ".xz", ".zst"])
def test_a_compressed_array_that_is_cut_off_is_refused(rows: Read, packed: str) -> None:
    said = [{"a": f"{number * number}"} for number in range(2000)]
    content = PACKED[packed](json.dumps(said).encode())
    with pytest.raises(LogError, match="damaged or truncated"):
        rows(content[: len(content) // 2])


def test_how_much_is_read_at_a_time_changes_no_item(
    rows: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = random.Random(0)  # noqa: S311 - always the same
    texts = ['a"\\ {[', "é]}", "x" * 40, "\\", '\\"', "\n", ""]

    def value(deep: int) -> Any:
        kind = choose.randrange(5)
        if kind == 0 and deep:
            return {choose.choice(texts): value(deep - 1) for _ in range(choose.randrange(4))}
        if kind == 1 and deep:
            return [value(deep - 1) for _ in range(choose.randrange(4))]
        return choose.choice([*texts, 1, -2.5, None, True])

    for chunk in (1, 2, 5, 64):
        monkeypatch.setattr(arrays, "CHUNK", chunk)
        for _ in range(50):
            said = [{"v": value(3)} for _ in range(1 + choose.randrange(4))]
            content = json.dumps(said, indent=choose.choice([None, 1])).encode()
            assert rows(content) == list(enumerate(said, 1))


def test_items_come_before_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"[" + b'{"a": "%b"},' % (b"x" * 1000) * 20_000 + b"{}]")
    read: list[int] = []
    with open_log(path, read.append) as stream:
        found = document(stream)
        assert found is not None
        assert next(found)[0] == 1
    assert read[-1] < 4 << 20 < path.stat().st_size


def test_an_item_that_is_too_long_is_refused(rows: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "CHUNK", 64)
    monkeypatch.setattr(arrays, "LONGEST_LINE", 1000)
    assert len(rows(b'[{"a": "%b"}, {}]' % (b"x" * 500))) == 2
    with pytest.raises(LogError, match="item 2 is longer than"):
        rows(b'[{}, {"a": "%b"}]' % (b"x" * 5000))


@pytest.mark.parametrize(
    "content",
    [
        b"[{" + b"[" * 500_000,
        b'[{"a":' + b'{"a":' * 100_000,
        b'[{"a":' + b"[" * 300_000 + b"]" * 300_000 + b"}",
        b'[{"a": "' + b"\\" * 1_000_001,
        b'[{"a": ' + b'"\\"' * 300_000,
    ],
)
def test_deep_or_endless_json_is_refused_quickly_and_in_little_memory(
    rows: Read, content: bytes
) -> None:
    begin = time.monotonic()
    with pytest.raises(LogError, match="its JSON breaks off"):
        rows(content)
    assert time.monotonic() - begin < 20


def test_a_deep_item_is_bad_and_the_next_one_is_read(rows: Read) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    assert rows(b'[{"a": %b}, {"b": 1}]' % deep) == [(1, "not a JSON object"), (2, {"b": 1})]


# CSV and TSV


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


# Parquet


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


# pickles


@pytest.fixture
def sglang(monkeypatch: pytest.MonkeyPatch) -> type:
    """Return a class that pickles as SGLang's request does."""
    name = "sglang.srt.managers.io_struct"
    module = types.ModuleType(name)

    class GenerateReqInput:
        def __init__(self, **fields: Any) -> None:
            self.__dict__.update(fields)

    GenerateReqInput.__module__, GenerateReqInput.__qualname__ = name, "GenerateReqInput"
    vars(module)["GenerateReqInput"] = GenerateReqInput
    for parent in ("sglang", "sglang.srt", "sglang.srt.managers"):
        monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))
    monkeypatch.setitem(sys.modules, name, module)
    return GenerateReqInput


def _dump(requests: Any, protocol: int = 4) -> bytes:
    return pickle.dumps({"server_args": None, "requests": requests}, protocol)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("packed", PACKED)
def test_a_dump_gives_its_requests_without_their_classes(
    rows: Read, sglang: type, protocol: int, packed: str
) -> None:
    first = sglang(rid="a", text="x é", input_ids=(1, 300, 70_000, 2**33), sampling_params={"n": 1})
    second = sglang(rid="b", text=None, input_ids=[0, -1], stream=True)
    out = {"text": "y", "meta_info": {"e2e_latency": 0.25, "id": "a"}}
    content = _dump([(first, out, 1.5, 2.5), (second, {}, 3.5, None)], protocol)
    one = {"rid": "a", "text": "x é", "input_ids": (1, 300, 70_000, 2**33)}
    two = {"rid": "b", "text": None, "input_ids": [0, -1], "stream": True}
    assert rows(PACKED[packed](content), f"d.pkl{packed}") == [
        (1, {"obj": {**one, "sampling_params": {"n": 1}}, "out": out, "created": 1.5,
             "finished": 2.5}),
        (2, {"obj": two, "out": {}, "created": 3.5, "finished": None}),
    ]  # fmt: skip


def test_a_dump_larger_than_what_is_looked_at_first_is_read_whole(rows: Read) -> None:
    requests = [({"rid": str(n), "ids": list(range(n))}, {}, float(n), 0.0) for n in range(500)]
    found = rows(_dump(requests), "d.pkl")
    assert [row["obj"]["ids"] for _, row in found] == [list(range(n)) for n in range(500)]


def test_what_both_picklers_write_is_read_alike(rows: Read) -> None:
    said = [({"a": [1.5, True, None, b"x" * 300, "y" * 300, {1, 2}, -(2**70)]}, {}, 1, 2)] * 2
    expected = [(n, dict(zip(("obj", "out", "created", "finished"), said[0], strict=True)))
                for n in (1, 2)]  # fmt: skip
    written = io.BytesIO()
    pickle._Pickler(written, 4).dump({"requests": said})  # type: ignore[attr-defined]
    assert rows(written.getvalue(), "d.pkl") == expected
    assert rows(_dump(said), "d.pkl") == expected
    assert rows(pickletools.optimize(_dump(said)), "d.pkl") == expected


def test_a_status_of_http_is_its_number(rows: Read) -> None:
    from http import HTTPStatus  # noqa: PLC0415 - its pickle names it

    found = rows(_dump([({}, {"status_code": HTTPStatus.BAD_REQUEST}, 1.0, 2.0)]), "d.pkl")
    assert found[0][1]["out"] == {"status_code": 400}


def test_a_request_of_another_form_is_a_bad_row(rows: Read) -> None:
    found = rows(_dump(["text", (1, 2), None, ({}, {}, 1.0, 2.0)]), "d.pkl")
    reason = "it isn't obj, out, created and finished"
    good = {"obj": {}, "out": {}, "created": 1.0, "finished": 2.0}
    assert found == [(1, reason), (2, reason), (3, reason), (4, good)]


class _Calls:
    """Pickles as a call."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._call


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("function", [eval, exec, getattr, __import__, open, print, bytearray])
def test_a_pickle_that_wants_something_called_is_refused(
    rows: Read, function: Callable[..., Any], protocol: int
) -> None:
    with pytest.raises(
        LogError, match=r"not an SGLang dump: it wants '(__builtin__|builtins|io)\."
    ):
        rows(_dump([_Calls(function, "1")], protocol), "d.pkl")


@pytest.mark.parametrize("protocol", [2, 4])
def test_nothing_that_a_pickle_names_is_called(rows: Read, tmp_path: Path, protocol: int) -> None:
    made = tmp_path / "made"
    content = pickle.dumps({"requests": [_Calls(os.mkdir, str(made))]}, protocol)
    with pytest.raises(LogError, match=rf"it wants '{os.name}\.mkdir'"):
        rows(content, "d.pkl")
    assert not made.exists()
    pickle.loads(content)  # noqa: S301 - our own
    assert made.exists()  # so it would have been


def test_a_shell_command_in_a_dump_is_refused(rows: Read) -> None:
    with pytest.raises(LogError, match=rf"it wants '{os.name}\.system'"):
        rows(_dump([(_Calls(os.system, "true"), {}, 1.0, 2.0)]), "d.pkl")


@pytest.mark.parametrize(
    "value", [np.arange(3), np.float64(1.0), datetime(2026, 3, 1, tzinfo=UTC), Path("x")]
)
def test_a_pickle_of_other_classes_is_refused(rows: Read, value: Any) -> None:
    with pytest.raises(LogError, match="which data has no need of"):
        rows(_dump([({"v": value}, {}, 1.0, 2.0)]), "d.pkl")


def test_modules_whose_names_only_begin_alike_are_refused(rows: Read) -> None:
    with pytest.raises(LogError, match="it wants"):
        rows(b"\x80\x02csglang_evil\nX\n)\x81.", "d.pkl")


def test_a_name_that_a_pickle_wants_can_not_write_to_the_terminal(rows: Read) -> None:
    with pytest.raises(LogError) as error:
        rows(b"\x80\x02c\x1b[2Jevil\xc3\xa9\nX\n.", "d.pkl")
    assert str(error.value).isascii()
    assert str(error.value).isprintable()


def test_what_a_pickle_sets_on_a_class_stays_in_it(rows: Read, sglang: type) -> None:
    named = b"csglang.a\nB\n"
    state = b"}X\x08\x00\x00\x00__init__" + named + b"s"
    with pytest.raises(LogError, match="breaks off or is damaged"):
        rows(b"\x80\x02" + named + b"N" + state + b"\x86b.", "d.pkl")
    found = rows(_dump([(sglang(rid="a"), {}, 1.0, 2.0)]), "d.pkl")
    assert found[0][1]["obj"] == {"rid": "a"}


@pytest.mark.parametrize(
    "said",
    [
        None, 1, "text", [], [({}, {}, 1.0, 2.0)], {}, {"requests": None}, {"requests": "abcd"},
        {"requests": {"a": 1}}, {"request": []},
    ],
)  # fmt: skip
def test_a_pickle_of_anything_else_is_no_dump(rows: Read, said: Any) -> None:
    with pytest.raises(LogError, match="not an SGLang dump: it has no requests"):
        rows(pickle.dumps(said, 4), "d.pkl")


def test_a_dump_that_is_cut_off_anywhere_is_refused(rows: Read, sglang: type) -> None:
    content = _dump([(sglang(rid="a", input_ids=(1, 300, 70_000)), {"t": 1.5}, 1.0, 2.0)])
    for kept in range(2, len(content)):
        with pytest.raises(LogError, match="not an SGLang dump"):
            rows(content[:kept], "d.pkl")


def test_a_dump_that_something_follows_is_refused(rows: Read) -> None:
    with pytest.raises(LogError, match="something follows it"):
        rows(_dump([]) * 2, "d.pkl")


def test_damaged_dumps_raise_nothing_but_a_verdict(sglang: type) -> None:
    content = _dump([(sglang(rid="a", input_ids=(1, 300)), {"t": [1.5, {"x": b"y"}]}, 1.0, 2.0)])
    choose = random.Random(0)  # noqa: S311 - always the same
    read = 0
    for _ in range(2000):
        damaged = bytearray(content)
        for _ in range(1 + choose.randrange(3)):
            damaged[choose.randrange(2, len(damaged))] = choose.randrange(256)
        with suppress(BadPickle):
            read_pickle(bytes(damaged))
            read += 1
    assert 0 < read < 2000


def _laughs(depth: int, opened: bytes, closed: bytes) -> bytes:
    """Return a pickle of lists that hold the one before ten times, the requests at last."""
    first = b"\x80\x04" + opened + b"K\x01" + closed + b"\x94"
    levels = [opened + b"h%c" % n * 10 + closed + b"\x94" for n in range(depth)]
    return first + b"0".join(levels)


def _requests(content: bytes) -> bytes:
    """Return a pickle whose requests are a list with what another leaves on the stack."""
    return b"\x80\x04}\x8c\x08requests](" + content.removeprefix(b"\x80\x04") + b"es."


@pytest.mark.parametrize(
    "content",
    [
        _requests(_laughs(12, b"](", b"e")),
        _requests(_laughs(12, b"(", b"t")),
        _requests(_laughs(200, b"](", b"e")),
        _requests(b"X\x00\x00\x10\x00" + b"x" * (1 << 20) + b"\x94](" + b"h\x00" * 10_000 + b"e"),
        _requests(b"]\x94h\x00a"),
        _requests(b"]\x94(h\x00h\x00h\x00e"),
        _requests(b"}\x94\x8c\x01ah\x00s"),
    ],
)  # fmt: skip
def test_a_pickle_that_holds_itself_or_one_thing_many_times_is_refused(
    rows: Read, content: bytes
) -> None:
    begin = time.monotonic()
    with pytest.raises(LogError, match="it holds (itself|the same many times)"):
        rows(content, "d.pkl")
    assert time.monotonic() - begin < 5


def test_many_requests_may_share_a_prompt(rows: Read) -> None:
    prompt = list(range(1000))
    shared = [({"rid": str(n), "input_ids": prompt}, {}, 1.0, 2.0) for n in range(64)]
    assert len(rows(_dump(shared), "d.pkl")) == 64


def test_a_key_that_would_take_for_ever_to_hash_is_refused(rows: Read) -> None:
    content = _laughs(40, b"(", b"t")
    for put in (content + b"0}h\x28K\x01s.", content + b"0\x8f(h\x28\x90."):
        with pytest.raises(LogError, match="neither text nor numbers"):
            rows(put, "d.pkl")


def test_a_large_memo_number_takes_no_memory(rows: Read) -> None:
    for put in (b"Nr\xff\xff\xff\x7f.", b"Nq\x05.", b"Nj\xff\xff\xff\x7f.", b"Nh\x05."):
        with pytest.raises(LogError, match="breaks off or is damaged"):
            rows(b"\x80\x02" + put, "d.pkl")


@pytest.mark.parametrize(
    "code",
    [b"\x8d" + b"\xff" * 8, b"\x8e" + b"\xff" * 8, b"X\xff\xff\xff\xff", b"B\xff\xff\xff\x7f"],
)  # fmt: skip
def test_a_length_beyond_the_end_takes_no_memory(rows: Read, code: bytes) -> None:
    with pytest.raises(LogError, match="breaks off or is damaged"):
        rows(b"\x80\x04" + code + b"x.", "d.pkl")


def test_a_pickle_of_too_many_parts_is_refused(rows: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "_MOST_PARTS", 1000)
    assert len(rows(_dump([[]] * 500), "d.pkl")) == 500
    with pytest.raises(LogError, match="more than 1000 texts, lists and objects"):
        rows(b"\x80\x04" + b"]" * 2000 + b".", "d.pkl")
    attributes = b"}(" + b"".join(b"\x8c\x02%02dN" % n for n in range(50)) + b"u\x94"
    made = b"csglang.a\nB\n)\x81h\x00b"
    with pytest.raises(LogError, match="more than 1000 texts, lists and objects"):
        rows(b"\x80\x04" + attributes + made * 100 + b".", "d.pkl")


def test_a_pickle_that_is_too_large_is_refused(rows: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_LARGEST_PICKLE", 1 << 20)
    with pytest.raises(LogError, match="a pickle of more than 1 MB"):
        rows(gzip.compress(_dump([({"t": "x" * (2 << 20)}, {}, 1.0, 2.0)])), "d.pkl.gz")


@pytest.mark.parametrize(
    "code", [b"P0\n", b"Q", b"\x82\x01", b"i", b"o", b"\x96", b"\x97", b"I1\n"]
)
def test_opcodes_that_data_does_not_need_are_refused(rows: Read, code: bytes) -> None:
    with pytest.raises(LogError, match="it holds more than data"):
        rows(b"\x80\x04N" + code + b".", "d.pkl")
