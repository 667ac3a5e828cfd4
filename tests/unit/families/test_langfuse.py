"""Langfuse observations: of its API and of its blob export, with inputs of any form."""

import json
from functools import partial
from typing import Any

import pytest
from family_reading import one_record, read_lines

from pipeline.logs.families.langfuse import FAMILY
from pipeline.logs.records import BadLine, Chat, LogRecord, Skip

RULES = {"role": "system", "content": "Be brief."}
ASK = {"role": "user", "content": "Is it open?"}
TOOLS = [{"type": "function", "function": {"name": "look"}}]
NO_GENERATION = Skip("an observation that is no generation")


def _api(**fields: Any) -> dict[str, Any]:
    return {
        "id": "g",
        "traceId": "t",
        "type": "GENERATION",
        "startTime": "2026-06-01T08:00:00.500Z",
        "completionStartTime": "2026-06-01T08:00:00.584Z",
        "model": "m",
        "input": [RULES, ASK],
        "usageDetails": {"input": 10, "output": 4, "total": 14},
        "sessionId": "s",
        "userId": "u",
    } | fields


def _blob(**fields: Any) -> dict[str, Any]:
    return {
        "id": "g",
        "trace_id": "t",
        "type": "GENERATION",
        "start_time": "2026-06-01 08:00:00.500000",
        "completion_start_time": "2026-06-01 08:00:00.584000",
        "provided_model_name": "m",
        "input": json.dumps([RULES, ASK]),
        "usage_details": {"input": 10, "output": 4, "total": 14},
        "session_id": "s",
        "user_id": "u",
    } | fields


_read = partial(read_lines, FAMILY)


_record = partial(one_record, FAMILY)


def _expected(time: str) -> LogRecord:
    return LogRecord(
        prompt=Chat([RULES, ASK]),
        time=time,
        request_id="g",
        carried={"namespace": "m", "model": "m", "tenant": "u", "session_id": "s"},
        output_tokens=4,
        observed_ttft_ms=84.0,
    )


def test_both_forms_of_an_observation_say_the_same() -> None:
    assert _read(_api()) == [_expected("2026-06-01T08:00:00.500Z")]
    assert _read(_blob()) == [_expected("2026-06-01 08:00:00.500000Z")]
    line = _api(providedModelName="m", model=None)
    assert _read(line) == [_expected("2026-06-01T08:00:00.500Z")]


@pytest.mark.parametrize("kind", ["SPAN", "EVENT", "TOOL", "EMBEDDING", "AGENT"])
def test_only_generations_are_requests(kind: str) -> None:
    assert _read(_api(type=kind)) == [NO_GENERATION]
    assert _read(_blob(type=kind, input=None)) == [NO_GENERATION]


def test_a_page_of_the_api_holds_many_and_a_bad_one_costs_no_other() -> None:
    found = _read({"data": [_api(), _api(type="SPAN"), _api(input=None), _api()], "meta": {}})
    assert [found[0], found[1], found[3]] == [
        _expected("2026-06-01T08:00:00.500Z"),
        NO_GENERATION,
        _expected("2026-06-01T08:00:00.500Z"),
    ]
    assert isinstance(found[2], BadLine)


@pytest.mark.parametrize(
    ("said", "prompt"),
    [
        ({"messages": [RULES, ASK], "tools": TOOLS}, Chat([RULES, ASK], TOOLS)),
        ({"prompt": "Once"}, "Once"),
        ({"instructions": "Be brief.", "input": "Is it open?"}, Chat([RULES, ASK])),
        ({"messages": [ASK], "system": "Be brief.", "max_tokens": 5}, Chat([RULES, ASK])),
        ("Once", "Once"),
        ("[cut", "[cut"),
        ([{"role": "user", "parts": [{"type": "text", "content": "Is it open?"}]}], Chat([ASK])),
    ],
)
def test_an_input_may_be_a_body_messages_or_a_text(said: Any, prompt: object) -> None:
    assert _record(_api(input=said)).prompt == prompt
    text = said if isinstance(said, str) else json.dumps(said)
    assert _record(_blob(input=text)).prompt == prompt


def test_tools_may_stand_among_the_models_parameters() -> None:
    assert _record(_api(modelParameters={"tools": TOOLS})).prompt == Chat([RULES, ASK], TOOLS)
    parameters = json.dumps({"tools": json.dumps(TOOLS)})
    assert _record(_blob(model_parameters=parameters)).prompt == Chat([RULES, ASK], TOOLS)


@pytest.mark.parametrize(
    ("usage", "output", "cached"),
    [
        ({"output": 3, "output_reasoning_tokens": 5, "input_cached_tokens": 8}, 8, 8),
        ({"output": 0, "input_cache_read": 2}, 0, 2),
        ({"completion_tokens": 6, "cache_read_input_tokens": 0}, 6, 0),
        ({"output": "many"}, None, None),
        ('{"output": 7}', 7, None),
        ([], None, None),
    ],
)
def test_tokens_of_an_answer_are_counted_by_kind(
    usage: object, output: int | None, cached: int | None
) -> None:
    record = _record(_api(usageDetails=usage))
    assert (record.output_tokens, record.observed_cached_tokens) == (output, cached)


def test_older_observations_count_in_usage() -> None:
    line = _api(usage={"input": 1, "output": 9})
    del line["usageDetails"]
    assert _record(line).output_tokens == 9


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        ({"role": "assistant", "content": "Yes."}, "Yes."),
        ('{"role": "assistant", "content": "Yes."}', "Yes."),
        ("Yes.", "Yes."),
        ({"choices": [{"message": {"content": "Yes."}}]}, "Yes."),
        (None, None),
        ([1], None),
    ],
)
def test_an_answer_is_kept_whether_or_not_its_tokens_were_counted(
    output: object, answer: str | None
) -> None:
    assert _record(_api(output=output, usageDetails={})).answer == answer
    assert _record(_api(output=output)).answer == answer


def test_the_time_to_the_first_token_may_be_given_in_seconds() -> None:
    line = _api(completionStartTime=None, timeToFirstToken=0.0842)
    assert _record(line).observed_ttft_ms == 84.2
    assert _record(_api(completionStartTime=None)).observed_ttft_ms is None


def test_a_generation_that_ended_in_an_error_without_output_failed() -> None:
    assert _record(_api(level="ERROR", usageDetails={})).failed
    assert not _record(_api(level="ERROR")).failed
    assert not _record(_api(level="DEFAULT", usageDetails={})).failed


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (None, "its prompt is not in the log"),
        ("", "the prompt is empty"),
        ([], "the prompt is empty"),
        ({}, "the prompt is empty"),
        (7, "the prompt is empty"),
        ([7], "a message has no role"),
        ({"query": "x"}, "no prompt in a known form"),
        ("<truncated due to size exceeding limit of 999>", "cut by the logger"),
        ({"prompt": ["Once", "Twice"]}, "several prompts in one generation"),
    ],
)
def test_an_input_that_is_no_prompt_is_a_bad_line(said: object, reason: str) -> None:
    with pytest.raises(BadLine, match=reason):
        _read(_api(input=said))


def test_lines_that_are_no_observations_are_of_other_families() -> None:
    for line in (
        {"type": "GENERATION", "traceId": "t"},
        {"type": "MESSAGE", "traceId": "t", "startTime": 1},
        {"type": ["SPAN"], "traceId": "t", "startTime": 1},
        {"data": []},
        {"data": [{"session_id": "s", "payloads": []}]},
        {"data": "x"},
        "text",
    ):
        assert not FAMILY.recognises(line)
