"""LiteLLM's logs: call types, redacted and cut prompts, and its table of spend logs."""

import json
from typing import Any

import pytest

from pipeline.logs.families import litellm, litellm_spend
from pipeline.logs.records import BadLine, Chat, LogRecord, Skip

RULES = {"role": "system", "content": "Be brief."}
ASK = {"role": "user", "content": "Is it open?"}
TOOLS = [{"type": "function", "function": {"name": "look"}}]
NOTE = "Truncation is a DB storage safeguard. Full, untruncated data is logged elsewhere."
CUT = f"... (litellm_truncated skipped 900 chars. {NOTE}) ..."
CUT_REASON = "cut by the logger"
CACHED = Skip("answered from the gateway's own cache: no engine saw it")
OTHER_CALL = Skip("another call than chat, completions, responses and messages")


def _payload(**fields: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "call_type": "acompletion",
        "status": "success",
        "startTime": 1780300800.5,
        "completionStartTime": 1780300800.5842,
        "endTime": 1780300801.11,
        "model": "m",
        "prompt_tokens": 58,
        "completion_tokens": 4,
        "session_id": "s",
        "messages": [RULES, ASK],
        "model_parameters": {},
    } | fields


def _row(**fields: Any) -> dict[str, Any]:
    return {
        "request_id": "chatcmpl-1",
        "call_type": "acompletion",
        "spend": 0.0,
        "status": "success",
        "startTime": "2026-06-01 08:00:00.5",
        "completionStartTime": "2026-06-01 08:00:00.584",
        "endTime": "2026-06-01 08:00:01.11",
        "model": "hosted_vllm/m",
        "prompt_tokens": 58,
        "completion_tokens": 4,
        "session_id": "s",
        "messages": "{}",
        "response": "{}",
        "proxy_server_request": json.dumps({"model": "alias", "messages": [RULES, ASK]}),
    } | fields


def _read(line: dict[str, Any]) -> list[Any]:
    family = litellm_spend.FAMILY if "spend" in line else litellm.FAMILY
    other = litellm.FAMILY if "spend" in line else litellm_spend.FAMILY
    assert family.recognises(line)
    assert not other.recognises(line)
    return list(family.reader()(line))


def _record(line: dict[str, Any]) -> LogRecord:
    [record] = _read(line)
    assert isinstance(record, LogRecord)
    return record


def _carried(model: str, **known: str) -> dict[str, str | None]:
    return {"namespace": model, "model": model, "tenant": None, "session_id": "s"} | known


def test_a_payload_gives_prompt_times_and_usage() -> None:
    usage = {"prompt_tokens_details": {"cached_tokens": 32}}
    line = _payload(model_parameters={"tools": TOOLS}, response={"usage": usage}, end_user="u")
    assert _read(line) == [
        LogRecord(
            prompt=Chat([RULES, ASK], TOOLS),
            time=1780300800.5,
            request_id="chatcmpl-1",
            carried=_carried("m", tenant="u"),
            output_tokens=4,
            observed_cached_tokens=32,
            observed_ttft_ms=84.2,
        )
    ]


def test_a_row_of_spend_logs_gives_the_same_and_its_clock_is_utc() -> None:
    metadata = json.dumps({"usage_object": {"prompt_tokens_details": {"cached_tokens": 32}}})
    assert _read(_row(metadata=metadata, team_id="harbour")) == [
        LogRecord(
            prompt=Chat([RULES, ASK]),
            time="2026-06-01 08:00:00.5Z",
            request_id="chatcmpl-1",
            carried=_carried("hosted_vllm/m", tenant="harbour"),
            output_tokens=4,
            observed_cached_tokens=32,
            observed_ttft_ms=84.0,
        )
    ]


