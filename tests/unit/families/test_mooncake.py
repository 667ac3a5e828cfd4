"""Mooncake lines: blocks, sessions whose later turns have delays, prompts as text."""

from typing import Any

import pytest

from pipeline.logs.families.mooncake import FAMILY
from pipeline.logs.records import BadLine, Blocks, Chat, LogRecord, Skip

NOTHING = {"namespace": None, "model": None, "tenant": None, "session_id": None}
USER = [{"role": "user", "content": "Hello"}]


def _line(tokens: object, ids: object, **more: Any) -> dict[str, Any]:
    return {"timestamp": 5, "input_length": tokens, "output_length": 3, "hash_ids": ids} | more


def _read(*lines: dict[str, Any]) -> list[LogRecord | Skip]:
    reader = FAMILY.reader()
    assert all(map(FAMILY.recognises, lines))
    return [found for line in lines for found in reader(line)]


def _times(*lines: dict[str, Any]) -> list[float | str | None]:
    return [found.time for found in _read(*lines) if isinstance(found, LogRecord)]


@pytest.mark.parametrize("tokens", [1, 511, 512, 513, 1024, 1025])
def test_a_line_has_an_id_for_every_begun_block_of_512_tokens(tokens: int) -> None:
    ids = list(range((tokens + 511) // 512))
    assert _read(_line(tokens, ids)) == [
        LogRecord(Blocks(ids, tokens, 512), time=5, carried=NOTHING, output_tokens=3)
    ]
    with pytest.raises(BadLine, match=rf"{tokens} tokens are {len(ids)} blocks of 512"):
        _read(_line(tokens, [*ids, 99]))


def test_an_id_for_the_last_block_may_be_missing_if_it_is_not_full() -> None:
    [record] = _read(_line(1300, [7, 8]))
    assert record == LogRecord(Blocks([7, 8], 1300, 512), time=5, carried=NOTHING, output_tokens=3)


def test_fewer_ids_than_full_blocks_are_a_prompt_that_was_cut() -> None:
    [record] = _read(_line(1300, [7]))
    assert isinstance(record, LogRecord)
    assert (record.prompt, record.cut, record.length) == (Blocks([7], 1300, 512), True, 1300)
    with pytest.raises(BadLine, match="cut by the logger"):
        _read(_line(1300, []))


def test_ids_have_64_bits_and_a_session_may_be_a_number() -> None:
    [record] = _read(_line(1, [2**64 - 1], session_id=12))
    assert isinstance(record, LogRecord)
    assert record.prompt == Blocks([2**64 - 1], 1, 512)
    assert record.carried == NOTHING | {"session_id": "12"}


@pytest.mark.parametrize(
    ("tokens", "ids", "reason"),
    [
        (0, [], "the prompt is empty"),
        (1, None, "lengths only"),
        (-1, [], "length is not a whole number"),
        (1.5, [1], "length is not a whole number"),
        ("1", [1], "length is not a whole number"),
        (1, [None], "a block id"),
        (1, [-1], "a block id"),
        (1, [2**64], "a block id"),
        (1, ["1"], "a block id"),
        (1, [True], "a block id"),
        (1, {"0": 1}, "block ids are missing"),
    ],
)
def test_a_line_with_wrong_numbers_is_a_bad_line(tokens: object, ids: object, reason: str) -> None:
    with pytest.raises(BadLine, match=reason):
        _read(_line(tokens, ids))


def test_blocks_need_the_length_of_their_prompt() -> None:
    with pytest.raises(BadLine, match="the prompt's length or its block ids are missing"):
        _read(_line(None, [1]))


def test_a_text_counts_more_than_a_length_beside_it_and_blocks_more_than_a_text() -> None:
    texts = {"input_length": 600, "messages": USER, "output_length": 1}
    [chat, blocks] = _read(texts, texts | {"hash_ids": [1, 2]})
    assert isinstance(chat, LogRecord)
    assert isinstance(blocks, LogRecord)
    assert (chat.prompt, blocks.prompt) == (Chat(USER), Blocks([1, 2], 600, 512))


def test_a_later_turn_comes_its_delay_after_the_turn_before() -> None:
    first = _line(600, [1, 2], session_id="a", timestamp=1000.5)
    other = _line(600, [1, 3], session_id="b", timestamp=7000)
    second = {"session_id": "a", "delay": 250, "input_length": 600, "hash_ids": [1, 2]}
    third = {"session_id": "a", "delay_ms": 49.5, "input_length": 600, "hash_ids": [1, 2]}
    fourth = {"session_id": "a", "input_length": 600, "hash_ids": [1, 2]}
    assert _times(first, other, second, third, fourth) == [1000.5, 7000, 1250.5, 1300.0, 1300.0]


def test_a_timestamp_counts_more_than_a_delay() -> None:
    first = _line(1, [1], session_id="a", timestamp="1000")
    second = _line(1, [1], session_id="a", timestamp=4000, delay=1)
    third = {"session_id": "a", "delay": 1, "input_length": 1, "hash_ids": [1]}
    assert _times(first, second, third) == ["1000", 4000, 4001]


def test_a_session_without_times_has_none_for_its_delays_to_add_to() -> None:
    first = {"session_id": "a", "input_length": 1, "hash_ids": [1]}
    date = _line(1, [1], session_id="b", timestamp="2026-05-02T21:00:00Z")
    later = [{"session_id": s, "delay": 5, "input_length": 1, "hash_ids": [1]} for s in "ab"]
    assert _times(first, date, *later) == [None, "2026-05-02T21:00:00Z", None, None]


@pytest.mark.parametrize("session", ["a", None])
def test_a_delay_needs_an_earlier_turn(session: str | None) -> None:
    with pytest.raises(BadLine, match="a delay without an earlier turn"):
        _read({"session_id": session, "delay": 0, "input_length": 1, "hash_ids": [1]})


@pytest.mark.parametrize("delay", ["5", True, -1, [5], float("nan"), 10**400])
def test_a_delay_that_is_no_number_is_a_bad_line(delay: object) -> None:
    first = _line(1, [1], session_id="a")
    with pytest.raises(BadLine, match="a delay is not a number"):
        _read(first, {"session_id": "a", "delay": delay, "input_length": 1, "hash_ids": [1]})


def test_a_bad_turn_is_still_the_turn_before_the_next() -> None:
    reader = FAMILY.reader()
    with pytest.raises(BadLine):
        list(reader(_line(0, [], session_id="a", timestamp=100)))
    [record] = reader({"session_id": "a", "delay": 5, "input_length": 1, "hash_ids": [1]})
    assert isinstance(record, LogRecord)
    assert record.time == 105


def test_sessions_that_are_long_over_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.logs.families.mooncake._SESSIONS", 2)
    first, second, third = (_line(1, [1], session_id=session) for session in "abc")
    later = {"session_id": "a", "delay": 1, "input_length": 1, "hash_ids": [1]}
    assert _times(first, second, later) == [5, 5, 6]
    with pytest.raises(BadLine, match="a delay without an earlier turn"):
        _read(first, second, third, later)


def test_a_prompt_may_be_text_or_messages_or_a_payload() -> None:
    tools = [{"type": "function", "function": {"name": "look"}}]
    assert [
        found.prompt
        for found in _read(
            {"timestamp": 0, "text_input": "Hello", "output_length": 1},
            {"timestamp": 0, "messages": USER, "tools": tools, "output_length": 1},
            {"timestamp": 0, "payload": {"prompt": "Hi"}},
            {"timestamp": 0, "payload": {"messages": USER}},
        )
        if isinstance(found, LogRecord)
    ] == ["Hello", Chat(USER, tools), "Hi", Chat(USER)]


def test_a_payload_says_its_model_and_several_prompts_are_several_requests() -> None:
    payload = {"model": "m", "cache_salt": "s", "prompt": ["a", "b"]}
    line = {"request_id": "r", "session_id": "x", "timestamp": 3, "payload": payload}
    carried = {"namespace": "m/s", "model": "m", "tenant": None, "session_id": "x"}
    assert _read(line) == [
        LogRecord("a", time=3, request_id="r-0", carried=carried),
        LogRecord("b", time=3, request_id="r-1", carried=carried),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({"text_input": ""}, "the prompt is empty"),
        ({"payload": {"prompt": None}}, "the prompt is empty"),
        ({"messages": [], "output_length": 1}, "the prompt is empty"),
        ({"session_id": "a", "input_length": 100, "output_length": 4}, "lengths only"),
    ],
)
def test_a_line_without_a_prompt_is_a_bad_line(line: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadLine, match=reason):
        _read(line)


def test_turns_that_only_add_to_the_ones_before_are_refused_after_the_first() -> None:
    first = {"session_id": "a", "message_mode": "delta", "messages": USER, "timestamp": 0}
    [record] = _read(first)
    assert isinstance(record, LogRecord)
    assert record.prompt == Chat(USER)
    with pytest.raises(BadLine, match="a turn without the turns before it"):
        _read(first, first | {"timestamp": 10})
    blocks = _line(1, [1], session_id="a", context_mode="deltas_without_responses")
    with pytest.raises(BadLine, match="a turn without the turns before it"):
        _read(blocks, blocks)


@pytest.mark.parametrize(
    "line",
    [
        {},
        "text",
        None,
        {"messages": USER, "timestamp": 1},
        {"messages": USER, "session_id": "a"},
        {"messages": "Hello", "delay": 1},
        {"payload": {"input": "x"}},
        {"payload": "x", "timestamp": 1},
        {"text_input": 7},
        {"input_length": 7, "output_length": 8, "timestamp": 9},
        {"chat_id": 1, "input_length": 1, "hash_ids": [1]},
        {"hash_ids": [1]},
        {"input_length": 7, "session_id": "a", "prompt": "Hello"},
        {"input_length": 7, "session_id": "a", "messages": USER},
    ],
)
def test_other_lines_are_not_recognised(line: object) -> None:
    assert not FAMILY.recognises(line)


def test_block_ids_count_within_their_file_and_relative_times_are_milliseconds() -> None:
    assert (FAMILY.relative_unit, FAMILY.own_blocks, FAMILY.own_clock) == ("ms", True, False)
