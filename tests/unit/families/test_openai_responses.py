"""OpenAI Responses requests: items to messages, and conversations that go by response ids."""

import json
from typing import Any

import pytest

from pipeline.logs.families import openai_responses
from pipeline.logs.families.openai_responses import FAMILY
from pipeline.logs.kept import Kept
from pipeline.logs.records import BadLine, Chat, LogRecord, Skip

RULES = {"role": "system", "content": "Be brief."}
ASK = {"role": "user", "content": "Is it open?"}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "yes"}
CALLED = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
TOOL_SAYS = {"role": "tool", "tool_call_id": "c1", "content": "yes"}
SAID = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "It is."}],
}


def _read(*lines: dict[str, Any]) -> list[Any]:
    """Read lines of one file; bad ones as their reason."""
    reader, found = FAMILY.reader(), []
    for line in lines:
        assert FAMILY.recognises(line)
        try:
            found += list(reader(line))
        except BadLine as reason:
            found.append(str(reason))
    return found


def _chat(body: dict[str, Any]) -> Chat:
    [record] = _read({"model": "m", "store": False} | body)
    assert isinstance(record, LogRecord), record
    assert isinstance(record.prompt, Chat)
    return record.prompt


def _turn(name: str | None, output: list[Any] | None = None, **body: Any) -> dict[str, Any]:
    response: dict[str, Any] = {"id": name, "status": "completed", "output": output}
    return {"body": {"model": "m", "max_output_tokens": 9} | body, "response": response}


def test_instructions_come_first_and_a_text_is_the_users() -> None:
    body = {"instructions": "Be brief.", "input": "Is it open?"}
    assert _chat(body) == Chat([RULES, ASK])
    assert _chat({"input": "Is it open?"}) == Chat([ASK])


def test_items_of_one_answer_are_one_message() -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Look first."}]}
    other = CALL | {"call_id": "c2", "arguments": '{"at": 2}'}
    again = {"id": "c2", "type": "function", "function": {"name": "look", "arguments": '{"at": 2}'}}
    items = [ASK, thought, SAID, CALL, other, OUTPUT, SAID]
    assert _chat({"input": items}).messages == [
        ASK,
        {
            "role": "assistant",
            "content": "It is.",
            "reasoning_content": "Look first.",
            "tool_calls": [CALLED, again],
        },
        TOOL_SAYS,
        {"role": "assistant", "content": "It is."},
    ]


def test_a_thought_or_a_text_after_calls_begins_another_message() -> None:
    thought = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}]}
    assert _chat({"input": [ASK, CALL, thought, CALL, SAID]}).messages[1:] == [
        {"role": "assistant", "content": None, "tool_calls": [CALLED]},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "Hm.",
            "tool_calls": [CALLED],
        },
        {"role": "assistant", "content": "It is."},
    ]


def test_a_thought_that_only_its_author_can_read_is_no_message() -> None:
    hidden = {"type": "reasoning", "summary": [], "encrypted_content": "Zm9v"}
    assert _chat({"input": [ASK, hidden, OUTPUT]}).messages == [ASK, TOOL_SAYS]


def test_parts_take_the_form_of_chat_completions() -> None:
    content = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"},
        {"type": "input_image", "file_id": "file-1"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "BB"},
        {"type": "refusal", "refusal": "No."},
        {"type": "input_audio", "input_audio": {"data": "CC"}},
    ]
    [message] = _chat({"input": [{"type": "message", "role": "user", "content": content}]}).messages
    assert message["content"] == [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
        {"type": "image_url", "image_url": {"url": "file-1"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "BB"}},
        {"type": "text", "text": "No."},
        {"type": "input_audio", "input_audio": {"data": "CC"}},
    ]


def test_custom_tools_are_called_with_text_and_what_a_server_did_itself_is_a_part() -> None:
    custom = {"type": "custom_tool_call", "call_id": "c1", "name": "sh", "input": "ls"}
    output = {"type": "custom_tool_call_output", "call_id": "c1", "output": [SAID["content"][0]]}
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    function = {"name": "sh", "arguments": "ls"}
    assert _chat({"input": [ASK, custom, output, search]}).messages[1:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "It is."},
        {"role": "assistant", "content": [search]},
    ]