def test_a_row_exported_as_text_has_its_counts_too() -> None:
    record = _record(_row(prompt_tokens="58", completion_tokens="4", end_user=""))
    assert (record.output_tokens, record.carried["tenant"]) == (4, None)


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (1780300801.11, None),
        (None, None),
        (1780300800.0, None),
        ("soon", None),
        (1780300800.5, 0.0),
        (1780300800.75, 250.0),
    ],
)
def test_the_time_to_the_first_token_is_known_of_streamed_answers(
    first: object, expected: float | None
) -> None:
    assert _record(_payload(completionStartTime=first)).observed_ttft_ms == expected


@pytest.mark.parametrize(
    ("call", "fields", "prompt"),
    [
        ("completion", {}, Chat([RULES, ASK])),
        ("CallTypes.acompletion", {}, Chat([RULES, ASK])),
        ("acompletion", {"messages": json.dumps([RULES, ASK])}, Chat([RULES, ASK])),
        ("acompletion", {"messages": {"messages": [ASK]}}, Chat([ASK])),
        ("acompletion", {"messages": "Once"}, "Once"),
        ("text_completion", {"messages": "Once"}, "Once"),
        ("atext_completion", {"messages": [1, 2]}, [1, 2]),
        (
            "aresponses",
            {"messages": "Is it open?", "model_parameters": {"instructions": "Be brief."}},
            Chat([RULES, ASK]),
        ),
        (
            "anthropic_messages",
            {"model_parameters": {"tools": [{"name": "look", "input_schema": {}}]}},
            Chat(
                [RULES, ASK],
                [{"type": "function", "function": {"name": "look", "parameters": {}}}],
            ),
        ),
    ],
)
def test_the_call_type_says_what_the_messages_are(
    call: str, fields: dict[str, Any], prompt: object
) -> None:
    assert _record(_payload(call_type=call, **fields)).prompt == prompt


def test_several_prompts_of_a_call_share_its_usage_so_nobody_has_it() -> None:
    records = _read(_payload(call_type="text_completion", messages=["Once", "Twice"]))
    assert [record.prompt for record in records] == ["Once", "Twice"]
    assert [record.output_tokens for record in records] == [None, None]


@pytest.mark.parametrize("call", ["aembedding", "arerank", "pass_through_endpoint", "", None, 5])
def test_other_calls_are_skipped(call: object) -> None:
    assert _read(_payload(call_type=call)) == [OTHER_CALL]
    assert _read(_row(call_type=call, proxy_server_request="{}")) == [OTHER_CALL]


@pytest.mark.parametrize(
    ("hit", "skipped"),
    [(True, True), ("True", True), (False, False), ("False", False), (None, False), ("", False)],
)
def test_an_answer_from_the_gateways_cache_reached_no_engine(hit: object, skipped: bool) -> None:
    for line in (_payload(cache_hit=hit), _row(cache_hit=hit)):
        assert (_read(line) == [CACHED]) is skipped


def test_a_failed_call_of_which_nothing_was_computed_failed() -> None:
    nothing = {"prompt_tokens": 0, "completion_tokens": 0}
    assert _record(_payload(status="failure", **nothing)).failed
    assert not _record(_payload(status="failure")).failed
    assert not _record(_payload(status="failure", prompt_tokens=0)).failed
    assert not _record(_payload(**nothing)).failed


def test_a_row_keeps_its_prompt_in_the_request_or_in_messages() -> None:
    wrapped = {"url": "/chat", "body": {"messages": [RULES, ASK]}}
    assert _record(_row(proxy_server_request=wrapped)).prompt == Chat([RULES, ASK])
    row = _row(proxy_server_request="{}", messages=json.dumps([RULES, ASK]))
    assert _record(row).prompt == Chat([RULES, ASK])
    row = _row(call_type="aresponses", proxy_server_request=None, messages="Is it open?")
    assert _record(row).prompt == Chat([ASK])


@pytest.mark.parametrize("nothing", ["{}", {}, None, ""])
def test_a_row_without_a_prompt_names_the_setting(nothing: object) -> None:
    with pytest.raises(BadLine, match="store_prompts_in_spend_logs is off"):
        _read(_row(proxy_server_request=nothing, messages=nothing))


