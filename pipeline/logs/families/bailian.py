"""Bailian block traces: chats that follow on each other, hash_ids of 16-token blocks."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pipeline.logs.bodies import carried_of
from pipeline.logs.fields import block_record, count_or_none, moment, remember, text_or_none
from pipeline.logs.records import LogFamily, LogRecord

_BLOCK_TOKENS = 16
_CHATS = 1 << 18
_NO_PARENT = (None, "-1")


def _recognises(line: Any) -> bool:
    return isinstance(line, dict) and "chat_id" in line and "input_length" in line


class _Reader:
    """Reads lines, and keeps of each chat the first one of its chain, which is its session.

    A parent that isn't known, outside of the file or long ago, is taken for the first.
    """

    def __init__(self) -> None:
        self._first: dict[str, str] = {}

    def __call__(self, line: dict[str, Any]) -> Iterator[LogRecord]:
        chat, parent = (text_or_none(line.get(key)) for key in ("chat_id", "parent_chat_id"))
        session = chat if parent in _NO_PARENT else self._first.get(parent or "", parent)
        if chat is not None and session is not None:
            remember(self._first, chat, session, at_most=_CHATS)
        yield replace(
            block_record(line.get("hash_ids"), line.get("input_length"), _BLOCK_TOKENS),
            time=moment(line.get("timestamp")),
            request_id=chat,
            carried=carried_of(line, line) | {"session_id": session},
            output_tokens=count_or_none(line.get("output_length")),
        )


FAMILY = LogFamily(
    name="bailian",
    written_by="Alibaba Bailian: block traces of Qwen chats",
    mark="chat_id and input_length",
    recognises=_recognises,
    fields=("chat_id",),
    reader=_Reader,
    own_blocks=True,
)
