"""JSON access logs: when a request came, which lines are none, and whose body is missing."""

import json
from functools import partial
from typing import Any

import pytest
from family_reading import read_lines

from pipeline.logs.families.access_log import FAMILY
from pipeline.logs.records import BadLine, Chat, LogRecord, Skip

HELLO = [{"role": "user", "content": "Hello"}]
CHAT = json.dumps({"model": "m", "messages": HELLO})
CARRIED = {"namespace": "m", "model": "m", "tenant": None, "session_id": None}


_read = partial(read_lines, FAMILY)


def _nginx(**fields: Any) -> dict[str, Any]:
    return {
        "msec": "1780300801.110",
        "request_id": "n",
        "request_method": "POST",
        "request_uri": "/v1/chat/completions",
        "status": 200,
        "request_time": 0.61,
        "request_body": CHAT,
    } | fields


def _envoy(**fields: Any) -> dict[str, Any]:
    return {
        "start_time": "2026-06-01T08:00:00.500Z",
        "method": "POST",
        "path": "/v1/chat/completions",
        "response_code": 200,
        "response_flags": "-",
        "duration": 610,
        "x_request_id": "e",
        "request_body": CHAT,
    } | fields


def test_nginx_writes_at_the_end_of_a_request() -> None:
    expected = LogRecord(Chat(HELLO), 1780300800.5, "n", CARRIED)
    assert _read(_nginx()) == [expected]
    assert _read(_nginx(msec=1780300801.11, request_time="0.610", status="200")) == [expected]


def test_envoy_knows_the_start() -> None:
    assert _read(_envoy()) == [LogRecord(Chat(HELLO), "2026-06-01T08:00:00.500Z", "e", CARRIED)]


@pytest.mark.parametrize(
    ("fields", "time"),
    [
        ({"time_iso8601": "2026-06-01T10:00:01+02:00"}, "2026-06-01T10:00:00.390000+02:00"),
        ({"time_local": "01/Jun/2026:10:00:01 +0200"}, "2026-06-01T10:00:00.390000+02:00"),
        ({"msec": "1780300801.110", "time_iso8601": "2026-06-01T10:00:01+02:00"}, 1780300800.5),
        ({"msec": "1780300801.110", "request_time": "-"}, "1780300801.110"),
        ({"msec": "soon"}, "soon"),
        ({"msec": [1]}, None),
        ({}, None),
    ],
)
def test_other_forms_of_time_go_back_by_the_duration_too(
    fields: dict[str, Any], time: object
) -> None:
    line = {k: v for k, v in _nginx().items() if k != "msec"} | fields
    assert _read(line)[0].time == time


def test_method_and_path_may_be_one_field() -> None:
    line = {k: v for k, v in _nginx().items() if k not in ("request_method", "request_uri")}
    body = json.dumps({"model": "m", "prompt": "Once"})
    asked = line | {"request": "POST /v1/completions HTTP/1.1", "request_body": body}
    assert [record.prompt for record in _read(asked)] == ["Once"]
    health = [Skip("health check or other path")]
    assert _read(line | {"request": "GET /health HTTP/1.1"}) == health
    assert _read(line | {"request": "/health"}) == health


@pytest.mark.parametrize(
    ("path", "body", "prompt"),
    [
        ("/v1/completions", {"prompt": [1, 2]}, [1, 2]),
        ("/v1/responses", {"input": "Hello"}, Chat(HELLO)),
        ("/v1/messages", {"messages": HELLO, "max_tokens": 5}, Chat(HELLO)),
        ("/tenant-a/v1/chat/completions?x=1", {"messages": HELLO}, Chat(HELLO)),
    ],
)
def test_the_path_says_what_the_body_is(path: str, body: dict[str, Any], prompt: object) -> None:
    for line in (_nginx(request_uri=path), _envoy(path=path)):
        [record] = _read(line | {"request_body": json.dumps(body)})
        assert record.prompt == prompt


def test_a_body_may_be_an_object_and_a_response_logged_beside_it() -> None:
    usage = {"completion_tokens": 4, "prompt_tokens": 9}
    line = _envoy(request_body=json.loads(CHAT), response_body=json.dumps({"usage": usage}))
    [record] = _read(line | {"response_code": 502})
    assert (record.prompt, record.output_tokens, record.failed) == (Chat(HELLO), 4, False)


def test_attempts_of_one_request_keep_their_id_and_the_refused_one_failed() -> None:
    first, second = _envoy(response_code=503, response_flags="UF,URX"), _envoy()
    assert [(r.request_id, r.failed) for r in _read(first)] == [("e", True)]
    assert [(r.request_id, r.failed) for r in _read(second)] == [("e", False)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (_nginx(request_uri="/health"), "health check or other path"),
        (_nginx(request_uri="/v1/responses/resp_1", request_method="GET"), "health check or other"),
        (_envoy(path="/v1/embeddings"), "another endpoint than chat and completions"),
    ],
)
def test_lines_that_ask_for_no_answer_are_skipped(line: dict[str, Any], reason: str) -> None:
    [skip] = _read(line | {"request_body": ""})
    assert isinstance(skip, Skip)
    assert skip.reason.startswith(reason)


@pytest.mark.parametrize("body", ["", "-", None])
def test_a_body_that_was_spooled_or_never_logged_is_missing(body: object) -> None:
    with pytest.raises(BadLine, match="the request body is not in the log"):
        _read(_nginx(request_body=body))
    line = {k: v for k, v in _envoy().items() if k != "request_body"}
    with pytest.raises(BadLine, match="the request body is not in the log"):
        _read(line)


@pytest.mark.parametrize("body", [CHAT[:40], "a=1&b=2", "[1]", 7, [1]])
def test_a_body_that_is_not_whole_is_a_bad_line(body: object) -> None:
    with pytest.raises(BadLine, match="the request body is no JSON, or not all of it"):
        _read(_nginx(request_body=body))


def test_a_gateways_line_is_no_access_log() -> None:
    for line in (
        {"timestamp": 1, "path": "/v1/completions", "status": 200, "request_body": {"prompt": "x"}},
        {"start_time": 1, "body": {"prompt": "x"}},
        {"request": {"prompt": "x"}},
        "text",
    ):
        assert not FAMILY.recognises(line)
