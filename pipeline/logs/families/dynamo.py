"""Dynamo request traces, version 1: request_end records with rolling hashes of their blocks."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pipeline.logs.bodies import carried_of
from pipeline.logs.fields import (
    block_record,
    count_or_none,
    mapping,
    moment,
    number_or_none,
    text_or_none,
    whole_number,
)
from pipeline.logs.records import BadLine, LogFamily, LogRecord, Skip

_SCHEMA = "dynamo.request.trace."
_VERSION = "v1"
_LARGEST_BLOCK = 1 << 20


def _record_of(line: Any) -> dict[str, Any] | None:
    """Return a trace record, bare or from around it."""
    if not isinstance(line, dict):
        return None
    record = line.get("event") if isinstance(line.get("event"), dict) else line
    schema = record.get("schema") if isinstance(record, dict) else None
    return record if isinstance(schema, str) and schema.startswith(_SCHEMA) else None


def _recognises(line: Any) -> bool:
    return _record_of(line) is not None


def _read(line: dict[str, Any]) -> Iterator[LogRecord | Skip]:
    record = _record_of(line) or {}
    if record.get("schema") != _SCHEMA + _VERSION:
        raise BadLine("a Dynamo request trace of another version")
    kind = record.get("event_type")
    if kind != "request_end":
        is_tool = isinstance(kind, str) and kind.startswith("tool")
        yield Skip("tool event" if is_tool else "not the end of a request")
        return
    request, context = mapping(record.get("request")), mapping(record.get("agent_context"))
    replay = mapping(request.get("replay"))
    size = replay.get("trace_block_size")
    block_tokens = whole_number(size, "trace_block_size", at_most=_LARGEST_BLOCK)
    if not block_tokens:
        raise BadLine("no blocks: it has no replay with a trace_block_size")
    hashes, tokens = replay.get("input_sequence_hashes"), replay.get("input_length")
    yield replace(
        block_record(hashes, tokens, block_tokens),
        time=_received(record, request),
        request_id=text_or_none(request.get("request_id")),
        carried=carried_of(request) | {"session_id": text_or_none(context.get("session_id"))},
        output_tokens=count_or_none(request.get("output_tokens")),
        observed_cached_tokens=count_or_none(request.get("cached_tokens")),
        observed_ttft_ms=number_or_none(request.get("ttft_ms")),
    )


def _received(record: dict[str, Any], request: dict[str, Any]) -> float | str | None:
    """Return when a request came: as it says, else its end less what it took."""
    received = moment(request.get("request_received_ms"))
    end = number_or_none(record.get("event_time_unix_ms"))
    took = number_or_none(request.get("total_time_ms"))
    if received is not None or end is None or took is None:
        return received
    return end - took


FAMILY = LogFamily(
    name="dynamo",
    written_by="NVIDIA Dynamo: request trace, version 1",
    mark=f"schema {_SCHEMA}{_VERSION}, at the top or in event",
    recognises=_recognises,
    fields=("schema", "event"),
    reader=lambda: _read,
    relative_unit="ms",
)
