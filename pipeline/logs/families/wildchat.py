"""WildChat: conversations of role, content and timestamp, with a conversation_hash.

The timestamp of an answer is the only one there is: when the whole answer had come.
"""

from collections.abc import Iterator
from typing import Any

from pipeline.logs.bodies import carried_of
from pipeline.logs.fields import moment, text_or_none
from pipeline.logs.records import LogFamily, LogRecord, Skip
from pipeline.logs.turns import requests_of


def _recognises(line: Any) -> bool:
    return (
        isinstance(line, dict)
        and "conversation_hash" in line
        and isinstance(line.get("conversation"), list)
    )


def _read(line: dict[str, Any]) -> Iterator[LogRecord | Skip]:
    name = text_or_none(line["conversation_hash"])
    carried = carried_of(line) | {"session_id": name, "tenant": _tenant(line)}

    def written(message: dict[str, Any]) -> float | str | None:
        return moment(message.get("timestamp")) or moment(line.get("timestamp"))

    return requests_of(line["conversation"], name, carried, open_end=True, time=written)


def _tenant(line: dict[str, Any]) -> str | None:
    """Return the user's hashed address, which stands at the top or at what they said."""
    said = [message for message in line["conversation"] if isinstance(message, dict)]
    tenants = (text_or_none(holder.get("hashed_ip")) for holder in (line, *said))
    return next(filter(None, tenants), None)


FAMILY = LogFamily(
    name="wildchat",
    written_by="WildChat",
    mark="conversation_hash and conversation",
    recognises=_recognises,
    fields=("conversation_hash",),
    reader=lambda: _read,
)
