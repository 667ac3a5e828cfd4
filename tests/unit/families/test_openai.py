"""OpenAI chat and completions requests: bodies, what may be around them, and what is refused."""

import json
from functools import partial
from typing import Any

import pytest
from family_reading import one_record, read_lines

from pipeline.logs.families import FAMILIES
from pipeline.logs.families.openai import FAMILY
from pipeline.logs.records import BadLine, Chat, LogRecord, Skip

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
TOOLS = [{"type": "function", "function": {"name": "look"}}]
NOTHING = {"namespace": None, "model": None, "tenant": None, "session_id": None}
USAGE = {"completion_tokens": 12, "prompt_tokens_details": {"cached_tokens": 7}}
CHAT_PATH = "/v1/chat/completions"


_read = partial(read_lines, FAMILY)


_record = partial(one_record, FAMILY)


def _prompts(line: dict[str, Any]) -> list[Any]:
    return [record.prompt for record in _read(line)]


def test_a_chat_body_is_one_request_of_messages_and_tools() -> None:
    assert _prompts({"messages": MESSAGES}) == [Chat(MESSAGES, None)]
    assert _prompts({"messages": MESSAGES, "tools": TOOLS}) == [Chat(MESSAGES, TOOLS)]
    assert _prompts({"messages": MESSAGES, "tools": []}) == [Chat(MESSAGES, None)]
    legacy = {"messages": MESSAGES, "functions": [{"name": "look"}]}
    assert _prompts(legacy) == [Chat(MESSAGES, TOOLS)]


def test_settings_of_the_chat_template_come_along() -> None:
    settings = {"chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "low"}
    expected = {"enable_thinking": False, "reasoning_effort": "low"}
    assert _prompts({"messages": MESSAGES} | settings) == [Chat(MESSAGES, None, expected)]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("Hello", ["Hello"]),
        ([5, 0, 2**31 - 1], [[5, 0, 2**31 - 1]]),
        (["Hello", "you"], ["Hello", "you"]),
        ([[1, 2], [3]], [[1, 2], [3]]),
        (["Hello", [1, 2]], ["Hello", [1, 2]]),
    ],
)
def test_a_completions_prompt_is_text_or_token_ids_or_several(
    prompt: object, expected: list[object]
) -> None:
    assert _prompts({"prompt": prompt}) == expected


def test_a_suffix_is_no_part_of_the_prompt() -> None:
    assert _prompts({"prompt": "def knot(", "suffix": "    return rope"}) == ["def knot("]


def test_a_body_with_all_fields_of_both_apis_has_the_one_prompt_that_is_filled() -> None:
    assert _prompts({"prompt": "Hello", "messages": None}) == ["Hello"]
    assert _prompts({"prompt": None, "messages": MESSAGES}) == [Chat(MESSAGES)]


def test_an_envelope_gives_time_ids_and_what_production_reported() -> None:
    line = {
        "timestamp": "2026-03-01T10:00:00Z",
        "request_id": "req-1",
        "tenant": "shop",
        "session_id": 17,
        "namespace": "lora-a",
        "body": {"model": "m", "messages": MESSAGES, "user": "u", "cache_salt": "s"},
        "response": {"usage": USAGE},
    }
    assert _record(line) == LogRecord(
        prompt=Chat(MESSAGES),
        time="2026-03-01T10:00:00Z",
        request_id="req-1",
        carried={"namespace": "lora-a", "model": "m", "tenant": "shop", "session_id": "17"},
        output_tokens=12,
        observed_cached_tokens=7,
    )


@pytest.mark.parametrize("body", ["body", "request", "request_body"])
@pytest.mark.parametrize("response", ["response", "response_body"])
@pytest.mark.parametrize("time", ["timestamp", "time", "ts", "created_at", "start_time"])
@pytest.mark.parametrize("request_id", ["request_id", "id", "x_request_id"])
@pytest.mark.parametrize("text", [True, False])
def test_an_envelope_names_its_fields_as_gateways_do(
    body: str, response: str, time: str, request_id: str, text: bool
) -> None:
    asked, answered = {"messages": MESSAGES}, {"usage": USAGE}
    line = {
        time: 1772359200.5,
        request_id: "r",
        body: json.dumps(asked) if text else asked,
        response: json.dumps(answered) if text else answered,
    }
    record = _record(line)
    assert (record.prompt, record.time, record.request_id) == (Chat(MESSAGES), 1772359200.5, "r")
    assert (record.output_tokens, record.observed_cached_tokens) == (12, 7)


