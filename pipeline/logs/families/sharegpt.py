"""ShareGPT conversations: conversations of from (human, gpt, system …) and value."""

from collections.abc import Iterator
from typing import Any

from pipeline.logs.bodies import carried_of
from pipeline.logs.fields import text_or_none
from pipeline.logs.records import BadLine, LogFamily, LogRecord, Skip
from pipeline.logs.turns import requests_of

_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "model": "assistant",
    "function_call": "assistant",
    "system": "system",
    "tool": "tool",
    "function_response": "tool",
    "observation": "tool",
}


def _recognises(line: Any) -> bool:
    turns = line.get("conversations") if isinstance(line, dict) else None
    if not isinstance(turns, list):
        return False
    return not turns or (isinstance(turns[0], dict) and not {"from", "role"}.isdisjoint(turns[0]))


def _read(line: dict[str, Any]) -> Iterator[LogRecord | Skip]:
    name = text_or_none(line.get("id"))
    messages = [_message(turn) for turn in line["conversations"]]
    system = line.get("system")
    if isinstance(system, str) and system and messages and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": system})
    carried = carried_of(line) | {"session_id": name}
    return requests_of(messages, name, carried, open_end=True)


def _message(turn: Any) -> dict[str, Any]:
    said_by = turn.get("from", turn.get("role")) if isinstance(turn, dict) else None
    role = _ROLES.get(said_by) if isinstance(said_by, str) else None
    if role is None:
        raise BadLine("a message has an unknown role")
    return {"role": role, "content": turn.get("value", turn.get("content"))}


FAMILY = LogFamily(
    name="sharegpt",
    written_by="ShareGPT and data sets in its form",
    mark="conversations, each from and value",
    recognises=_recognises,
    fields=("conversations",),
    reader=lambda: _read,
)
