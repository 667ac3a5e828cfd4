"""OpenTelemetry's spans and events: OTLP JSON with many of them, or one as a plain object."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from pipeline.logs.clocks import utc
from pipeline.logs.fields import first_of, mapping, text_or_none

_GROUPS = ("resourceSpans", "resourceLogs", "resourceMetrics")
_STARTS = ("startTimeUnixNano", "start_time", "startTime", "start_time_unix_nano")
_TIMES = ("timeUnixNano", "observedTimeUnixNano", "timestamp", "time", "observed_timestamp")
_IDS = ("spanId", "span_id", "traceId", "trace_id", "context")
_FAILED = ("2", "ERROR", "STATUS_CODE_ERROR", "StatusCode.ERROR")


class Entry(NamedTuple):
    """A span, or an event of one.

    time    when the span began, or the event was
    span    id of the span
    body    of an event
    events  of a span that holds its events itself
    """

    is_span: bool
    name: str
    time: float | str | None
    span: str | None
    attributes: dict[str, Any]
    body: Any = None
    events: tuple["Entry", ...] = ()
    failed: bool = False


def is_otlp(line: dict[str, Any]) -> bool:
    """Tell whether an object is a span or an event, or holds many."""
    if any(isinstance(line.get(name), list) for name in _GROUPS):
        return True
    attributes = isinstance(line.get("attributes"), dict | list)
    return attributes and any(name in line for name in _IDS)


def entries_of(line: dict[str, Any]) -> Iterator[Entry]:
    """Yield the spans and events of an object, in order."""
    if not any(isinstance(line.get(name), list) for name in _GROUPS):
        yield _entry(line)
        return
    places = (("resourceSpans", "scopeSpans", "spans"), ("resourceLogs", "scopeLogs", "logRecords"))
    for resources, scopes, entries in places:
        for resource in _objects(line.get(resources)):
            for scope in _objects(resource.get(scopes)):
                yield from map(_entry, _objects(scope.get(entries)))


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _entry(entry: dict[str, Any]) -> Entry:
    attributes = _attributes(entry.get("attributes"))
    span = text_or_none(first_of(entry, "spanId", "span_id"))
    span = span or text_or_none(mapping(entry.get("context")).get("span_id"))
    start = first_of(entry, *_STARTS)
    is_span = start is not None
    name = (
        first_of(entry, "name") if is_span else first_of(entry, "eventName", "event_name", "name")
    )
    return Entry(
        is_span=is_span,
        name=str(name or attributes.get("event.name") or ""),
        time=utc(start if is_span else first_of(entry, *_TIMES)),
        span=span,
        attributes=attributes,
        body=_plain(entry.get("body")),
        events=tuple(map(_entry, _objects(entry.get("events")))),
        failed=_failed(entry.get("status")),
    )


def _failed(status: object) -> bool:
    if isinstance(status, dict):
        status = first_of(status, "code", "status_code")
    return str(status) in _FAILED


def _attributes(value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    return {
        item["key"]: _plain(item.get("value"))
        for item in _objects(value)
        if isinstance(item.get("key"), str)
    }


def _plain(value: Any) -> Any:
    """Return a value of OTLP, which names its type, as what it is; any other as it is."""
    if not isinstance(value, dict) or len(value) != 1:
        return value
    [(kind, content)] = value.items()
    if kind == "intValue":
        return int(content) if str(content).isdecimal() else None
    if kind == "arrayValue":
        values = mapping(content).get("values")
        return [_plain(item) for item in values] if isinstance(values, list) else []
    if kind == "kvlistValue":
        return _attributes(mapping(content).get("values"))
    return content if kind in ("stringValue", "boolValue", "doubleValue", "bytesValue") else value