@pytest.mark.parametrize(
    "messages", ["redacted-by-litellm", [{"role": "user", "content": "redacted-by-litellm"}]]
)
def test_a_redacted_prompt_is_a_bad_line(messages: object) -> None:
    with pytest.raises(BadLine, match="its prompt was redacted by LiteLLM"):
        _read(_payload(messages=messages))


@pytest.mark.parametrize("messages", [None, [], "", {}])
def test_a_payload_without_a_prompt_is_a_bad_line(messages: object) -> None:
    with pytest.raises(BadLine, match="its prompt is not in the log"):
        _read(_payload(messages=messages))


def _cut(messages: list[Any], **more: Any) -> LogRecord:
    request = {"messages": messages} | more
    record = _record(_row(proxy_server_request=json.dumps(request)))
    assert (record.cut, record.length) == (True, 58)
    return record


def test_of_a_cut_prompt_what_stands_before_the_cut_is_kept() -> None:
    long = {"role": "system", "content": f"Be br{CUT}ief."}
    assert _cut([long, ASK]).prompt == Chat([{"role": "system", "content": "Be br"}])
    assert _cut([long, ASK], tools=TOOLS).prompt == Chat(
        [{"role": "system", "content": "Be br"}], TOOLS
    )
    later = {"role": "user", "content": f"{CUT}open?"}
    assert _cut([RULES, ASK, later, long]).prompt == Chat([RULES, ASK])


def test_a_cut_in_a_part_keeps_the_parts_before_it() -> None:
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,AA{CUT}BB"}}
    parts = [image, {"type": "text", "text": "What "}, {"type": "text", "text": f"is{CUT}it?"}]
    record = _cut([RULES, {"role": "user", "content": parts}])
    kept = [image, {"type": "text", "text": "What "}, {"type": "text", "text": "is"}]
    assert record.prompt == Chat([RULES, {"role": "user", "content": kept}])


def test_an_image_that_was_cut_is_whole_enough_to_be_known() -> None:
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,AA{CUT}BB"}}
    request = {"messages": [{"role": "user", "content": [image]}]}
    record = _record(_row(proxy_server_request=request))
    assert (record.prompt, record.cut) == (Chat(request["messages"]), False)


def test_a_cut_among_calls_or_thoughts_ends_the_prompt_before_their_message() -> None:
    function = {"name": "write", "arguments": f'{{"text": "{CUT}"}}'}
    calls = {"role": "assistant", "content": None, "tool_calls": [{"function": function}]}
    assert _cut([RULES, ASK, calls, ASK]).prompt == Chat([RULES, ASK])
    thought = {"role": "assistant", "content": "Yes.", "reasoning_content": f"Hm{CUT}"}
    assert _cut([RULES, ASK, thought]).prompt == Chat([RULES, ASK])


def test_a_cut_among_tools_ends_the_prompt_behind_the_system_message() -> None:
    tools = [{"type": "function", "function": {"name": "look", "description": f"Loo{CUT}"}}]
    assert _cut([RULES, ASK], tools=tools).prompt == Chat([RULES])
    with pytest.raises(BadLine, match=CUT_REASON):
        _cut([ASK], tools=tools)


def test_a_cut_text_is_its_head() -> None:
    row = _row(call_type="text_completion", proxy_server_request={"prompt": f"Once {CUT}upon"})
    record = _record(row)
    assert (record.prompt, record.cut, record.length) == ("Once ", True, 58)
    record = _record(_payload(messages="[{'role': ...truncated by litellm, this logger does not"))
    assert (record.prompt, record.cut) == ("[{'role': ", True)


def test_a_prompt_cut_at_its_begin_is_a_bad_line() -> None:
    with pytest.raises(BadLine, match=CUT_REASON):
        _cut([{"role": "system", "content": f"{CUT}ief."}, ASK])
    with pytest.raises(BadLine, match=CUT_REASON):
        _read(_row(call_type="text_completion", proxy_server_request={"prompt": CUT}))
