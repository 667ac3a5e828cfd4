"""Chats for template tests, and a vocabulary that only has what templates ask for."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.logs.records import Chat
from pipeline.templates import ChatTemplate
from pipeline.vocabularies import Vocabulary

Message = dict[str, Any]

TOOL: Message = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Größe & <b>'quotes'</b>",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
SYSTEM: Message = {"role": "system", "content": "Be brief. "}
QUESTION: Message = {"role": "user", "content": "  Hello, 東京 \n"}
ANSWER: Message = {"role": "assistant", "content": "Hi"}
CALL: Message = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "look_up", "arguments": '{"city": "Zürich", "n": 3}'},
        }
    ],
}
RESULT: Message = {"role": "tool", "tool_call_id": "call_1", "content": '{"ok": true}'}
CHATS: Mapping[str, tuple[Sequence[Message], list[Message] | None]] = {
    "question": ([QUESTION], None),
    "system": ([SYSTEM, QUESTION], None),
    "turns": ([SYSTEM, QUESTION, ANSWER, QUESTION], None),
    "tools": ([QUESTION], [TOOL, TOOL]),
    "system and tools": ([SYSTEM, QUESTION, ANSWER, QUESTION], [TOOL]),
    "a call": ([QUESTION, CALL], [TOOL]),
    "a result": ([SYSTEM, QUESTION, CALL, RESULT], [TOOL]),
    "more after a result": ([QUESTION, CALL, RESULT, ANSWER, QUESTION], [TOOL]),
}


def chat(*messages: Message, tools: list[Message] | None = None, **settings: Any) -> Chat:
    return Chat(list(messages), tools, settings)


def template(source: str, tokens: Mapping[str, str] | None = None, **options: Any) -> ChatTemplate:
    return ChatTemplate(source, "mine", tokens, **options)


class NoEngine:
    """Stands where an engine would, for vocabularies that encode nothing."""

    def encode(self, texts: Sequence[str]) -> list[bytes | None]:
        raise AssertionError(texts)


def bare_vocabulary(
    name: str, tokens: Mapping[str, str] | None = None, folder: Path | None = None
) -> Vocabulary:
    return Vocabulary(
        name, "0" * 64, {}, {}, None, cuttable=True, engine=NoEngine(), tokens=tokens or {},
        folder=folder,
    )  # fmt: skip
