"""OpenAI Batch files: requests, and the responses to them, which add to those of the same id."""

from collections.abc import Iterator
from typing import Any

from pipeline.logs.bodies import failed, other_path, usage_of
from pipeline.logs.envelopes import Envelope, answer_of, prompts_in, records_of, response_of
from pipeline.logs.fields import mapping, text_or_none
from pipeline.logs.records import BadLine, LogFamily, LogRecord, Skip


def _recognises(line: Any) -> bool:
    if not isinstance(line, dict) or "custom_id" not in line:
        return False
    return ("url" in line and "body" in line) or ("response" in line and "error" in line)


def _read(line: dict[str, Any]) -> Iterator[LogRecord | Skip]:
    """Yield what a line asks or answers; when a batch's requests were taken up, no file says."""
    request_id = text_or_none(line.get("custom_id"))
    if "url" not in line:
        yield _answer(line, request_id)
        return
    if reason := other_path(line["url"]):
        yield Skip(reason)
        return
    body = mapping(line.get("body"))
    if not body:
        raise BadLine("no prompt in a known form")
    envelope = Envelope(line, body, {}, request_id=request_id)
    yield from records_of(envelope, prompts_in(body, line["url"]))


def _answer(line: dict[str, Any], request_id: str | None) -> LogRecord:
    response = mapping(line.get("response"))
    body = response_of(response)
    usage = usage_of(body)
    return LogRecord(
        prompt=None,
        request_id=request_id,
        output_tokens=usage.output_tokens,
        answer=answer_of(body) if usage.output_tokens is not None else None,
        observed_cached_tokens=usage.cached_tokens,
        again=True,
        failed=not response or failed(response.get("status_code"), usage),
    )


FAMILY = LogFamily(
    name="openai-batch",
    written_by="OpenAI Batch, vLLM run-batch: input files, and output files beside them",
    mark="custom_id with url and body, or with response and error",
    recognises=_recognises,
    fields=("custom_id",),
    reader=lambda: _read,
)
