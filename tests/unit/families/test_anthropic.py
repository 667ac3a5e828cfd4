"""Anthropic Messages requests: blocks to messages, envelopes, batches, and who asks."""

from functools import partial
from typing import Any

import pytest
from family_reading import read_lines

from pipeline.logs.families.anthropic import FAMILY
from pipeline.logs.records import BadLine, Chat, LogRecord, Skip

ASK = {"role": "user", "content": "Is it open?"}
USE = {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "quai Ë"}}
CALLED = {
    "id": "t1",
    "type": "function",
    "function": {"name": "look", "arguments": '{"at": "quai Ë"}'},
}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}
IMAGE_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}


_read = partial(read_lines, FAMILY)


def _chat(messages: list[Any], **body: Any) -> Chat:
    [record] = _read({"model": "m", "max_tokens": 9, "system": "", "messages": messages} | body)
    assert isinstance(record, LogRecord)
    assert isinstance(record.prompt, Chat)
    return record.prompt


def _said(*blocks: Any, role: str = "user") -> list[dict[str, Any]]:
    return _chat([ASK, {"role": role, "content": list(blocks)}]).messages[1:]


def test_the_system_prompt_is_the_first_message_be_it_text_or_blocks() -> None:
    rules = {"role": "system", "content": "Be brief."}
    block = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    for system in ("Be brief.", [block]):
        assert _chat([ASK], system=system) == Chat([rules, ASK])
    several = _chat([ASK], system=[block, {"type": "text", "text": "Be kind."}]).messages[0]
    assert several["content"] == [
        {"type": "text", "text": "Be brief."},
        {"type": "text", "text": "Be kind."},
    ]


def test_a_text_and_its_only_block_are_the_same_message() -> None:
    assert _said({"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}) == [
        {"role": "user", "content": "x"}
    ]


def test_an_answer_of_thought_text_and_calls_is_one_message() -> None:
    thought = {"type": "thinking", "thinking": "Look first.", "signature": "c2ln"}
    hidden = {"type": "redacted_thinking", "data": "Zm9v"}
    text = {"type": "text", "text": "Let me see."}
    assert _said(thought, hidden, text, USE, role="assistant") == [
        {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "Look first.",
            "tool_calls": [CALLED],
        }
    ]


def test_each_tool_result_is_a_message_before_what_the_user_says() -> None:
    first = {"type": "tool_result", "tool_use_id": "t1", "content": "yes", "is_error": False}
    second = {
        "type": "tool_result",
        "tool_use_id": "t2",
        "content": [{"type": "text", "text": "no"}, IMAGE],
    }
    empty = {"type": "tool_result", "tool_use_id": "t3"}
    assert _said(first, second, empty, {"type": "text", "text": "And now?"}) == [
        {"role": "tool", "tool_call_id": "t1", "content": "yes"},
        {
            "role": "tool",
            "tool_call_id": "t2",
            "content": [{"type": "text", "text": "no"}, IMAGE_PART],
        },
        {"role": "tool", "tool_call_id": "t3", "content": None},
        {"role": "user", "content": "And now?"},
    ]
    assert _said(first) == [{"role": "tool", "tool_call_id": "t1", "content": "yes"}]


def test_images_and_documents_are_parts_and_text_documents_text() -> None:
    linked = {"type": "image", "source": {"type": "url", "url": "https://x/a.png"}}
    stored = {"type": "image", "source": {"type": "file", "file_id": "f1"}}
    written = {"type": "document", "source": {"type": "text", "data": "Opening hours"}}
    printed = {"type": "document", "source": {"type": "base64", "data": "JVBERi0"}}
    [message] = _said(IMAGE, linked, stored, written, printed)
    assert message["content"] == [
        IMAGE_PART,
        {"type": "image_url", "image_url": {"url": "https://x/a.png"}},
        {"type": "image_url", "image_url": {"url": "f1"}},
        {"type": "text", "text": "Opening hours"},
        printed,
    ]


def test_tools_take_the_form_of_chat_completions() -> None:
    schema = {"type": "object"}
    tools = [
        {"name": "look", "description": "Look.", "input_schema": schema},
        {"type": "web_search_20250305", "name": "web_search"},
    ]
    assert _chat([ASK], tools=tools).tools == [
        {
            "type": "function",
            "function": {"name": "look", "description": "Look.", "parameters": schema},
        },
        {"type": "function", "function": {"name": "web_search"}},
    ]


def test_an_envelope_gives_time_id_usage_and_failure() -> None:
    usage = {"input_tokens": 4, "cache_read_input_tokens": 50, "output_tokens": 21}
    line = {
        "ts": 1780300800123,
        "request_id": "r",
        "status": 200,
        "body": {"model": "m", "max_tokens": 9, "system": "x", "messages": [ASK]},
        "response": {"usage": usage},
    }
    expected = LogRecord(
        prompt=Chat([{"role": "system", "content": "x"}, ASK]),
        time=1780300800123,
        request_id="r",
        carried={"namespace": "m", "model": "m", "tenant": None, "session_id": None},
        output_tokens=21,
        observed_cached_tokens=50,
    )
    assert _read(line) == [expected]
    [failed] = _read(line | {"status": 529, "response": {"type": "error"}})
    assert (failed.failed, failed.output_tokens) == (True, None)


def test_a_streamed_response_reports_at_its_begin_and_end() -> None:
    started = {"type": "message_start", "message": {"id": "msg_1"}}
    started["message"] |= {"usage": {"cache_read_input_tokens": 50, "output_tokens": 1}}
    ended = {"type": "message_delta", "usage": {"output_tokens": 21}}
    body = {"max_tokens": 9, "system": "x", "messages": [ASK]}
    [record] = _read({"request": body, "response": [started, {"type": "ping"}, ended]})
    assert (record.output_tokens, record.observed_cached_tokens) == (21, 50)
    assert record.request_id == "msg_1"


def test_a_batch_asks_and_is_answered_by_its_id() -> None:
    params = {"model": "m", "max_tokens": 9, "messages": [ASK]}
    [asked] = _read({"custom_id": "b-1", "params": params})
    assert (asked.prompt, asked.request_id, asked.again) == (Chat([ASK]), "b-1", False)
    message = {"usage": {"output_tokens": 3, "cache_read_input_tokens": 0}}
    [done] = _read({"custom_id": "b-1", "result": {"type": "succeeded", "message": message}})
    assert done == LogRecord(
        None, request_id="b-1", output_tokens=3, observed_cached_tokens=0, again=True
    )
    [lost] = _read({"custom_id": "b-1", "result": {"type": "expired"}})
    assert (lost.prompt, lost.again, lost.failed) == (None, True, True)


@pytest.mark.parametrize(
    ("user", "tenant", "session"),
    [
        ("kiosk-2", "kiosk-2", None),
        ("user_3c_account_9_session_77", "user_3c_account_9", "77"),
        ('{"device_id": "d", "account_uuid": "", "session_id": "s"}', "d", "s"),
        ('{"device_id": "d", "account_uuid": "a", "session_id": "s"}', "a", "s"),
        (5, "5", None),
        (None, None, None),
        (["x"], None, None),
    ],
)
def test_the_users_id_may_name_the_session_too(
    user: object, tenant: str | None, session: str | None
) -> None:
    body = {"max_tokens": 9, "system": "x", "messages": [ASK], "metadata": {"user_id": user}}
    [record] = _read(body)
    assert (record.carried["tenant"], record.carried["session_id"]) == (tenant, session)
    [record] = _read({"body": body, "tenant": "t", "session_id": "mine"})
    assert (record.carried["tenant"], record.carried["session_id"]) == ("t", "mine")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"messages": []}, "the prompt is empty"),
        ({"messages": ["x"]}, "a message has no role"),
        ({"messages": [{"content": "x"}]}, "a message has no role"),
        ({"messages": [{"role": "user", "content": []}], "system": ""}, "the prompt is empty"),
        ({"messages": [{"role": "user", "content": 7}]}, "neither text nor parts"),
        ({"messages": [{"role": "user", "content": [7]}]}, "neither text nor parts"),
        ({"messages": [ASK], "tools": "look"}, "tools is not a list"),
        ({"messages": [ASK], "system": [7]}, "neither text nor parts"),
        (
            {"messages": [{"role": "user", "content": [{"type": "thinking", "thinking": 5}]}]},
            "neither text nor parts",
        ),
    ],
)
def test_a_body_without_a_usable_prompt_is_a_bad_line(body: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadLine, match=reason):
        _read({"max_tokens": 9, "system": "x"} | body)


