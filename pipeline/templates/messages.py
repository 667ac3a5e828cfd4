"""clean_messages: the messages of a chat in the shape that engines hand to a chat template."""

import json
from typing import Any

from pipeline.logs.records import BadLine
from pipeline.templates.content_form import ContentForm
from pipeline.templates.media import MediaTokens, marker

Message = dict[str, Any]
_REASONING = {"reasoning", "thinking"}
_BETWEEN_PARTS = "\n"
"""As vLLM joins the parts of a message for a template that wants one text."""


def with_objects(messages: list[Any]) -> list[Any]:
    """Return messages whose tool calls have their arguments as objects, where they are some."""
    return [_with_objects(message) for message in messages]


def are_clean(messages: list[Any], form: ContentForm) -> bool:
    """Tell whether messages are ready as they are, as most are: every field an ASCII text."""
    return not (form.parts and not form.texts) and all(
        type(message) is dict
        and _REASONING.isdisjoint(message)
        and set(map(type, message.values())) <= {str}
        and all(map(str.isascii, message.values()))
        and all(map(str.isascii, message))
        for message in messages
    )


def clean_messages(messages: list[Any], form: ContentForm, media: MediaTokens) -> list[Message]:
    """Return copies of messages; BadLine if one can't be shown to a template.

    Keys without a value are left out, and reasoning is found under either name.
    """
    return [_clean(message, form, media) for message in messages]


def _clean(message: Any, form: ContentForm, media: MediaTokens) -> Message:
    if not isinstance(message, dict):
        raise BadLine("one of its messages is no object")
    cleaned = {key: value for key, value in message.items() if value is not None}
    if "content" in cleaned:
        cleaned["content"] = _content(cleaned["content"], form, media)
    reasoning = cleaned.get("reasoning", cleaned.get("thinking"))
    if isinstance(reasoning, str):
        cleaned.setdefault("reasoning_content", reasoning)
    return cleaned


def _content(content: Any, form: ContentForm, media: MediaTokens) -> str | list[Message]:
    if isinstance(content, str):
        wrapped = form.parts and not form.texts
        return [{"type": "text", "text": content}] if wrapped else content
    if not isinstance(content, list):
        raise BadLine("the content of a message is neither text nor parts")
    texts = [_text(part, media) for part in content]
    if form.parts:
        return [{"type": "text", "text": text} for text in texts]
    return _BETWEEN_PARTS.join(texts)


def _text(part: Any, media: MediaTokens) -> str:
    """Return a part's text, or the marker of what is no text."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise BadLine("a part of a message is neither text nor an object")
    for key in ("text", "refusal"):
        text = part.get(key)
        if isinstance(text, str) and part.get("type", key) in _TEXT_TYPES:
            return text
    if part.get("type") in _TEXT_TYPES:
        raise BadLine("a text part of a message has no text")
    return marker(part, media)


_TEXT_TYPES = {"text", "refusal", "input_text", "output_text", "summary_text"}


def _with_objects(message: Any) -> Any:
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    if not isinstance(calls, list):
        return message
    return {**message, "tool_calls": [_with_object(call) for call in calls]}


def _with_object(call: Any) -> Any:
    """Return a tool call with its arguments as an object, if its text is one."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    arguments = function["arguments"]
    try:
        parsed = json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return call
    if not isinstance(parsed, dict):
        return call
    return {**call, "function": {**function, "arguments": parsed}}
