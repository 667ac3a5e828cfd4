"""OpenTelemetry: spans and events of model calls, in OTLP or plain, in conventions old and new."""

import json
from typing import Any

import pytest

from pipeline.logs.families import otel
from pipeline.logs.families.otel import FAMILY
from pipeline.logs.records import BadLine, Chat, LogRecord, Skip

RULES = {"role": "system", "content": "Be brief."}
ASK = {"role": "user", "content": "Is it open?"}
CALLED = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 2}'}}
TOOL_SAYS = {"role": "tool", "tool_call_id": "c1", "content": "yes"}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
MESSAGES = [{"role": "user", "parts": [{"type": "text", "content": "Is it open?"}]}]
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
OTHER = Skip("a span or event that is no generation")
MESSAGE = Skip("a message of a request, told as an event of its own")
DETAILS = "gen_ai.client.inference.operation.details"


def _read(*lines: dict[str, Any]) -> list[Any]:
    """Read lines of one file; bad ones as their reason."""
    reader, found = FAMILY.reader(), []
    for line in lines:
        assert FAMILY.recognises(line)
        found += [str(what) if isinstance(what, BadLine) else what for what in reader(line)]
    return found


def _span(attributes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "trace_id": "t",
        "span_id": "s1",
        "name": "chat m",
        "start_time": "2026-06-01T08:00:00.5Z",
        "attributes": attributes,
    } | fields


def _event(name: str, attributes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    time = "2026-06-01T08:00:01Z"
    event = {"trace_id": "t", "span_id": "s1", "event_name": name, "timestamp": time}
    return event | {"attributes": attributes} | fields


def _prompt(attributes: dict[str, Any], **fields: Any) -> Any:
    [record] = _read(_span(CHAT | attributes, **fields))
    return record.prompt if isinstance(record, LogRecord) else record


def _typed(value: Any) -> dict[str, Any]:
    """Return a value as OTLP JSON writes it."""
    if isinstance(value, dict):
        fields = [{"key": key, "value": _typed(item)} for key, item in value.items()]
        return {"kvlistValue": {"values": fields}}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_typed(item) for item in value]}}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}


def _otlp(group: str, entries: list[dict[str, Any]]) -> dict[str, Any]:
    resources, scopes, name = {
        "spans": ("resourceSpans", "scopeSpans", "spans"),
        "logs": ("resourceLogs", "scopeLogs", "logRecords"),
    }[group]
    typed = [
        entry | {"attributes": _typed(entry["attributes"])["kvlistValue"]["values"]}
        for entry in entries
    ]
    return {resources: [{"resource": {}, scopes: [{"scope": {}, name: typed}]}]}


def test_a_span_gives_prompt_time_and_usage() -> None:
    attributes = CHAT | {
        "gen_ai.conversation.id": "desk",
        "user.id": "u",
        "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "Be brief."}]),
        "gen_ai.input.messages": json.dumps(MESSAGES),
        "gen_ai.tool.definitions": json.dumps([TOOL]),
        "gen_ai.usage.output_tokens": 4,
        "gen_ai.usage.cache_read.input_tokens": 32,
        "gen_ai.response.time_to_first_chunk": 0.0842,
    }
    assert _read(_span(attributes)) == [
        LogRecord(
            prompt=Chat([RULES, ASK], [TOOL]),
            time="2026-06-01T08:00:00.5Z",
            request_id="s1",
            carried={"namespace": "m", "model": "m", "tenant": "u", "session_id": "desk"},
            output_tokens=4,
            observed_cached_tokens=32,
            observed_ttft_ms=84.2,
        )
    ]


def test_otlp_names_the_types_of_its_values_and_holds_many_spans() -> None:
    attributes = CHAT | {"gen_ai.input.messages": MESSAGES, "gen_ai.usage.output_tokens": 4}
    spans = [
        {"spanId": "a", "startTimeUnixNano": "1780300800500000000", "attributes": attributes},
        {"spanId": "b", "startTimeUnixNano": "1780300800600000000", "attributes": {"db": "x"}},
        {
            "spanId": "c",
            "startTimeUnixNano": "1780300800700000000",
            "attributes": CHAT | {"gen_ai.input.messages": "[{cut"},
            "status": {"code": 2},
        },
        {"spanId": "d", "startTimeUnixNano": 1780300800800000000, "attributes": attributes},
    ]
    first, other, bad, last = _read(_otlp("spans", spans))
    assert (first.prompt, first.request_id, first.output_tokens) == (Chat([ASK]), "a", 4)
    assert (first.time, last.time) == ("1780300800500000000", 1780300800800000000)
    assert (other, bad, last.request_id) == (OTHER, "cut by the logger", "d")


