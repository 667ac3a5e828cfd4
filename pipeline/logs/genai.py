"""What OpenTelemetry's GenAI attributes and events say of a prompt, in the OpenAI form."""

import re
from collections.abc import Iterator
from typing import Any

from pipeline.logs.fields import first_of, inner_json, mapping
from pipeline.logs.messages import (
    Turn,
    content_of,
    text_part,
    tool_call,
    tool_result,
    tools_of,
)
from pipeline.logs.otlp import Entry
from pipeline.logs.records import BadLine

_INDEXED = re.compile(r"gen_ai\.prompt\.(\d{1,6})\.(role|content|tool_call_id)")
_CALLS = re.compile(r"gen_ai\.prompt\.(\d{1,6})\.tool_calls\.(\d{1,6})\.(id|name|arguments)")
_TOOLS = re.compile(r"llm\.request\.functions\.(\d{1,6})\.(name|description|parameters)")
_EVENT = re.compile(r"gen_ai\.(system|developer|user|assistant|tool)\.message")
_FIELDS = ("content", "tool_calls", "reasoning_content")


def prompt_messages(attributes: dict[str, Any]) -> str | list[dict[str, Any]] | None:
    """Return the prompt that attributes hold, as messages or a text; None if there is none."""
    if attributes.get("gen_ai.input.messages") is not None:
        said = _whole(attributes["gen_ai.input.messages"])
        system = system_messages(_whole(attributes.get("gen_ai.system_instructions")))
        if isinstance(said, str):
            said = [{"role": "user", "content": said}] if system else said
        return said if isinstance(said, str) else system + openai_messages(_list(said))
    if attributes.get("gen_ai.prompt") is not None:
        said = inner_json(attributes["gen_ai.prompt"])
        said = said.get("messages", said) if isinstance(said, dict) else said
        return said if isinstance(said, str) else openai_messages(_list(said))
    return _numbered_messages(attributes) or None


def tools_in(attributes: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return the tools that attributes hold."""
    if attributes.get("gen_ai.tool.definitions") is not None:
        return tools_of(_whole(attributes["gen_ai.tool.definitions"]))
    tools = _numbered(attributes, _TOOLS)
    for tool in tools:
        tool["parameters"] = inner_json(tool.get("parameters"))
    return tools_of(tools)


def answer_in(attributes: dict[str, Any]) -> str | None:
    """Return the text of an answer that attributes hold."""
    told = inner_json(attributes.get("gen_ai.output.messages"))
    if isinstance(told, list):
        contents = [message.get("content") for message in openai_messages(told)]
        return "".join(text for text in contents if isinstance(text, str)) or None
    text = first_of(attributes, "gen_ai.completion.0.content", "gen_ai.completion")
    return text if isinstance(text, str) else None


def said_in_event(event: Entry) -> dict[str, Any] | None:
    """Return the message of an event that tells one message of a prompt, None for other events."""
    match = _EVENT.fullmatch(event.name)
    if match is None:
        return None
    said = mapping(event.body) or mapping(event.attributes.get("gen_ai.event.content"))
    said = said or event.attributes
    role = said.get("role")
    message = {"role": role if isinstance(role, str) else match[1]}
    message |= {name: inner_json(said[name]) for name in _FIELDS if said.get(name) is not None}
    if match[1] == "tool" and said.get("id") is not None:
        message["tool_call_id"] = said["id"]
    return {"content": None} | message


def _whole(value: object) -> Any:
    """Return what an attribute's JSON says; BadLine if an exporter's limit cut it."""
    value = inner_json(value)
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        raise BadLine("cut by the logger")
    return value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _numbered(attributes: dict[str, Any], form: re.Pattern[str]) -> list[dict[str, Any]]:
    """Return the objects whose fields are attributes with a number in their name, in order."""
    found: dict[int, dict[str, Any]] = {}
    for name, value in attributes.items():
        if match := form.fullmatch(name):
            found.setdefault(int(match[1]), {})[match[match.re.groups]] = value
    return [found[number] for number in sorted(found)]


def _numbered_messages(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    calls: dict[int, dict[int, dict[str, Any]]] = {}
    for name, value in attributes.items():
        if match := _INDEXED.fullmatch(name):
            found.setdefault(int(match[1]), {})[match[2]] = value
        elif match := _CALLS.fullmatch(name):
            of_message = calls.setdefault(int(match[1]), {})
            of_message.setdefault(int(match[2]), {})[match[3]] = value
    messages = []
    for number in sorted(found.keys() | calls.keys()):
        message = {"role": "user", "content": None} | found.get(number, {})
        parts = inner_json(message["content"])
        if isinstance(parts, list) and all(isinstance(p, dict) and "type" in p for p in parts):
            message["content"] = content_of(parts)
        made = calls.get(number, {})
        if made:
            message["tool_calls"] = [
                tool_call(call.get("id"), call.get("name"), call.get("arguments"))
                for _, call in sorted(made.items())
            ]
        messages.append(message)
    return messages


def openai_messages(messages: list[Any]) -> list[dict[str, Any]]:
    """Return messages in the OpenAI form; those that have it already, as they are."""
    found: list[dict[str, Any]] = []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadLine("a message has no role")
        if isinstance(message.get("parts"), list) and "content" not in message:
            found += _messages(message["role"], message["parts"])
        else:
            found.append(message)
    return found


def system_messages(instructions: object) -> list[dict[str, Any]]:
    """Return system instructions, a text or parts, as the message that they are."""
    if isinstance(instructions, str):
        instructions = [text_part(instructions)]
    if not isinstance(instructions, list):
        return []
    return list(_messages("system", instructions))


def _messages(role: str, parts: list[Any]) -> Iterator[dict[str, Any]]:
    turn = Turn(role)
    for part in parts:
        if isinstance(part, str):
            turn.parts.append(text_part(part))
        elif isinstance(part, dict):
            _add(turn, part)
        else:
            raise BadLine("a content is neither text nor parts")
    yield from turn.messages()


def _add(turn: Turn, part: dict[str, Any]) -> None:
    kind, text = part.get("type"), first_of(part, "content", "text")
    if kind == "tool_call":
        turn.calls.append(tool_call(part.get("id"), part.get("name"), part.get("arguments")))
    elif kind == "tool_call_response":
        result = first_of(part, "response", "result", "content")
        turn.results.append(tool_result(part.get("id"), result))
    elif kind == "reasoning" and isinstance(text, str):
        turn.thought.append(text)
    elif kind == "text" and isinstance(text, str):
        turn.parts.append(text_part(text))
    else:
        turn.parts.append(part)
