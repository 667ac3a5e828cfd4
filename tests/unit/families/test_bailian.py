"""Bailian lines: blocks of 16 tokens, and the chain of chats that is a session."""

from typing import Any

import pytest

from pipeline.logs.families.bailian import FAMILY
from pipeline.logs.records import BadLine, Blocks, LogRecord


def _line(chat: object, parent: object, **more: Any) -> dict[str, Any]:
    return {
        "chat_id": chat,
        "parent_chat_id": parent,
        "timestamp": 1.5,
        "input_length": 40,
        "output_length": 7,
        "type": "text",
        "turn": 1,
        "hash_ids": [1, 2, 3],
    } | more


def _sessions(*lines: dict[str, Any]) -> list[str | None]:
    reader = FAMILY.reader()
    return [
        found.carried["session_id"]
        for line in lines
        for found in reader(line)
        if isinstance(found, LogRecord)
    ]


def test_a_line_is_a_prompt_in_blocks_of_16_tokens() -> None:
    assert FAMILY.recognises(_line(9, -1))
    assert list(FAMILY.reader()(_line(9, -1))) == [
        LogRecord(
            prompt=Blocks([1, 2, 3], 40, 16),
            time=1.5,
            request_id="9",
            carried={"namespace": None, "model": None, "tenant": None, "session_id": "9"},
            output_tokens=7,
        )
    ]


def test_a_session_is_the_first_chat_of_a_chain() -> None:
    chain = [_line(1, -1), _line(2, 1), _line(8, -1), _line(3, 2), _line(4, 3), _line(5, 1)]
    assert _sessions(*chain) == ["1", "1", "8", "1", "1", "1"]


def test_a_parent_outside_of_the_file_is_the_session_of_all_its_children() -> None:
    assert _sessions(_line(1, 77), _line(2, 1), _line(3, 77), _line(4, 78)) == [
        "77",
        "77",
        "77",
        "78",
    ]


@pytest.mark.parametrize("parent", [-1, "-1", None, "", [1]])
def test_a_chat_without_a_parent_begins_a_session(parent: object) -> None:
    assert _sessions(_line(4, parent)) == ["4"]


def test_a_chat_that_is_its_own_parent_is_its_session() -> None:
    assert _sessions(_line(4, 4), _line(4, 4)) == ["4", "4"]


def test_chats_that_are_long_over_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.logs.families.bailian._CHATS", 2)
    begin = [_line(1, 77), _line(2, -1)]
    assert _sessions(*begin, _line(4, 1)) == ["77", "2", "77"]
    assert _sessions(*begin, _line(3, -1), _line(4, 1)) == ["77", "2", "3", "1"]


def test_fewer_ids_than_full_blocks_are_a_prompt_that_was_cut() -> None:
    [record] = FAMILY.reader()(_line(1, -1, hash_ids=[1]))
    assert isinstance(record, LogRecord)
    assert (record.cut, record.length) == (True, 40)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"hash_ids": None}, "lengths only"),
        ({"hash_ids": [1, 2, 3, 4]}, "40 tokens are 3 blocks of 16"),
        ({"hash_ids": "1"}, "block ids are missing"),
        ({"input_length": None}, "length"),
        ({"input_length": 0, "hash_ids": []}, "the prompt is empty"),
        ({"input_length": 10**30}, "length"),
    ],
)
def test_a_line_with_wrong_numbers_is_a_bad_line(more: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadLine, match=reason):
        list(FAMILY.reader()(_line(1, -1, **more)))


@pytest.mark.parametrize("line", [{}, "x", None, {"chat_id": 1}, {"input_length": 1}])
def test_other_lines_are_not_recognised(line: object) -> None:
    assert not FAMILY.recognises(line)


def test_block_ids_count_within_their_file_and_relative_times_are_seconds() -> None:
    assert (FAMILY.relative_unit, FAMILY.own_blocks) == ("s", True)