def test_a_time_without_zone_is_utc() -> None:
    attributes = CHAT | {"gen_ai.input.messages": MESSAGES}
    for time in ("2026-06-01T08:00:00.5", "2026-06-01T08:00:00.5Z"):
        [record] = _read(_span(attributes, start_time=time))
        assert record.time == "2026-06-01T08:00:00.5Z"


def test_parts_of_a_message_take_the_form_of_chat_completions() -> None:
    blob = {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "AA"}
    messages = [
        {"role": "user", "parts": [{"type": "text", "content": "This?"}, blob]},
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "Look."},
                {"type": "text", "content": "Wait."},
                {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"at": 2}},
            ],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "yes"}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c2", "result": {"n": 1}}]},
        {"role": "user", "parts": ["Is it open?"]},
        {"role": "user", "parts": []},
    ]
    expected = [
        {"role": "user", "content": [{"type": "text", "text": "This?"}, blob]},
        {
            "role": "assistant",
            "content": "Wait.",
            "reasoning_content": "Look.",
            "tool_calls": [CALLED],
        },
        TOOL_SAYS,
        {"role": "tool", "tool_call_id": "c2", "content": '{"n": 1}'},
        ASK,
    ]
    assert _prompt({"gen_ai.input.messages": json.dumps(messages)}) == Chat(expected)


@pytest.mark.parametrize(
    ("attributes", "messages"),
    [
        ({"gen_ai.input.messages": json.dumps([RULES, ASK])}, [RULES, ASK]),
        ({"gen_ai.input.messages": [RULES, ASK]}, [RULES, ASK]),
        ({"gen_ai.input.messages": ASK}, [ASK]),
        ({"gen_ai.prompt": json.dumps([RULES, ASK])}, [RULES, ASK]),
        ({"gen_ai.prompt": json.dumps({"messages": [RULES, ASK]})}, [RULES, ASK]),
        (
            {"gen_ai.input.messages": "Is it open?", "gen_ai.system_instructions": "Be brief."},
            [RULES, ASK],
        ),
        (
            {
                "gen_ai.prompt.33.content": "Is it open?",
                "gen_ai.prompt.33.role": "user",
                "gen_ai.prompt.1.role": "system",
                "gen_ai.prompt.1.content": '[{"type": "text", "text": "Be brief."}]',
            },
            [RULES, ASK],
        ),
    ],
)
def test_messages_stand_in_attributes_of_several_conventions(
    attributes: dict[str, Any], messages: list[Any]
) -> None:
    assert _prompt(attributes) == Chat(messages)


def test_numbered_attributes_hold_calls_and_tools_and_are_in_the_order_of_their_numbers() -> None:
    turns = {f"gen_ai.prompt.{n}.{name}": text for n in range(11) for name, text in ASK.items()}
    attributes = turns | {
        "gen_ai.prompt.2.role": "assistant",
        "gen_ai.prompt.2.content": None,
        "gen_ai.prompt.2.tool_calls.0.id": "c1",
        "gen_ai.prompt.2.tool_calls.0.name": "look",
        "gen_ai.prompt.2.tool_calls.0.arguments": '{"at": 2}',
        "gen_ai.prompt.10.role": "tool",
        "gen_ai.prompt.10.content": "yes",
        "gen_ai.prompt.10.tool_call_id": "c1",
        "gen_ai.prompt.x.role": "nobody",
        "llm.request.functions.0.name": "look",
        "llm.request.functions.0.parameters": '{"type": "object"}',
    }
    called = {"role": "assistant", "content": None, "tool_calls": [CALLED]}
    expected = [ASK, ASK, called, *[ASK] * 7, TOOL_SAYS]
    assert _prompt(attributes) == Chat(expected, [TOOL])


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.operation.name": "text_completion", "gen_ai.input.messages": MESSAGES},
        {"gen_ai.operation.name": "text_completion", "gen_ai.prompt": "Is it open?"},
        {
            "llm.request.type": "completion",
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": "Is it open?",
        },
    ],
)
def test_a_text_completion_has_a_text(attributes: dict[str, Any]) -> None:
    [record] = _read(_span(attributes))
    assert record.prompt == "Is it open?"


