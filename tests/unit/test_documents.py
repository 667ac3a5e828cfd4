"""Documents of JSON: arrays and objects over several lines; what is no document."""

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from document_rows import PACKED, Read, reads_in

from pipeline.errors import LogError
from pipeline.logs import arrays
from pipeline.logs.documents import document
from pipeline.logs.objects import BAD_UTF8, NOT_A_NUMBER
from pipeline.logs.reading import LogFile, read_log
from pipeline.logs.streams import open_log

IsLines = Callable[..., bool]


@pytest.fixture
def rows(tmp_path: Path) -> Read:
    return reads_in(tmp_path)


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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\0" * 257 + b"ustar\0" + b"\0" * 300, "is a tar archive, not a log: unpack it first"),
        ('{"prompt": "x"}\n'.encode("utf-16"), "is UTF-16: turn it into UTF-8 first"),
    ],
)
def test_what_is_no_log_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(content)
    with pytest.raises(LogError, match=message):
        list(read_log(LogFile(log)))
