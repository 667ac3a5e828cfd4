"""SageMaker data capture: plain or encoded data, and what an endpoint's containers take."""

import base64
import json
from functools import partial
from typing import Any

import pytest
from family_reading import read_lines

from pipeline.logs.families.sagemaker import FAMILY
from pipeline.logs.records import BadLine, Chat, LogRecord

HELLO = [{"role": "user", "content": "Hëllo"}]
SYSTEM = {"role": "system", "content": "x"}
NOTHING = {"namespace": None, "model": None, "tenant": None, "session_id": None}
ABOUT = {"eventId": "ev", "inferenceTime": "2026-06-01T08:00:01Z"}


def _side(data: Any, encoding: str) -> dict[str, Any]:
    text = data if isinstance(data, str) else json.dumps(data)
    if encoding == "BASE64":
        text = base64.b64encode(text.encode()).decode()
    return {"observedContentType": "application/json", "data": text, "encoding": encoding}


def _line(sent: object, answered: object = None) -> dict[str, Any]:
    captured = {"endpointInput": sent, "endpointOutput": answered}
    return {"captureData": captured, "eventMetadata": ABOUT, "eventVersion": "0"}


_read = partial(read_lines, FAMILY)


@pytest.mark.parametrize("encoding", ["JSON", "BASE64"])
def test_input_and_output_are_read_in_any_encoding(encoding: str) -> None:
    answered = {"usage": {"completion_tokens": 4}}
    line = _line(_side({"messages": HELLO}, encoding), _side(answered, encoding))
    assert _read(line) == [
        LogRecord(Chat(HELLO), "2026-06-01T08:00:01Z", "ev", NOTHING, output_tokens=4)
    ]


@pytest.mark.parametrize(
    ("body", "prompt"),
    [
        ({"inputs": "Once", "parameters": {"max_new_tokens": 4}}, "Once"),
        ({"prompt": "Once"}, "Once"),
        ({"instructions": "x", "input": HELLO}, Chat([SYSTEM, *HELLO])),
        ({"max_tokens": 5, "system": "x", "messages": HELLO}, Chat([SYSTEM, *HELLO])),
    ],
)
def test_a_body_may_be_of_any_api(body: dict[str, Any], prompt: object) -> None:
    [record] = _read(_line(_side(body, "JSON")))
    assert record.prompt == prompt


@pytest.mark.parametrize("answered", [None, {}, {"data": "!", "encoding": "BASE64"}, "odd"])
def test_an_output_that_cant_be_read_costs_no_request(answered: object) -> None:
    [record] = _read(_line(_side({"prompt": "x"}, "JSON"), answered))
    assert (record.prompt, record.output_tokens) == ("x", None)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (None, "the request body is not in the log"),
        ({"encoding": "JSON"}, "the request body is not in the log"),
        ({"data": "", "encoding": "BASE64"}, "the request body is not in the log"),
        ({"data": "a,b,c", "encoding": "CSV"}, "the request body is no JSON, or not all of it"),
        ({"data": '{"prompt": "x', "encoding": "JSON"}, "the request body is no JSON, or not all"),
        ({"data": "eyJ", "encoding": "BASE64"}, "its data is no BASE64, or not all of it"),
        ({"data": "é", "encoding": "BASE64"}, "its data is no BASE64, or not all of it"),
        (_side({"inputs": ""}, "JSON"), "the prompt is empty"),
        (_side({"instances": [1]}, "JSON"), "no prompt in a known form"),
    ],
)
def test_an_input_that_is_no_prompt_is_a_bad_line(sent: object, reason: str) -> None:
    with pytest.raises(BadLine, match=reason):
        _read(_line(sent))


def test_a_line_needs_no_metadata() -> None:
    line = _line(_side({"prompt": "x"}, "JSON")) | {"eventMetadata": None}
    assert _read(line) == [LogRecord("x", carried=NOTHING)]