def test_events_that_a_span_holds_tell_its_prompt() -> None:
    told = [
        {"name": "gen_ai.system.message", "attributes": {"content": "Be brief."}},
        {"name": "gen_ai.user.message", "attributes": {"gen_ai.event.content": json.dumps(ASK)}},
        {
            "name": "gen_ai.assistant.message",
            "attributes": {"tool_calls": json.dumps([CALLED])},
        },
        {"name": "gen_ai.tool.message", "attributes": {"id": "c1", "content": "yes"}},
        {"name": "gen_ai.choice", "attributes": {"message": "{}"}},
    ]
    called = {"role": "assistant", "content": None, "tool_calls": [CALLED]}
    assert _prompt({}, events=told) == Chat([RULES, ASK, called, TOOL_SAYS])
    old = [{"name": "gen_ai.content.prompt", "attributes": {"gen_ai.prompt": json.dumps([ASK])}}]
    assert _prompt({}, events=old) == Chat([ASK])
    new = [{"name": DETAILS, "attributes": {"gen_ai.input.messages": json.dumps(MESSAGES)}}]
    assert _prompt({}, events=new) == Chat([ASK])


def test_a_span_and_the_event_of_its_details_tell_of_one_request() -> None:
    span = _span(CHAT | {"gen_ai.usage.output_tokens": 4})
    event = _event(DETAILS, {"gen_ai.input.messages": MESSAGES})
    assert _read(span, event) == [
        LogRecord(
            None,
            time="2026-06-01T08:00:00.5Z",
            request_id="s1",
            carried={"namespace": "m", "model": "m", "tenant": None, "session_id": None},
            output_tokens=4,
            again=True,
        ),
        LogRecord(
            Chat([ASK]),
            time="2026-06-01T08:00:01Z",
            request_id="s1",
            carried=dict.fromkeys(("namespace", "model", "tenant", "session_id")),
            again=True,
        ),
    ]


def _told_one_by_one() -> list[dict[str, Any]]:
    """Return the messages of a request as log records of OTLP, each with a time of its own."""
    bodies = {
        "system": {"content": "Be brief."},
        "user": {"content": "Is it open?"},
        "assistant": {"tool_calls": [CALLED]},
        "tool": {"id": "c1", "content": "yes"},
    }
    records: list[dict[str, Any]] = [
        {"eventName": f"gen_ai.{role}.message", "body": _typed(body)}
        for role, body in bodies.items()
    ]
    records.append({"attributes": {"event.name": "gen_ai.choice"}, "body": _typed({"index": 0})})
    for number, record in enumerate(records):
        record |= {"spanId": "s1", "timeUnixNano": str(1780300800500000000 + number)}
        record["attributes"] = record.get("attributes", {}) | {"gen_ai.system": "openai"}
    return records


CALLED_MESSAGE = {"role": "assistant", "content": None, "tool_calls": [CALLED]}
TOLD = Chat([RULES, ASK, CALLED_MESSAGE, TOOL_SAYS])


def test_messages_told_one_by_one_are_a_request_once_it_is_answered() -> None:
    *skips, record = _read(_otlp("logs", _told_one_by_one()))
    assert skips == [MESSAGE] * 4
    assert (record.prompt, record.time) == (TOLD, "1780300800500000000")
    assert (record.request_id, record.again) == ("s1", True)
    one_by_one = [_otlp("logs", [event]) for event in _told_one_by_one()]
    assert _read(*one_by_one, one_by_one[-1]) == [*skips, record, OTHER]


def test_messages_told_one_by_one_are_those_of_a_span_that_ends_before_the_answer_is_told() -> None:
    *messages, choice = [_otlp("logs", [event]) for event in _told_one_by_one()]
    span = _span(CHAT | {"gen_ai.usage.output_tokens": 4})
    *skips, record, rest = _read(*messages, span, choice)
    assert (skips, rest) == ([MESSAGE] * 4, OTHER)
    assert (record.prompt, record.time) == (TOLD, "2026-06-01T08:00:00.5Z")
    assert (record.output_tokens, record.again) == (4, False)


def test_only_so_much_is_kept_of_messages_without_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(otel, "_KEPT_CHARACTERS", 2500)
    body = {"content": "x" * 1000}
    asked = [_event("gen_ai.user.message", CHAT, span_id=f"s{n}", body=body) for n in range(3)]
    chosen = [_event("gen_ai.choice", CHAT, span_id=f"s{n}") for n in range(3)]
    found = _read(*asked, *chosen)[3:]
    assert found[:2] == [OTHER, OTHER]
    assert found[2].request_id == "s2"


