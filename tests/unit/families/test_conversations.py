"""ShareGPT, LMSYS and WildChat: the requests that a conversation was made of."""

from datetime import UTC, datetime
from typing import Any

import pytest
from family_reading import read_lines

from pipeline.logs.families import lmsys, sharegpt, wildchat
from pipeline.logs.records import BadLine, Chat, LogFamily, LogRecord, Skip
from pipeline.logs.turns import LONGEST, answer_text, requests_of

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Hello"}
ANSWER = {"role": "assistant", "content": "Hi"}
MORE = {"role": "user", "content": "And?"}
END = {"role": "assistant", "content": "Bye"}
NOTHING: dict[str, str | None] = {}


_read = read_lines


def _requests(*messages: Any, **options: Any) -> list[LogRecord | Skip]:
    return list(requests_of(list(messages), "c", NOTHING, **options))


def _prompts(*messages: Any, **options: Any) -> list[Any]:
    found = _requests(*messages, **options)
    return [one.prompt for one in found if isinstance(one, LogRecord)]


def test_each_answer_is_a_request_with_all_messages_before_it() -> None:
    assert _requests(SYSTEM, USER, ANSWER, MORE, END) == [
        LogRecord(Chat([SYSTEM, USER]), request_id="c-0", answer="Hi"),
        LogRecord(Chat([SYSTEM, USER, ANSWER, MORE]), request_id="c-1", answer="Bye"),
    ]


def test_a_last_message_of_the_user_is_a_request_where_the_end_is_open() -> None:
    asked, waits = _requests(USER, ANSWER, MORE, open_end=True)
    assert isinstance(asked, LogRecord)
    assert waits == LogRecord(Chat([USER, ANSWER, MORE]), request_id="c-1")
    assert _prompts(USER, ANSWER, MORE) == [Chat([USER])]
    assert _prompts(USER, ANSWER, open_end=True) == [Chat([USER])]


@pytest.mark.parametrize("messages", [[], [SYSTEM], [USER, MORE]])
def test_a_conversation_without_answers_has_no_requests(messages: list[Any]) -> None:
    assert _requests(*messages) == [Skip("a conversation without turns")]


@pytest.mark.parametrize(
    "before", [[], [{"role": "user", "content": ""}], [{"role": "user", "content": None}]]
)
def test_an_answer_to_nothing_is_no_request_but_part_of_the_next(before: list[Any]) -> None:
    skipped, record = _requests(*before, ANSWER, MORE, END)
    assert skipped == Skip("an answer without a prompt")
    assert record == LogRecord(Chat([*before, ANSWER, MORE]), request_id="c-0", answer="Bye")


def test_answers_of_an_example_are_no_requests() -> None:
    assert _prompts(USER, ANSWER, MORE, END, begin=2) == [Chat([USER, ANSWER, MORE])]


def test_messages_keep_what_a_template_can_use() -> None:
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    called = {"role": "assistant", "content": None, "tool_calls": calls}
    result = {"role": "tool", "tool_call_id": "1", "content": "ok"}
    said = USER | {"name": "x", "toxic": False, "hashed_ip": "00"}
    assert _prompts(said, called, result, END)[-1] == Chat([USER | {"name": "x"}, called, result])


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": "Hi"}, "Hi"),
        ({"content": None}, ""),
        ({"content": [{"type": "text", "text": "Hi"}, {"type": "image_url"}, "x"]}, "Hi"),
        ({"content": "Hi", "reasoning_content": "Hm"}, "Hm\nHi"),
        (
            {"tool_calls": [{"function": {"name": "f", "arguments": '{"a": 1}'}}]},
            'f\n{"a": 1}',
        ),
        ({"tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}, 'f\n{"a": 1}'),
        ({"tool_calls": [None, {"function": 7}]}, ""),
        ({"tool_calls": "f"}, ""),
    ],
)
def test_an_answer_is_its_thoughts_text_and_calls(message: dict[str, Any], text: str) -> None:
    assert answer_text(message) == text


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ("Hello", "not a list of messages"),
        ([USER, "Hello"], "a message has no role"),
        ([{"content": "x"}], "a message has no role"),
        ([{"role": 1, "content": "x"}], "a message has no role"),
        ([{"role": "user", "content": 7}], "neither text nor parts"),
        ([USER, ANSWER] * LONGEST, f"more than {LONGEST} messages"),
    ],
)
def test_a_conversation_in_another_form_is_a_bad_line(messages: object, reason: str) -> None:
    with pytest.raises(BadLine, match=reason):
        list(requests_of(messages, "c", NOTHING))


