"""JSON access logs of nginx and Envoy that hold the request's body."""

from collections.abc import Iterator
from typing import Any

from pipeline.logs.bodies import other_path
from pipeline.logs.clocks import before, seconds_or_none
from pipeline.logs.envelopes import Envelope, is_access_log, prompts_in, records_of, response_of
from pipeline.logs.fields import first_of, inner_json, moment, text_or_none
from pipeline.logs.records import BadLine, LogFamily, LogRecord, Skip

_ENDS = ("msec", "time_iso8601", "time_local")
_NO_PROMPT = ("GET", "HEAD", "OPTIONS", "DELETE")
_IDS = ("request_id", "x_request_id", "http_x_request_id", "x-request-id")


def _recognises(line: Any) -> bool:
    return isinstance(line, dict) and is_access_log(line)


def _read(line: dict[str, Any]) -> Iterator[LogRecord | Skip]:
    method, path = _asked(line)
    if reason := other_path("/" if method in _NO_PROMPT else path):
        yield Skip(reason)
        return
    text = line.get("request_body")
    if text in (None, "", "-"):
        raise BadLine("the request body is not in the log")
    body = inner_json(text)
    if not isinstance(body, dict):
        raise BadLine("the request body is no JSON, or not all of it")
    envelope = Envelope(
        line,
        body,
        response_of(line.get("response_body")),
        time=_start(line),
        request_id=text_or_none(first_of(line, *_IDS)),
        status=first_of(line, "status", "response_code"),
    )
    yield from records_of(envelope, prompts_in(body, path))


def _asked(line: dict[str, Any]) -> tuple[Any, Any]:
    """Return method and path, which nginx also writes as one: POST /v1/completions HTTP/1.1."""
    method = first_of(line, "request_method", "method")
    path = first_of(line, "request_uri", "uri", "path")
    request = line.get("request")
    if path is None and isinstance(request, str):
        words = request.split()
        method, path = (words[0], words[1]) if len(words) > 1 else (method, request)
    return method, path


def _start(line: dict[str, Any]) -> float | str | None:
    """Return when a request came: nginx writes its line, and the time in it, at the end."""
    if line.get("start_time") is not None:
        return moment(line["start_time"])
    end = first_of(line, *_ENDS)
    took = seconds_or_none(line.get("request_time"))
    return moment(end) if took is None else before(end, took)


FAMILY = LogFamily(
    name="access-log",
    written_by="nginx, Envoy: JSON access logs with request_body",
    mark="request_uri with msec or request_time, or start_time with response_code",
    recognises=_recognises,
    fields=("msec", "request_time", "time_iso8601", "time_local", "start_time"),
    reader=lambda: _read,
)
