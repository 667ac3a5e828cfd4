"""Prompts that a logger cut in the middle: what stands before the cut is true."""

import json
from dataclasses import replace
from typing import Any

from pipeline.logs.messages import content_of, is_text, text_part
from pipeline.logs.records import Blocks, Chat, Prompt

_ELSEWHERE = ("reasoning_content", "tool_calls", "function_call", "name")


def head_of(prompt: Prompt, marks: tuple[str, ...]) -> tuple[Prompt | None, bool]:
    """Return what stands before the first mark of a cut, None for nothing, and if there is one."""
    if isinstance(prompt, str):
        head = _before(prompt, marks)
        return (prompt, False) if head is None else (head or None, True)
    if isinstance(prompt, list | Blocks):
        return prompt, False
    return _head_of_chat(prompt, marks)


def _head_of_chat(chat: Chat, marks: tuple[str, ...]) -> tuple[Chat | None, bool]:
    """Templates write tools behind a first system message, so cut tools end the prompt there."""
    if chat.tools and _holds(chat.tools, marks):
        system = [m for m in chat.messages[:1] if m.get("role") in ("system", "developer")]
        head, _ = _head_of_chat(Chat(system, None, chat.settings), marks)
        return head, True
    for number, message in enumerate(chat.messages):
        before = chat.messages[:number]
        content, cut = _head_of_content(message.get("content"), marks)
        if cut:
            kept = [*before, {**message, "content": content}] if content else before
            return (replace(chat, messages=kept) if kept else None), True
        if any(_holds(message.get(name), marks) for name in _ELSEWHERE):
            return (replace(chat, messages=before) if before else None), True
    return (chat if chat.messages else None), False


def _head_of_content(content: Any, marks: tuple[str, ...]) -> tuple[Any, bool]:
    """Only texts count: an image is known by what is left of it."""
    parts = [text_part(content)] if isinstance(content, str) else content
    if not isinstance(parts, list):
        return content, False
    for number, part in enumerate(parts):
        text = part if isinstance(part, str) else part["text"] if is_text(part) else ""
        head = _before(text, marks)
        if head is not None:
            return content_of([*parts[:number], *([text_part(head)] if head else [])]), True
    return content, False


def _before(text: str, marks: tuple[str, ...]) -> str | None:
    found = [at for mark in marks if (at := text.find(mark)) >= 0]
    return text[: min(found)] if found else None


def _holds(value: object, marks: tuple[str, ...]) -> bool:
    if value is None:
        return False
    text = json.dumps(value, ensure_ascii=False, default=str)
    return any(mark in text for mark in marks)
