"""Conversations to requests: each answer of a model is one, with all messages before it."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from pipeline.logs.records import BadLine, Chat, LogRecord, Skip

LONGEST = 5_000
"""Messages of a conversation; the prompts of its requests grow with their square."""

NO_TURNS = "a conversation without turns"
NO_PROMPT = "an answer without a prompt"
_KEPT = ("role", "content", "name", "reasoning_content", "tool_calls", "tool_call_id")
_TEXTS = ("reasoning_content", "content")


def _no_time(_: dict[str, Any]) -> None:
    """Tell that nothing says when a message was written."""


def requests_of(
    messages: object,
    name: str | None,
    carried: dict[str, str | None],
    *,
    begin: int = 0,
    open_end: bool = False,
    time: Callable[[dict[str, Any]], float | str | None] = _no_time,
) -> Iterator[LogRecord | Skip]:
    """Yield the requests of a conversation, named after it and counted from 0.

    Messages before `begin` are an example, not answers of this model. With `open_end` a last
    message of the user is a request too. `time` gets the answer, or the user's message if there
    is none. BadLine for messages that aren't in the OpenAI form.
    """
    said = _checked(messages)
    cleaned = [{key: message[key] for key in _KEPT if key in message} for message in said]
    ends = _ends(said, begin, open_end=open_end)
    if not ends:
        yield Skip(NO_TURNS)
    number = 0
    for end in ends:
        prompt, answer = cleaned[:end], said[end] if end < len(said) else None
        if not any(map(_says, prompt)):
            yield Skip(NO_PROMPT)
            continue
        yield LogRecord(
            prompt=Chat(prompt),
            time=time(answer or said[-1]),
            request_id=None if name is None else f"{name}-{number}",
            carried=carried,
            answer=answer_text(answer) if answer else None,
        )
        number += 1


def answer_text(message: dict[str, Any]) -> str:
    """Return what a model wrote for a message: its thoughts, its text and its tool calls."""
    written = []
    for part in (message.get(key) for key in _TEXTS):
        if isinstance(part, str):
            written.append(part)
        elif isinstance(part, list):
            written += [p["text"] for p in part if isinstance(p, dict) and _is_text(p.get("text"))]
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            written += [_as_text(function.get("name")), _as_text(function.get("arguments"))]
    return "\n".join(filter(None, written))


def _ends(said: list[dict[str, Any]], begin: int, *, open_end: bool) -> list[int]:
    """Return how many messages the prompt of each request has."""
    ends = [at for at in range(begin, len(said)) if said[at]["role"] == "assistant"]
    if open_end and said and said[-1]["role"] == "user":
        ends.append(len(said))
    return ends


def _checked(messages: object) -> list[dict[str, Any]]:
    if not isinstance(messages, list):
        raise BadLine("a conversation is not a list of messages")
    if len(messages) > LONGEST:
        raise BadLine(f"more than {LONGEST} messages in a conversation")
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadLine("a message has no role")
        if not isinstance(message.get("content"), str | list | None):
            raise BadLine("a message's content is neither text nor parts")
    return messages


def _says(message: dict[str, Any]) -> bool:
    return bool(message.get("content") or message.get("tool_calls"))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