def test_an_envelope_may_hold_request_and_response_with_their_own_bodies() -> None:
    line = {
        "started_at": 1772359200123,
        "request": {"method": "POST", "uri": CHAT_PATH, "body": json.dumps({"messages": MESSAGES})},
        "response": {"status": 503, "body": "upstream down"},
    }
    record = _record(line)
    assert (record.prompt, record.time) == (Chat(MESSAGES), 1772359200123)
    assert record.failed
    answered = {"status": 200, "body": {"id": "chatcmpl-1", "usage": USAGE}}
    record = _record(line | {"response": answered})
    assert (record.output_tokens, record.request_id, record.failed) == (12, "chatcmpl-1", False)


def test_a_line_without_a_field_for_time_came_when_its_response_was_begun() -> None:
    answered = {"id": "cmpl-1", "created": 1772359200}
    line = {"request": {"prompt": "x"}, "response": answered}
    assert (_record(line).time, _record(line).request_id) == (1772359200, "cmpl-1")
    assert _record(line | {"timestamp": None}).time is None


def test_a_bare_body_may_hold_the_envelopes_fields_itself() -> None:
    line = {"prompt": [1], "timestamp": 3, "request_id": 4, "user": "u", "cache_salt": "s"}
    record = _record(line)
    assert (record.time, record.request_id) == (3, "4")
    assert record.carried == NOTHING | {"tenant": "u", "namespace": "s"}


@pytest.mark.parametrize(
    ("body", "carried"),
    [
        ({"safety_identifier": "k"}, {"tenant": "k"}),
        ({"user": "u", "safety_identifier": "k"}, {"tenant": "u"}),
        ({"prompt_cache_key": "chat-4"}, {"session_id": "chat-4"}),
        ({"metadata": {"conversation_id": 9}}, {"session_id": "9"}),
        ({"metadata": "none", "thread_id": "th"}, {"session_id": "th"}),
        ({"model": "m", "lora_path": "fr"}, {"model": "m", "namespace": "m/fr"}),
        ({"model": {}, "user": ["u"], "metadata": 3}, {}),
    ],
)
def test_who_asked_and_in_which_conversation_stands_in_the_body(
    body: dict[str, Any], carried: dict[str, str]
) -> None:
    assert _record({"body": body | {"prompt": "x"}}).carried == NOTHING | carried


def test_a_streamed_response_reports_in_its_last_chunk() -> None:
    chunks: list[Any] = [
        {"id": "chatcmpl-7", "choices": [{"delta": {"content": "Hi"}}], "usage": None},
        "odd",
        {"id": "chatcmpl-7", "choices": [], "usage": USAGE},
    ]
    text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n"
    for response in (chunks, text):
        record = _record({"body": {"prompt": "x"}, "response": response})
        assert (record.output_tokens, record.observed_cached_tokens) == (12, 7)
        assert record.request_id == "chatcmpl-7"


def test_an_answer_is_kept_whether_or_not_its_tokens_were_counted() -> None:
    chat = {"choices": [{"message": {"role": "assistant", "content": "Hi"}}]}
    text = {"choices": [{"text": "Hi"}, {"text": " there"}, "odd", {"text": 5}]}
    assert _record({"body": {"prompt": "x"}, "response": chat}).answer == "Hi"
    assert _record({"body": {"prompt": "x"}, "response": text}).answer == "Hi there"
    counted = chat | {"usage": USAGE}
    assert _record({"body": {"prompt": "x"}, "response": counted}).answer == "Hi"


@pytest.mark.parametrize("response", [None, "text", {}, {"usage": None}, {"usage": []}, [], 7])
def test_a_response_without_usage_reports_nothing(response: object) -> None:
    record = _record({"body": {"prompt": "x"}, "response": response})
    assert (record.output_tokens, record.observed_cached_tokens) == (None, None)
    assert record.answer is None