def _said(*turns: tuple[str, object]) -> dict[str, Any]:
    return {"id": "x", "conversations": [{"from": who, "value": what} for who, what in turns]}


def test_sharegpt_names_the_sides_in_its_own_way() -> None:
    line = _said(("system", "Be brief."), ("human", "Hello"), ("gpt", "Hi"), ("user", "And?"))
    carried = {"namespace": None, "model": None, "tenant": None, "session_id": "x"}
    assert _read(sharegpt.FAMILY, line) == [
        LogRecord(Chat([SYSTEM, USER]), request_id="x-0", carried=carried, answer="Hi"),
        LogRecord(Chat([SYSTEM, USER, ANSWER, MORE]), request_id="x-1", carried=carried),
    ]


def test_sharegpt_may_have_a_system_prompt_beside_its_turns() -> None:
    line = _said(("human", "Hello"), ("gpt", "Hi")) | {"system": "Be brief."}
    [record] = _read(sharegpt.FAMILY, line)
    assert isinstance(record, LogRecord)
    assert record.prompt == Chat([SYSTEM, USER])


def test_sharegpt_without_an_id_names_no_requests() -> None:
    line = {"conversations": [{"role": "user", "content": "Hello"}]}
    assert _read(sharegpt.FAMILY, line) == [
        LogRecord(
            Chat([USER]), carried=dict.fromkeys(("namespace", "model", "tenant", "session_id"))
        )
    ]


def test_sharegpt_without_turns_is_skipped() -> None:
    assert _read(sharegpt.FAMILY, _said()) == [Skip("a conversation without turns")]


@pytest.mark.parametrize("who", ["narrator", None, 7])
def test_sharegpt_with_an_unknown_side_is_a_bad_line(who: Any) -> None:
    with pytest.raises(BadLine, match="a message has an unknown role"):
        _read(sharegpt.FAMILY, _said(("human", "Hello"), (who, "Hi")))


def test_lmsys_is_a_conversation_with_a_model() -> None:
    line = {"conversation_id": "x", "model": "m", "conversation": [USER, ANSWER], "turn": 1}
    carried = {"namespace": "m", "model": "m", "tenant": None, "session_id": "x"}
    assert _read(lmsys.FAMILY, line) == [
        LogRecord(Chat([USER]), request_id="x-0", carried=carried, answer="Hi")
    ]
    assert _read(lmsys.FAMILY, line | {"conversation": []}) == [
        Skip("a conversation without turns")
    ]


def test_wildchat_has_a_time_for_each_answer_and_a_tenant() -> None:
    early, late = "2026-05-02T21:04:12+00:00", datetime(2026, 5, 2, 21, 5, tzinfo=UTC)
    conversation = [
        USER | {"hashed_ip": "f0", "timestamp": None},
        ANSWER | {"timestamp": early},
        MORE | {"hashed_ip": "f0", "timestamp": None},
        END | {"timestamp": late},
    ]
    line = {"conversation_hash": "h", "model": "m", "conversation": conversation}
    first, second = _read(wildchat.FAMILY, line)
    assert isinstance(first, LogRecord)
    assert isinstance(second, LogRecord)
    assert (first.time, second.time) == (early, "2026-05-02T21:05:00+00:00")
    assert first.carried == {"namespace": "m", "model": "m", "tenant": "f0", "session_id": "h"}
    assert (first.request_id, second.request_id) == ("h-0", "h-1")
    assert second.prompt == Chat([USER, ANSWER, MORE])


def test_wildchat_without_an_answers_time_takes_the_conversations() -> None:
    line = {
        "conversation_hash": "h",
        "timestamp": "2026-05-02T21:04:12+00:00",
        "hashed_ip": "top",
        "conversation": [USER],
    }
    [record] = _read(wildchat.FAMILY, line)
    assert isinstance(record, LogRecord)
    assert (record.time, record.carried["tenant"]) == (line["timestamp"], "top")


@pytest.mark.parametrize("family", [sharegpt.FAMILY, lmsys.FAMILY, wildchat.FAMILY])
@pytest.mark.parametrize(
    "line",
    [
        {},
        "x",
        None,
        {"conversation": [USER]},
        {"conversations": "x"},
        {"conversations": [1]},
        {"conversations": [{}]},
        {"conversation_id": 1, "conversation": "x"},
        {"conversation_hash": 1, "conversation": None},
        {"messages": [USER]},
    ],
)
def test_other_lines_are_not_recognised(family: LogFamily, line: object) -> None:
    assert not family.recognises(line)
