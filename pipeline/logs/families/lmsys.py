"""LMSYS-Chat-1M: conversations of role and content, with a conversation_id."""

from collections.abc import Iterator
from typing import Any

from pipeline.logs.bodies import carried_of
from pipeline.logs.fields import text_or_none
from pipeline.logs.records import LogFamily, LogRecord, Skip
from pipeline.logs.turns import requests_of


def _recognises(line: Any) -> bool:
    return (
        isinstance(line, dict)
        and "conversation_id" in line
        and isinstance(line.get("conversation"), list)
    )


def _read(line: dict[str, Any]) -> Iterator[LogRecord | Skip]:
    name = text_or_none(line["conversation_id"])
    carried = carried_of(line) | {"session_id": name}
    return requests_of(line["conversation"], name, carried, open_end=True)


FAMILY = LogFamily(
    name="lmsys",
    written_by="LMSYS-Chat-1M",
    mark="conversation_id and conversation",
    recognises=_recognises,
    fields=("conversation_id",),
    reader=lambda: _read,
)
