"""OpenAI Batch files: what a line asks, and what a line of the output adds to it."""

from functools import partial
from typing import Any

import pytest
from family_reading import read_lines

from pipeline.logs.families.openai_batch import FAMILY
from pipeline.logs.records import BadLine, Chat, LogRecord, Skip

HELLO = [{"role": "user", "content": "Hello"}]
USAGE = {"completion_tokens": 5, "prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}}


_read = partial(read_lines, FAMILY)


def _ask(url: object, body: object) -> dict[str, Any]:
    return {"custom_id": "j-1", "method": "POST", "url": url, "body": body}


def _answer(response: object, error: object = None) -> dict[str, Any]:
    return {"id": "b-1", "custom_id": "j-1", "response": response, "error": error}


@pytest.mark.parametrize(
    ("url", "body", "prompt"),
    [
        ("/v1/chat/completions", {"messages": HELLO}, Chat(HELLO)),
        (
            "/v1/chat/completions",
            '{"messages": [{"role": "user", "content": "Hello"}]}',
            Chat(HELLO),
        ),
        ("/v1/completions", {"prompt": "Once"}, "Once"),
        ("/v1/responses", {"input": "Hello"}, Chat(HELLO)),
        (None, {"prompt": [1, 2]}, [1, 2]),
    ],
)
def test_a_line_of_the_input_is_a_request_of_its_url(url: object, body: Any, prompt: Any) -> None:
    carried = {"namespace": None, "model": None, "tenant": None, "session_id": None}
    assert _read(_ask(url, body)) == [LogRecord(prompt, request_id="j-1", carried=carried)]


def test_several_prompts_of_a_line_have_ids_of_their_own() -> None:
    records = _read(_ask("/v1/completions", {"prompt": ["a", "b"]}))
    assert [record.request_id for record in records] == ["j-1-0", "j-1-1"]


def test_what_needs_no_generation_is_skipped() -> None:
    other = [Skip("another endpoint than chat and completions")]
    assert _read(_ask("/v1/embeddings", {"input": "x"})) == other
    assert _read(_ask("/v1/moderations", {"input": "x"})) == other


def test_a_line_of_the_output_adds_what_was_used_to_the_request_of_its_id() -> None:
    response = {"status_code": 200, "request_id": "r", "body": {"id": "c", "usage": USAGE}}
    assert _read(_answer(response)) == [
        LogRecord(None, request_id="j-1", output_tokens=5, observed_cached_tokens=4, again=True)
    ]


@pytest.mark.parametrize(
    ("response", "failed"),
    [
        (None, True),
        ({"status_code": 400, "body": {"error": {"message": "no"}}}, True),
        ({"status_code": 500, "body": {"usage": USAGE}}, False),
        ({"status_code": 200, "body": {"usage": None}}, False),
        ("odd", True),
    ],
)
def test_a_request_that_was_not_taken_up_failed(response: object, failed: bool) -> None:
    [record] = _read(_answer(response, {"code": "batch_expired"}))
    assert (record.prompt, record.again, record.failed) == (None, True, failed)


@pytest.mark.parametrize("body", [None, {}, "cut {", [1], {"model": "m"}])
def test_a_line_without_a_body_is_a_bad_line(body: object) -> None:
    with pytest.raises(BadLine, match="no prompt in a known form"):
        _read(_ask("/v1/chat/completions", body))


def test_a_response_that_it_goes_on_from_is_not_in_a_batch() -> None:
    with pytest.raises(BadLine, match="its previous response is not in the log"):
        _read(_ask("/v1/responses", {"input": "x", "previous_response_id": "resp_1"}))


def test_other_lines_with_an_id_of_the_users_are_no_batch() -> None:
    for line in (
        {"custom_id": 1},
        {"custom_id": 1, "params": {}},
        {"url": "/", "body": {}},
        "text",
    ):
        assert not FAMILY.recognises(line)
