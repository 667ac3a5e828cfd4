"""What gateways log around a request's body: its time, ids and status, and the response."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from pipeline.logs.bodies import carried_of, failed, numbered, prompts_of, usage_of
from pipeline.logs.clocks import duration_ms
from pipeline.logs.fields import first_of, inner_json, mapping, moment, text_or_none
from pipeline.logs.items import is_responses, responses_chat
from pipeline.logs.messages import anthropic_chat, is_anthropic
from pipeline.logs.records import LogRecord, Prompt

_BODIES = ("body", "request", "request_body")
_RESPONSES = ("response", "response_body")
_TIMES = ("timestamp", "time", "ts", "start_time", "started_at", "created_at")
_IDS = ("request_id", "x_request_id", "id")
_STATUSES = ("status", "status_code", "response_code")
_PATHS = ("path", "url", "uri", "endpoint")
_TTFTS = ("ttft_ms", "time_to_first_token_ms")


class Envelope(NamedTuple):
    """A request and what its line says of it.

    line      the whole line: it may hold tenant, session_id, model and namespace
    body      what was asked; the line itself if there is no envelope
    response  what was answered, {} if it isn't logged
    """

    line: dict[str, Any]
    body: dict[str, Any]
    response: dict[str, Any]
    time: float | str | None = None
    request_id: str | None = None
    status: Any = None
    path: Any = None
    ttft_ms: float | None = None


def is_access_log(line: dict[str, Any]) -> bool:
    """Tell whether a line is of an access log: of nginx, or of Envoy."""
    return _is_access_log(tuple(line))


@lru_cache(maxsize=256)
def _is_access_log(names: tuple[str, ...]) -> bool:
    nginx = any(name in names for name in ("msec", "request_time", "time_iso8601", "time_local"))
    if nginx and any(name in names for name in ("request_uri", "uri", "request")):
        return True
    return "start_time" in names and any(n in names for n in ("response_code", "response_flags"))


def has_envelope(line: dict[str, Any]) -> bool:
    """Tell whether a line is a gateway's: it has a place for the body, be it empty."""
    return any(name in line for name in _BODIES) and not _is_foreign(line)


def _is_foreign(line: dict[str, Any]) -> bool:
    """Tell whether a line is of a batch or an access log, whose own families read it."""
    return "custom_id" in line or is_access_log(line)


def body_of(line: dict[str, Any]) -> dict[str, Any]:
    """Return the body that a gateway's line holds, as object or text; else the line itself."""
    if _is_foreign(line):
        return {}
    for name in _BODIES:
        body = _parsed(line.get(name))
        if isinstance(body, dict):
            inner = _parsed(body.get("body"))
            return inner if isinstance(inner, dict) else body
    return line


def path_of(line: dict[str, Any]) -> Any:
    """Return the path that a request went to, None if it isn't logged."""
    request = line.get("request")
    path = first_of(line, *_PATHS)
    return first_of(request, *_PATHS) if path is None and isinstance(request, dict) else path


def opened(line: dict[str, Any]) -> Envelope:
    """Return the request of a line, with or without an envelope.

    A line without any field for a time came when its response says that it was begun.
    """
    answer = first_of(line, *_RESPONSES)
    response = response_of(answer)
    status = first_of(line, *_STATUSES)
    if status is None and isinstance(answer, dict):
        status = first_of(answer, *_STATUSES)
    time = first_of(line, *_TIMES)
    if not any(name in line for name in _TIMES):
        time = first_of(response, "created_at", "created")
    return Envelope(
        line=line,
        body=body_of(line),
        response=response,
        time=moment(time),
        request_id=text_or_none(first_of(line, *_IDS)) or text_or_none(response.get("id")),
        status=status,
        path=path_of(line),
        ttft_ms=duration_ms(first_of(line, *_TTFTS)),
    )


def prompts_in(body: dict[str, Any], path: object = None) -> list[Prompt]:
    """Return the prompts of a body of any API: the one of the path, else as the body looks."""
    if goes_to(path, "responses") or is_responses(body):
        return [responses_chat(body)]
    if goes_to(path, "messages") or is_anthropic(body):
        return [anthropic_chat(body)]
    return prompts_of(body)


def goes_to(path: object, endpoint: str) -> bool:
    """Tell whether a path ends in an endpoint's name."""
    return isinstance(path, str) and path.split("?")[0].rstrip("/").endswith(f"/{endpoint}")


def records_of(envelope: Envelope, prompts: list[Prompt]) -> Iterator[LogRecord]:
    """Yield the requests that one body asked for: of several, nobody knows who used what."""
    usage, alone = usage_of(envelope.response), len(prompts) == 1
    answer = answer_of(envelope.response)
    for number, prompt in enumerate(prompts):
        yield LogRecord(
            prompt=prompt,
            time=envelope.time,
            request_id=numbered(envelope.request_id, number, len(prompts)),
            carried=carried_of(envelope.body, envelope.line),
            output_tokens=usage.output_tokens if alone else None,
            answer=answer if alone else None,
            observed_cached_tokens=usage.cached_tokens if alone else None,
            observed_ttft_ms=envelope.ttft_ms,
            failed=failed(envelope.status, usage),
        )


def response_of(value: object) -> dict[str, Any]:
    """Return a response's body, {} if there is none; of a streamed one, what its events report."""
    value = inner_json(value)
    if isinstance(value, str):
        return _gathered([mapping(line[5:].strip()) for line in _reporting(value)])
    if isinstance(value, list):
        return _gathered(value)
    if not isinstance(value, dict):
        return {}
    return response_of(value["body"]) if "body" in value else value


def _reporting(text: str) -> list[str]:
    """Return the lines of server-sent events that say what was used."""
    return [line for line in text.splitlines() if line.startswith("data:") and '"usage"' in line]


def _gathered(events: list[Any]) -> dict[str, Any]:
    """Return what events report: chunks, messages (Anthropic) or whole responses."""
    gathered: dict[str, Any] = {}
    usage: dict[str, Any] = {}
    for event in events:
        if not isinstance(event, dict):
            continue
        for report in (event, mapping(event.get("message")), mapping(event.get("response"))):
            used = mapping(report.get("usage"))
            usage |= {name: count for name, count in used.items() if count is not None}
            names = ("id", "created", "created_at", "output", "status")
            gathered |= {name: report[name] for name in names if report.get(name) is not None}
    return gathered | ({"usage": usage} if usage else {})


def answer_of(response: dict[str, Any]) -> str | None:
    """Return the text of all that was answered, None if it isn't there."""
    texts: list[Any] = []
    for choice in _objects(response.get("choices")):
        texts += [choice.get("text"), mapping(choice.get("message")).get("content")]
    texts += [block.get("text") for block in _objects(response.get("content"))]
    return "".join(text for text in texts if isinstance(text, str)) or None


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _parsed(body: object) -> Any:
    return _parsed_text(body) if isinstance(body, str) else body


@lru_cache(maxsize=1)
def _parsed_text(text: str) -> Any:
    """Return a text's JSON; kept, as each family that is asked about a line looks into it."""
    return inner_json(text)
