"""LMCache agent traces: the whole prompt as text in input, the answer in output."""

from collections.abc import Iterator
from typing import Any

from pipeline.logs.bodies import EMPTY, carried_of
from pipeline.logs.fields import moment, text_or_none
from pipeline.logs.records import BadLine, LogFamily, LogRecord

_FIELDS = frozenset({"timestamp", "input", "output", "session_id"})
_OTHERS = frozenset({"id", "trace_id", "type", "instructions", "messages", "body"})


def _recognises(line: Any) -> bool:
    return (
        isinstance(line, dict)
        and line.keys() >= _FIELDS
        and _OTHERS.isdisjoint(line)
        and isinstance(line["input"], str | None)
    )


def _read(line: dict[str, Any]) -> Iterator[LogRecord]:
    prompt, answer = line.get("input"), line.get("output")
    if not isinstance(prompt, str | None):
        raise BadLine("input is not text")
    if not prompt:
        raise BadLine(EMPTY)
    yield LogRecord(
        prompt=prompt,
        time=moment(line.get("timestamp")),
        carried=carried_of(line) | {"session_id": text_or_none(line.get("session_id"))},
        answer=answer if isinstance(answer, str) else None,
    )


FAMILY = LogFamily(
    name="lmcache",
    written_by="lmcache-agent-trace",
    mark="timestamp, input, output and session_id",
    recognises=_recognises,
    fields=("input",),
    reader=lambda: _read,
    relative_unit="us",
)
