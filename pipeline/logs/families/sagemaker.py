"""SageMaker data capture: what an endpoint was sent and what it answered."""

import base64
from collections.abc import Iterator
from typing import Any

from pipeline.logs.bodies import filled
from pipeline.logs.envelopes import Envelope, prompts_in, records_of, response_of
from pipeline.logs.fields import first_of, inner_json, mapping, moment, text_or_none
from pipeline.logs.records import BadLine, LogFamily, LogRecord, Prompt


def _recognises(line: Any) -> bool:
    return isinstance(line, dict) and isinstance(line.get("captureData"), dict)


def _read(line: dict[str, Any]) -> Iterator[LogRecord]:
    captured, about = mapping(line.get("captureData")), mapping(line.get("eventMetadata"))
    sent = _data(captured.get("endpointInput"))
    if sent is None:
        raise BadLine("the request body is not in the log")
    body = inner_json(sent)
    if not isinstance(body, dict):
        raise BadLine("the request body is no JSON, or not all of it")
    try:
        response = response_of(_data(captured.get("endpointOutput")))
    except BadLine:
        response = {}
    envelope = Envelope(
        line={},
        body=body,
        response=response,
        time=moment(about.get("inferenceTime")),
        request_id=text_or_none(first_of(about, "eventId", "inferenceId")),
    )
    yield from records_of(envelope, _prompts(body))


def _data(captured: object) -> Any:
    """Return what was captured on one side of the endpoint, None if nothing was."""
    side = mapping(captured)
    data = side.get("data")
    if side.get("encoding") != "BASE64" or not isinstance(data, str):
        return data or None
    try:
        return base64.b64decode(data, validate=True).decode("utf-8", "replace") or None
    except ValueError:
        raise BadLine("its data is no BASE64, or not all of it") from None


def _prompts(body: dict[str, Any]) -> list[Prompt]:
    """Return a body's prompts; containers of Hugging Face's form take a text as `inputs`."""
    if isinstance(body.get("inputs"), str):
        return [filled(body["inputs"])]
    return prompts_in(body)


FAMILY = LogFamily(
    name="sagemaker",
    written_by="Amazon SageMaker: data capture of an endpoint",
    mark="captureData",
    recognises=_recognises,
    fields=("captureData",),
    reader=lambda: _read,
)