def test_tools_are_nested_and_those_of_the_server_left_out() -> None:
    flat = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": None}
    nested = {"name": "look", "parameters": {"type": "object"}}
    tools = [flat, {"type": "web_search"}, {"type": "custom", "name": "sh"}, "odd"]
    chat = _chat({"input": "x", "tools": tools, "reasoning": {"effort": "low"}})
    assert chat.tools == [
        {"type": "function", "function": nested},
        {"type": "function", "function": {"name": "sh"}},
    ]
    assert chat.settings == {"reasoning_effort": "low"}


def test_an_envelope_gives_time_usage_and_the_responses_id() -> None:
    usage = {"output_tokens": 8, "input_tokens_details": {"cached_tokens": 64}}
    line = {
        "time": "2026-06-01T08:00:00Z",
        "status_code": 200,
        "request_body": json.dumps({"model": "m", "instructions": "Be brief.", "input": "x"}),
        "response_body": {"id": "resp_1", "usage": usage},
    }
    assert _read(line) == [
        LogRecord(
            prompt=Chat([RULES, {"role": "user", "content": "x"}]),
            time="2026-06-01T08:00:00Z",
            request_id="resp_1",
            carried={"namespace": "m", "model": "m", "tenant": None, "session_id": None},
            output_tokens=8,
            observed_cached_tokens=64,
        )
    ]


def test_a_request_goes_on_from_an_earlier_response_of_the_file() -> None:
    first = _turn("resp_1", [CALL], instructions="Be brief.", input="Is it open?", tools=[])
    second = _turn("resp_2", [SAID], previous_response_id="resp_1", input=[OUTPUT])
    third = _turn("resp_3", [], previous_response_id="resp_2", instructions="Be brief.", input="Ok")
    assert [record.prompt.messages for record in _read(first, second, third)] == [
        [RULES, ASK],
        [ASK, {"role": "assistant", "content": None, "tool_calls": [CALLED]}, TOOL_SAYS],
        [
            RULES,
            ASK,
            {"role": "assistant", "content": None, "tool_calls": [CALLED]},
            TOOL_SAYS,
            {"role": "assistant", "content": "It is."},
            {"role": "user", "content": "Ok"},
        ],
    ]


def test_a_conversation_may_branch_and_a_file_knows_nothing_of_another() -> None:
    first = _turn("resp_1", [SAID], input="Is it open?")
    left = _turn("resp_2", [], previous_response_id="resp_1", input="Left")
    right = _turn("resp_3", [], previous_response_id="resp_1", input="Right")
    found = _read(first, left, right)
    assert [len(record.prompt.messages) for record in found] == [1, 3, 3]
    assert _read(right) == ["its previous response is not in the log"]


def test_a_streamed_response_can_be_gone_on_from() -> None:
    first = _turn(None, input="Is it open?")
    done = {"type": "response.completed", "response": {"id": "resp_1", "output": [SAID]}}
    done["response"] |= {"usage": {"output_tokens": 3}}
    first["response"] = f"event: response.completed\ndata: {json.dumps(done)}\n\n"
    second = _turn("resp_2", [], previous_response_id="resp_1", input="Ok")
    found = _read(first, second)
    assert found[0].output_tokens == 3
    assert found[1].prompt.messages[1] == {"role": "assistant", "content": "It is."}


@pytest.mark.parametrize(
    "first",
    [
        _turn("resp_1", [SAID], input="Is it open?", store=False),
        _turn("resp_1", None, input="Is it open?"),
        _turn("resp_9", [SAID], input="Is it open?"),
        {"model": "m", "instructions": "Be brief.", "input": "Is it open?"},
    ],
)
def test_a_response_that_is_not_in_the_log_with_its_output_cant_be_gone_on_from(
    first: dict[str, Any],
) -> None:
    second = _turn("resp_2", [], previous_response_id="resp_1", input="Ok")
    assert _read(first, second)[1] == "its previous response is not in the log"


def test_a_response_that_was_not_done_when_logged_cant_be_gone_on_from() -> None:
    first = _turn("resp_1", [], input="Is it open?")
    first["response"]["status"] = "in_progress"
    second = _turn("resp_2", [], previous_response_id="resp_1", input="Ok")
    assert _read(first, second)[1] == "its previous response is not in the log"


def test_responses_that_name_each_other_end_nowhere() -> None:
    first = _turn("resp_1", [SAID], previous_response_id="resp_2", input="x")
    second = _turn("resp_2", [SAID], previous_response_id="resp_1", input="y")
    assert _read(first, second, first) == ["its previous response is not in the log"] * 3