def test_several_prompts_of_one_request_have_ids_of_their_own() -> None:
    records = _read({"request_id": "r", "body": {"prompt": ["a", "b"]}})
    assert [record.request_id for record in records] == ["r-0", "r-1"]
    records = _read({"body": {"prompt": ["a", "b"]}})
    assert [record.request_id for record in records] == [None, None]


def test_what_several_prompts_used_together_is_nobodys() -> None:
    records = _read({"body": {"prompt": ["a", "b"]}, "response": {"usage": USAGE}})
    assert [record.output_tokens for record in records] == [None, None]
    assert [record.observed_cached_tokens for record in records] == [None, None]


@pytest.mark.parametrize(
    ("status", "usage", "failed"),
    [
        (200, {}, False),
        (400, {}, True),
        ("503", {}, True),
        (500, {"prompt_tokens": 3}, False),
        (None, {}, False),
        (True, {}, False),
        ("broken", {}, False),
    ],
)
def test_a_refused_request_of_which_nothing_was_computed_failed(
    status: object, usage: dict[str, int], failed: bool
) -> None:
    for name in ("status", "status_code"):
        line = {name: status, "body": {"prompt": "x"}, "response": {"usage": usage}}
        assert _record(line).failed is failed


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/v1/embeddings", "another endpoint than chat and completions"),
        ("/v1/messages/count_tokens?beta=true", "another endpoint than chat and completions"),
        ("/health", "health check or other path"),
        ("/v1/models", "health check or other path"),
    ],
)
def test_a_line_of_another_path_is_skipped(path: str, reason: str) -> None:
    assert _read({"path": path, "body": {"model": "e", "input": "x"}}) == [Skip(reason)]
    assert _read({"url": path, "request_body": None}) == [Skip(reason)]


@pytest.mark.parametrize("body", [None, "", "not kept", 7])
def test_a_line_whose_body_was_not_logged_says_so(body: object) -> None:
    with pytest.raises(BadLine, match="the request body is not in the log"):
        _read({"path": CHAT_PATH, "body": body})


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"messages": []}, "the prompt is empty"),
        ({"messages": None}, "the prompt is empty"),
        ({"messages": "Hello"}, "the prompt is empty"),
        ({"messages": [{"role": "user", "content": ""}]}, "the prompt is empty"),
        ({"messages": ["Hello"]}, "a message has no role"),
        ({"messages": [{"content": "Hello"}]}, "a message has no role"),
        ({"messages": [{"role": 7, "content": "Hello"}]}, "a message has no role"),
        ({"messages": MESSAGES, "tools": {"name": "look"}}, "tools is not a list"),
        ({"prompt": None}, "the prompt is empty"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt": []}, "the prompt is empty"),
        ({"prompt": [[]]}, "the prompt is empty"),
        ({"prompt": ["Hello", ""]}, "the prompt is empty"),
        ({"prompt": 7}, "neither text nor token ids"),
        ({"prompt": {"text": "x"}}, "neither text nor token ids"),
        ({"prompt": [1, "two"]}, "neither text nor token ids"),
        ({"prompt": [1, 2.5]}, "neither text nor token ids"),
        ({"prompt": [1, None]}, "neither text nor token ids"),
        ({"prompt": [1, -2]}, "not a whole number below"),
        ({"prompt": [1, 2**31]}, "not a whole number below"),
        ({"prompt": [True, 2]}, "not a whole number below"),
        ({"prompt": [[1, 2], [3, "four"]]}, "not a whole number below"),
    ],
)
def test_a_body_without_a_usable_prompt_is_a_bad_line(body: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadLine, match=reason):
        _read({"body": body})


@pytest.mark.parametrize("count", [-1, 1.5, "12", True, 2**32])
def test_a_count_that_is_no_count_costs_no_request(count: object) -> None:
    record = _record({"body": {"prompt": "x"}, "response": {"usage": {"completion_tokens": count}}})
    assert record.output_tokens is None


@pytest.mark.parametrize("line", [{}, {"body": "text"}, {"body": {}}, {"body": [1]}, {"text": 1}])
def test_an_object_without_a_prompt_belongs_to_no_family(line: dict[str, Any]) -> None:
    assert not any(family.recognises(line) for family in FAMILIES)