@pytest.mark.parametrize(
    ("attributes", "status", "failed"),
    [
        ({}, {"code": 2}, True),
        ({}, {"code": "STATUS_CODE_ERROR"}, True),
        ({}, {"status_code": "ERROR"}, True),
        ({}, {"code": 1}, False),
        ({}, {}, False),
        ({}, None, False),
        ({"gen_ai.usage.completion_tokens": 3}, {"code": 2}, False),
    ],
)
def test_a_span_with_an_error_and_without_output_failed(
    attributes: dict[str, Any], status: object, failed: bool
) -> None:
    attributes = CHAT | attributes | {"gen_ai.prompt": "x"}
    [record] = _read(_span(attributes, status=status))
    assert record.failed is failed


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.operation.name": "embeddings", "gen_ai.input.messages": MESSAGES},
        {"gen_ai.operation.name": "execute_tool"},
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.input.messages": MESSAGES},
        {"llm.request.type": "embedding", "gen_ai.request.model": "e"},
        {"traceloop.span.kind": "workflow", "gen_ai.system": "x"},
        {"http.request.method": "POST"},
        {},
    ],
)
def test_spans_of_anything_else_are_skipped(attributes: dict[str, Any]) -> None:
    assert _read(_span(attributes)) == [OTHER]


@pytest.mark.parametrize(
    "line",
    [
        {"resourceMetrics": []},
        {"resourceSpans": []},
        {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "up"}}]}]}]},
        {"resourceSpans": ["odd", {"scopeSpans": {"spans": 1}}]},
        _event("http.client", {"url": "x"}),
        _event("gen_ai.choice", CHAT),
    ],
)
def test_objects_without_a_generation_are_skipped(line: dict[str, Any]) -> None:
    assert set(_read(line)) == {OTHER}


def test_an_answer_is_kept_whether_or_not_its_tokens_were_counted() -> None:
    said = [{"role": "assistant", "parts": [{"type": "text", "content": "Yes."}]}]
    for output in (
        {"gen_ai.output.messages": json.dumps(said)},
        {"gen_ai.completion.0.content": "Yes."},
    ):
        attributes = CHAT | {"gen_ai.prompt": "x"} | output
        [record] = _read(_span(attributes))
        assert record.answer == "Yes."
        [record] = _read(_span(attributes | {"gen_ai.usage.output_tokens": 2}))
        assert record.answer == "Yes."


def test_an_answer_in_no_known_form_costs_no_request_whose_tokens_are_counted() -> None:
    attributes = CHAT | {"gen_ai.prompt": "x", "gen_ai.output.messages": "[{}]"}
    [record] = _read(_span(attributes | {"gen_ai.usage.output_tokens": 2}))
    assert (record.output_tokens, record.answer) == (2, None)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"gen_ai.input.messages": '[{"role": "user", "parts": [{"ty'}, "cut by the logger"),
        ({"gen_ai.prompt": "x", "gen_ai.tool.definitions": "[{"}, None),
        (
            {"gen_ai.prompt": json.dumps([ASK]), "gen_ai.tool.definitions": "[{"},
            "cut by the logger",
        ),
        ({"gen_ai.input.messages": "[]"}, "the prompt is empty"),
        ({"gen_ai.input.messages": ""}, "the prompt is empty"),
        ({"gen_ai.input.messages": [{"parts": []}]}, "a message has no role"),
        ({"gen_ai.input.messages": [{"role": "user", "parts": [7]}]}, "neither text nor parts"),
        ({"gen_ai.input.messages": 7}, "a message has no role"),
    ],
)
def test_a_prompt_that_cant_be_read_is_a_bad_line(
    attributes: dict[str, Any], reason: str | None
) -> None:
    [found] = _read(_span(CHAT | attributes))
    assert (found.prompt == "x") if reason is None else (reason in found)


def test_a_consoles_span_names_its_ids_in_its_context() -> None:
    span = _span(CHAT | {"gen_ai.prompt": "x"}, context={"trace_id": "0x1", "span_id": "0x2"})
    del span["trace_id"], span["span_id"]
    assert [record.request_id for record in _read(span)] == ["0x2"]


def test_objects_with_attributes_alone_are_no_spans() -> None:
    for line in ({"attributes": CHAT}, {"attributes": "x", "trace_id": "t"}, {"span_id": 1}, "x"):
        assert not FAMILY.recognises(line)