def test_a_response_told_twice_counts_once() -> None:
    first = _turn("resp_1", [SAID], input="Is it open?")
    second = _turn("resp_2", [], previous_response_id="resp_1", input="Ok")
    assert len(_read(first, first, second)[2].prompt.messages) == 3


def test_only_so_much_is_kept_of_earlier_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_responses, "_KEPT_CHARACTERS", 4000)
    lines = [_turn(f"resp_{n}", [], input="x" * 1000) for n in range(3)]
    asks = [_turn("new", [], previous_response_id=f"resp_{n}", input="y") for n in range(3)]
    found = _read(*lines, *asks)[3:]
    assert found[0] == "its previous response is not in the log"
    assert [len(record.prompt.messages) for record in found[1:]] == [2, 2]


@pytest.mark.parametrize("reference", [{"type": "item_reference", "id": "msg_1"}, {"id": "msg_1"}])
def test_a_reference_stands_for_the_item_of_an_earlier_response(reference: dict[str, str]) -> None:
    first = _turn("resp_1", [SAID], input="Is it open?")
    second = _turn("resp_2", [], input=[ASK, reference, {"role": "user", "content": "Ok"}])
    assert _read(first, second)[1].prompt.messages == [
        ASK,
        {"role": "assistant", "content": "It is."},
        {"role": "user", "content": "Ok"},
    ]
    assert _read(second) == ["an item that it refers to is not in the log"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"input": ""}, "the prompt is empty"),
        ({"input": []}, "the prompt is empty"),
        ({"input": ["Hello"]}, "its input is neither text nor items"),
        ({"input": [{"role": 5, "content": "x"}]}, "a message has no role"),
        ({"input": [{"role": "user", "content": 5}]}, "a content is neither text nor parts"),
        ({"input": [{"role": "user", "content": [5]}]}, "a content is neither text nor parts"),
        ({"input": "x", "tools": {}}, "tools is not a list"),
        ({"input": "x", "conversation": "conv_1"}, "its conversation is not in the log"),
        ({"input": "x", "conversation": {"id": "c"}}, "its conversation is not in the log"),
        ({"input": "x", "prompt": {"id": "pmpt_1"}}, "its prompt template is not in the log"),
        (
            {"input": "x", "previous_response_id": {"id": "r"}},
            "its previous response is not in the log",
        ),
    ],
)
def test_a_body_whose_context_is_not_there_is_a_bad_line(body: dict[str, Any], reason: str) -> None:
    assert _read({"store": True} | body) == [reason]


@pytest.mark.parametrize(
    "line",
    [
        {"model": "e", "input": "embed me"},
        {"model": "e", "input": ["embed", "me"], "encoding_format": "float"},
        {"model": "m", "input": [{"role": "user"}], "messages": []},
        {"input": 5, "instructions": "x"},
        {"instructions": "x"},
        {"body": {"input": "x"}, "path": "/v1/embeddings"},
    ],
)
def test_embeddings_and_chats_are_not_taken_for_responses(line: dict[str, Any]) -> None:
    assert not FAMILY.recognises(line)


def test_the_path_tells_a_body_without_other_marks() -> None:
    line = {"path": "/v1/responses", "body": {"model": "m", "input": "x"}}
    assert [record.prompt for record in _read(line)] == [Chat([{"role": "user", "content": "x"}])]
    assert _read({"path": "/v1/responses/input_tokens", "body": {"input": "x", "store": 1}}) == [
        Skip("another endpoint than chat and completions")
    ]


def test_kept_values_go_when_they_are_taken_and_the_oldest_when_there_are_too_many() -> None:
    kept = Kept(2400)
    kept.add("a", {"n": 1})
    kept.add("b", "x" * 500)
    kept.add("a", 2)
    assert (kept.get("a"), kept.get("c"), "b" in kept) == ([{"n": 1}, 2], [], True)
    assert kept.take("a") == [{"n": 1}, 2]
    assert (kept.get("a"), "a" in kept) == ([], False)
    kept.add("c", "\ud83d" * 1000)
    assert ("b" in kept, kept.get("c")) == (False, ["\ud83d" * 1000])
    kept.add("d", "x" * 5000)
    assert not any(name in kept for name in "abcd")
