"""Log families: a line's object to the requests it holds, or the reason why there is none."""

from typing import Any

import pytest

from pipeline.logs import FAMILIES, mooncake, openai
from pipeline.logs.records import BadLine, Blocks, Chat, LogFamily, LogRecord

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
TOOLS = [{"type": "function", "function": {"name": "look"}}]
NOTHING = {"namespace": None, "model": None, "tenant": None, "session_id": None}


def _records(family: LogFamily, line: dict[str, Any]) -> list[LogRecord]:
    assert family.recognises(line)
    return list(family.read(line))


def _prompts(line: dict[str, Any]) -> list[Any]:
    return [record.prompt for record in _records(openai.FAMILY, line)]


def test_a_chat_body_is_one_request_of_messages_and_tools() -> None:
    assert _prompts({"messages": MESSAGES}) == [Chat(MESSAGES, None)]
    assert _prompts({"messages": MESSAGES, "tools": TOOLS}) == [Chat(MESSAGES, TOOLS)]
    assert _prompts({"messages": MESSAGES, "tools": []}) == [Chat(MESSAGES, None)]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("Hello", ["Hello"]),
        ("", [""]),
        ([5, 0, 2**32 - 1], [[5, 0, 2**32 - 1]]),
        (["Hello", "you"], ["Hello", "you"]),
        ([[1, 2], [3]], [[1, 2], [3]]),
        (["Hello", [1, 2]], ["Hello", [1, 2]]),
        ([[]], [[]]),
    ],
)
def test_a_completions_prompt_is_text_or_token_ids_or_several(
    prompt: object, expected: list[object]
) -> None:
    assert _prompts({"prompt": prompt}) == expected


def test_an_envelope_gives_time_ids_and_what_production_reported() -> None:
    usage = {"completion_tokens": 12, "prompt_tokens_details": {"cached_tokens": 7}}
    line = {
        "timestamp": "2026-03-01T10:00:00Z",
        "request_id": "req-1",
        "tenant": "shop",
        "session_id": 17,
        "namespace": "lora-a",
        "body": {"model": "m", "messages": MESSAGES, "user": "u", "cache_salt": "s"},
        "response": {"usage": usage},
    }
    [record] = _records(openai.FAMILY, line)
    assert record == LogRecord(
        prompt=Chat(MESSAGES),
        time="2026-03-01T10:00:00Z",
        request_id="req-1",
        carried={"namespace": "lora-a", "model": "m", "tenant": "shop", "session_id": "17"},
        output_tokens=12,
        observed_cached_tokens=7,
    )


def test_a_bare_body_may_hold_the_envelopes_fields_itself() -> None:
    line = {"prompt": [1], "timestamp": 3, "request_id": 4, "user": "u", "cache_salt": "s"}
    [record] = _records(openai.FAMILY, line)
    assert (record.time, record.request_id) == (3, "4")
    assert record.carried == NOTHING | {"tenant": "u", "namespace": "s"}


@pytest.mark.parametrize("response", [None, "text", {}, {"usage": None}, {"usage": []}])
def test_a_response_without_usage_reports_nothing(response: object) -> None:
    [record] = _records(openai.FAMILY, {"body": {"prompt": "x"}, "response": response})
    assert (record.output_tokens, record.observed_cached_tokens) == (None, None)