@pytest.mark.parametrize(
    "body",
    [
        {"max_tokens": 9, "messages": [ASK]},
        {"max_tokens": 9, "messages": [{"role": "user", "content": [{"type": "text"}]}]},
        {"max_tokens": 9, "system": None, "messages": [ASK], "tools": [{"function": {}}]},
        {"max_tokens": 9, "messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        {"max_tokens": 9, "messages": [{"content": [{"type": "thinking", "thinking": []}]}]},
        {"system": "x", "messages": [ASK]},
        {"max_tokens": 9, "system": "x", "messages": 5},
    ],
)
def test_a_body_that_the_openai_api_takes_too_is_not_anthropics(body: dict[str, Any]) -> None:
    assert not FAMILY.recognises(body)
    assert not FAMILY.recognises({"body": body, "path": "/v1/chat/completions"})


@pytest.mark.parametrize(
    "block",
    [
        USE,
        IMAGE,
        {"type": "thinking", "thinking": "Hm."},
        {"type": "redacted_thinking", "data": "Zm9v"},
        {"type": "tool_result", "tool_use_id": "t1"},
        {"type": "document", "source": {}},
    ],
)
def test_a_block_of_anthropics_form_is_a_mark_of_its_own(block: dict[str, Any]) -> None:
    messages = [ASK, {"role": "assistant", "content": ["x", block]}]
    assert FAMILY.recognises({"max_tokens": 9, "messages": messages})


def test_the_path_tells_a_body_without_other_marks() -> None:
    line = {"path": "/v1/messages?beta=true", "body": {"messages": [ASK]}}
    assert [record.prompt for record in _read(line)] == [Chat([ASK])]
    counting = {"path": "/v1/messages/count_tokens", "body": {"max_tokens": 1, "system": "x"}}
    counting["body"] |= {"messages": [ASK]}
    assert _read(counting) == [Skip("another endpoint than chat and completions")]
