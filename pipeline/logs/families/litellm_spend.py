"""Rows of LiteLLM's table of spend logs, which has prompts only if it is told to keep them."""

from collections.abc import Iterator
from typing import Any

from pipeline.logs.families.litellm import body_of_call, path_of, read_call
from pipeline.logs.fields import mapping
from pipeline.logs.records import BadLine, LogFamily, LogRecord, Skip

_OFF = "its prompt is not in the log: store_prompts_in_spend_logs is off"


def _recognises(line: Any) -> bool:
    if not isinstance(line, dict):
        return False
    return all(name in line for name in ("request_id", "call_type", "startTime"))


def _read(line: dict[str, Any]) -> Iterator[LogRecord | Skip]:
    body = mapping(line.get("proxy_server_request"))
    body = mapping(body.get("body")) or body or body_of_call(line)
    if not body and path_of(line) is not None:
        raise BadLine(_OFF)
    yield from read_call(line, body)


FAMILY = LogFamily(
    name="litellm-spend",
    written_by="LiteLLM: rows of LiteLLM_SpendLogs",
    mark="request_id, call_type and startTime",
    recognises=_recognises,
    fields=("call_type",),
    reader=lambda: _read,
)