def test_several_prompts_of_one_request_have_ids_of_their_own() -> None:
    records = _records(openai.FAMILY, {"request_id": "r", "body": {"prompt": ["a", "b"]}})
    assert [record.request_id for record in records] == ["r-0", "r-1"]
    records = _records(openai.FAMILY, {"body": {"prompt": ["a", "b"]}})
    assert [record.request_id for record in records] == [None, None]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"messages": []}, "messages is empty"),
        ({"messages": None}, "messages is empty"),
        ({"messages": "Hello"}, "messages is empty"),
        ({"messages": ["Hello"]}, "a message has no role"),
        ({"messages": [{"content": "Hello"}]}, "a message has no role"),
        ({"messages": [{"role": 7, "content": "Hello"}]}, "a message has no role"),
        ({"messages": MESSAGES, "tools": {"name": "look"}}, "tools is not a list"),
        ({"prompt": None}, "prompt is empty"),
        ({"prompt": []}, "prompt is empty"),
        ({"prompt": 7}, "prompt is empty"),
        ({"prompt": {"text": "x"}}, "prompt is empty"),
        ({"prompt": [1, "two"]}, "neither text nor token ids"),
        ({"prompt": [1, 2.5]}, "neither text nor token ids"),
        ({"prompt": [1, None]}, "neither text nor token ids"),
        ({"prompt": [1, -2]}, "not a whole number below"),
        ({"prompt": [1, 2**32]}, "not a whole number below"),
        ({"prompt": [True, 2]}, "not a whole number below"),
        ({"prompt": [[1, 2], [3, "four"]]}, "not a whole number below"),
    ],
)
def test_a_body_without_a_usable_prompt_is_a_bad_line(body: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadLine, match=reason):
        _records(openai.FAMILY, {"body": body})


@pytest.mark.parametrize("count", [-1, 1.5, "12", True, 2**32])
def test_a_count_that_is_no_count_is_a_bad_line(count: object) -> None:
    line = {"body": {"prompt": "x"}, "response": {"usage": {"completion_tokens": count}}}
    with pytest.raises(BadLine, match="completion_tokens is not a whole number"):
        _records(openai.FAMILY, line)


@pytest.mark.parametrize("line", [{}, {"body": "text"}, {"body": {}}, {"body": [1]}, {"text": 1}])
def test_an_object_without_a_prompt_belongs_to_no_family(line: dict[str, Any]) -> None:
    assert not any(family.recognises(line) for family in FAMILIES)


def _block_line(tokens: object, ids: object, **more: Any) -> dict[str, Any]:
    return {"timestamp": 5, "input_length": tokens, "output_length": 3, "hash_ids": ids} | more


@pytest.mark.parametrize("tokens", [1, 511, 512, 513, 1024, 1025])
def test_a_block_line_has_an_id_for_every_begun_block_of_512_tokens(tokens: int) -> None:
    ids = list(range((tokens + 511) // 512))
    [record] = _records(mooncake.FAMILY, _block_line(tokens, ids))
    assert record.prompt == Blocks(ids, tokens)
    assert (record.time, record.output_tokens) == (5, 3)
    for wrong in (ids[1:], [*ids, 99]):
        with pytest.raises(BadLine, match=rf"{tokens} tokens are {len(ids)} blocks of 512"):
            _records(mooncake.FAMILY, _block_line(tokens, wrong))


def test_a_block_line_may_have_no_tokens_and_ids_of_64_bits() -> None:
    assert _records(mooncake.FAMILY, _block_line(0, []))[0].prompt == Blocks([], 0)
    [record] = _records(mooncake.FAMILY, _block_line(1, [2**64 - 1], session_id="s"))
    assert record.prompt == Blocks([2**64 - 1], 1)
    assert record.carried == {"session_id": "s"}


@pytest.mark.parametrize(
    ("tokens", "ids", "reason"),
    [
        (None, [1], "input_length or hash_ids is missing"),
        (1, None, "input_length or hash_ids is missing"),
        (-1, [], "input_length is not a whole number"),
        (1.5, [1], "input_length is not a whole number"),
        (1, [None], "a hash id is null"),
        (1, [-1], "a hash id is not a whole number"),
        (1, [2**64], "a hash id is not a whole number"),
        (1, ["1"], "a hash id is not a whole number"),
    ],
)
def test_a_block_line_with_wrong_numbers_is_a_bad_line(
    tokens: object, ids: object, reason: str
) -> None:
    with pytest.raises(BadLine, match=reason):
        _records(mooncake.FAMILY, _block_line(tokens, ids))


def test_a_block_trace_says_how_its_blocks_are_counted() -> None:
    family = mooncake.FAMILY
    assert (family.time_unit, family.block_tokens, family.partial_block) == ("ms", 512, "ceil")
