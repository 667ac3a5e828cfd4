"""What a line says: objects or text, strictly or leniently, and what was overlooked."""

from typing import Any

import pytest

from pipeline.logs.objects import (
    BAD_UTF8,
    LOG_PREFIX,
    MORE_OBJECTS,
    NOT_A_NUMBER,
    Content,
    parse_line,
)
from pipeline.logs.records import BadLine


def _object(line: bytes) -> Any:
    content = parse_line(line)
    assert content.repairs == ()
    assert len(content.values) == 1
    return content.values[0]


def test_an_object_is_read_strictly() -> None:
    assert parse_line(b'{"a": [1, 2.5, null, "x"]}') == Content([{"a": [1, 2.5, None, "x"]}])


def test_white_space_and_windows_line_ends_around_an_object_do_not_matter() -> None:
    assert _object(b' \t{"a": 1} \r') == {"a": 1}


def test_numbers_up_to_64_bits_stay_exact() -> None:
    assert _object(b'{"a": 18446744073709551615}') == {"a": 2**64 - 1}


@pytest.mark.parametrize("inside", ["\u2028", "\u2029", "\u0085", "\u00a0", "\ufeff"])
def test_odd_white_space_in_a_text_is_part_of_it(inside: str) -> None:
    assert _object(f'{{"a": "x{inside}y"}}'.encode()) == {"a": f"x{inside}y"}


def test_a_raw_control_character_in_a_text_is_part_of_it() -> None:
    assert _object(b'{"a": "x\ty\x01"}') == {"a": "x\ty\x01"}


def test_half_a_surrogate_pair_is_kept_for_those_who_clean_texts() -> None:
    assert _object(b'{"a": "x\\ud83d y"}') == {"a": "x\ud83d y"}
    assert _object(b'{"a": "\xed\xa0\xbd"}') == {"a": "\ud83d"}


def test_a_byte_order_mark_before_an_object_is_dropped() -> None:
    assert _object(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


def test_of_a_repeated_key_the_last_counts() -> None:
    assert _object(b'{"a": 1, "a": 2}') == {"a": 2}


@pytest.mark.parametrize("word", [b"NaN", b"Infinity", b"-Infinity"])
def test_what_is_no_number_is_null_and_counted(word: bytes) -> None:
    content = parse_line(b'{"a": %b, "b": [%b]}' % (word, word))
    assert content == Content([{"a": None, "b": [None]}], (NOT_A_NUMBER,))


def test_nan_within_a_text_is_text() -> None:
    assert parse_line(b'{"a": "NaN\t"}').repairs == ()


def test_bytes_that_are_no_utf8_are_replaced_and_counted() -> None:
    assert parse_line(b'{"a": "caf\xe9"}') == Content([{"a": "caf\ufffd"}], (BAD_UTF8,))


def test_several_objects_on_a_line_are_all_there_and_counted() -> None:
    three = Content([{"a": 1}, {"b": 2}, {"c": 3}], (MORE_OBJECTS,))
    assert parse_line(b'{"a": 1}{"b": 2} , {"c": 3}') == three


def test_a_comma_behind_an_object_is_no_second_one() -> None:
    assert _object(b'{"a": 1},') == {"a": 1}


def test_what_a_logger_writes_before_an_object_is_dropped_and_counted() -> None:
    one = Content([{"a": {"b": 1}}], (LOG_PREFIX,))
    assert parse_line(b'[2026-03-01 10:00:00] {"a": {"b": 1}}') == one
    assert parse_line(b'\x1b[32mINFO\x1b[0m gateway: {"a": {"b": 1}}') == one


def test_colours_around_an_object_do_not_make_it_text() -> None:
    assert parse_line(b'\x1b[36m{"a": 1}\x1b[0m').values == [{"a": 1}]


def test_an_object_far_behind_its_line_start_is_text() -> None:
    line = b"x" * 300 + b'{"a": 1}'
    assert parse_line(line) == Content([line.decode()])


def test_all_that_was_overlooked_is_told() -> None:
    content = parse_line(b'at 10: {"a": NaN, "b": "\xff"}{"c": 1}')
    assert content.values == [{"a": None, "b": "\ufffd"}, {"c": 1}]
    assert set(content.repairs) == {NOT_A_NUMBER, BAD_UTF8, LOG_PREFIX, MORE_OBJECTS}


@pytest.mark.parametrize(
    "line",
    [
        b'{"a": 1} and more',
        b'{"a": 1}]',
        b'{"a": 1} 2',
        b'{"a": 1}{"b": ',
        b'{"a": 1',
        b'{"a": "x',
        b"{'a': 1}",
        b"{",
        b'{"a": 1e}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": ' * 100_000,
        b'{"a": ' * 100_000 + b"1" + b"}" * 100_000,
    ],
)
def test_what_begins_as_an_object_and_is_none_is_bad(line: bytes) -> None:
    with pytest.raises(BadLine, match=r"^not a JSON object$"):
        parse_line(line)


@pytest.mark.parametrize("line", [b"[]", b'[{"a": 1}]', b'"text"', b"null", b"1", b"true"])
def test_json_that_is_no_object_is_bad(line: bytes) -> None:
    with pytest.raises(BadLine, match=r"^not a JSON object$"):
        parse_line(line)


@pytest.mark.parametrize(
    "line", ["INFO server started", "[2026-03-01] ready", "x {'a': 1}", "x {} y", "größer"]
)
def test_a_line_that_is_no_json_is_its_text(line: str) -> None:
    assert parse_line(f"  {line}\r".encode()) == Content([line])


def test_a_text_comes_without_its_colours() -> None:
    assert parse_line(b"\x1b[1;36m(pid=1)\x1b[0;0m INFO ok\x1b[0m") == Content(["(pid=1) INFO ok"])


def test_text_that_is_no_utf8_is_replaced_and_counted() -> None:
    assert parse_line(b"caf\xe9 is open") == Content(["caf\ufffd is open"], (BAD_UTF8,))
